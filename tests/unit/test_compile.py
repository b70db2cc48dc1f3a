"""Every mistake of a graph document is found before it runs, and told with its place."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.agent.definition import Agent
from loom_dsl.errors import Diagnostic, DocumentError
from loom_dsl.graph.checks import check_graph
from loom_dsl.graph.compiler import compile_agent, compile_graph
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped, source_of

GOOD = """\
loom: 1
kind: graph
name: report
start: collect
on_abort: stopped
nodes:
  collect:
    activity: report.collect
    catch: {any: failed}
    next:
      - {if: len(result.rows) > 0, to: ask}
      - {to: failed}
  ask:
    approval: {request: "${nodes.collect.rows}"}
    deadline: {after: 4h, to: failed}
    max_visits: 3
    exhausted: failed
    next: each
  each:
    map: {over: nodes.collect.rows, do: loom.tool_call}
    next: done
  done:
    end: ${nodes.each}
  failed:
    fail: nothing to report
  stopped:
    end: null
"""


def findings(text: str) -> list[Diagnostic]:
    with pytest.raises(DocumentError) as caught:
        compile_graph(text, "report.yaml")
    return caught.value.diagnostics


def test_a_good_graph_compiles_with_the_graphs_that_it_uses() -> None:
    plan = compile_graph(GOOD, "report.yaml")
    assert plan.root == "report"
    assert sorted(plan.graphs) == ["loom.tool_call", "report"]


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "message"),
    [
        ("start: collect", "start: colect", "L101", (4, 8), "start is `colect`, which is not a node"),
        ("start: collect", "start: colect", "L101", (4, 8), "did you mean `collect`?"),
        ("on_abort: stopped", "on_abort: stoped", "L102", (5, 11), "there is no node `stoped`"),
        ("next: done", "next: dne", "L102", (21, 11), "`each` goes to `dne`, which is not a node"),
        ("catch: {any: failed}", "catch: {any: broke}", "L102", (9, 18), "`collect` goes to `broke`"),
        ("to: failed}\n    max", "to: late}\n    max", "L102", (15, 31), "`ask` goes to `late`"),
        ("exhausted: failed", "exhausted: over", "L102", (17, 16), "`ask` goes to `over`"),
        ("do: loom.tool_call", "do: loom.toolcall", "L102", (20, 41), "did you mean `loom.tool_call`?"),
        ("on_abort: stopped\n", "", "L104", (25, 3), "nothing leads to `stopped`"),
        ("    next: done\n", "", "L105", (19, 3), "`each` leads nowhere"),
        ("    end: ${nodes.each}", "    end: ${nodes.each}\n    next: failed", "L105", (24, 11), "never taken"),
        ("      - {to: failed}\n", "", "L109", (11, 7), "no way out when no condition holds"),
        ("      - {if: len(result.rows) > 0, to: ask}\n      - {to: failed}", "      - {to: ask}\n      - {to: failed}",
         "L109", (11, 9), "the edges of `collect` after this one are never taken"),
        ("activity: report.collect", "activity: ' '", "L150", (8, 15), "names no activity"),
        ("    end: ${nodes.each}", "    end: ${nodes.each}\n    deadline: {after: 1h, to: failed}", "L146",
         (24, 5), "a token never waits there"),
        ("    max_visits: 3\n", "", "L147", (16, 16), "add `max_visits`"),
        ("on_abort", "on_abrt", "L002", (5, 1), "did you mean `on_abort`?"),
        ("catch: {any", "cach: {any", "L002", (9, 5), "did you mean `catch`?"),
        ("activity: report", "activty: report", "L002", (8, 5), "did you mean `activity`?"),
        ("deadline: {after", "deadline: {afer", "L002", (15, 16), "did you mean `after`?"),
        ("do: loom.tool_call}", "do: loom.tool_call, windw: 3}", "L002", (20, 57), "did you mean `window`?"),
        ("name: report\n", "", "L003", (1, 1), "missing field `name`"),
        ("over: nodes.collect.rows, ", "", "L003", (20, 10), "missing field `over`"),
        ("end: null", "end: null\n    fail: no", "L004", (27, 5), "this one is `end` and `fail`"),
        ("if: len(result.rows) > 0", "if: len(result.rows > 0", "L130", (11, 17), "is not an expression"),
        ("if: len(result.rows) > 0", "if: len(reslt.rows) > 0", "L130", (11, 18), "unknown name `reslt`"),
        ("over: nodes.collect.rows", "over: 5 +", "L130", (20, 20), "is not an expression"),
        ('request: "${nodes.collect.rows}"', 'request: "${nodes"', "L130", (14, 26), "is not closed"),
        ("end: ${nodes.each}", "end: ${nodes..each}", "L130", (23, 18), "is not an expression"),
        ("max_visits: 3", "max_visits: many", "L004", (16, 17), "should be a whole number"),
        ("after: 4h", "after: later", "L004", (15, 23), "is not a duration"),
        ("  each:\n", "  each one:\n", "L004", (19, 3), "each one"),
        ("kind: graph", "kind: grap", "L006", (2, 7), "did you mean `graph`?"),
        ("loom: 1", "loom: 9", "L006", (1, 7), "unknown version 9"),
        ("  each:\n", "  ask:\n", "L005", (19, 3), "ask"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_code_and_its_place(
    old: str, new: str, code: str, place: tuple[int, int], message: str
) -> None:
    assert GOOD.count(old) == 1
    found = [finding for finding in findings(GOOD.replace(old, new)) if finding.code == code]
    assert found, findings(GOOD.replace(old, new))
    assert [(finding.line, finding.column) for finding in found] == [place]
    assert message in str(found[0])


def test_a_field_is_never_proposed_in_place_of_itself() -> None:
    told = [str(finding) for finding in findings(GOOD.replace("activity: report", "with: {}\n    activty: report"))]
    assert any("did you mean `activity`?" in line for line in told)
    assert any("`with` does not go with a node that only chooses the way" in line for line in told)
    assert not any("did you mean `with`?" in line for line in told)


def test_every_finding_of_a_document_is_told_at_once() -> None:
    text = GOOD.replace("next: done", "next: dne").replace("start: collect", "start: colect")
    assert {finding.code for finding in findings(text)} >= {"L101", "L102"}


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_graph_has_no_finding(name: str) -> None:
    assert compile_graph(source_of(name), name).graphs[name] == shipped(name)


def test_a_graph_without_its_start_is_told_once() -> None:
    graph = Graph.model_validate({"name": "g", "start": "b", "nodes": {"a": {"end": None}}})
    assert [finding.code for finding in check_graph(graph, {})] == ["L101"]


def test_an_agent_becomes_the_plan_of_its_turn() -> None:
    agent = Agent(name="tester", model="m")
    plan = compile_agent(agent)
    assert plan.root == "loom.tt"
    assert Agent.from_plan_data(plan.agent) == agent
    assert compile_agent(agent.model_copy(update={"model": "n"})).hash != plan.hash


def mutations(text: str, count: int, seed: int = 7) -> Iterator[str]:
    source, pieces = (
        random.Random(seed),
        ["\t", ":", "- ", "{", "]", "&a ", "*a", "!!x ", "${", "'", "\n", " " * 3, "é", "0x1"],
    )
    lines = text.splitlines(keepends=True)
    for _ in range(count):
        changed = list(lines)
        for _ in range(source.randint(1, 3)):
            at = source.randrange(len(changed))
            kind = source.randrange(4)
            if kind == 0:
                del changed[at]
                changed = changed or ["x"]
            elif kind == 1:
                changed.insert(at, changed[source.randrange(len(changed))])
            else:
                column = source.randrange(len(changed[at]) + 1)
                keep = column + (kind == 3)
                changed[at] = changed[at][:column] + source.choice(pieces) + changed[at][keep:]
        yield "".join(changed)


@pytest.mark.parametrize("text", [GOOD, source_of("loom.tool_call")], ids=["report", "loom.tool_call"])
def test_a_document_with_random_mistakes_compiles_or_is_refused_with_a_place(text: str) -> None:
    refused = 0
    for changed in mutations(text, 150):
        found = refusal(changed)
        refused += bool(found)
        for finding in found:
            assert finding.line is not None, f"{finding} has no place in\n{changed}"
            assert 1 <= finding.line <= changed.count("\n") + 2
    assert refused > 50


def refusal(text: str) -> list[Diagnostic]:
    try:
        compile_graph(text, "report.yaml")
    except DocumentError as error:
        return error.diagnostics
    return []


def replaced(value: Any, source: random.Random) -> Any:
    """A JSON value with one place of it replaced by something of another type."""
    if isinstance(value, dict) and value and source.random() < 0.8:
        key = source.choice(list(value))
        return {**value, key: replaced(value[key], source)}
    if isinstance(value, list) and value and source.random() < 0.8:
        at = source.randrange(len(value))
        return [*value[:at], replaced(value[at], source), *value[at + 1 :]]
    return source.choice([None, True, -1, 1e300, "", "${input.n}", "${", [], {}, [None], {"x": 1}, "never", "5m"])


def test_a_document_with_values_of_other_types_compiles_or_is_refused() -> None:
    import json

    source = random.Random(11)
    whole = {**shipped("loom.tool_call").dump(), "on_abort": "settled"}
    refused = sum(bool(refusal(json.dumps(replaced(whole, source)))) for _ in range(200))
    assert refused > 100


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "patterns").glob("*.yaml"))
LANES = [pytest.param(seed, marks=[pytest.mark.nightly, pytest.mark.timeout(900)]) for seed in range(1, 6)]


@pytest.mark.parametrize("seed", [0, *LANES])
def test_what_becomes_of_any_mutated_document_is_a_plan_or_findings(seed: int) -> None:
    """Ten thousand in the nightly lane: nothing but Loom's own errors leaves the compiler, whatever is written."""
    texts = [GOOD, source_of("loom.tt"), source_of("loom.tool_node"), *(path.read_text() for path in EXAMPLES)]
    each = 3 if seed == 0 else 2_000 // len(texts) + 1
    outcomes = [bool(refusal(changed)) for text in texts for changed in mutations(text, each, 1_000 + seed)]
    assert len(outcomes) >= (100 if seed == 0 else 2_000)
    assert {True, False} == set(outcomes)
