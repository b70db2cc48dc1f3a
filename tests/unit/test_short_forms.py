"""Short forms of a graph: the ways out of an approval, and graphs of one node."""

from typing import Any

import pytest
from jsonschema import Draft7Validator

from loom_dsl.authoring.mermaid import edges_of, mermaid_plan
from loom_dsl.authoring.schema import schema_of
from loom_dsl.documents.document import load_yaml
from loom_dsl.graph.builder import BodyBuilder, GraphBuilder, R, item, nodes
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.dump import to_yaml
from loom_dsl.graph.graph import Graph
from tests.support.simulated import run

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


INSIDE = (
    HEAD
    + """input: {words: list}
state: {total: {type: int, reduce: add}}
nodes:
  each: {map: {over: input.words, do: %s, %s}, next: done}
  done: {end: "${nodes.each}"}
"""
)
NODE = 'activity: "m:f", with: {word: "${item}"}, write: {total: "${result}"}'
NAMED = "graphs:\n  each_do: {nodes: {%s}}\n"


@pytest.mark.parametrize(
    ("inside", "nodes"),
    [
        (f"{{{NODE}}}", f"activity: {{{NODE}}}"),
        (f"{{nodes: {{a: {{{NODE}, next: b}}, b: {{end: 1}}}}}}", f"a: {{{NODE}, next: b}}, b: {{end: 1}}"),
        ("{end: 1}", "end: {end: 1}"),
    ],
)
def test_a_graph_inside_a_map_is_one_with_a_name(inside: str, nodes: str) -> None:
    short = compile_graph(INSIDE % (inside, "in_order: true"), "g.yaml")
    long = compile_graph(INSIDE % ("each_do", "window: 1") + NAMED % nodes, "g.yaml")
    assert short.hash == long.hash
    again = compile_graph(to_yaml(short.graphs["g"]), "g.yaml")
    assert again.hash == short.hash


def test_graphs_inside_graphs_loops_and_nodes_have_names_of_their_own() -> None:
    text = HEAD + (
        "nodes:\n"
        "  a: {loop: {do: {map: {over: '[1]', do: {activity: 'm:f'}}}, until: result, max: 2}, next: b}\n"
        "  b: {graph: {nodes: {a: {map: {over: '[1]', do: {end: 1}}}}}, next: c}\n"
        "  c: {graph: a_do, next: d}\n  d: {end: 1}\n"
        "graphs: {a_do: {nodes: {x: {end: 1}}}}\n"
    )
    graph = Graph.model_validate(load_yaml(text, "g.yaml").data)
    assert list(graph.graphs) == ["a_do", "a_do_2", "b_do", "map_do", "a_do_3"]
    assert compile_graph(to_yaml(graph), "g.yaml").graphs["g"] == graph


WRONG = [
    ('{actvity: "m:f"}', "actvity", "did you mean `activity`?"),
    ("{nods: {a: {end: 1}}}", "nods", "did you mean `nodes`?"),
    ('{activity: "m:f", timeout: soon}', "soon", "`nodes.each.map.do.timeout`"),
    ('{activity: "m:f", with: {w: "${itm}"}}', "itm", "`nodes.each.map.do.with.w`: unknown name `itm`"),
    ('{activity: "m:f", next: done}', "next", "a node that stands for a graph leads nowhere"),
    ('{activity: "m:f", catch: {any: bad}}', "bad", "`activity` goes to `bad`, which is not a node"),
    ('{nodes: {a: {activity: "m:f", write: {totl: 1}}}}', "totl", "did you mean `total`?"),
    ('{nodes: {a: {map: {over: "[1]", do: {tool: t, args: {}}}}}}', "args", "write `with`"),
]


@pytest.mark.parametrize(("inside", "at", "told"), WRONG)
def test_what_is_wrong_inside_is_told_where_it_is_written(inside: str, at: str, told: str) -> None:
    text = INSIDE % (inside, "in_order: true")
    (found,) = (one for one in check_text(text, "g.yaml") if one.severity == "error")
    assert told in str(found)
    assert (found.line, found.column) == (7, text.splitlines()[6].index(at) + 1)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("in_order: true, window: 5", "`in_order: true` is a `window` of 1"),
        ("in_ordr: true", "did you mean `in_order`?"),
        ("sequential: true", "write `in_order: true`"),
        ("as: word", "the item is always `item`"),
    ],
)
def test_order_that_is_said_in_other_words_is_told(more: str, told: str) -> None:
    assert any(told in str(found) for found in check_text(INSIDE % ("{end: 1}", more), "g.yaml"))


def test_python_writes_the_same_graph_by_a_function() -> None:
    g = GraphBuilder("g", input={"words": "list"}, state={"total": {"type": "int", "reduce": "add"}})

    def one(body: BodyBuilder) -> None:
        body.activity("activity", "m:f", word=item).write(total=R)

    g.map("each", one, over=g.input.words, in_order=True).to("done")
    g.end("done", nodes.each)
    assert g.compile().hash == compile_graph(INSIDE % (f"{{{NODE}}}", "in_order: true"), "g.yaml").hash


def test_items_in_order_see_what_those_before_them_wrote() -> None:
    text = HEAD + (
        "input: {words: list}\n"
        "state: {line: {type: str, default: ''}}\n"
        "nodes:\n"
        "  each: {map: {over: input.words, do: {set: {line: '${state.line}${item}'}}, in_order: true}, next: done}\n"
        "  done: {end: '${state.line}'}\n"
    )
    assert run(compile_graph(text, "g.yaml"), input={"words": ["a", "b", "c"]}).result == "abc"


@pytest.mark.parametrize(
    ("inside", "more", "fits"),
    [
        (f"{{{NODE}}}", "in_order: true", True),
        ("{nodes: {a: {end: 1}}}", "in_order: true, window: 1", True),
        ("{file: part.yaml}", "window: 5", True),
        (f"{{{NODE}}}", "in_order: true, window: 5", False),
        (f"{{{NODE}, next: done}}", "window: 5", False),
        ('{actvity: "m:f"}', "window: 5", False),
        ("[a]", "window: 5", False),
    ],
)
def test_editors_are_told_the_same(inside: str, more: str, fits: bool) -> None:
    data = load_yaml(INSIDE % (inside, more), "g.yaml").data
    assert Draft7Validator(schema_of("graph")).is_valid(data) == fits
