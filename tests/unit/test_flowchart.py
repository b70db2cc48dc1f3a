"""A graph as text: every edge is one line or one rail, at any width, with and without Unicode."""

import io
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_cli.render.flowchart import draw
from loom_cli.render.terminal import Terminal, cells
from loom_dsl.authoring.overlay import Overlay
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped
from loom_dsl.graph.plan import Plan
from tests.support.drawn_graphs import Edges, edges_in, graphs, plan_of

FANCY = re.compile(r"(?P<margin>(?:[│ ]  )*)(?P<tee>[├└])(?P<dashed>[─╌]) ?(?:.*? )??[→⇢] (?P<to>.*)")
PLAIN = re.compile(r"(?P<margin>(?:[| ]  )*)(?P<tee>[+`])(?P<dashed>[-.]) ?(?:.*? )??[-.]> (?P<to>.*)")
LETTERS = st.text("abcäß中", max_size=8)
"""Texts in which nothing looks like a part of the drawing."""


def shown(plan: Plan, columns: int = 10_000, *, fancy: bool = True, **more: Any) -> str:
    stream = io.StringIO()
    draw(Terminal(stream, columns=lambda: columns, fancy=fancy), plan, **more)
    return stream.getvalue()


def read(text: str, *, fancy: bool = True) -> tuple[Edges, Counter[str]]:
    """The edges and the nodes of one graph's picture, as a reader sees them: where does each rail lead?"""
    above: dict[int, str] = {}
    rail_at: int | None = None
    edges: Edges = Counter()
    nodes: Counter[str] = Counter()
    solid = "─" if fancy else "-"
    for line in text.splitlines()[1:]:
        branch = (FANCY if fancy else PLAIN).fullmatch(line)
        margin = len(branch["margin"]) if branch else len(line) - len(re.sub(r"^(?:[│| ]  )*", "", line))
        rest = line[margin:]
        if branch:
            words = branch["to"].split()
            inside = words[-1] not in ("↓", "back", "(below)", "(back)")
            name = words[1] if inside else words[0]
            edges[above[margin], name, branch["dashed"] != solid] += 1
            rail_at = None
            if inside:
                nodes[name] += 1
                above[margin + 3] = name
        elif rest[:1] in ("│", "|"):
            rail_at = margin
        elif rest:
            name = rest.split()[1]
            if rail_at == margin:
                edges[above[margin], name, False] += 1
            nodes[name] += 1
            above[margin] = name
            rail_at = None
        else:
            rail_at = None
    return edges, nodes


def read_whole(graph: Graph, **how: Any) -> None:
    edges, nodes = read(shown(plan_of(graph), **how), **how)
    assert edges == edges_in(graph.dump())
    assert nodes == Counter([*graph.nodes, "start", *["abort"] * bool(graph.on_abort)])


@given(graph=graphs(LETTERS, 8), fancy=st.booleans())
def test_every_edge_is_told_once_and_no_other(graph: Graph, fancy: bool) -> None:
    kept = {key: node.model_copy(update={"compensate": None}) for key, node in graph.nodes.items()}
    read_whole(graph.model_copy(update={"nodes": kept}), fancy=fancy)


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_graphs_are_told_whole(name: str) -> None:
    read_whole(shipped(name))


@given(graph=graphs(LETTERS, 8), columns=st.integers(40, 200), fancy=st.booleans())
def test_no_line_is_longer_than_the_terminal_and_nothing_is_lost(graph: Graph, columns: int, fancy: bool) -> None:
    plan = plan_of(graph)
    narrow = shown(plan, columns, fancy=fancy)
    assert max(map(cells, narrow.splitlines())) < columns
    assert re.findall(r"\w", narrow) == re.findall(r"\w", shown(plan, fancy=fancy))


@given(graph=graphs(st.text("abc", max_size=8)))
def test_without_unicode_the_drawing_is_ascii(graph: Graph) -> None:
    assert shown(plan_of(graph), fancy=False).isascii()


def chain(length: int) -> Graph:
    nodes: dict[str, Any] = {f"n{index}": {"next": f"n{index + 1}"} for index in range(length)}
    return Graph.model_validate({"name": "g", "start": "n0", "nodes": {**nodes, f"n{length}": {"end": None}}})


