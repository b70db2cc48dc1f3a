"""What keeps a token before its node: locks, conditions, a pause; and what takes it away from there."""

from typing import Any

import pytest

from tests.support.simulated import approvals
from tests.support.tokens import (
    DONE,
    INNER,
    Slow,
    begin,
    control,
    ended,
    event,
    finish,
    pass_time,
    plan,
    rest,
    running,
    work,
)

# -- locks and conditions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [None, 1])
def test_a_lock_is_given_in_the_order_written(steps: int | None) -> None:
    nodes = {"fork": {"next": ["c", "a", "b"]}, "z": {"end": None}, **{key: work("z", mutex="m") for key in "abc"}}
    sim = begin(plan(nodes), steps_per_run=steps)
    order = []
    while len(order) < 3:
        (only,) = running(sim) or [""]
        if only:
            order.append(only)
        sim.step()
    assert order == ["c#1", "a#1", "b#1"]


def test_locks_of_other_names_do_not_hold_each_other_up() -> None:
    nodes = {"fork": {"next": ["a", "b"]}, "a": work("z", mutex="m"), "b": work("z", mutex="n"), "z": {"end": None}}
    assert sorted(running(begin(plan(nodes)))) == ["a#1", "b#1"]


def test_a_lock_counts_in_every_graph_of_the_job() -> None:
    item = {"nodes": {"w": work("z", mutex="m"), "z": DONE}}
    nodes = {
        "fork": {"next": ["a", "n"]},
        "a": work("z", mutex="m"),
        "n": {"map": {"over": "[1, 2]", "do": "item"}, "next": "z"},
        "z": {"end": None},
    }
    sim = begin(plan(nodes, graphs={"item": item}))
    order = []
    while running(sim):
        (only,) = running(sim)
        order.append(only)
        finish(sim, only)
    assert order == ["a#1", "n#1[0]/w#1", "n#1[1]/w#1"]


def test_a_lock_is_held_until_cancelled_work_has_reported() -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": work("z", mutex="m", deadline={"after": "1m", "to": "z"}),
        "b": work("z", mutex="m"),
        "z": {"end": None},
    }
    sim = Slow(plan(nodes))
    pass_time(sim)
    assert running(sim) == ["a#1"]
    sim.report("a#1")
    assert running(sim) == ["b#1"]


def test_a_lock_is_free_when_its_holder_fails() -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": {"activity": "fail", "mutex": "m", "catch": {"any": "z"}},
        "b": work("z", mutex="m"),
        "z": {"end": None},
    }
    sim = begin(plan(nodes))
    assert rest(sim).failure is None
    assert ended(sim) == ["a#1", "b#1"]


@pytest.mark.parametrize("inside", ["graph", "map"])
def test_a_lock_that_a_graph_around_holds_is_reported(inside: str) -> None:
    node = {"graph": "inner"} if inside == "graph" else {"map": {"over": "[1]", "do": "inner"}}
    inner = {"nodes": {"w": work("z", mutex="m"), "z": DONE}}
    nodes = {"n": {**node, "mutex": "m", "next": "z"}, "z": DONE}
    failure = rest(begin(plan(nodes, graphs={"inner": inner}))).failure
    assert failure is not None
    assert failure.code == "deadlock"
    assert (
        failure.message.partition(": ")[2]
        == "`w` waits for `m`, which `n#1` holds, and nothing that is left can change that"
    )


def test_an_item_that_waits_for_a_lock_does_not_keep_the_one_before_it_out() -> None:
    item = {
        "nodes": {
            "s": {"next": "w"},
            "w": {"activity": "name", "mutex": "m", "next": "z"},
            "z": DONE,
        }
    }
    barrier = {"at": "w", "limit": 1}
    nodes = {
        "n": {"map": {"over": "[1, 2, 3]", "do": "item", "barrier": barrier}, "next": "z"},
        "z": DONE,
    }
    assert rest(begin(plan(nodes, graphs={"item": item}))).result == ["w", "w", "w"]


def milestone(**late: Any) -> Any:
    """One branch opens and closes a door, another goes through it."""
    nodes = {
        "fork": {"next": ["o", "w"]},
        "o": {"event": "open", "next": "opened"},
        "opened": {"set": {"door": True}, "next": "c"},
        "c": {"event": "close", "next": "closed"},
        "closed": {"set": {"door": False}, "next": "z"},
        "w": work("again", only_while="state.door", **late),
        "again": work("z", only_while="state.door", **late),
        "late": {"end": "late"},
        "z": {"end": "in time"},
    }
    return plan(nodes, state={"door": {"type": "bool", "default": False}})


