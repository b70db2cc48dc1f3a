"""Joins: which arrivals make one token, in every mode, round and round, and what happens when none can come."""

import itertools
from typing import Any

import pytest

from tests.support.simulated import of_type
from tests.support.tokens import DONE, begin, ended, event, finish, pass_time, plan, rest, running, work

FORK = {"fork": {"next": ["a", "b", "c"]}, "a": work("j"), "b": work("j"), "c": work("j")}
Spec = Any


def joined(spec: Spec, **head: Any) -> Any:
    """Three branches that meet in a join."""
    return plan({**FORK, "j": {"join": spec, "next": "after"}, "after": work("z"), "z": {"end": "${nodes.j}"}}, **head)


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_a_join_of_all_waits_for_every_edge_in_whatever_order(order: tuple[str, ...]) -> None:
    sim = begin(joined("all"))
    finish(sim, *order[:2])
    assert "after#1" not in running(sim)
    finish(sim, order[2])
    assert rest(sim).result == {"a": "a", "b": "b", "c": "c"}
    assert ended(sim)[-1] == "after#1"


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("need", [1, 2, 3, "${1 + 1}"])
def test_a_join_that_needs_some_goes_on_with_the_first_of_them_once(order: tuple[str, ...], need: Any) -> None:
    count = need if isinstance(need, int) else 2
    sim = begin(joined({"need": need}))
    finish(sim, *order[:count])
    assert "after#1" in running(sim)
    finish(sim, *order[count:])
    assert rest(sim).result == {name: name for name in order[:count]}
    assert ended(sim).count("after#1") == 1
    assert "after#2" not in ended(sim)


def test_a_join_that_needs_one_takes_one_also_when_all_come_at_once() -> None:
    branches = {"fork": {"next": ["a", "b"]}, "a": {"next": "j"}, "b": {"next": "j"}}
    sim = begin(plan({**branches, "j": {"join": {"need": 1}, "next": "after"}, "after": work("z"), "z": DONE}))
    assert running(sim) == ["after#1"]
    assert rest(sim).result == "after"
    assert list(sim.machine.state.frames[""].outputs["j"]) == ["a"]


def test_the_others_are_cancelled_where_the_join_says_so() -> None:
    sim = begin(joined({"need": 2, "rest": "cancel"}))
    finish(sim, "c", "a")
    assert running(sim) == ["after#1"]
    assert rest(sim).result == {"c": "c", "a": "a"}
    assert ended(sim) == ["c#1", "a#1", "after#1"]


def test_a_cancelled_branch_may_be_a_graph_with_work_in_it() -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": work("j"),
        "b": {"graph": "inner", "next": "j"},
        "j": {"join": {"need": 1, "rest": "cancel"}, "next": "z"},
        "z": {"end": "${nodes.j}"},
    }
    inner = {"nodes": {"deep": {"map": {"over": "[1, 2]", "do": "item"}, "next": "z"}, "z": DONE}}
    item = {"nodes": {"w": work("z"), "z": DONE}}
    sim = begin(plan(nodes, graphs={"inner": inner, "item": item}))
    assert len(running(sim)) == 3
    finish(sim, "a")
    assert running(sim) == []
    assert rest(sim).result == {"a": "a"}
    assert sorted(sim.machine.state.frames) == [""]


@pytest.mark.parametrize("rest_", ["ignore", "block"])
def test_the_second_round_of_a_discriminator_waits_for_the_rest_of_the_first(rest_: str) -> None:
    nodes = {
        "twice": {"next": {"times": 2, "to": "fork"}},
        "fork": {"next": ["a", "b"]},
        "a": work("j"),
        "b": work("j"),
        "j": {"join": {"need": 1, "rest": rest_}, "next": "after"},
        "after": work("z"),
        "z": {"end": None},
    }
    sim = begin(plan(nodes))
    finish(sim, "a", "a", "after")
    assert ended(sim).count("after#1") == 1
    assert sorted(running(sim)) == ["b#1", "b#2"]
    finish(sim, "b")
    assert sorted(running(sim)) == ["after#2", "b#2"]
    rest(sim)
    assert "after#3" not in ended(sim)


