"""A graph as text for a terminal: nodes from top to bottom, branches moved in, and every edge one line.

A rail between two nodes is the edge that is always taken. All other edges are lines that begin at the node's rail and
name their target: what follows in the same line is told there and only there, ``↓`` says that it is told further down,
and ``↑ back`` that the edge closes a loop. Dotted lines are the ways of deadlines, caught errors and used-up counts.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from loom_client.render.flow import cells
from loom_client.render.outline import ABORT, START, TOP, Outline, Way, outline
from loom_client.render.paper import Paper
from loom_client.render.text import visible
from loom_dsl.overlay import Overlay
from loom_dsl.plan import Plan
from loom_dsl.sketch import about, notes, shown, undone_by

_NARROWEST = 16
"""Columns that a text has at least, however deep it stands."""
_STYLES = {"end": "green", "fail": "red", "approval": "yellow", "event": "yellow", "timer": "yellow"}
_GLYPHS = {
    "branch": ("◇", "?"),
    "activity": ("■", "*"),
    "tool": ("■", "*"),
    "agent": ("▲", "*"),
    "llm": ("▲", "*"),
    "approval": ("◆", "!"),
    "event": ("▷", "!"),
    "timer": ("◷", "!"),
    "join": ("▼", "&"),
    "map": ("≡", "%"),
    "loop": ("↻", "%"),
    "graph": ("▣", "%"),
    "race": ("◇", "?"),
    "set": ("□", "="),
    "cancel": ("⊗", "x"),
    "recurse": ("↺", "^"),
    "end": ("◉", "o"),
    "fail": ("✗", "x"),
}


@dataclass(frozen=True, slots=True)
class _Marks:
    """The characters of a drawing."""

    rail: str = "│"
    tee: str = "├"
    corner: str = "└"
    solid: tuple[str, str] = ("─", "→")
    dashed: tuple[str, str] = ("╌", "⇢")
    way_in: str = "●"
    below: str = "↓"
    back: str = "↑ back"
    plain: bool = False


_PLAIN = _Marks("|", "+", "`", ("-", "->"), (".", ".>"), "@", "(below)", "(back)", True)


def draw(paper: Paper, plan: Plan, *, whole: bool = False, overlay: Overlay | None = None) -> None:
    """Write the graphs of a plan, the root first, wrapped at the width of the paper.

    Args:
        paper: Where to write.
        plan: The plan.
        whole: Whether the graph behind tool nodes is written, too.
        overlay: Where a job stands: visits and tokens are told with the nodes.
    """
    for index, name in enumerate(shown(plan, whole=whole)):
        if index:
            paper.line()
        paper.line(name, "bold")
        for row in _Chart(plan, name, overlay or Overlay(), _Marks() if paper.fancy else _PLAIN).rows():
            _write(paper, *row)


def _write(paper: Paper, first: str, hang: str, spans: "list[Span]") -> None:
    """Write one row: words that do not fit go to lines of their own, behind `hang`."""
    width = max(paper.columns() - 1, cells(hang) + _NARROWEST)
    first = first if any(span.text for span in spans) else first.rstrip()
    line, taken, fresh = [Span(first, "dim", 0)], cells(first), True
    for group in _groups(spans, width - cells(hang)):
        room = sum(cells(word.text) + word.gap for word in group)
        if not fresh and taken + room > width:
            _put(paper, line)
            line, taken, fresh = [Span(hang, "dim", 0)], cells(hang), True
        for word in group:
            line.append(word._replace(gap=0 if fresh else word.gap))
            taken, fresh = taken + line[-1].gap + cells(word.text), False
    _put(paper, line)


def _put(paper: Paper, line: "list[Span]") -> None:
    """Write a line, each run of words in one style as a whole."""
    text = ""
    for style, words in groupby(line, lambda word: word.style):
        run = list(words)
        inner = "".join(" " * word.gap + word.text for word in run[1:])
        text += " " * run[0].gap + paper.styled(run[0].text + inner, style)
    print(text, file=paper.stream)


def _groups(spans: "list[Span]", most: int) -> Iterator[list["Span"]]:
    """Split texts into words, kept together where they belong together and fit into a line."""
    group: list[Span] = []
    for span in spans:
        for index, word in enumerate(visible(span.text).split()):
            gap = span.gap if not index else 1
            for part in _cut(word, most):
                if sum(cells(word.text) + word.gap for word in group) + gap + cells(part) > most:
                    yield group
                    group = []
                group.append(Span(part, span.style, gap, span.sticky))
                if not span.sticky:
                    yield group
                    group = []
                gap = 0
    if group:
        yield group


def _cut(word: str, most: int) -> Iterator[str]:
    """Cut a word that is longer than a line."""
    while cells(word) > most:
        size = next(size for size in range(min(len(word), most), 0, -1) if size == 1 or cells(word[:size]) <= most)
        yield word[:size]
        word = word[size:]
    yield word


class Span(NamedTuple):
    """A text in a style; how many columns before it are free; and whether it stays in the line of what follows."""

    text: str
    style: str = ""
    gap: int = 1
    sticky: bool = False


Row = tuple[str, str, list[Span]]
"""What the first line begins with, what further lines begin with, and the text."""


class _Chart:
    """The rows of one graph."""

    def __init__(self, plan: Plan, name: str, overlay: Overlay, marks: _Marks) -> None:
        self._nodes = plan.bodies[name].nodes
        self._name, self._overlay, self._marks = name, overlay, marks
        self._outline: Outline = outline(plan.bodies[name])

    def rows(self) -> Iterator[Row]:
        """All nodes and edges, from the top."""
        yield from self._blocks(list(self._outline.sequels[TOP]), "")

    def _blocks(self, keys: list[str], margin: str) -> Iterator[Row]:
        """Nodes one below the other, each with its branches and then its sequels."""
        rest, led_to = keys[::-1], True
        while rest:
            key = rest.pop()
            if not led_to:
                yield margin, margin, []
            yield margin, margin + self._hang(key), self._headline(key)
            rest += reversed(self._outline.sequels[key])
            led_to = yield from self._branches(key, margin, rest[-1] if rest else None)

    def _branches(self, key: str, margin: str, following: str | None) -> Generator[Row, None, bool]:
        """The edges of a node; whether the last row is a rail to what follows."""
        ways = self._outline.ways[key]
        results = [way for way in ways if not way.line.dashed]
        rail = len(results) == 1 and results[0].line.target == following
        told = [way for way in ways if not (rail and way is results[0])]
        for index, way in enumerate(told):
            yield from self._way(way, margin, last=not rail and index == len(told) - 1)
        if rail:
            down = f"{margin}{self._marks.rail} "
            yield down, f"{down}  ", [Span(results[0].line.label, "cyan")]
        return rail

    def _way(self, way: Way, margin: str, *, last: bool) -> Iterator[Row]:
        marks, line = self._marks, way.line
        stroke, arrow = marks.dashed if line.dashed else marks.solid
        inner = margin + (" " if last else marks.rail) + "  "
        first = f"{margin}{marks.corner if last else marks.tee}{stroke}"
        spans: list[Span] = []
        if line.label:
            first += " "
            spans.append(Span(f"if {line.label}" if line.condition else line.label, "cyan"))
        spans.append(Span(arrow, "dim", sticky=True))
        if way.inside:
            yield first, inner + self._hang(line.target), [*spans, *self._headline(line.target)]
            following = self._outline.sequels[line.target]
            rail = yield from self._branches(line.target, inner, following[0] if following else None)
            if following and not rail:
                yield inner, inner, []
            yield from self._blocks(list(following), inner)
        else:
            where = marks.back if way.back else marks.below
            yield first, f"{inner}  ", [*spans, Span(line.target, sticky=True), Span(where, "dim")]

    def _hang(self, key: str) -> str:
        """What stands below the sign of a node, where its text goes on in further lines."""
        return f"{self._marks.rail}   " if self._outline.ways[key] else "    "

    def _headline(self, key: str) -> list[Span]:
        """What is told of a node: its sign, its name, what it does, and where the job stands."""
        marks = self._marks
        if key in (START, ABORT):
            return [Span(marks.way_in, "green"), Span(key[1:], "green")]
        node = self._nodes[key]
        here = self._overlay.holds(self._name, key)
        undone = undone_by(node)
        told = [about(node), *notes(node), f"undone by {undone}" if undone else ""]
        spans = [Span(_GLYPHS[node.kind][marks.plain], _STYLES.get(node.kind, ""), sticky=True), Span(key, "bold")]
        spans.append(Span(", ".join(text for text in told if text), "dim", gap=2))
        words = ", ".join(self._overlay.words(self._name, key))
        return [*spans, Span(f"[{words}]", "bold yellow" if here else "green", gap=2)] if words else spans
