"""The picture in DOT has the nodes and the edges of the graph, each once, and nothing else."""

import re
from collections import Counter

import pytest
from hypothesis import given

from loom_dsl.authoring.dot import dot
from loom_dsl.authoring.overlay import Overlay
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped
from loom_dsl.graph.plan import Plan
from tests.support.drawn_graphs import Edges, edges_in, graphs, plan_of, runs_inner

STRING = r'"((?:[^"\\]|\\.)*)"'
EDGE = re.compile(rf" *{STRING} -> {STRING}(?: \[(.*)\])?")
NODE = re.compile(rf" *{STRING} \[label=(?:{STRING}|(start|abort)), shape=(\w+)(.*)\]")
OTHER = re.compile(rf" *(?:subgraph cluster_\w+ {{|label={STRING}|}}|compound=true|(?:graph|node|edge) \[.*\])")


def names(text: str) -> list[str]:
    return text.split("/")


def drawn(picture: str, prefix: str = "g0") -> tuple[Edges, Counter[tuple[str, str]]]:
    """The edges and the nodes of one cluster; every line must be understood."""
    edges: Edges = Counter()
    nodes: Counter[tuple[str, str]] = Counter()
    head, *lines, last = picture.splitlines()
    assert re.fullmatch(rf"digraph {STRING} {{", head)
    assert last == "}"
    for line in lines:
        edge, node = EDGE.fullmatch(line), NODE.fullmatch(line)
        assert edge or node or OTHER.fullmatch(line), line
        if edge and names(edge[1])[0] == prefix and "dir=none" not in (edge[3] or ""):
            edges[names(edge[1])[-1], names(edge[2])[-1], "style=dashed" in (edge[3] or "")] += 1
        elif node and names(node[1])[0] == prefix and "<" not in node[1]:
            nodes[names(node[1])[-1], node[4]] += 1
    return edges, nodes


@given(graph=graphs(inner=True))
def test_every_node_and_every_edge_is_drawn_once_and_no_other(graph: Graph) -> None:
    edges, nodes = drawn(dot(plan_of(graph)))
    assert edges == edges_in(graph.dump())
    ways_in = ["start", *["abort"] * bool(graph.on_abort)]
    assert Counter(key for key, _ in nodes.elements()) == Counter([*graph.nodes, *ways_in])
    shapes = {(node.kind, shape) for key, shape in nodes if shape != "circle" for node in [graph.nodes[key]]}
    assert len({kind for kind, _ in shapes}) == len({shape for _, shape in shapes}) == len(shapes)


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_graphs_are_drawn_whole(name: str) -> None:
    edges, _ = drawn(dot(Plan(name, {name: shipped(name)}, {})))
    assert edges == edges_in(shipped(name).dump())


@given(graph=graphs(inner=True))
def test_a_graph_inside_is_a_cluster_with_a_line_from_each_node_that_runs_it(graph: Graph) -> None:
    plan = plan_of(graph)
    picture = dot(plan)
    runners = [key for key, node in graph.nodes.items() if runs_inner(node)]
    linked = re.findall(r'^    "g0/(\w+)" -> "g1/>/start" \[style=dotted, dir=none', picture, re.MULTILINE)
    assert linked == runners
    if runners:
        assert drawn(picture, "g1")[0] == edges_in(graph.dump()["graphs"]["inner"])


def test_labels_are_read_as_they_were_written() -> None:
    said = 'a "quoted" \\N & &lt; <b>'
    graph = Graph.model_validate({"name": "g", "start": "x", "nodes": {"x": {"fail": {"message": said}}}})
    assert r'[label="x\nfail: a \"quoted\" \\N &amp; &amp;lt; <b>", shape=invhouse, style=filled' in dot(plan_of(graph))


def test_what_takes_an_effect_back_hangs_by_dots() -> None:
    nodes = {"x": {"tool": "t", "compensate": {"activity": "m:undo"}, "next": "y"}, "y": {"end": None}}
    picture = dot(plan_of(Graph.model_validate({"name": "g", "start": "x", "nodes": nodes})))
    assert '"g0/</x" [label="m:undo", shape=box, style=rounded]' in picture
    assert '"g0/x" -> "g0/</x" [style=dotted, dir=none, label="\xa0\xa0undone by\xa0\xa0\xa0\\l"]' in picture


def test_the_pipeline_of_tools_is_drawn_when_asked_for() -> None:
    nodes = {"x": {"tool": "t", "next": "y"}, "y": {"end": None}}
    graph = Graph.model_validate({"name": "g", "start": "x", "nodes": nodes})
    plan = Plan("g", {"g": graph, "loom.tool_node": shipped("loom.tool_node")}, {})
    assert "loom.tool_node" not in dot(plan)
    assert drawn(dot(plan, whole=True), "g1")[0] == edges_in(shipped("loom.tool_node").dump())


def test_where_a_job_stands_is_coloured() -> None:
    nodes = {"x": {"tool": "t", "next": "y"}, "y": {"end": None}}
    plan = plan_of(Graph.model_validate({"name": "g", "start": "x", "nodes": nodes}))
    picture = dot(plan, overlay=Overlay({"g": {"x": 2}}, {"g": {"y": {"here": 1}}}))
    assert '"g0/x" [label="x\\ntool: t\\n2 visits", shape=parallelogram, style=filled' in picture
    assert '"g0/y" [label="y\\n1 here", shape=doublecircle, style="filled,bold"' in picture