def choices(length: int) -> Graph:
    """Each node goes on, or aside to a node of its own, or back to the first one."""
    nodes: dict[str, Any] = {"last": {"end": None}}
    for index in range(length):
        after = f"n{index + 1}" if index + 1 < length else "last"
        ways = [{"if": "input.a", "to": f"aside{index}"}, {"if": "input.b", "to": "n0"}, {"to": after}]
        nodes |= {f"n{index}": {"next": ways}, f"aside{index}": {"tool": "x", "next": "last"}}
    return Graph.model_validate({"name": "g", "start": "n0", "nodes": nodes})


@pytest.mark.parametrize("graph", [chain(2_000), choices(1_000)], ids=["chain", "choices"])
def test_a_graph_of_2000_nodes_is_not_moved_in_further_than_a_small_one(graph: Graph) -> None:
    read_whole(graph)
    assert max(map(len, shown(plan_of(graph)).splitlines())) < 60


def test_only_edges_that_close_a_loop_lead_up() -> None:
    told = shown(plan_of(choices(30)))
    assert told.count("↑ back") == 30
    assert set(re.findall(r"(\w+) ↑ back", told)) == {"n0"}


def test_a_small_graph_reads_from_top_to_bottom() -> None:
    nodes = {
        "build": {"activity": "my.build", "next": ["unit", "lint"], "catch": {"any": "broken"}},
        "unit": {"tool": "shell.pytest", "next": "both"},
        "lint": {"tool": "shell.ruff", "next": "both"},
        "both": {"join": "all", "next": [{"if": "result.unit.passed", "to": "agree"}, {"to": "build"}]},
        "agree": {
            "approval": "Ship it?",
            "deadline": {"after": "24h", "to": "broken"},
            "compensate": {"activity": "my:undo"},
            "next": "done",
        },
        "done": {"end": None},
        "broken": {"fail": "not shipped"},
    }
    graph = Graph.model_validate({"name": "release", "start": "build", "nodes": nodes})
    assert (
        shown(plan_of(graph), 80)
        == """\
release
● start
│
■ build  my.build
├─→ ■ unit  tool: shell.pytest
│  └─→ both ↓
├─→ ■ lint  tool: shell.ruff
│  └─→ both ↓
└╌ on any ⇢ broken ↓

▼ both  join: all
├─ if result.unit.passed → ◆ agree  approval: Ship it?, undone by my:undo
│  ├╌ after 1d ⇢ broken ↓
│  │
│  ◉ done
└─ else → build ↑ back

✗ broken  fail: not shipped
"""
    )
    assert (
        shown(plan_of(graph), 44, fancy=False)
        == """\
release
@ start
|
* build  my.build
+--> * unit  tool: shell.pytest
|  `--> both (below)
+--> * lint  tool: shell.ruff
|  `--> both (below)
`. on any .> broken (below)

& both  join: all
+- if result.unit.passed -> ! agree
|  |   approval: Ship it?, undone by
|  |   my:undo
|  +. after 1d .> broken (below)
|  |
|  o done
`- else -> build (back)

x broken  fail: not shipped
"""
    )


def test_where_a_job_stands_is_told_with_the_nodes() -> None:
    overlay = Overlay({"g": {"n0": 1, "n1": 3}}, {"g": {"n1": {"running": 2, "here": 1}}})
    assert shown(plan_of(chain(1)), overlay=overlay) == (
        "g\n● start\n│\n◇ n0  [1 visit]\n│\n◉ n1  [3 visits, 2 running, 1 here]\n"
    )


def test_colours_change_nothing_but_colours() -> None:
    stream = io.StringIO()
    draw(Terminal(stream, columns=lambda: 60, colour=True), plan_of(shipped("loom.tt")))
    assert re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()) == shown(plan_of(shipped("loom.tt")), 60)
    assert "\x1b[1m" in stream.getvalue()


def test_what_a_terminal_would_obey_is_made_visible() -> None:
    nodes = {"a": {"fail": "\x1b[2Jgone"}}
    told = shown(plan_of(Graph.model_validate({"name": "g", "start": "a", "nodes": nodes})))
    assert "\\x1b[2Jgone" in told
    assert "\x1b" not in told