def test_a_discriminator_that_cancels_starts_again_at_once() -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": work("j"),
        "b": work("j"),
        "j": {"join": {"need": 1, "rest": "cancel"}, "next": "again"},
        "again": {"max_visits": 3, "exhausted": "z", "next": "fork"},
        "z": {"end": None},
    }
    sim = begin(plan(nodes))
    for winner in "abba":
        finish(sim, winner)
    assert rest(sim).failure is None
    assert ended(sim) == ["a#1", "b#2", "b#3", "a#4"]


@pytest.mark.parametrize("winners", list(itertools.product("ab", repeat=3)))
def test_a_discriminator_in_a_cycle_fires_once_in_each_round(winners: tuple[str, ...]) -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": work("j"),
        "b": work("j"),
        "j": {"join": {"need": 1}, "next": "again"},
        "again": work([{"if": "run.waiting == 0", "to": "fork"}], max_visits=3, exhausted="z"),
        "z": {"end": None},
    }
    sim = begin(plan(nodes))
    for winner in winners:
        finish(sim, winner)
        finish(sim, {"a": "b", "b": "a"}[winner])
        finish(sim, "again")
    assert rest(sim).failure is None
    assert [name for name in ended(sim) if name.startswith("again")] == ["again#1", "again#2", "again#3"]


CHOSEN = [set(chosen) for size in (1, 2, 3) for chosen in itertools.combinations("abc", size)]


@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_a_join_of_those_taken_waits_for_just_the_chosen_ones(chosen: set[str], order: str) -> None:
    nodes = {
        "fork": {"next": {"each": [{"if": f"contains(input, '{name}')", "to": name} for name in "abc"]}},
        "a": work("a2"),
        "a2": work("j"),
        "b": work("j"),
        "c": work("j"),
        "j": {"join": "taken", "next": "after"},
        "after": work("z"),
        "z": {"end": "${nodes.j}"},
    }
    sim = begin(plan(nodes), input=sorted(chosen))
    finish(sim, *(name for name in order if name in chosen))
    if "a" in chosen:
        assert "after#1" not in running(sim)
        finish(sim, "a2")
    assert rest(sim).result == {{"a": "a2"}.get(name, name): {"a": "a2"}.get(name, name) for name in chosen}
    assert ended(sim).count("after#1") == 1


def test_a_branch_that_leaves_is_not_waited_for() -> None:
    nodes = {**FORK, "c": work([{"if": "input", "to": "j"}, {"to": "gone"}]), "gone": {"end": None}}
    sim = begin(plan({**nodes, "j": {"join": "taken", "next": "z"}, "z": DONE}), input=False)
    finish(sim, "a", "b")
    assert not sim.outcome.over
    finish(sim, "c")
    assert rest(sim).result == {"a": "a", "b": "b"}


@pytest.mark.parametrize("mode", ["taken", {"need": 2}])
def test_a_detached_map_before_a_join_is_not_waited_for(mode: Spec) -> None:
    nodes = {
        "fork": {"next": ["a", "m"]},
        "a": work("j"),
        "m": {"map": {"over": "[1]", "do": "item", "detach": True}, "next": "j"},
        "j": {"join": mode, "next": "after"},
        "after": work("z"),
        "z": {"end": "${nodes.j}"},
    }
    sim = begin(plan(nodes, graphs={"item": {"nodes": {"w": work("z"), "z": DONE}}}))
    finish(sim, "a", "after")
    assert running(sim) == ["m#1[0]/w#1"]
    assert rest(sim).result == {"a": "a", "m": None}


def test_a_join_of_those_taken_does_not_wait_for_a_join_that_cannot_fire() -> None:
    nodes = {
        "fork": {"next": ["a", "b", "c"]},
        "a": work("j"),
        "b": work("dead"),
        "c": work([{"if": "input", "to": "dead"}, {"to": "gone"}]),
        "gone": {"end": None},
        "dead": {"join": "all", "catch": {"join_deadlock": "gone"}, "next": "j"},
        "j": {"join": "taken", "next": "after"},
        "after": work("z"),
        "z": {"end": "${nodes.after}"},
    }
    sim = begin(plan(nodes), input=False)
    finish(sim, "a", "b")
    assert running(sim) == ["c#1"]
    finish(sim, "c")
    assert running(sim) == ["after#1"]
    assert rest(sim).failure is None
    alive = begin(plan(nodes), input=True)
    assert rest(alive).failure is None
    assert list(alive.machine.state.frames[""].outputs["j"]) == ["a", "dead"]


