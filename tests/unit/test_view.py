"""Parts of a graph: the same nodes and graphs are drawn in every format, and what is left out is told."""

import io
import re
from collections.abc import Callable

import pytest

from loom_cli.render.flowchart import draw
from loom_cli.render.terminal import Terminal
from loom_dsl.authoring.dot import dot
from loom_dsl.authoring.kinds import BEEN, HERE, INK, KINDS, PAPER, WARNING
from loom_dsl.authoring.mermaid import mermaid_plan
from loom_dsl.authoring.view import Excerpt, view
from loom_dsl.errors import UserError
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from tests.support.drawn_graphs import plan_of

DEEP = {"nodes": {"dig": {"next": "out"}, "out": {"end": None}}}
INNER = {"nodes": {"look": {"next": "deeper"}, "deeper": {"graph": "deep", "next": "seen"}, "seen": {"end": None}}}
NODES = {
    "first": {"next": "second"},
    "second": {"next": [{"if": "input.a", "to": "each"}, {"to": "first"}]},
    "each": {"map": {"over": "input.l", "do": "inner"}, "next": "last"},
    "last": {"next": "done"},
    "done": {"end": None},
}
PLAN = plan_of(
    Graph.model_validate({"name": "g", "start": "first", "nodes": NODES, "graphs": {"inner": INNER, "deep": DEEP}})
)


def text(plan: Plan, part: Excerpt) -> str:
    stream = io.StringIO()
    draw(Terminal(stream, columns=lambda: 200), plan, part=part)
    return stream.getvalue()


FORMATS: list[Callable[[Plan, Excerpt], str]] = [
    text,
    lambda plan, part: mermaid_plan(plan, part=part),
    lambda plan, part: dot(plan, part=part),
]
ALL_OF_G, ALL_OF_INNER, ALL_OF_DEEP = set(NODES), set(INNER["nodes"]), set(DEEP["nodes"])


@pytest.mark.parametrize(
    ("only", "depth", "graphs", "folded"),
    [
        ([], None, {"g": ALL_OF_G, "g/inner": ALL_OF_INNER, "g/deep": ALL_OF_DEEP}, {}),
        ([], 2, {"g": ALL_OF_G, "g/inner": ALL_OF_INNER, "g/deep": ALL_OF_DEEP}, {}),
        ([], 1, {"g": ALL_OF_G, "g/inner": ALL_OF_INNER}, {"g/deep": "2 nodes"}),
        ([], 0, {"g": ALL_OF_G}, {"g/inner": "5 nodes in it and 1 graph below"}),
        (["first"], None, {"g": {"first", "second"}}, {}),
        (["each"], None, {"g": {"second", "each", "last"}}, {"g/inner": "5 nodes in it and 1 graph below"}),
        (["each"], 1, {"g": {"second", "each", "last"}, "g/inner": ALL_OF_INNER}, {"g/deep": "2 nodes"}),
        (["g/inner/look"], None, {"g/inner": {"look", "deeper"}}, {}),
        (["first", "dig"], None, {"g": {"first", "second"}, "g/deep": ALL_OF_DEEP}, {}),
        (["inner"], None, {"g/inner": ALL_OF_INNER, "g/deep": ALL_OF_DEEP}, {}),
        (["g/inner"], 0, {"g/inner": ALL_OF_INNER}, {"g/deep": "2 nodes"}),
    ],
)
def test_a_part_is_the_same_in_every_format(
    only: list[str], depth: int | None, graphs: dict[str, set[str]], folded: dict[str, str]
) -> None:
    part = view(PLAN, only=only, depth=depth)
    assert {name: set(graph.nodes) for name, graph in part.graphs.items()} == graphs
    assert part.folded == folded
    every = ALL_OF_G | ALL_OF_INNER | ALL_OF_DEEP
    drawn = set[str]().union(*graphs.values())
    for form in FORMATS:
        picture = form(PLAN, part)
        words = set(re.findall(r"[a-z]+", re.sub(r"class.*", "", picture)))
        # `inner`, `deep` and `end` name graphs and kinds, and are no nodes.
        assert words & every == drawn, picture
        assert all(name in picture and size in picture for name, size in folded.items()), picture


def test_a_graph_that_is_not_drawn_whole_says_so_and_has_every_edge_between_what_is_drawn() -> None:
    part = view(PLAN, only=["first"])
    assert [(line.source, line.target) for line in part.graphs["g"].edges] == [("first", "second"), ("second", "first")]
    assert all("g (2 of 5 nodes)" in form(PLAN, part) for form in FORMATS)


@pytest.mark.parametrize(
    ("only", "depth", "said"),
    [
        (["frist"], None, "--only frist: there is no such node or graph; did you mean `first`?"),
        (["iner"], None, "did you mean `inner`?"),
        (["g/inner/lok"], None, "did you mean `g/inner/look`?"),
        (["qqq", "first", "zzz"], None, "--only zzz: there is no such node or graph; there are first, second"),
        ([], -1, "--depth -1: write 0"),
    ],
)
def test_a_name_that_is_not_there_is_told_with_a_near_one(only: list[str], depth: int | None, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        view(PLAN, only=only, depth=depth)


def light(colour: str) -> float:
    """The relative luminance of a colour, as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("ink", "ground", "least"),
    [
        *((INK, colour.fill, 7) for colour in KINDS.values()),
        *((colour.line, PAPER, 4.5) for colour in KINDS.values()),
        *((ink, PAPER, 4.5) for ink in (INK, HERE, BEEN, WARNING)),
    ],
)
def test_colours_can_be_read(ink: str, ground: str, least: float) -> None:
    low, high = sorted((light(ink), light(ground)))
    assert (high + 0.05) / (low + 0.05) >= least
