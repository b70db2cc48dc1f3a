"""What differs between two plans."""

import io
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_cli.render.reports import write_difference
from loom_cli.render.terminal import Terminal
from loom_dsl.authoring.diff import Change, EdgeDiff, NodeDiff, diff
from loom_dsl.authoring.outline import edges
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from tests.support.drawn_graphs import graphs, plan_of

NODES: dict[str, Any] = {
    "a": {"activity": "m:f", "with": {"x": 1}, "next": [{"if": "input.go", "to": "b"}, {"to": "c"}]},
    "b": {"tool": "t", "catch": {"any": "c"}, "next": "c"},
    "c": {"end": None},
}

"""Graphs take a while to draw, and longer on a busy machine."""


def plan(nodes: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan_of(Graph.model_validate({"name": "g", "start": "a", "nodes": nodes or NODES, **more}))


def changed(node: str, **fields: Any) -> Plan:
    return plan({**NODES, node: {**NODES[node], **fields}})


@given(old=graphs(st.text("ab", max_size=2), 3, inner=True), new=graphs(st.text("ab", max_size=2), 3, inner=True))
def test_there_is_a_difference_exactly_if_the_hashes_differ(old: Graph, new: Graph) -> None:
    before, after = plan_of(old), plan_of(new)
    assert bool(diff(before, after)) == (before.hash != after.hash)
    assert not diff(before, Plan.load(before.text))


@given(graph=graphs(inner=True), data=st.data())
def test_one_change_anywhere_in_a_node_is_found_in_that_node_or_its_edges(graph: Graph, data: st.DataObject) -> None:
    document = graph.dump()
    key = data.draw(st.sampled_from(sorted(document["nodes"])))
    field, value = data.draw(
        st.sampled_from([("doc", "new"), ("max_visits", 77), ("mutex", "new"), ("catch", {"z": key})])
    )
    document["nodes"][key] = {**document["nodes"][key], field: value}
    (found,) = diff(plan_of(graph), plan_of(Graph.model_validate(document))).graphs
    assert found.graph == "g"
    assert {node.node for node in found.nodes} | {edge.source for edge in found.edges} == {key}


@given(old=graphs(), new=graphs())
def test_the_edges_told_make_the_old_graph_the_new_one(old: Graph, new: Graph) -> None:
    graphs = diff(plan_of(old), plan_of(new)).graphs
    names = {node.was: node.node for graph in graphs for node in graph.nodes if node.change == "renamed"}
    before = ((names.get(line.source, line.source), names.get(line.target, line.target)) for line in edges(old))
    count = Counter((*ends, line.label) for ends, line in zip(before, edges(old), strict=True))
    for edge in (edge for graph in graphs for edge in graph.edges):
        count[edge.source, edge.target, edge.label] += 1 if edge.change == "added" else -1
    assert +count == Counter((line.source, line.target, line.label) for line in edges(new))


@pytest.mark.parametrize(
    ("new", "fields"),
    [
        (changed("a", **{"with": {"x": 2}}), (Change("with.x", 1, 2),)),
        (changed("a", **{"with": {"x": True}}), (Change("with.x", 1, True),)),
        (changed("a", **{"with": {"x": 1, "y": None}}), (Change("with.y", None, None),)),
        (changed("a", retry={"attempts": 5}), (Change("retry", None, {"attempts": 5}),)),
        (changed("b", tool="u"), (Change("tool", "t", "u"),)),
        (
            plan({**NODES, "b": {"agent": "t", "catch": {"any": "c"}, "next": "c"}}),
            (Change("kind", "tool", "agent"), Change("tool", "t", None), Change("agent", None, "t")),
        ),
    ],
    ids=lambda value: ",".join(change.field for change in value) if isinstance(value, tuple) else "",
)
def test_fields_are_told_with_what_they_were_and_are(new: Plan, fields: tuple[Change, ...]) -> None:
    (graph,) = diff(plan(), new).graphs
    assert (graph.nodes[0].fields, graph.edges) == (fields, ())


def test_edges_are_told_as_edges_only() -> None:
    new = plan({**NODES, "b": {"tool": "t", "catch": {"timeout": "c"}, "next": "d"}, "d": {"end": 1}})
    (graph,) = diff(plan(), new).graphs
    assert graph.nodes == (NodeDiff("d", "added"),)
    assert graph.edges == (
        EdgeDiff("removed", "b", "c", ""),
        EdgeDiff("removed", "b", "c", "on any"),
        EdgeDiff("added", "b", "d", ""),
        EdgeDiff("added", "b", "c", "on timeout"),
    )


def test_a_node_under_another_name_is_renamed_and_its_edges_are_the_same() -> None:
    read = {"end": "${nodes.b.x}"}
    old = plan({**NODES, "c": read})
    ways = [{"if": "input.go", "to": "send"}, {"to": "c"}]
    new = plan({"a": {**NODES["a"], "next": ways}, "send": NODES["b"], "c": {"end": "${nodes.send.x}"}})
    (graph,) = diff(old, new).graphs
    assert graph.nodes == (NodeDiff("send", "renamed", was="b"),)
    assert (graph.edges, graph.fields) == ((), ())


def test_a_start_under_another_name_and_its_neighbour_are_renamed() -> None:
    old = {"a": {"activity": "m:f", "next": "b"}, "b": {"activity": "m:g", "catch": {"any": "a"}, "next": "c"}}
    new = {"x": {"activity": "m:f", "next": "y"}, "y": {"activity": "m:g", "catch": {"any": "x"}, "next": "c"}}
    (graph,) = diff(plan({**old, "c": {"end": 1}}), plan_of(_graph("x", {**new, "c": {"end": 1}}))).graphs
    assert [(node.node, node.was) for node in graph.nodes] == [("x", "a"), ("y", "b")]
    assert (graph.edges, graph.fields) == ((), ())


def _graph(start: str, nodes: dict[str, Any]) -> Graph:
    return Graph.model_validate({"name": "g", "start": start, "nodes": nodes})


@pytest.mark.parametrize(
    "node",
    [
        {"tool": "u", "catch": {"any": "c"}, "next": "c"},  # does something else
        {"tool": "t", "next": [{"if": "input.x", "to": "a"}, {"to": "d"}]},  # leads elsewhere
    ],
)
def test_what_does_something_else_or_stands_elsewhere_is_not_renamed(node: dict[str, Any]) -> None:
    ways = [{"if": "input.stop", "to": "z"}, {"to": "c"}]
    new = plan({"a": {**NODES["a"], "next": ways}, "z": node, "c": NODES["c"], "d": {"end": 2}})
    (graph,) = diff(plan(), new).graphs
    assert ("z", "added") in [(one.node, one.change) for one in graph.nodes]
    assert ("b", "removed") in [(one.node, one.change) for one in graph.nodes]


def test_another_order_of_conditions_is_a_change_although_the_edges_are_the_same() -> None:
    ways = [{"if": "input.go", "to": "b"}, {"if": "input.stop", "to": "c"}]
    (graph,) = diff(changed("a", next=ways), changed("a", next=ways[::-1])).graphs
    assert [change.field for change in graph.nodes[0].fields] == ["next.first"]


def test_what_stands_beside_the_nodes_and_graphs_inside_are_compared_too() -> None:
    inner = {"start": "x", "nodes": {"x": {"end": 1}}}
    old = plan(version="1", graphs={"kept": inner, "gone": inner})
    new = plan(version="2", graphs={"kept": {**inner, "doc": "d"}, "new": inner})
    found = diff(old, new)
    assert [(graph.graph, graph.change) for graph in found.graphs] == [
        ("g", "changed"),
        ("kept", "changed"),
        ("new", "added"),
        ("gone", "removed"),
    ]
    assert found.graphs[0].fields == (Change("version", "1", "2"),)
    assert found.graphs[1].fields == (Change("doc", None, "d"),)


def test_roots_of_other_names_are_compared_with_each_other() -> None:
    other = plan_of(Graph.model_validate({"name": "h", "start": "a", "nodes": NODES}))
    found = diff(plan(), other)
    assert found.fields == (Change("name", "g", "h"),)
    assert found.graphs == ()


def test_a_difference_is_written_for_people_and_for_programs() -> None:
    new = plan({"a": {**NODES["a"], "next": "d"}, "c": NODES["c"], "d": {"fail": "x"}}, version="2")
    found = diff(plan(), new)
    stream = io.StringIO()
    write_difference(Terminal(stream, fancy=False), found)
    assert stream.getvalue() == (
        "~ graph g\n"
        '  version: nothing -> "2"\n'
        "  + node d\n"
        "  - node b\n"
        "  - edge a -> b: input.go\n"
        "  - edge a -> c: else\n"
        "  - edge b -> c\n"
        "  - edge b -> c: on any\n"
        "  + edge a -> d\n"
    )
    assert json.loads(json.dumps(found.to_json()))["graphs"][0]["nodes"] == [
        {"node": "d", "change": "added", "fields": [], "was": ""},
        {"node": "b", "change": "removed", "fields": [], "was": ""},
    ]
