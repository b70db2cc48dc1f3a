"""A graph as text for a terminal: nodes from top to bottom, branches moved in, and every edge one line.

A rail between two nodes is the edge that is always taken. All other edges are lines that begin at the node's rail and
name their target: what follows in the same line is told there and only there, ``↓`` says that it is told further down,
and ``↑ back`` that the edge closes a loop. Dotted lines are the ways of deadlines, caught errors and used-up counts.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from loom_cli.render.terminal import Terminal, cells
from loom_dsl.authoring.outline import OutlineEdge, about, notes, undone_by
from loom_dsl.authoring.overlay import Overlay
from loom_dsl.authoring.view import Cutout, Excerpt, view
from loom_dsl.graph.plan import Plan
from loom_dsl.text.printable import visible

# In which order the nodes of a graph are told, and which stand inside which: a graph as a text from top to bottom.
#
# A node that can only be reached by way of another one (its dominator) belongs to that one: in the branch that leads
# to it if the branch is small and nothing else leads there, and after all branches otherwise. So branches are moved
# in, what comes together after them is not, every forward edge leads down, and only loops lead up. A branch is moved
# in only if it is less than half of what its node dominates, so the depth grows with the logarithm of the size.


TOP = ""
"""What everything follows from; a way in is named with ``>`` before it."""
SMALL = 3
"""So many nodes are moved in, whatever share of the rest they are."""


@dataclass(frozen=True, slots=True)
class ToldEdge:
    """An edge as it is told.

    Attributes:
        line: The edge.
        inside: Whether the target is told here, moved in; otherwise it is only named.
        back: Whether the edge leads to where the text has been before.
    """

    line: OutlineEdge
    inside: bool = False
    back: bool = False


@dataclass(slots=True)
class Outline:
    """What is told of each node.

    Attributes:
        ways: Its edges in the order of the document.
        sequels: What is told after it, not moved in.
    """

    ways: dict[str, list[ToldEdge]] = field(default_factory=dict)
    sequels: dict[str, list[str]] = field(default_factory=dict)


def outline(graph: Cutout) -> Outline:
    """Put the nodes of a graph in order. Nodes to which nothing leads come last."""
    lines: dict[str, list[OutlineEdge]] = {key: [] for key in graph.nodes}
    for line in graph.edges:
        lines[line.source].append(line)
    ways_in = {f">{way}": to for way, to in graph.ways_in.items()}
    lines |= {way: [OutlineEdge(way, to)] for way, to in ways_in.items()}
    after = {key: [line.target for line in found] for key, found in lines.items()}
    after[TOP] = list(ways_in)
    order = _order(after)
    while missing := [key for key in graph.nodes if key not in order]:
        after[TOP].append(missing[0])
        order = _order(after)
    owner = _dominators(after, order)
    size = _sizes(owner, order)
    arrivals = _arrivals(after, order)
    result = Outline(sequels={key: [] for key in order})
    for key in order:
        result.ways[key] = []
        for line in lines.get(key, ()):
            back = order[line.target] <= order[key]
            small = size[line.target] <= max(SMALL, (size[key] - 1) // 2)
            only = not back and arrivals[line.target] == 1 and owner[line.target] == key
            result.ways[key].append(ToldEdge(line, only and small and not _carries_on(lines[key], line), back))
    inside = {way.line.target for ways in result.ways.values() for way in ways if way.inside}
    for key in order:
        if key != TOP and key not in inside:
            result.sequels[owner[key]].append(key)
    return result


def _carries_on(lines: list[OutlineEdge], line: OutlineEdge) -> bool:
    """Whether this is the only way of the node's result: what follows is not moved in, however small."""
    return not line.dashed and sum(not other.dashed for other in lines) == 1


