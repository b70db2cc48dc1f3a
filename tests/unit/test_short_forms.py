"""Short forms of a graph: the ways out of an approval, and graphs of one node."""

from typing import Any

import pytest

from loom_dsl.authoring.mermaid import edges_of, mermaid_plan
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.graph import Graph

HEAD = "loom: 1\nkind: graph\nname: g\n"
ASKED = (
    HEAD
    + """nodes:
  ask: {approval: "Go?", deadline: never, %s}
  done: {end: 1}
  no: {fail: refused}
"""
)
LONG = "next: [{if: result.choice == 'approve', to: done}, {to: no}]"


def test_the_two_ways_of_an_approval_are_short_for_its_edges() -> None:
    short = compile_graph(ASKED % "approved: done, rejected: no", "g.yaml")
    assert short.hash == compile_graph(ASKED % LONG, "g.yaml").hash
    assert "approved" not in short.text


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("approved: done", "`approved` and `rejected` go together"),
        ("rejected: no", "`approved` and `rejected` go together"),
        ("approved: done, rejected: 3", "each names a node"),
        ("approved: done, rejected: no, next: done", "there is no `next` beside them"),
        ("approved: done, rejected: nowhere", "`ask` goes to `nowhere`, which is not a node"),
    ],
)
def test_ways_that_cannot_be_meant_are_told(written: str, told: str) -> None:
    assert any(told in found.message for found in check_text(ASKED % written, "g.yaml"))


def test_a_way_to_no_node_is_told_where_it_is_written() -> None:
    text = ASKED % "approved: done, rejected: nix"
    (found,) = (f for f in check_text(text, "g.yaml") if f.code == "L102")
    assert (found.line, found.column) == (5, text.splitlines()[4].index("nix") + 1)


def test_answers_without_approve_have_no_short_form() -> None:
    text = ASKED.replace('"Go?"', "{ask: Go?, choices: [yes, no]}") % "approved: done, rejected: no"
    assert any("`choices` does not have" in found.message for found in check_text(text, "g.yaml"))


NODES: list[tuple[str, dict[str, Any]]] = [
    ("work", {"activity": "m:f", "with": {"v": "${item}"}}),
    ("end", {"activity": "m:f"}),
    ("say", {"llm": {"model": "m", "prompt": "${item}"}}),
    ("t", {"tool": "read_file", "with": {"path": "${item}"}}),
    ("e", {"event": "paid"}),
]


@pytest.mark.parametrize(("key", "node"), NODES)
def test_a_graph_of_one_node_gives_the_result_of_that_node(key: str, node: dict[str, Any]) -> None:
    data = {
        "name": "g",
        "nodes": {"m": {"map": {"over": "[1]", "do": "one"}}},
        "graphs": {"one": {"nodes": {key: node}}},
    }
    dumped: Any = Graph.model_validate(data).dump()
    last = "done" if key == "end" else "end"
    assert list(dumped["graphs"]["one"]["nodes"]) == [key, last]
    assert dumped["graphs"]["one"]["nodes"][last] == {"end": f"${{nodes.{key}}}"}
    assert dumped["graphs"]["one"]["nodes"][key]["next"] == {"first": [{"to": last}]}
    assert Graph.model_validate(dumped).dump() == dumped


@pytest.mark.parametrize(
    "nodes",
    [
        {"work": {"activity": "m:f", "next": "work"}},
        {"work": {"activity": "m:f"}, "b": {"activity": "m:f"}},
        {"work": {"end": 1}},
        {"work": {"fail": "no"}},
    ],
)
def test_other_graphs_stay_as_they_are(nodes: dict[str, Any]) -> None:
    data = {"name": "g", "nodes": {"m": {"graph": "one"}}, "graphs": {"one": {"nodes": nodes}}}
    assert list(Graph.model_validate(data).graphs["one"].nodes) == list(nodes)


def test_the_edges_of_a_drawing_are_counted() -> None:
    assert edges_of(mermaid_plan(compile_graph(ASKED % LONG, "g.yaml"))) == 3