def test_two_joins_that_wait_for_each_other_are_reported() -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": work("j"),
        "b": work("k"),
        "j": {"join": "taken", "next": [{"if": "input", "to": "k"}, {"to": "z"}]},
        "k": {"join": "taken", "next": [{"if": "input", "to": "j"}, {"to": "z"}]},
        "z": DONE,
    }
    outcome = rest(begin(plan(nodes)))
    assert outcome.failure is not None
    assert outcome.failure.code == "join_deadlock"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_so_many_threads_become_one_and_the_rest_the_next(count: int) -> None:
    nodes = {
        "s": {"next": {"times": "${input * 2}", "to": "a"}},
        "a": work("j"),
        "j": {"join": {"threads": "${input}"}, "next": "after"},
        "after": work("z"),
        "z": DONE,
    }
    sim = begin(plan(nodes), input=count)
    assert rest(sim).failure is None
    assert sim.machine.state.frames[""].outputs["j"] == ["a"] * count
    assert [at for at in ended(sim) if at.startswith("after")] == ["after#1", "after#2"]


def test_every_edge_keeps_what_came_over_it() -> None:
    nodes = {
        "s": {"next": {"times": 3, "to": "fork"}},
        "fork": {"next": ["a", "b"]},
        "a": {"activity": "echo", "with": {"n": "${get(nodes, 'a', {'n': 0}).n + 1}"}, "mutex": "a", "next": "j"},
        "b": {"event": "go", "next": "j"},
        "j": {"join": "all", "next": "after"},
        "after": {"activity": "echo", "with": {"pair": "${[nodes.j.a.n, nodes.j.b]}"}, "next": "z"},
        "z": DONE,
    }
    sim = begin(plan(nodes))
    sim.run()
    pairs = []
    for number in (10, 20, 30):
        assert event(sim, "go", number) == "recorded"
        sim.run()
        pairs.append(sim.machine.state.frames[""].outputs["after"]["pair"] if not sim.outcome.over else None)
    assert pairs[:2] == [[1, 10], [2, 20]]
    assert sim.outcome.result == {"pair": [3, 30]}


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "two", [1]])
@pytest.mark.parametrize("slot", ["need", "threads"])
def test_a_number_that_is_none_fails_the_join(slot: str, value: Any) -> None:
    nodes = {"s": {"next": ["a", "b"]}, "a": work("j"), "b": work("j"), "j": {"join": {slot: "${input}"}, "next": "z"}}
    outcome = rest(begin(plan({**nodes, "z": DONE}), input=value))
    assert outcome.failure is not None
    assert outcome.failure.code == "expression_error"
    assert "give a number from 1" in outcome.failure.message


def test_a_token_that_waits_too_long_at_a_join_takes_the_way_of_the_deadline() -> None:
    nodes = {**FORK, "j": {"join": "all", "deadline": {"after": "1h", "to": "late"}, "next": "z"}}
    sim = begin(plan({**nodes, "late": work("z"), "z": {"end": "${keys(nodes)}"}}))
    finish(sim, "a", "b")
    assert len(sim.timers) == 2
    pass_time(sim)
    pass_time(sim)
    finish(sim, "c", "late", "late")
    assert not sim.outcome.over
    pass_time(sim)
    assert rest(sim).result == ["a", "b", "c", "late"]


def test_timers_of_tokens_that_were_joined_are_stopped() -> None:
    nodes = {**FORK, "j": {"join": "all", "deadline": {"after": "1h", "to": "z"}, "next": "after"}}
    sim = begin(plan({**nodes, "after": work("z"), "z": DONE}))
    finish(sim, "a", "b", "c")
    assert sim.timers == {}
    assert rest(sim).result == "after"


def test_what_a_join_gives_is_there_for_all_that_follow() -> None:
    nodes = {**FORK, "j": {"join": "all", "next": ["x", "y"]}, "x": {"next": "k"}, "y": {"next": "k"}}
    nodes |= {"k": {"join": "all", "next": "z"}, "z": DONE}
    expected = {"a": "a", "b": "b", "c": "c"}
    assert rest(begin(plan(nodes))).result == {"x": expected, "y": expected}


def test_no_warning_is_told_where_joins_swallow_what_comes() -> None:
    sim = begin(joined({"need": 1}))
    assert of_type(rest(sim), "warning") == []
