"""Joins that can wait for ever, and branches that meet, are told before they do."""

import json
from typing import Any

import pytest

from loom_dsl.graph.compiler import check_text

DONE: dict[str, Any] = {"end": None}
WORK = {"activity": "a.work"}


def codes(nodes: dict[str, Any], **head: Any) -> list[str]:
    document = {"loom": 1, "kind": "graph", "name": "g", **head, "nodes": {**nodes, "done": DONE}}
    return [found.code for found in check_text(json.dumps(document), "g.yaml")]


def work(to: Any, **more: Any) -> dict[str, Any]:
    return {**WORK, "next": to, **more}


def diamond(join: Any, left: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "both": {"next": ["left", "right"]},
        "left": left or work("meet"),
        "right": work("meet"),
        "meet": {"join": join, "next": "done"},
        **more,
    }


CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a split and a join": ([], diamond("all")),
    "a join of fewer": ([], diamond({"need": 1})),
    "a join of one edge is no join": ([], {"a": work("meet"), "meet": {"join": "all", "next": "done"}}),
    "a branch that chooses and comes back": (
        [],
        diamond(
            "all",
            {"next": [{"if": "run.aborted", "to": "one"}, {"to": "two"}]},
            one=work("back"),
            two=work("back"),
            back={"next": "meet"},
        ),
    ),
    "a branch with two ways to the join": (
        ["L113"],
        diamond(
            "all", {"next": [{"if": "run.aborted", "to": "one"}, {"to": "two"}]}, one=work("meet"), two=work("meet")
        ),
    ),
    "the same with a join of those taken": (
        [],
        diamond(
            "taken", {"next": [{"if": "run.aborted", "to": "one"}, {"to": "two"}]}, one=work("meet"), two=work("meet")
        ),
    ),
    "an error that goes past the join": (["L113"], diamond("all", work("meet", catch={"any": "done"}))),
    "an error that fails the graph": (
        [],
        diamond("all", work("meet", catch={"any": "broke"}), broke={"fail": "no"}),
    ),
    "an error that ends the graph": (
        [],
        diamond("all", work("meet", catch={"any": "over"}), over={"end": 1, "terminate": True}),
    ),
    "an error that leads to the join by another edge": (
        ["L113"],
        diamond("all", work("meet", catch={"any": "note"}), note=work("meet")),
    ),
    "a deadline that goes past the join": (
        ["L113"],
        diamond("all", work("meet", deadline={"after": "1h", "to": "done"})),
    ),
    "a choice before the join": (
        ["L113"],
        {
            "choose": {"next": [{"if": "run.aborted", "to": "left"}, {"to": "right"}]},
            "left": work("meet"),
            "right": work("meet"),
            "meet": {"join": "all", "next": "done"},
        },
    ),
    "a multi-choice before a join of all": (
        ["L113"],
        {
            "some": {"next": {"each": [{"if": "run.aborted", "to": "left"}, {"to": "right"}]}},
            "left": work("meet"),
            "right": work("meet"),
            "meet": {"join": "all", "next": "done"},
        },
    ),
    "a multi-choice before a join of those taken": (
        [],
        {
            "some": {"next": {"each": [{"if": "run.aborted", "to": "left"}, {"to": "right"}]}},
            "left": work("meet"),
            "right": work("meet"),
            "meet": {"join": "taken", "next": "done"},
        },
    ),
    "a way past the split": (
        ["L112"],
        {
            "choose": {"next": [{"if": "run.aborted", "to": "left"}, {"to": "both"}]},
            **diamond("all"),
        },
    ),
    "two splits, one of which is taken": (
        [],
        {
            "choose": {"next": [{"if": "run.aborted", "to": "other"}, {"to": "both"}]},
            "other": {"next": ["left", "right"]},
            **diamond("all"),
        },
    ),
    "a split that joins itself": (
        [],
        {"both": work(["left", "meet"]), "left": work("meet"), "meet": {"join": "all", "next": "done"}},
    ),
    "three of which two are joined first": (
        [],
        {
            "three": {"next": ["a", "b", "c"]},
            "a": work("two"),
            "b": work("two"),
            "c": work("meet"),
            "two": {"join": "all", "next": "meet"},
            "meet": {"join": "all", "next": "done"},
        },
    ),
    "a split inside a branch": (
        [],
        {
            "both": {"next": ["inner", "c"]},
            "inner": {"next": ["a", "b"]},
            "a": work("meet"),
            "b": work("meet"),
            "c": work("meet"),
            "meet": {"join": "all", "next": "done"},
        },
    ),
    "a bounded cycle round a split and its join": (
        [],
        {
            "both": {"max_visits": 3, "next": ["left", "right"]},
            "left": work("meet"),
            "right": work("meet"),
            "meet": {"join": "all", "next": "look"},
            "look": work([{"if": "result.again", "to": "both"}, {"to": "done"}]),
        },
    ),
    "threads that are joined": (
        [],
        {
            "many": {"next": {"times": 3, "to": "a"}},
            "a": work("meet"),
            "meet": {"join": {"threads": 3}, "next": "done"},
        },
    ),
    "threads without a split": (["L112"], {"a": work("meet"), "meet": {"join": {"threads": 3}, "next": "done"}}),
    "a need without a split": (
        ["L112"],
        {
            "choose": {"next": [{"if": "run.aborted", "to": "left"}, {"to": "right"}]},
            "left": work("meet"),
            "right": work("meet"),
            "meet": {"join": {"need": 2}, "next": "done"},
        },
    ),
    "a join where a token begins": (
        ["L112"],
        {
            "meet": {"join": "all", "max_visits": 2, "next": "a"},
            "a": work([{"if": "result.x", "to": "meet"}, {"to": "done"}]),
        },
    ),
    "a cycle that comes back to one branch only": (
        ["L112"],
        diamond("all")
        | {
            "left": work("meet", max_visits=3),
            "meet": {"join": "all", "next": "look"},
            "look": work([{"if": "result.again", "to": "left"}, {"to": "done"}]),
        },
    ),
    "a branch that splits again before the join": (
        ["L113"],
        diamond("all", work([{"if": "result.again", "to": "both"}, {"to": "meet"}]))
        | {"both": {"max_visits": 3, "next": ["left", "right"]}},
    ),
    "two branches over one edge": (
        ["L114", "L113"],
        {
            "three": {"next": ["a", "b", "c"]},
            "a": work("one"),
            "b": work("one"),
            "one": work("meet"),
            "c": work("meet"),
            "meet": {"join": "all", "next": "done"},
        },
    ),
    "a deadlock that is caught": (
        [],
        diamond("all", work("meet", catch={"any": "done"}))
        | {"meet": {"join": "all", "catch": {"join_deadlock": "done"}, "next": "done"}},
    ),
    "joins that wait for each other": (
        ["L113"],
        {
            "both": {"next": ["one", "two"]},
            "one": {"join": "taken", "max_visits": 3, "next": "a"},
            "two": {"join": "taken", "max_visits": 3, "next": "b"},
            "a": work([{"if": "result.x", "to": "two"}, {"to": "done"}]),
            "b": work([{"if": "result.x", "to": "one"}, {"to": "done"}]),
        },
    ),
    "two diamonds in one cycle": (
        [],
        diamond("taken")
        | {
            "both": {"max_visits": 3, "next": ["left", "right"]},
            "meet": {"join": "taken", "next": "again"},
            "again": {"next": ["c", "d"]},
            "c": work("met"),
            "d": work("met"),
            "met": {"join": "taken", "next": "look"},
            "look": work([{"if": "result.x", "to": "both"}, {"to": "done"}]),
        },
    ),
    "arms of a race that are joined": (
        ["L113"],
        {
            "either": {"race": ["a", "b"]},
            "a": {"timer": "1h", "next": "meet"},
            "b": {"event": "e", "next": "meet"},
            "meet": {"join": "all", "next": "done"},
        },
    ),
    "branches that meet without a join": (
        ["L114"],
        {"both": {"next": ["a", "b"]}, "a": work("c"), "b": work("c"), "c": work("done")},
    ),
    "only the first meeting is told": (
        ["L114"],
        {
            "both": {"next": ["a", "b"]},
            "a": work("c"),
            "b": work("c"),
            "c": work([{"if": "result.x", "to": "d"}, {"to": "e"}]),
            "d": work("f"),
            "e": work("f"),
            "f": work("done"),
        },
    ),
    "errors of branches that meet": (
        [],
        diamond("all", work("meet", catch={"any": "note"}), note={**WORK, "next": "stop"}, stop={"fail": "no"}),
    ),
    "the same branch twice": (["L114"], {"both": {"next": ["a", "a"]}, "a": work("done")}),
    "ends need no join": ([], {"both": {"next": ["a", "done"]}, "a": work("done")}),
    "a race of timers and events": (
        [],
        {
            "either": {"race": ["a", "b", "c"]},
            "a": {"timer": "1h", "next": "done"},
            "b": {"event": "e", "next": "done"},
            "c": {"approval": "Yes?", "next": "done"},
        },
    ),
    "a race without time": (
        ["L140", "L140"],
        {
            "either": {"race": ["a", "b"]},
            "a": {"event": "d", "next": "done"},
            "b": {"event": "e", "next": "done"},
        },
    ),
    "a race with a deadline in an arm": (
        [],
        {
            "either": {"race": ["a", "b"]},
            "a": {"event": "d", "deadline": {"after": "1h", "to": "done"}, "next": "done"},
            "b": {"event": "e", "next": "done"},
        },
    ),
    "an arm that is not there": (["L110"], {"either": {"race": ["done", "b"]}}),
    "an arm twice": (["L110"], {"either": {"race": ["a", "a"]}, "a": {"timer": "1h", "next": "done"}}),
    "an arm that can be taken back": (
        [],
        {
            "either": {"race": ["a", "b"]},
            "a": {"timer": "1h", "next": "done"},
            "b": work("done", compensate={"activity": "a.undo"}),
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_followed_through(case: str) -> None:
    expected, nodes = CASES[case]
    assert codes(nodes) == expected


def test_two_hundred_branches_of_one_split_are_joined() -> None:
    names = [f"n{index}" for index in range(200)]
    nodes: dict[str, Any] = {"all": {"next": names}, **{name: work("meet") for name in names}}
    assert codes({**nodes, "meet": {"join": "all", "next": "done"}}) == []
    assert codes({**nodes, "n0": work("done"), "meet": {"join": "all", "next": "done"}}) == []
    assert codes(
        {**nodes, "n0": work([{"if": "run.aborted", "to": "done"}, {"to": "meet"}])}
        | {"meet": {"join": "all", "next": "done"}}
    ) == ["L113"]


@pytest.mark.parametrize(
    ("over", "more", "expected"),
    [
        ("[1, 2, 3]", {"need": 4}, ["L111"]),
        ("range(3)", {"need": 4}, ["L111"]),
        ("[1, 2, 3]", {"need": 3}, []),
        ("[1, input.n]", {"need": 4}, []),
        ("[1]", {"need": 4, "open": {"add": "more", "close": "enough"}}, []),
        ("range(10000000000)", {"need": 4}, ["L130"]),
    ],
)
def test_a_map_needs_at_most_as_many_results_as_its_list_has_items(
    over: str, more: dict[str, Any], expected: list[str]
) -> None:
    node = {"map": {"over": over, "do": "part", **more}, "next": "done"}
    part = {"nodes": {"a": {"end": "${item}"}}}
    assert codes({"each": node}, graphs={"part": part}, input={"n": {"type": "int"}}) == expected
