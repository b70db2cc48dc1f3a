"""Races: of several arms, of whatever kind, the first goes on and the others are taken away."""

from typing import Any

import pytest

from tests.support.simulated import approvals, decision, of_type
from tests.support.tokens import (
    DONE,
    INNER,
    Slow,
    begin,
    ended,
    event,
    finish,
    pass_time,
    plan,
    rest,
    running,
    work,
)

# -- races -------------------------------------------------------------------------------------------------------

ARMS: dict[str, dict[str, Any]] = {
    "act": work("end_act"),
    "evt": {"event": "go", "next": "end_evt"},
    "tmr": {"timer": "1h", "next": "end_tmr"},
    "ask": {"approval": "Go on?", "next": "end_ask"},
    "sub": {"graph": "inner", "next": "end_sub"},
    "map": {"map": {"over": "[1, 2]", "do": "inner"}, "next": "end_map"},
    "dln": {"event": "never", "deadline": {"after": "1m", "to": "end_dln"}, "next": "z"},
    "rce": {"race": ["in1", "in2"]},
}
WINS = {"act": "act", "evt": None, "tmr": None, "sub": "i1", "map": ["i1", "i2"]}


def race_of(*arms: str) -> Any:
    """A race of these arms."""
    nodes: dict[str, Any] = {"r": {"race": list(arms)}, **{arm: ARMS[arm] for arm in arms}}
    nodes |= {f"end_{arm}": work("z") for arm in arms}
    nodes |= {"in1": {"event": "in1", "next": "end_rce"}, "in2": work("end_rce")} if "rce" in arms else {}
    return plan({**nodes, "z": {"end": "${nodes}"}}, graphs={"inner": INNER})


def win(sim: Any, arm: str) -> None:
    """Make an arm the first."""
    match arm:
        case "act":
            finish(sim, "act")
        case "evt":
            event(sim, "go")
        case "tmr" | "dln":
            pass_time(sim)
        case "ask":
            sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve"))
        case "sub" | "map":
            for _ in range(2 if arm == "map" else 1):
                finish(sim, next(at for at in running(sim) if at.startswith(f"{arm}#1[")))
                event(sim, "inner")
        case "rce":
            finish(sim, "in2")


PAIRS = [(first, second) for first in ARMS for second in ARMS if first != second and {first, second} != {"sub", "map"}]


@pytest.mark.parametrize(("winner", "loser"), [pair for pair in PAIRS if pair != ("tmr", "dln")])
@pytest.mark.parametrize("slowly", [False, True])
def test_the_first_arm_of_a_race_goes_on_and_the_other_is_taken_away(winner: str, loser: str, slowly: bool) -> None:
    sim = Slow(race_of(loser, winner)) if slowly else begin(race_of(loser, winner))
    win(sim, winner)
    for at in list(getattr(sim, "cancelled", ())):
        sim.report(at, done=True)  # type: ignore[attr-defined]
    assert running(sim) == [f"end_{winner}#1"]
    assert approvals(sim) == []
    assert sim.timers == {}
    after = rest(sim)
    assert after.failure is None
    assert f"end_{loser}#1" not in ended(sim)
    assert of_type(after, "warning") == []


def test_an_arm_that_fails_fails_the_race_unless_it_catches() -> None:
    nodes = {"r": {"race": ["a", "b"]}, "a": {"activity": "fail", "next": "z"}, "b": {"event": "go", "next": "z"}}
    nodes |= {"z": DONE}
    failed = rest(begin(plan(nodes))).failure
    assert failed is not None
    assert failed.code == "broken"
    caught = begin(plan({**nodes, "a": {**nodes["a"], "catch": {"any": "c"}}, "c": {"end": "${result.code}"}}))
    assert rest(caught).result == "broken"


@pytest.mark.parametrize("winner", ["in1", "in2", "c"])
def test_a_race_in_a_race_has_one_winner(winner: str) -> None:
    nodes = {
        "r": {"race": ["inner", "c"]},
        "inner": {"race": ["in1", "in2"]},
        "in1": work("z"),
        "in2": work("z"),
        "c": work("z"),
        "z": DONE,
    }
    sim = begin(plan(nodes))
    finish(sim, winner)
    assert running(sim) == []
    assert rest(sim).result == winner


def test_a_race_whose_first_arm_starts_detached_work_is_won_at_once() -> None:
    nodes = {
        "r": {"race": ["m", "b"]},
        "m": {"map": {"over": "[1]", "do": "item", "detach": True}, "next": "after"},
        "after": work("z"),
        "b": work("z"),
        "z": DONE,
    }
    sim = begin(plan(nodes, graphs={"item": {"nodes": {"w": work("z"), "z": DONE}}}))
    assert sorted(running(sim)) == ["after#1", "m#1[0]/w#1"]
    assert rest(sim).result == "after"


def test_what_comes_first_while_a_run_ends_still_counts_as_first() -> None:
    nodes = {
        "m": {"map": {"over": "['a', 'b', 'c']", "do": "item", "need": 1}, "next": "z"},
        "z": {"end": "${nodes.m}"},
    }
    item = {"nodes": {"w": work("z"), "z": {"end": "${item}"}}}
    sim = begin(plan(nodes, graphs={"item": item}), steps_per_run=1)
    finish(sim, "m#1[2]/w#1")
    assert running(sim) == []
    assert rest(sim).result == [None, None, "c"]


@pytest.mark.parametrize(
    ("arm", "then"),
    [
        ({"activity": "fail", "catch": {"any": "c"}, "next": "z"}, "broken"),
        ({"event": "never", "deadline": {"after": "1m", "to": "c"}, "next": "z"}, "deadline"),
    ],
)
def test_an_arm_that_leaves_by_catch_or_deadline_is_the_first_too(arm: dict[str, Any], then: str) -> None:
    nodes = {"r": {"race": ["a", "b"]}, "a": arm, "b": {"event": "go", "next": "z"}, "c": {"end": "${result.code}"}}
    sim = begin(plan({**nodes, "z": DONE}))
    assert rest(sim).result == then
    assert "b#1" not in ended(sim)


def test_whoever_is_to_win_only_by_success_comes_to_a_join_that_needs_one() -> None:
    nodes: dict[str, Any] = {
        "r": {"next": ["a", "b"]},
        "a": {"activity": "fail", "catch": {"any": "gone"}, "next": "first"},
        "b": work("first"),
        "gone": {"end": None},
        "first": {"join": {"need": 1, "rest": "cancel"}, "next": "z"},
        "z": {"end": "${nodes.first}"},
    }
    assert rest(begin(plan(nodes))).result == {"b": "b"}
