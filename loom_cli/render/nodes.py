"""The nodes of a graph's run as lines: what began, what is done and how long it took, what failed and is tried again.

A node that is done at once is one line. One that is not gets a line when something else happens meanwhile. Of a long
map only its progress is told, and what fails in it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loom_cli.render.terminal import WordWrap
from loom_cli.render.text import duration
from loom_dsl.observe.events import Event
from loom_dsl.text.printable import clock, one_line

# What models say in a graph: several may speak at once, so it is said of each text whose it is.


class NodeTexts:
    """Writes the texts of a graph's model calls, one at a time; what others say meanwhile follows when they are done.

    Args:
        begin: Begins a text, and ends the one before it.
        end: Ends the text that is open.
        current: The text that is open, if one is.
        line: Writes a line and ends what is open.
        title: The line that says whose text follows; empty where that is plain.
    """

    def __init__(
        self,
        begin: Callable[[str], WordWrap],
        end: Callable[[], None],
        current: Callable[[], WordWrap | None],
        line: Callable[[str, str], None],
        title: Callable[[str], str],
    ) -> None:
        self._begin, self._end, self._current, self._line, self._title = begin, end, current, line, title
        self._open: WordWrap | None = None
        self._node = ""
        self._shown: dict[str, str] = {}
        self._held: dict[str, str] = {}

    def delta(self, event: Event) -> None:
        """Take a piece: it is written, or kept while another text is being written."""
        node, content = _node_of(event), str(event.data.get("content", ""))
        if self._is_open() and self._node != node:
            self._held[node] = self._held.get(node, "") + content
        else:
            self._write(node, self._held.pop(node, "") + content)

    def reset(self, event: Event) -> None:
        """Take back what an attempt said that does not count."""
        node = _node_of(event)
        self._held.pop(node, None)
        if not self._shown.pop(node, ""):
            return
        attempt = event.data.get("attempt")
        again = f"the answer of {self._title(node).strip().removesuffix(':') or 'the model'} starts again"
        self._line(f"({again}" + (f": attempt {attempt})" if attempt else ")"), "yellow")

    def finish(self, event: Event) -> None:
        """Take a whole answer: write what of it is not there yet."""
        node, whole = str(event.data.get("node", "")), str(event.data.get("content", ""))
        self._held.pop(node, None)
        shown = self._shown.pop(node, "")
        if not whole.startswith(shown):
            self._line("(the text above was of an attempt that was lost)", "yellow")
            shown = ""
        if whole != shown:
            self._write(node, whole[len(shown) :])
        self._shown.pop(node, None)
        if self._is_open() and self._node == node:
            self._end()

    def _is_open(self) -> bool:
        return self._node != "" and self._open is not None and self._current() is self._open

    def _write(self, node: str, text: str) -> None:
        if not self._is_open() or self._node != node:
            if title := self._title(node):
                self._line(title, "dim")
            self._open, self._node = self._begin(""), node
        assert self._open is not None
        self._open.add(text)
        self._shown[node] = self._shown.get(node, "") + text


def _node_of(event: Event) -> str:
    """The node that a stream is of: a stream is named by its turn and its node."""
    return str(event.data.get("stream", "")).partition("/")[2]


Line = tuple[str, str, int]
"""Text, style, and by how many columns what does not fit is moved in."""
MAX_ITEMS = 20
"""Items of a map of which each is shown."""
STEPS = 10
"""Parts of a long map after each of which its progress is told."""
MAX_FAILURES = 20
"""Failed and repeated nodes of one long map that are told."""
_PART = re.compile(r"([^/#\[\]]+)#(\d+)(?:\[(\d+)\])?")
_SLOW = frozenset({"map", "loop", "graph", "agent", "event", "timer"})
"""Kinds whose beginning is told at once: something happens inside them, or they wait."""
_NUMBERED = frozenset({"map", "loop"})


@dataclass(slots=True)
class _Open:
    """A node that has begun."""

    kind: str
    since: float | None
    items: int = 0
    told: bool = False
    furthest: int = -1
    steps: int = 0
    failures: int = 0


@dataclass(slots=True)
class NodeLines:
    """Turns the events of nodes into lines.

    Attributes:
        fancy: Whether more than ASCII can be shown.
    """

    fancy: bool = True
    _open: dict[str, _Open] = field(default_factory=dict)
    _waiting: list[str] = field(default_factory=list)
    """Nodes that have begun and have no line yet."""
    _kinds: dict[str, str] = field(default_factory=dict)
    _failure: str = ""
    """What was told last of a node that failed."""

    def feed(self, event: Event) -> Iterator[Line]:
        """Give the lines for an event of a node."""
        at = str(event.data.get("node", ""))
        if event.type == "node_start":
            yield from self._started(at, event)
        elif event.type == "node_retry":
            yield from self._retried(at, event)
        else:
            yield from self._ended(at, event)

    def has_told(self, message: str) -> bool:
        """Whether a failure is one that was told at its node; what is around that names only the place besides."""
        return bool(self._failure) and message.endswith(self._failure)

    def under_way(self) -> str:
        """Name what has begun and has no line yet."""
        return ", ".join(self.name(at) for at in self._waiting)

    def title(self, at: str) -> str:
        """Say whose text follows; nothing where the model call's own line stands above and no other is under way."""
        calls = [other for other, node in self._open.items() if node.kind == "llm"]
        return "" if calls == [at] and "[" not in at else f"{'  ' * at.count('/')}{self.name(at)}:"

    def catch_up(self, *, everything: bool = False) -> Iterator[Line]:
        """Give the lines of what has begun and is not done: something else happens, or nothing does.

        Activities that begin at once tell so in any order, so what is inside a node waits until that one has begun.
        """
        waiting, self._waiting = self._waiting, []
        for at in waiting:
            node = self._open.get(at)
            if node is None or node.told:
                continue
            if not everything and "/" in at and at.rpartition("/")[0].rpartition("[")[0] not in self._open:
                self._waiting.append(at)
                continue
            node.told = True
            yield self._line(self._mark("▸", ">"), at, [], "")

    def _started(self, at: str, event: Event) -> Iterator[Line]:
        yield from self.catch_up()
        data = event.data
        items = data.get("items")
        node = _Open(str(data.get("kind", "")), event.at, items if isinstance(items, int) else 0)
        self._open[at] = node
        if node.kind in _NUMBERED:
            self._kinds[at] = node.kind
        crowd = self._crowd(at)
        if crowd is not None:
            yield from self._progress(*crowd)
            return
        if node.kind in _SLOW:
            node.told = True
            yield self._line(self._mark("▸", ">"), at, _facts(node, data, event.at), "")
        else:
            self._waiting.append(at)

    def _ended(self, at: str, event: Event) -> Iterator[Line]:
        data, node = event.data, self._open.pop(at, None)
        outcome = str(data.get("outcome", ""))
        self._waiting = [other for other in self._waiting if other != at]
        if outcome == "cancelled" and node is None:
            return
        crowd = self._crowd(at)
        if crowd is not None and (outcome != "failed" or not self._may_tell(crowd[0])):
            return
        yield from self.catch_up()
        notes = []
        if node is not None and node.since is not None and event.at is not None:
            notes.append(duration(max(0.0, event.at - node.since)))
        marks = {"done": (("✓", "+"), "green"), "failed": (("✗", "x"), "red"), "cancelled": (("–", "-"), "dim")}
        glyphs, style = marks.get(outcome, (("·", "-"), ""))
        if outcome == "cancelled":
            notes.append("cancelled")
        if outcome == "failed":
            message = str(data.get("message") or "")
            notes.append("failed" if self.has_told(message) else _why(data))
            self._failure = self._failure if self.has_told(message) else message
            if data.get("to"):
                notes.append(f"goes on at {one_line(str(data['to']), 60)}")
                style = "yellow"
        yield self._line(self._mark(*glyphs), at, notes, style)

    def _retried(self, at: str, event: Event) -> Iterator[Line]:
        crowd = self._crowd(at)
        if crowd is not None and not self._may_tell(crowd[0]):
            return
        self._waiting = [other for other in self._waiting if other != at]
        if at in self._open:
            self._open[at].told = True
        yield from self.catch_up()
        why = _why(event.data)
        attempt = one_line(str(event.data.get("attempt", "")), 10)
        yield self._line(self._mark("↻", "~"), at, [f"attempt {attempt}", *([f"after {why}"] if why else [])], "yellow")

    def _crowd(self, at: str) -> tuple[str, int] | None:
        """The long map that a node is in, and the number of its item."""
        for found in re.finditer(r"\[(\d+)\]/", at):
            above = at[: found.start()]
            node = self._open.get(above)
            if node is not None and node.items > MAX_ITEMS:
                return above, int(found[1])
        return None

    def _progress(self, above: str, item: int) -> Iterator[Line]:
        node = self._open[above]
        node.furthest = max(node.furthest, item)
        step = (node.furthest + 1) * STEPS // node.items
        if step > node.steps:
            node.steps = step
            yield self._line(
                self._mark("▸", ">"), above, [f"{node.furthest + 1:,} of {node.items:,} items begun"], "dim"
            )

    def _may_tell(self, above: str) -> bool:
        self._open[above].failures += 1
        return self._open[above].failures <= MAX_FAILURES

    def _line(self, mark: str, at: str, notes: list[str], style: str) -> Line:
        depth = at.count("/")
        between = self._mark(" · ", ", ")
        tail = "  " + between.join(note for note in notes if note) if any(notes) else ""
        return f"{'  ' * depth}{mark} {self.name(at)}{tail}", style, 2 * depth + 4

    def name(self, at: str) -> str:
        """Give a node's place as people read it: ``review[2] › lint``, with the visit where it is not the first."""
        parts, key = [], ""
        for part in at.split("/"):
            key = f"{key}/{part}" if key else part
            found = _PART.fullmatch(part)
            if found is None:
                parts.append(one_line(part, 60))
                continue
            name = one_line(found[1], 60) + (f" #{found[2]}" if found[2] != "1" else "")
            numbered = found[3] is not None and (found[3] != "0" or key.rpartition("[")[0] in self._kinds)
            parts.append(f"{name}[{found[3]}]" if numbered else name)
        return self._mark(" › ", " > ").join(parts)

    def _mark(self, fancy: str, plain: str) -> str:
        return fancy if self.fancy else plain


def _facts(node: _Open, data: dict[str, Any], now: float | None) -> list[str]:
    if node.items or node.kind == "map":
        return [f"{node.items:,} {'item' if node.items == 1 else 'items'}"]
    if "child" in data:
        return [f"job {one_line(str(data['child']), 200)}"]
    if "event" in data:
        return [f"waits for the event {one_line(str(data['event']), 60)}"]
    until = data.get("until")
    if isinstance(until, int | float):
        return [f"waits until {clock(until, until if now is None else now)}"]
    return []


def _why(data: dict[str, Any]) -> str:
    code, message = (one_line(str(data.get(key) or ""), 300) for key in ("code", "message"))
    return f"{code}: {message}" if code and message else code or message
