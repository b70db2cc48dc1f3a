"""Nodes that wait: for an event, a time, or the first of several."""

from datetime import UTC, datetime
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.template import may_be
from loom_dsl.fields import MAX_DURATION
from loom_dsl.graph.nodes import EventNode, Race, Timer
from loom_dsl.machine.commands import StartTimer
from loom_dsl.machine.records import EventRecord
from loom_dsl.machine.state import LISTENING, TIMING, Token
from loom_dsl.machine.tokens.deadlines import seconds_of
from loom_dsl.machine.tokens.moves import Moves, NodeHandler


class EventHandler(NodeHandler[EventNode]):
    """The node waits for an event from outside; what comes with it is the node's result."""

    def enter(self, machine: Moves, token: Token, node: EventNode, names: dict[str, Any]) -> None:
        """Take an event that has come, or wait for one."""
        name = machine.mapped(token, "name", node.event.name, names)
        if not isinstance(name, str) or not name:
            raise ExpressionError(f"the event of `{token.node}` has the name {str(name)[:60]!r}; a name is text")
        wanted = EventRecord(name, machine.mapped(token, "key", node.event.key, names))
        if node.event.buffer:
            for event in machine.state.events:
                if _matches(wanted, event):
                    machine.state.events.remove(event)
                    return machine.complete(token, event.get("data"))
        token.reset(LISTENING, wanted)
        return None

    def event(self, machine: Moves, token: Token, event: dict[str, Any]) -> bool:
        """Take the event that the node waits for."""
        if token.status != LISTENING or not _matches(token.kept(EventRecord), event):
            return False
        machine.complete(token, event.get("data"))
        return True

    def awaits(self, node: EventNode, name: str) -> bool:
        """Whether the node takes an event of this name that came before it."""
        return node.event.buffer and may_be(node.event.name, name)


def _matches(wanted: EventRecord, event: dict[str, Any]) -> bool:
    return bool(wanted.name == event["name"] and (wanted.key is None or wanted.key == event.get("key")))


class TimerHandler(NodeHandler[Timer]):
    """The node waits for some time, or until a time."""

    def enter(self, machine: Moves, token: Token, node: Timer, names: dict[str, Any]) -> None:
        """Wait for some time, or until a time."""
        if node.timer.after is not None:
            given = machine.mapped(token, "after", node.timer.after, names)
            seconds = seconds_of(given, f"the time of `{token.node}`")
            if seconds is None:
                raise ExpressionError(f"`{token.node}` would wait for ever; give seconds or a duration")
            due = machine.state.last + seconds
        else:
            due = _time(machine.mapped(token, "until", node.timer.until, names), token.node)
            if not due - machine.state.last <= MAX_DURATION:  # also what is not a number
                raise ExpressionError(f"`{token.node}` would wait until {due:.0f}; a timer waits ten years at most")
        token.reset(TIMING)
        token.deadline = due
        machine.command(StartTimer(at=token.at, when=due))

    def deadline(self, machine: Moves, token: Token) -> None:
        """The time is over, which is what the node waited for."""
        if token.status != TIMING:
            return machine.time_over(token)
        token.deadline = None
        return machine.complete(token, None)


def _time(value: Any, key: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ExpressionError(
            f"`{key}` is to wait until {str(value)[:60]!r}; give seconds since the epoch, or 2026-01-31T12:00:00Z"
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


class RaceHandler(NodeHandler[Race]):
    """Several nodes start; the first one that is done takes the others away."""

    def enter(self, machine: Moves, token: Token, node: Race, names: dict[str, Any]) -> None:
        """Start the arms of a race."""
        machine.state.tokens.pop(token.at)
        for arm in node.race:
            # An arm that is a race has no winner but the first arm of all.
            machine.place(token.frame, arm, token.source, token.value, via=token.node, race=token.race or token.at)
