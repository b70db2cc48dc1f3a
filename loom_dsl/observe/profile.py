"""What each turn of a job took, as its events tell: the recursion level by level, with its tool calls."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.observe.events import Event, EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDone:
    """A tool call that has come to its end.

    Attributes:
        tool: The tool's name, as the model called it.
        status: What the model is told: ``success``, ``error`` or ``warning``.
        code: Why it is not a success; empty for one.
        seconds: How long it ran; None for a call that never ran.
    """

    tool: str
    status: str
    code: str = ""
    seconds: float | None = None


@dataclass(slots=True, kw_only=True)
class Level:
    """One turn of the recursion.

    Attributes:
        turn: Its number, from 0.
        turn_id: Its name.
        parent_turn_id: The turn before it, or the one of another job that it came from.
        depth: How deep it stands.
        started: When it compressed the conversation or asked the model, in seconds since 1970; before that, when it was
            written down that it began.
        seconds: From then to the same of the next turn, or to the end of the job.
        model_seconds: What its model calls took that count; None while there is none, and for jobs of releases that
            did not note it.
        waited_seconds: How long at least one of its questions was open.
        tools: Its tool calls, in the order in which they ended.
        compressions: What each compression of it left of the conversation: messages and tokens, before and after.
    """

    turn: int
    turn_id: str
    parent_turn_id: str | None
    depth: int
    started: float
    seconds: float = 0.0
    model_seconds: float | None = None
    waited_seconds: float = 0.0
    tools: list[ToolDone] = field(default_factory=list)
    compressions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tool_seconds(self) -> float:
        """What its tools took, added up: more than the time that passed where they ran side by side."""
        return sum(tool.seconds or 0.0 for tool in self.tools)


def profile(events: Iterable[Event], end: float) -> list[Level]:
    """Give the turns of a job, in order.

    Args:
        events: The job's, from the first one, each with its time.
        end: When the job ended, or now, in seconds since 1970.
    """
    reading = _Reading()
    for event in events:
        reading.take(event)
    return reading.done(end)


class _Reading:
    """What has been read so far."""

    def __init__(self) -> None:
        self._levels: dict[int, Level] = {}
        self._exact: set[int] = set()
        self._open: dict[str, int] = {}
        """Questions that nobody has decided, and their turns."""
        self._since: dict[int, float] = {}
        """Turns that have any, and since when."""

    def take(self, event: Event) -> None:
        turn, at = event.turn, event.at or 0.0
        if event.type == EventType.ITERATION_START and turn not in self._levels:
            self._levels[turn] = Level(
                turn=turn, turn_id=event.turn_id, parent_turn_id=event.parent_turn_id, depth=event.depth, started=at
            )
        level = self._levels.get(turn)
        if level is None:
            return
        match event.type:
            case EventType.LLM_START:
                self._begins(level, at)
            case EventType.LLM_FINISH:
                if (took := _seconds(event)) is not None:
                    level.model_seconds = (level.model_seconds or 0.0) + took
            case EventType.COMPRESSION_APPLIED:
                level.compressions.append(event.data)
                self._begins(level, at - (_seconds(event) or 0.0))
            case EventType.TOOL_RESULT:
                name, status, code = (str(event.data.get(key) or "") for key in ("tool", "status", "code"))
                level.tools.append(ToolDone(tool=name, status=status, code=code, seconds=_seconds(event)))
            case EventType.APPROVAL_REQUESTED:
                self._open[str(event.data.get("approval_id"))] = turn
                self._since.setdefault(turn, at)
            case EventType.APPROVAL_DECIDED:
                self._decided(self._open.pop(str(event.data.get("approval_id")), None), at)

    def _begins(self, level: Level, at: float) -> None:
        """A turn's beginning is written down in full seconds, what it does first to the millisecond."""
        if level.turn not in self._exact:
            self._exact.add(level.turn)
            level.started = max(level.started, at)

    def done(self, end: float) -> list[Level]:
        for turn in list(self._since):
            self._waited(turn, end)
        found = [self._levels[turn] for turn in sorted(self._levels)]
        for level in reversed(found):
            level.seconds, end = max(0.0, end - level.started), level.started
        return found

    def _decided(self, turn: int | None, at: float) -> None:
        if turn is not None and turn not in self._open.values():
            self._waited(turn, at)

    def _waited(self, turn: int, until: float) -> None:
        self._levels[turn].waited_seconds += max(0.0, until - self._since.pop(turn))


def _seconds(event: Event) -> float | None:
    took = event.data.get("ms")
    return took / 1000 if isinstance(took, int | float) else None
