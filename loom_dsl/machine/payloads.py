"""What crosses the border of a workflow: the argument of its activities, and what strangers send to it."""

import json
from typing import Any

from loom_dsl.agent.turn import TurnState
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.outbox import without_time
from loom_dsl.text.canonical import Json, canonical_json, digest

MAX_MACHINE_STATE, MAX_RESULT, MAX_ARGUMENT = 1024 * 1024, 1_000_000, 1_500_000
"""Bytes as JSON of a job's state, of its result, and of what an activity is given. The engine ends a job without a word
when one of its payloads has over 2 MiB; a child job's result travels in a signal besides."""


def size_of(value: Any) -> int:
    """How many bytes a value has in a payload, where what is not ASCII is escaped: a character has up to twelve."""
    return len(json.dumps(value, separators=(",", ":")))


def activity_argument(command: RunActivity, turn: TurnState | None) -> dict[str, Any]:
    """Give the one argument that every activity takes: which execution it is, its mapped ``with``, and the events."""
    argument: dict[str, Any] = {"at": command.at, "with": command.arguments}
    if turn is not None:
        argument |= {"turn": turn.turn_counter, "session": turn.session_id}
    if command.events:
        argument["events"] = command.events
    if command.before:
        argument["before"] = command.before
    if command.tries and command.is_last:
        argument["last"] = True
    return argument


def fingerprint(argument: dict[str, Any]) -> str:
    """Tell two arguments of the same execution apart. When the events happened that travel along does not count."""
    told = dict(argument)
    if "events" in told:
        told["events"] = [[number, [without_time(event) for event in batch]] for number, batch in told["events"]]
    return digest(canonical_json(told))[:16]


def read_payload(data: bytes, encoding: str, largest: int) -> tuple[Json, str]:
    """Read a signal's payload: never an exception, always a value or the reason why not.

    Args:
        data: The payload's bytes.
        encoding: Its encoding as Temporal names it, such as ``json/plain``.
        largest: Most bytes.

    Returns:
        The JSON value and an empty text, or None and what is wrong.
    """
    if encoding == "binary/null":
        return None, ""
    if encoding not in ("json/plain", "json/protobuf"):
        return None, f"the payload's encoding is {encoding[:40]!r}; send json/plain"
    if len(data) > largest:
        return None, f"the payload has {len(data)} bytes; the limit is {largest}"
    try:
        value = json.loads(data.decode("utf-8-sig"))  # left to itself, it would read UTF-16 too
        canonical_json(value).encode("utf-8")
    except (ValueError, RecursionError):
        return None, "the payload is not JSON in UTF-8"
    return value, ""
