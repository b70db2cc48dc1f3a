"""A lock that its own holder waits for is told before the run, exactly where the run would stand still."""

import pytest

from loom_dsl.documents.document import load_yaml
from loom_dsl.graph.compiler import check_text
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from tests.support.simulated import run

HEAD = "loom: 1\nkind: graph\nname: main\nnodes:\n"
TAKES = "{nodes: {take: {set: {}, mutex: db, next: out}, out: {end: 1}}}"
PART = f"graphs:\n  part: {TAKES}\n"


def told(text: str) -> list[tuple[int | None, int | None, str]]:
    found = check_text(HEAD + text, "g.yaml")
    assert {one.code for one in found} <= {"L148"}, found
    return [(one.line, one.column, one.message) for one in found]


def ends(text: str) -> str:
    """The code with which a run in memory fails, or nothing."""
    graph = Graph.model_validate(load_yaml(HEAD + text, "g.yaml").data)
    failure = run(Plan("main", {"main": graph}, {}), input={"deep": 0}).failure
    return failure.code if failure else ""


@pytest.mark.parametrize(
    "text",
    [
        f"  a: {{graph: part, mutex: db, next: z}}\n  z: {{end: 1}}\n{PART}",
        f"  a: {{loop: {{do: part, until: 'result == 1', max: 2}}, mutex: db, next: z}}\n  z: {{end: 1}}\n{PART}",
        f"  a: {{map: {{over: '[1, 2]', do: part}}, mutex: db, next: z}}\n  z: {{end: 1}}\n{PART}",
        # its own token stays with the items of a detached map
        f"  a: {{map: {{over: '[1, 2]', do: part, detach: true}}, mutex: db, next: z}}\n  z: {{end: 1}}\n{PART}",
        # two graphs further down
        f"  a: {{graph: one, mutex: db, next: z}}\n  z: {{end: 1}}\ngraphs:\n"
        f"  one: {{nodes: {{b: {{graph: two, mutex: other, next: c}}, c: {{end: 1}}}}}}\n  two: {TAKES}\n",
        # the graph itself, one level deeper
        "  s: {next: [{if: input.deep == 1, to: z}, {to: a}]}\n"
        "  a: {graph: main, with: {deep: 1}, mutex: db, next: z}\n  z: {set: {}, mutex: db, next: e}\n  e: {end: 1}\n"
        "input: {deep: int}\n",
        # a node that only chooses takes the lock, too
        "  a: {graph: part, mutex: db, next: z}\n  z: {end: 1}\n"
        "graphs:\n  part: {nodes: {take: {mutex: db, next: out}, out: {end: 1}}}\n",
    ],
)
def test_a_graph_that_waits_for_its_holders_lock_is_told_and_would_stand_still(text: str) -> None:
    ((line, column, message),) = told(text)
    assert (text.splitlines()[(line or 0) - 5][(column or 0) - 1 :]).startswith("db")
    assert "`a` holds `db` until its graph is done, and `" in message
    assert ends(text) == "deadlock"


@pytest.mark.parametrize(
    "text",
    [
        f"  a: {{graph: part, mutex: other, next: z}}\n  z: {{end: 1}}\n{PART}",
        # one after the other
        f"  a: {{graph: part, next: b}}\n  b: {{set: {{}}, mutex: db, next: z}}\n  z: {{end: 1}}\n{PART}",
        # beside the holder, not inside it
        f"  s: {{next: [a, b]}}\n  a: {{graph: none, mutex: db, next: j}}\n  b: {{graph: part, next: j}}\n"
        f"  j: {{join: all, next: z}}\n  z: {{end: 1}}\n"
        f"graphs:\n  none: {{nodes: {{e: {{end: 1}}}}}}\n  part: {TAKES}\n",
    ],
)
def test_a_lock_that_is_free_when_it_is_asked_for_is_not_told(text: str) -> None:
    assert told(text) == []
    assert ends(text) == ""


@pytest.mark.parametrize(
    "holder",
    ["{graph: part, child: true, mutex: db, next: z}", "{graph: part, mutex: db, catch: {deadlock: z}, next: z}"],
)
def test_a_job_of_its_own_has_its_own_locks_and_who_catches_the_code_is_ready_for_it(holder: str) -> None:
    assert told(f"  a: {holder}\n  z: {{end: 1}}\n{PART}") == []
