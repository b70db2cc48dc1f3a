"""Locks that are taken in two orders are told before the run, where a run can stand still, and nowhere else."""

from collections.abc import Callable

import pytest

from loom_dsl.documents.document import load_yaml
from loom_dsl.graph.compiler import check_text
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from tests.support.simulated import run

HEAD = "loom: 1\nkind: graph\nname: main\nnodes:\n"
ONE, TWO = "  one: {graph: b, mutex: A, next: met}\n", "  two: {graph: a, mutex: B, next: met}\n"
MEET = "  met: {join: all, next: z}\n  z: {end: 1}\n"
FORK = "  s: {next: [one, two]}\n"
TAKES = """graphs:
  a: {nodes: {ask: {timer: 1s, next: take}, take: {set: {}, mutex: A, next: out}, out: {end: 1}}}
  b: {nodes: {ask: {timer: 1s, next: take}, take: {set: {}, mutex: B, next: out}, out: {end: 1}}}
"""
FURTHER = """  f: {nodes: {first: {graph: b, mutex: A, next: out}, out: {end: 1}}}
  g: {nodes: {second: {graph: a, mutex: B, next: out}, out: {end: 1}}}
"""
EITHER = """  either:
    nodes:
      s: {next: [{if: item == 1, to: one}, {to: two}]}
      one: {graph: b, mutex: A, next: out}
      two: {graph: a, mutex: B, next: out}
      out: {end: 1}
"""
MAP = "  all: {map: {over: '[1, 2]', do: either}, next: z}\n  z: {end: 1}\n"
BRANCHES = FORK + ONE + TWO + MEET + TAKES
LOWER = f"{FORK}  one: {{graph: f, next: met}}\n  two: {{graph: g, next: met}}\n{MEET}{TAKES}{FURTHER}"
CROSSED = {
    "two branches": BRANCHES,
    "graphs further down": LOWER,
    "a third lock between": BRANCHES.replace("graph: b,", "graph: c,")
    + "  c: {nodes: {mid: {graph: b, mutex: C, next: out}, out: {end: 1}}}\n",
    "the items of a map": MAP + TAKES + EITHER,
}
FINE = {
    "the same order": BRANCHES.replace("graph: a, mutex: B", "graph: b, mutex: A").replace("  a: {", "  unused: {"),
    "one after the other": ONE.replace("met", "two") + TWO.replace("met", "z") + "  z: {end: 1}\n" + TAKES,
    "after the branches have met": "  s: {next: [one, other]}\n  other: {set: {}, next: met}\n"
    + ONE + "  met: {join: all, next: two}\n" + TWO.replace("met", "z") + "  z: {end: 1}\n" + TAKES,
    "a lock around both": LOWER.replace("graph: f,", "graph: f, mutex: gate,")
    .replace("graph: g,", "graph: g, mutex: gate,"),
    "items one at a time": MAP.replace("do: either", "do: either, window: 1") + TAKES + EITHER,
    "nothing is held": BRANCHES.replace("graph: b, mutex: A,", "graph: b,"),
}  # fmt: skip
READY: dict[str, Callable[[str], str]] = {
    "catch": lambda text: text.replace("graph: b, mutex: A,", "graph: b, mutex: A, catch: {deadlock: met},"),
    "deadline": lambda text: text.replace("graph: b, mutex: A,", "graph: b, mutex: A, deadline: {after: 1h, to: met},"),
    "at who waits": lambda text: text.replace("set: {}, mutex: B,", "set: {}, mutex: B, catch: {deadlock: out},"),
    "a job of its own": lambda text: text.replace("graph: b, mutex: A,", "graph: b, child: true, mutex: A,"),
}


def told(text: str) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in check_text(HEAD + text, "g.yaml")]


def ends(text: str) -> str:
    """The code with which a run in memory fails, or nothing."""
    graph = Graph.model_validate(load_yaml(HEAD + text, "g.yaml").data)
    failure = run(Plan("main", {"main": graph}, {})).failure
    return failure.code if failure else ""


@pytest.mark.parametrize("text", CROSSED.values(), ids=CROSSED)
def test_locks_that_are_taken_in_two_orders_are_told_once_and_a_run_may_stand_still(text: str) -> None:
    assert told(text) == [
        ("L149", "`take` waits for `B` while `A` is held, and beside it `take` may wait for `A` while `B` is held")
    ]
    assert ends(text) == "deadlock"


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_where_nobody_can_come_between_nothing_is_told(text: str) -> None:
    assert [found for found in told(text) if "unused" not in found[1]] == []
    assert ends(text) == ""


@pytest.mark.parametrize("ready", READY.values(), ids=READY)
def test_who_says_what_happens_then_or_has_locks_of_its_own_is_not_told(ready: Callable[[str], str]) -> None:
    text = ready(BRANCHES)
    assert text != BRANCHES
    assert told(text) == []
