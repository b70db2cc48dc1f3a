"""Times that a graph computes, and when a node's time is over."""

from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.fields import MAX_DURATION, parse_duration
from loom_dsl.graph.edges import Node
from loom_dsl.machine.state import Token
from loom_dsl.machine.tokens.core import Core


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
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds <= MAX_DURATION:
        raise ExpressionError(f"{what} is {str(value)[:60]}; write seconds, or a duration such as 90s, 5m or 4h")
    return float(seconds)


def deadline_of(machine: Core, token: Token, node: Node, names: dict[str, Any]) -> float | None:
    """When a node's time is over, in seconds since the epoch."""
    if node.deadline is None:
        return None
    after = machine.mapped(token, "deadline", node.deadline.after, names)
    seconds = seconds_of(after, f"the deadline of `{token.node}`")
    return None if seconds is None else machine.state.last + seconds
