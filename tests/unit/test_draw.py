"""The picture of a graph shows its nodes and its edges, each once, and nothing else."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given

from loom_dsl.agent.definition import Agent
from loom_dsl.authoring.mermaid import MAX_LABEL, mermaid, mermaid_plan
from loom_dsl.graph.compiler import compile_agent
from loom_dsl.graph.edges import Compensation
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped
from tests.support.drawn_graphs import edges_in, graphs, plan_of, runs_inner

ROOT = Path(__file__).parents[2]
EDGE = re.compile(r' *(\w+) (-->|-\.->)(?:\|"([^"|]*)"\|)? (\w+)')
UNDO = re.compile(r' *(\w+) -\.-o \|"undone by"\| (\w+)')
LINK = re.compile(r' *(\w+) -\. "(?:for each|each round|runs)" \.- (\w+)')
NODE = re.compile(
    r' *(\w+)(\(\(\(|\(\(|\(\[|\(|\[\[|\[\(|\[/|\[\\|\[|\{\{|\{|>)"([^"]*)"'
    r"(\)\)\)|\)\)|\]\)|\]\]|\)\]|/\]|\\\]|\]|\)|\}\}|\})"
)
SHAPES = {
    "branch": "{}", "activity": "[]", "tool": "[//]", "agent": "()", "llm": "[\\\\]", "approval": "{{}}",
    "event": "[/\\]", "timer": "[\\/]", "join": "(())", "map": "[[]]", "loop": "[[]]", "graph": "[[]]",
    "race": "{}", "set": "[()]", "cancel": ">]", "recurse": "([])", "end": "((()))", "fail": ">]",
}  # fmt: skip
AGAIN = '        again(["again<br>recurse"])'
ENTITIES = {"quot": '"', "lt": "<", "gt": ">", "amp": "&"}


def read(label: str) -> str:
    return re.sub(r"#(\w+);", lambda found: ENTITIES.get(found[1]) or chr(int(found[1])), label)


def drawn_nodes(picture: str) -> dict[str, tuple[str, str]]:
    """Every id with its shape and label."""
    found = [match for line in picture.splitlines() if (match := NODE.fullmatch(line))]
    assert len({match[1] for match in found}) == len(found), "two nodes have one id"
    return {match[1]: (match[2] + match[4], read(match[3])) for match in found}


def drawn_edges(picture: str) -> Counter[tuple[str, str, str, bool]]:
    """Every edge: names of source and target as their labels say them, its own label, whether it is dashed."""
    names = {key: label.split("<br>")[0] for key, (_, label) in drawn_nodes(picture).items()}
    found = [match for line in picture.splitlines() if (match := EDGE.fullmatch(line))]
    return Counter((names[m[1]], names[m[4]], read(m[3] or ""), m[2] == "-.->") for m in found)


@given(graph=graphs())
def test_every_edge_is_drawn_once_and_no_other(graph: Graph) -> None:
    drawn = drawn_edges(mermaid(graph))
    expected = edges_in(graph.dump())
    assert Counter((source, target, dashed) for source, target, _, dashed in drawn.elements()) == expected


@given(graph=graphs())
def test_every_node_is_drawn_once_in_the_shape_of_its_kind(graph: Graph) -> None:
    drawn = Counter((label.split("<br>")[0], shape) for shape, label in drawn_nodes(mermaid(graph)).values())
    expected = [(key, SHAPES[node.kind]) for key, node in graph.nodes.items()]
    expected += [("start", "(())")] + [("abort", "(())")] * bool(graph.on_abort)
    expected += [(shown(node.compensate), "[]") for node in graph.nodes.values() if node.compensate]
    assert drawn == Counter(expected)


def shown(undo: Compensation) -> str:
    return " ".join(undo.activity.split()) or "?"


@given(graph=graphs())
def test_what_is_undone_hangs_by_a_line_without_an_arrow(graph: Graph) -> None:
    picture = mermaid(graph)
    names = {key: label.split("<br>")[0] for key, (_, label) in drawn_nodes(picture).items()}
    found = [match for line in picture.splitlines() if (match := UNDO.fullmatch(line))]
    undone = {key: shown(node.compensate) for key, node in graph.nodes.items() if node.compensate}
    assert {names[match[1]]: names[match[2]] for match in found} == undone
    links = [line for line in picture.splitlines() if EDGE.fullmatch(line) or UNDO.fullmatch(line)]
    styled = [line.split()[1].split(",") for line in picture.splitlines() if line.startswith("    linkStyle")]
    places = [str(index) for index, line in enumerate(links) if UNDO.fullmatch(line)]
    assert styled == ([places] if places else [])


@given(graph=graphs(inner=True))
def test_every_graph_of_a_plan_is_framed_and_every_node_that_runs_one_has_a_line_to_it(graph: Graph) -> None:
    picture = mermaid_plan(plan_of(graph))
    own = [key for key, node in graph.nodes.items() if runs_inner(node)]
    framed = re.findall(r'^    subgraph (g\d)\["(.*)"\]$', picture, re.MULTILINE)
    assert framed == ([("g0", "g"), ("g1", "g/inner")] if own else [])
    if own:
        expected = edges_in(graph.dump()) + edges_in(graph.dump()["graphs"]["inner"])
        drawn = drawn_edges(picture)
        assert Counter((source, target, dashed) for source, target, _, dashed in drawn.elements()) == expected
        lines = [match for line in picture.splitlines() if (match := LINK.fullmatch(line))]
        outer = Counter(match[2] for match in lines if match[1].startswith("g0_"))
        assert outer == Counter(g1=len(own))


@given(graph=graphs())
def test_no_id_is_a_word_of_mermaid_and_every_line_is_understood(graph: Graph) -> None:
    picture = mermaid(graph)
    assert picture == mermaid(Graph.model_validate(graph.dump()))
    for line in picture.splitlines()[1:]:
        lane = re.fullmatch(r' *subgraph (\w+)\["[^"]*"\]| *end', line)
        styled = re.fullmatch(r"    linkStyle [\d,]+ ()stroke-dasharray:1 4", line)
        if re.fullmatch(r"    classDef \w+ fill:#\w+,stroke:#\w+,color:#\w+|    class [\w,]+ \w+", line):
            continue
        found = EDGE.fullmatch(line) or NODE.fullmatch(line) or UNDO.fullmatch(line) or lane or styled
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
    assert Counter((source, target, dashed) for source, target, _, dashed in drawn.elements()) == edges_in(graph.dump())


@pytest.mark.parametrize(
    "edge",
    [
        ("authorize", "ask", "result.decision == 'ask'", False),
        ("authorize", "format", "else", False),
        ("execute", "format", "", False),
        ("execute", "format", "on any", True),
        ("ask", "expired", "after nodes.authorize.policy.expires", True),
    ],
)
def test_an_edge_says_why_it_is_taken(edge: tuple[str, str, str, bool]) -> None:
    assert edge in drawn_edges(mermaid(shipped("loom.tool_call")))


def test_a_long_condition_is_shortened() -> None:
    nodes = {"a": {"next": [{"if": f"turn.x == '{'y' * 200}'", "to": "b"}, {"to": "b"}]}, "b": {"end": {}}}
    picture = mermaid(Graph.model_validate({"name": "g", "start": "a", "nodes": nodes}))
    (label,) = (label for _, _, label, _ in drawn_edges(picture) if label.startswith("turn"))
    assert len(label) == MAX_LABEL
    assert label.endswith("y…")


def test_nodes_of_one_phase_share_a_lane() -> None:
    lines = mermaid(shipped("loom.tt")).splitlines()
    place = lines.index('    subgraph lane_recurse["recurse"]')
    assert lines[place + 1 : place + 4] == ['        next_turn(["next_turn<br>recurse"])', AGAIN, "    end"]


def test_a_plan_is_one_picture_with_a_line_from_each_map_to_its_graph() -> None:
    plan = compile_agent(Agent(name="a", model="m"))
    picture = mermaid_plan(plan)
    drawn = Counter((source, target, dashed) for source, target, _, dashed in drawn_edges(picture).elements())
    assert drawn == edges_in(shipped("loom.tt").dump()) + edges_in(shipped("loom.tool_call").dump())
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
