"""The picture of a graph shows its nodes and its edges, each once, and nothing else."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.agent import Agent
from loom_dsl.compile import compile_agent
from loom_dsl.draw import LONGEST_LABEL, mermaid, mermaid_plan
from loom_dsl.graph import Graph
from loom_dsl.library import NAMES, shipped

ROOT = Path(__file__).parents[2]
EDGE = re.compile(r' *(\w+) (-->|-\.->)(?:\|"([^"|]*)"\|)? (\w+)')
NODE = re.compile(r' *(\w+)(\(\(\(|\(\(|\(\[|\[\[|\[|\{\{|\{|>)"([^"]*)"(\)\)\)|\)\)|\]\)|\]\]|\]|\}\}|\})')
SHAPE = {"{": "branch", "[": "activity", "[[": "map", "{{": "approval", "([": "recurse", "(((": "end", ">": "fail"}
ENTITIES = {"quot": '"', "lt": "<", "gt": ">", "amp": "&"}
WORDS_OF_MERMAID = ["end", "End", "style", "class", "graph", "subgraph", "default", "click", "start", "abort"]


def read(label: str) -> str:
    return re.sub(r"#(\w+);", lambda found: ENTITIES.get(found[1]) or chr(int(found[1])), label)


def drawn_nodes(picture: str) -> dict[str, tuple[str, str]]:
    """Every id with its shape and label; the ways in have the shape of a plain circle."""
    found = [match for line in picture.splitlines() if (match := NODE.fullmatch(line))]
    assert len({match[1] for match in found}) == len(found), "two nodes have one id"
    return {match[1]: (match[2], read(match[3])) for match in found}


def drawn_edges(picture: str) -> Counter[tuple[str, str, str, bool]]:
    """Every edge: names of source and target as their labels say them, its own label, whether it is dashed."""
    names = {key: label.split("<br>")[0] for key, (_, label) in drawn_nodes(picture).items()}
    found = [match for line in picture.splitlines() if (match := EDGE.fullmatch(line))]
    return Counter((names[m[1]], names[m[4]], read(m[3] or ""), m[2] == "-.->") for m in found)


def edges_of(document: dict[str, Any]) -> Counter[tuple[str, str, bool]]:
    """The edges of a graph's normal form: source, target, whether it is not one of the node's results."""
    found = [("start", document["start"], False)]
    if document.get("on_abort"):
        found.append(("abort", document["on_abort"], False))
    for key, node in document["nodes"].items():
        found += [(key, edge["to"], False) for edge in node.get("next", {}).get("first", [])]
        found += [(key, to, False) for to in node.get("next", {}).get("all", [])]
        found += [(key, to, True) for to in node.get("catch", {}).values()]
        found += [(key, node[way]["to"], True) for way in ("deadline",) if way in node]
        found += [(key, node["exhausted"], True)] if "exhausted" in node else []
    return Counter(found)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    identifiers = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
    keys = draw(st.lists(identifiers | st.sampled_from(WORDS_OF_MERMAID), min_size=1, max_size=6, unique=True))
    target = st.sampled_from(keys)
    text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
    condition = text.map(lambda value: f"turn.x == {value!r}")
    edge = st.fixed_dictionaries({"to": target}, optional={"if": condition})
    body = st.one_of(
        st.just({}),
        st.fixed_dictionaries({"activity": text}),
        st.just({"map": {"over": "turn.list", "do": "loom.tool_call"}}),
        st.just({"approval": {"request": {}}}),
        st.just({"recurse": {}}),
        st.just({"end": {"a": 1}}),
        st.just({"fail": {"message": "no"}}),
    )
    shared = st.fixed_dictionaries(
        {"next": st.lists(edge, max_size=3) | st.lists(target, max_size=3)},
        optional={
            "catch": st.dictionaries(st.sampled_from(["any", "timeout"]), target),
            "deadline": st.fixed_dictionaries({"after": st.sampled_from([None, "5m", "${agent.x}"]), "to": target}),
            "exhausted": target,
            "phase": text,
        },
    )
    nodes = {key: {**draw(shared), **draw(body)} for key in keys}
    return Graph.model_validate(
        {"name": "g", "start": draw(target), "on_abort": draw(st.none() | target), "nodes": nodes}
    )


@given(graph=graphs())
def test_every_edge_is_drawn_once_and_no_other(graph: Graph) -> None:
    drawn = drawn_edges(mermaid(graph))
    expected = edges_of(graph.dump())
    assert Counter((source, target, dashed) for source, target, _, dashed in drawn.elements()) == expected


@given(graph=graphs())
def test_every_node_is_drawn_once_in_the_shape_of_its_kind(graph: Graph) -> None:
    nodes = drawn_nodes(mermaid(graph))
    drawn = {label.split("<br>")[0]: SHAPE[shape] for shape, label in nodes.values() if shape != "(("}
    assert drawn == {key: node.kind for key, node in graph.nodes.items()}
    assert [label for shape, label in nodes.values() if shape == "(("] == ["start"] + ["abort"] * bool(graph.on_abort)


@given(graph=graphs())
def test_no_id_is_a_word_of_mermaid_and_every_line_is_understood(graph: Graph) -> None:
    picture = mermaid(graph)
    assert picture == mermaid(Graph.model_validate(graph.dump()))
    for line in picture.splitlines()[1:]:
        lane = re.fullmatch(r' *subgraph (\w+)\["[^"]*"\]| *end', line)
        found = EDGE.fullmatch(line) or NODE.fullmatch(line) or lane
        assert found, line
        assert (found.groups()[0] or "").lower() not in {
            "end",
            "style",
            "class",
            "graph",
            "subgraph",
            "click",
            "default",
        }


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_graphs_are_drawn_whole(name: str) -> None:
    graph = shipped(name)
    drawn = drawn_edges(mermaid(graph))
    assert Counter((source, target, dashed) for source, target, _, dashed in drawn.elements()) == edges_of(graph.dump())


@pytest.mark.parametrize(
    "edge",
    [
        ("authorize", "ask", "result.decision == 'ask'", False),
        ("authorize", "format", "else", False),
        ("execute", "format", "", False),
        ("execute", "format", "on any", True),
        ("ask", "expired", "after agent.approvals.expires", True),
    ],
)
def test_an_edge_says_why_it_is_taken(edge: tuple[str, str, str, bool]) -> None:
    assert edge in drawn_edges(mermaid(shipped("loom.tool_call")))


def test_a_long_condition_is_shortened() -> None:
    nodes = {"a": {"next": [{"if": f"turn.x == '{'y' * 200}'", "to": "b"}, {"to": "b"}]}, "b": {"end": {}}}
    picture = mermaid(Graph.model_validate({"name": "g", "start": "a", "nodes": nodes}))
    (label,) = (label for _, _, label, _ in drawn_edges(picture) if label.startswith("turn"))
    assert len(label) == LONGEST_LABEL
    assert label.endswith("y…")


def test_nodes_of_one_phase_share_a_lane() -> None:
    lines = mermaid(shipped("loom.tt")).splitlines()
    place = lines.index('    subgraph lane_recurse["recurse"]')
    assert lines[place + 1 : place + 4] == ['        next_turn(["next_turn"])', '        again(["again"])', "    end"]


def test_a_plan_is_one_picture_with_a_line_from_each_map_to_its_graph() -> None:
    plan = compile_agent(Agent(name="a", model="m"))
    picture = mermaid_plan(plan)
    drawn = Counter((source, target, dashed) for source, target, _, dashed in drawn_edges(picture).elements())
    assert drawn == edges_of(shipped("loom.tt").dump()) + edges_of(shipped("loom.tool_call").dump())
    assert picture.count("-. ") == 1
    assert '    g0_calls -. "for each" .- g1\n' in picture
    assert '    subgraph g1["loom.tool_call"]\n' in picture


def test_the_pictures_in_the_documentation_are_up_to_date() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "pictures.py"), "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_a_picture_is_written_between_its_marks_and_checked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n<!-- picture: loom.tool_call -->\nold\n<!-- end of picture -->\nb\n", encoding="utf-8")
    command = [sys.executable, str(ROOT / "docs" / "pictures.py")]
    assert subprocess.run([*command, "--check", str(page)], cwd=ROOT, capture_output=True).returncode == 1
    assert subprocess.run([*command, str(page)], cwd=ROOT).returncode == 0
    assert page.read_text(encoding="utf-8") == (
        "# A\n<!-- picture: loom.tool_call -->\n```mermaid\n"
        f"{mermaid(shipped('loom.tool_call'))}```\n<!-- end of picture -->\nb\n"
    )
    assert subprocess.run([*command, "--check", str(page)], cwd=ROOT).returncode == 0
