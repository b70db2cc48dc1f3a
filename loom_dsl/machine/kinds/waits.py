"""Nodes that wait: for an event, a time, or the first of several."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from loom_dsl.errors import ExpressionError
from loom_dsl.fields import LONGEST, parse_duration
from loom_dsl.graph.edges import Node
from loom_dsl.graph.nodes import Event, Map, Race, Timer
from loom_dsl.machine.commands import StartTimer
from loom_dsl.machine.core import drop
from loom_dsl.machine.kinds.maps import map_event
from loom_dsl.machine.node_events import ended
from loom_dsl.machine.state import LISTENING, OWNING, TIMING, Token

if TYPE_CHECKING:
    from loom_dsl.machine.moves import Moves as Machine


DUE = "loom.timers.1"
"""Marks the runs in which a timer ends only what is due. A run that came to another before that goes on without it."""
MOST_EVENTS = 100
"""Events that wait for a token."""


def seconds_of(value: Any, what: str) -> float | None:
    """Read a time that a graph computes: a number of seconds, a duration such as ``4h``, or null for never.

    Raises:
        ExpressionError: It is something else, negative, or over ten years.
    """
    if value is None or value == "never":
        return None
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ExpressionError(f"{what}: {error}") from None
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds <= LONGEST:
        raise ExpressionError(f"{what} is {str(value)[:60]}; write seconds, or a duration such as 90s, 5m or 4h")
    return float(seconds)


def deadline_of(machine: "Machine", token: Token, node: Node, names: dict[str, Any]) -> float | None:
    """When a node's time is over, in seconds since the epoch."""
    if node.deadline is None:
        return None
    after = machine.mapped(token, "deadline", node.deadline.after, names)
    seconds = seconds_of(after, f"the deadline of `{token.node}`")
    return None if seconds is None else machine.state.last + seconds


def enter_event(machine: "Machine", token: Token, node: Event, names: dict[str, Any]) -> None:
    """Take an event that has come, or wait for one."""
    wanted = {"name": node.event.name, "key": machine.mapped(token, "key", node.event.key, names)}
    if node.event.buffer:
        for event in machine.state.events:
            if _matches(wanted, event):
                machine.state.events.remove(event)
                return machine.complete(token, event.get("data"))
    token.data, token.status = wanted, LISTENING
    return None


def _matches(wanted: dict[str, Any], event: dict[str, Any]) -> bool:
    return bool(wanted["name"] == event["name"] and (wanted["key"] is None or wanted["key"] == event.get("key")))


def deliver_event(machine: "Machine", event: dict[str, Any]) -> str:
    """Give an event to whoever waits for it.

    Returns:
        ``recorded``, ``buffered``, ``full`` (nothing was kept) or ``unknown`` (no node of the plan waits for it, now or
        later).
    """
    for token in machine.state.in_order():
        node = machine.node(token)
        if token.status == LISTENING and _matches(token.data, event):
            machine.complete(token, event.get("data"))
            return "recorded"
        if token.status == OWNING and isinstance(node, Map):
            try:
                if map_event(machine, token, node, event):
                    return "recorded"
            except ExpressionError as error:
                machine.fail_node(token, error.code, error.message)
                return "recorded"
    if not any(_may_take(node, event["name"]) for body in machine.plan.bodies.values() for node in body.nodes.values()):
        return "unknown"
    if len(machine.state.events) >= MOST_EVENTS:
        return "full"
    machine.state.events = [*machine.state.events, event]
    return "buffered"


def _may_take(node: Node, name: str) -> bool:
    if isinstance(node, Event):
        return node.event.name == name and node.event.buffer
    if isinstance(node, Map):
        named = {node.map.complete}
        return name in (named | {node.map.open.add, node.map.open.close} if node.map.open else named)
    return False


def enter_timer(machine: "Machine", token: Token, node: Timer, names: dict[str, Any]) -> None:
    """Wait for some time, or until a time."""
    if node.timer.after is not None:
        given = machine.mapped(token, "after", node.timer.after, names)
        seconds = seconds_of(given, f"the time of `{token.node}`")
        if seconds is None:
            raise ExpressionError(f"`{token.node}` would wait for ever; give seconds or a duration")
        due = machine.state.last + seconds
    else:
        due = _time(machine.mapped(token, "until", node.timer.until, names), token.node)
        if not due - machine.state.last <= LONGEST:  # also what is not a number
            raise ExpressionError(f"`{token.node}` would wait until {due:.0f}; a timer waits ten years at most")
    token.data, token.status = {"deadline": due}, TIMING
    machine.command(StartTimer(at=token.at, when=due))


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


def enter_race(machine: "Machine", token: Token, node: Race, names: dict[str, Any]) -> None:
    """Start the arms of a race."""
    machine.state.tokens.pop(token.at)
    for arm in node.race:
        # An arm that is a race has no winner but the first arm of all.
        machine.place(token.frame, arm, token.source, token.value, via=token.node, race=token.race or token.at)


def race_won(machine: "Machine", winner: Token) -> None:
    """The first arm is done: take the others away."""
    for token in machine.state.in_order():
        if token is not winner and token.race == winner.race and token.frame == winner.frame and not token.doomed:
            drop(machine, token)


def time_is_over(machine: "Machine", token: Token) -> None:
    """A timer fired for a token that waits for no human."""
    if token.status == TIMING:
        token.data = {}
        return machine.complete(token, None)
    if token.data.keys() & {"failed", "closing", "left"}:
        return None  # it is done, and only what was cancelled has to report
    node = machine.node(token)
    assert node.deadline is not None
    assert node.deadline.to is not None
    late = {"ok": False, "code": "deadline", "message": f"`{token.node}` was not done in time"}
    ended(machine, token, "failed", code="deadline", message="it was not done in time", to=node.deadline.to)
    machine.let_go(token)
    machine.place(token.frame, node.deadline.to, value=late, via=token.node)
    return drop(machine, token)