def test_a_token_waits_until_its_condition_holds() -> None:
    sim = begin(milestone())
    assert running(sim) == []
    event(sim, "open")
    finish(sim, "w", "again")
    event(sim, "close")
    assert rest(sim).failure is None


def test_what_can_never_hold_any_more_is_reported() -> None:
    sim = begin(milestone())
    event(sim, "open")
    event(sim, "close")
    finish(sim, "w")
    failure = rest(sim).failure
    assert failure is not None
    assert failure.code == "deadlock"
    assert "`again` waits for `state.door`" in failure.message


def test_a_deadline_counts_also_before_the_node_is_entered() -> None:
    sim = begin(milestone(deadline={"after": "90s", "to": "late"}))
    assert list(sim.timers) == ["w#1"]
    pass_time(sim)
    event(sim, "open")
    event(sim, "close")
    assert rest(sim).failure is None
    assert ended(sim) == []


def test_a_deadline_that_began_before_the_node_goes_on_in_it() -> None:
    sim = begin(milestone(deadline={"after": "90s", "to": "late"}))
    sim.now += 30
    event(sim, "open")
    assert running(sim) == ["w#1"]
    assert sim.timers == {"w#1": 1_700_000_090.0}
    finish(sim, "w")
    assert sim.timers == {"again#1": 1_700_000_120.0}


def test_a_question_keeps_the_deadline_that_began_while_it_waited_for_its_lock() -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": work("z", mutex="m"),
        "b": {
            "approval": {"request": {"what": "b"}},
            "mutex": "m",
            "deadline": {"after": "90s", "to": "z"},
            "next": "z",
        },
        "z": {"end": None},
    }
    sim = begin(plan(nodes))
    sim.now += 30
    finish(sim, "a")
    assert len(approvals(sim)) == 1
    assert sim.timers == {"b#1": 1_700_000_090.0}


def test_a_deadline_counts_while_a_token_waits_for_a_lock() -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": work("z", mutex="m"),
        "b": work("z", mutex="m", deadline={"after": "90s", "to": "z"}),
        "z": {"end": "${keys(nodes)}"},
    }
    sim = begin(plan(nodes))
    pass_time(sim)
    assert rest(sim).result == ["a"]


@pytest.mark.parametrize("deadline", [{"after": "${input}", "to": "z"}])
def test_a_deadline_that_is_no_time_fails_the_node(deadline: Any) -> None:
    nodes = {"a": work("z", deadline=deadline, only_while="false"), "z": DONE}
    failure = rest(begin(plan(nodes), input="soon")).failure
    assert failure is not None
    assert "the deadline of `a`" in failure.message


# -- what waits while the job is paused, and what is cancelled ----------------------------------------------------


def test_what_comes_while_a_job_is_paused_is_taken_and_nothing_new_begins() -> None:
    nodes = {"fork": {"next": ["a", "e"]}, "a": work("b"), "b": work("j"), "e": {"event": "go", "next": "j"}}
    sim = begin(plan({**nodes, "j": {"join": "all", "next": "z"}, "z": {"end": "${nodes.j}"}}))
    control(sim, "pause")
    event(sim, "go", 1)
    finish(sim, "a")
    assert running(sim) == []
    control(sim, "resume")
    assert rest(sim).result == {"b": "b", "e": 1}


@pytest.mark.parametrize("target", ["a", "e", "t", "p", "m", "g", "j"])
def test_whatever_waits_or_runs_at_a_node_can_be_cancelled(target: str) -> None:
    nodes: dict[str, Any] = {
        "fork": {"next": [target, "x", *(["other"] if target == "j" else [])]},
        "a": work("after"),
        "e": {"event": "go", "next": "after"},
        "t": {"timer": "1h", "next": "after"},
        "p": {"approval": "Go on?", "next": "after"},
        "m": {"map": {"over": "[1, 2]", "do": "inner"}, "next": "after"},
        "g": {"graph": "inner", "next": "after"},
        "j": {"join": "all", "next": "after"},
        "other": {"event": "go", "next": "j"},
        "x": work("c"),
        "c": {"cancel": [target, "other"], "next": "z"},
        "after": work("z"),
        "z": {"end": "${nodes.x}"},
    }
    sim = begin(plan(nodes, graphs={"inner": INNER}))
    finish(sim, "x")
    assert running(sim) == []
    assert (approvals(sim), sim.timers) == ([], {})
    assert rest(sim).result == "x"
    assert "after#1" not in ended(sim)