def _order(after: Mapping[str, list[str]]) -> dict[str, int]:
    """Number what can be reached from the top, so that only edges that close a loop lead to a lower number."""
    done: list[str] = []
    seen, stack = {TOP}, [(TOP, _backwards(after[TOP]))]
    while stack:
        key, rest = stack[-1]
        target = next((name for name in rest if name not in seen), None)
        if target is None:
            stack.pop()
            done.append(key)
        else:
            seen.add(target)
            stack.append((target, _backwards(after[target])))
    return {key: index for index, key in enumerate(reversed(done))}


def _backwards(names: list[str]) -> Iterator[str]:
    return iter(names[::-1])


def _forward(after: Mapping[str, list[str]], order: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    return ((key, to) for key in order for to in after[key] if order[to] > order[key])


def _dominators(after: Mapping[str, list[str]], order: Mapping[str, int]) -> dict[str, str]:
    """Find the nearest node that every forward way to a node passes."""
    owner: dict[str, str] = {}
    for key, to in _forward(after, order):  # sources come in order, so all that is above a source is known
        found = owner.get(to, key)
        while found != key:
            if order[found] > order[key]:
                found = owner[found]
            else:
                key = owner[key]
        owner[to] = found
    return owner


def _sizes(owner: Mapping[str, str], order: Mapping[str, int]) -> dict[str, int]:
    """Count what each node dominates, itself too."""
    size = dict.fromkeys(order, 1)
    for key in sorted(owner, key=order.__getitem__, reverse=True):
        size[owner[key]] += size[key]
    return size


def _arrivals(after: Mapping[str, list[str]], order: Mapping[str, int]) -> dict[str, int]:
    """Count the forward edges that lead to each node."""
    count = dict.fromkeys(order, 0)
    for _, to in _forward(after, order):
        count[to] += 1
    return count


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


def draw(
    paper: Terminal, plan: Plan, *, whole: bool = False, overlay: Overlay | None = None, part: Excerpt | None = None
) -> None:
    """Write the graphs of a plan, the root first, wrapped at the width of the paper.

    Args:
        paper: Where to write.
        plan: The plan.
        whole: Whether the graph behind tool nodes is written, too.
        overlay: Where a job stands: visits and tokens are told with the nodes.
        part: What is written, where it is not everything; `whole` is not looked at then.
    """
    seen = part or view(plan, whole=whole)
    for index, (name, graph) in enumerate(seen.graphs.items()):
        if index:
            paper.line()
        paper.line(graph.title(name), "bold")
        for row in _Chart(graph, name, overlay or Overlay(), _Marks() if paper.fancy else _PLAIN).rows():
            _write(paper, *row)
    for name, size in seen.folded.items():
        paper.line()
        sign = Span(_GLYPHS["graph"][not paper.fancy], sticky=True)
        _write(paper, "", "    ", [sign, Span(name, "bold"), Span(size, "dim", gap=2)])


def _write(paper: Terminal, first: str, hang: str, spans: "list[Span]") -> None:
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


def _put(paper: Terminal, line: "list[Span]") -> None:
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

    def __init__(self, graph: Cutout, name: str, overlay: Overlay, marks: _Marks) -> None:
        self._nodes = graph.nodes
        self._name, self._overlay, self._marks = name, overlay, marks
        self._outline: Outline = outline(graph)

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

    def _way(self, way: ToldEdge, margin: str, *, last: bool) -> Iterator[Row]:
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
        if key.startswith(">"):
            return [Span(marks.way_in, "green"), Span(key[1:], "green")]
        node = self._nodes[key]
        here = self._overlay.holds(self._name, key)
        undone = undone_by(node)
        told = [about(node), *notes(node), f"undone by {undone}" if undone else ""]
        spans = [Span(_GLYPHS[node.kind][marks.plain], _STYLES.get(node.kind, ""), sticky=True), Span(key, "bold")]
        spans.append(Span(", ".join(text for text in told if text), "dim", gap=2))
        words = ", ".join(self._overlay.words(self._name, key))
        return [*spans, Span(f"[{words}]", "bold yellow" if here else "green", gap=2)] if words else spans
