"""Joins that can never fire fail with what is missing, and do not hang."""

from typing import Any

import pytest

from tests.support.tokens import begin, plan, rest, work

DEADLOCKS: dict[str, tuple[dict[str, Any], str]] = {
    "a choice before a join of all": (
        {
            "s": {"next": [{"if": "input", "to": "a"}, {"to": "b"}]},
            "a": work("j"),
            "b": work("j"),
            "j": {"join": "all"},
        },
        "`j` waits for a",
    ),
    "a branch that ends": (
        {
            "s": {"next": ["a", "b"]},
            "a": work("j"),
            "b": work("e"),
            "e": {"end": 1},
            "c": work("j"),
            "j": {"join": "all"},
        },
        "`j` waits for c",
    ),
    "fewer than are needed": (
        {"s": {"next": ["a", "b"]}, "a": work("j"), "b": work("e"), "e": {"end": 1}, "j": {"join": {"need": "${2}"}}},
        "`j` waits for more tokens",
    ),
    "fewer threads than are merged": (
        {"s": {"next": {"times": 2, "to": "a"}}, "a": work("j"), "j": {"join": {"threads": 3}}},
        "`j` waits for more tokens",
    ),
    "one branch runs ahead of the other": (
        {
            "s": {"next": ["a", "b", "twice"]},
            "twice": {"next": "a"},
            "a": work("j"),
            "b": work("j"),
            "j": {"join": "all", "next": "z"},
            "z": {"end": None},
        },
        "`j` waits for b",
    ),
}


@pytest.mark.parametrize("which", DEADLOCKS)
def test_a_join_that_can_never_fire_fails_the_graph_and_says_what_is_missing(which: str) -> None:
    nodes, message = DEADLOCKS[which]
    outcome = rest(begin(plan(nodes)))
    assert outcome.failure is not None
    assert outcome.failure.code == "join_deadlock"
    assert message in outcome.failure.message


def test_a_deadlock_can_be_caught_and_counts_once_for_all_that_wait() -> None:
    nodes, _ = DEADLOCKS["fewer threads than are merged"]
    nodes = {**nodes, "j": {"join": {"threads": 3}, "catch": {"join_deadlock": "z"}}, "z": {"end": "${result.code}"}}
    sim = begin(plan(nodes))
    assert rest(sim).result == "join_deadlock"
    assert sim.machine.state.frames[""].visits["z"] == 1


def test_a_deadlock_inside_a_graph_fails_the_node_that_runs_it() -> None:
    nodes, _ = DEADLOCKS["fewer threads than are merged"]
    outer = {
        "g": {"graph": "inner", "catch": {"join_deadlock": "z"}, "next": "z"},
        "z": {"end": "${result.message}"},
    }
    assert "the join `j`" in rest(begin(plan(outer, graphs={"inner": {"nodes": nodes}}))).result
