"""Graphs that run each other, in many ways or in circles, are checked in no time: agents write graphs, too."""

import time

import pytest

from loom_dsl.graph.compiler import check_text

HEAD = """loom: 1
kind: graph
name: main
input: {x: str}
state: {seen: {type: list, reduce: append}}
nodes:
  first: {graph: g0, next: z}
  z: {end: "${state.seen}"}
graphs:
"""
WAYS = 40


def ladder() -> str:
    """Each graph runs the next one twice: there are 2**40 ways down."""
    rungs = [
        f"  g{i}: {{nodes: {{a: {{graph: g{i + 1}, next: b}}, b: {{graph: g{i + 1}, next: out}}, out: {{end: 1}}}}}}"
        for i in range(WAYS)
    ]
    return "\n".join(
        [*rungs, f"  g{WAYS}: {{nodes: {{a: {{set: {{seen: '${{input.x}}'}}, next: out}}, out: {{end: 1}}}}}}\n"]
    )


def web() -> str:
    """Each graph may run every other one."""
    names = range(12)
    runs = ", ".join(f"n{k}: {{graph: g{k}, next: out}}" for k in names)
    edges = ", ".join(f"{{if: input.x == '{k}', to: n{k}}}" for k in names)
    part = f"{{nodes: {{s: {{next: [{edges}, {{to: out}}]}}, {runs}, out: {{end: 1}}}}}}\n"
    return "".join(f"  g{k}: {part}" for k in names)


@pytest.mark.parametrize("graphs", [ladder, web])
def test_graphs_are_looked_at_once_however_many_ways_lead_to_them(graphs: object) -> None:
    assert callable(graphs)
    before = time.process_time()
    assert check_text(HEAD + graphs(), "g.yaml") == []
    assert time.process_time() - before < 20, "with every way gone it would be years"
