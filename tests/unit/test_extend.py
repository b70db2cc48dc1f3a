"""Graphs that extend loom.tt: nodes put in, replaced and removed."""

from typing import Any

import pytest

from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import DocumentError
from loom_dsl.graph.extend import extended
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped

HEAD = "loom: 1\nkind: graph\nname: mine\n"


def graph(text: str) -> Graph:
    """The graph that comes of a document."""
    document = load_document(HEAD + text, "mine.yaml", kinds=("graph",))
    return validate_model(extended(document, lambda name: shipped(name).dump(), NAMES), Graph)


def refused(text: str) -> str:
    """What is said against a document."""
    with pytest.raises(DocumentError) as caught:
        graph(text)
    return str(caught.value.diagnostics[0])


def edges(found: Graph, key: str) -> set[str]:
    """Where the edges of a node lead."""
    return set(found.nodes[key].targets())


def test_a_graph_that_changes_nothing_is_the_extended_one_under_another_name() -> None:
    mine, base = graph("extends: loom.tt\n"), shipped("loom.tt")
    assert mine.nodes == base.nodes
    assert (mine.name, mine.start, mine.on_abort) == ("mine", base.start, base.on_abort)


def test_a_node_before_another_takes_all_of_its_edges() -> None:
    base = shipped("loom.tt")
    mine = graph('extends: loom.tt\ninsert:\n  look: {before: calls, activity: "guards:look"}\n')
    led = {key for key, node in base.nodes.items() if "calls" in node.targets()}
    assert led
    assert all("look" in edges(mine, key) and "calls" not in edges(mine, key) for key in led)
    assert edges(mine, "look") == {"calls"}


def test_a_node_before_the_start_is_the_start() -> None:
    assert graph('extends: loom.tt\ninsert:\n  first: {before: guard, activity: "m:f"}\n').start == "first"


def test_a_node_after_another_takes_its_ways_out() -> None:
    mine = graph('extends: loom.tt\ninsert:\n  more: {after: assemble, activity: "m:f"}\n')
    assert mine.nodes["assemble"].next.targets() == ("more",)
    assert mine.nodes["more"].next == shipped("loom.tt").nodes["assemble"].next


def test_a_replaced_node_keeps_its_ways_out_unless_it_has_its_own() -> None:
    text = 'extends: loom.tt\nreplace:\n  assemble: {activity: "m:f"}\n  model: {activity: "m:g", next: finish}\n'
    mine = graph(text)
    assert mine.nodes["assemble"].next == shipped("loom.tt").nodes["assemble"].next
    assert edges(mine, "model") == {"finish"}


def test_the_edges_to_a_removed_node_lead_to_its_successor() -> None:
    mine = graph("extends: loom.tt\nremove: {at_cost: at_iterations}\n")
    assert "at_cost" not in mine.nodes
    assert "at_cost" not in {target for node in mine.nodes.values() for target in node.targets()}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("extends: loom.ttt\n", "mine.yaml:4:10: L102 there is no graph 'loom.ttt' to extend; did you mean `loom.tt`?"),
        ("insert: {a: {before: b}}\nstart: a\nnodes: {a: {end: 1}}\n", "4:9: L003 `insert` needs `extends`"),
        ("extends: loom.tt\ninsert: {a: {activity: x}}\n", "`a` needs `before` or `after`"),
        ("extends: loom.tt\ninsert: {a: {before: model, after: model}}\n", "`a` needs `before` or `after`"),
        ("extends: loom.tt\ninsert: {a: {before: modle}}\n", "5:22: L102 the extended graph has no node 'modle'"),
        ("extends: loom.tt\ninsert: {a: {before: {to: model}}}\n", "5:22: L102 the extended graph has no node {'to'"),
        ("extends: loom.tt\nreplace: {model: {catch: 5}}\ninsert: {a: {before: calls}}\n", "L004 `nodes.model.catch`"),
        ("extends: loom.tt\nreplace: {model: {race: 5}}\ninsert: {a: {before: calls}}\n", "L004 `nodes.model.race`"),
        ("extends: loom.tt\ninsert: {model: {before: calls}}\n", "there is a node `model` already"),
        ("extends: loom.tt\nreplace: {modl: {end: 1}}\n", "did you mean `model`?"),
        ("extends: loom.tt\nreplace: {model: null}\n", "`model` is to be replaced by a node"),
        ("extends: loom.tt\nremove: {modl: finish}\n", "did you mean `model`?"),
        ("extends: loom.tt\nremove: [model]\n", "`remove` is a mapping of node names"),
        ("extends: loom.tt\nnodes: {model: {end: 1}}\n", "write it under `replace`"),
        ("extends: loom.tt\ninsert: {a: {before: model, activty: x}}\n", "5:29: L002 unknown field `activty`"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    assert told in refused(text)


def test_the_result_is_a_plain_graph_that_dumps_and_loads() -> None:
    text = 'extends: loom.tt\ninsert:\n  look: {before: calls, activity: "guards:look", state: tool_running}\n'
    dumped: dict[str, Any] = graph(text).dump()
    assert Graph.model_validate(dumped).dump() == dumped
    assert "extends" not in dumped
