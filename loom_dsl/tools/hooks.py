"""Functions of the user's that look at each stage of a tool call, and may change it, refuse it or note something."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from loom_dsl.tools.hook_points import HookPoint

MAY_CHANGE: Mapping[str, str] = {"after_validate": "arguments", "after_execute": "output"}
"""What may be changed, and where: arguments before anybody judges or approves them, a result before it is kept."""
CANNOT_REFUSE = ("before_format", "after_format")
"""There the call is over, and its result must be told."""


@dataclass(frozen=True, kw_only=True)
class HookCall:
    """What a hook is told.

    Attributes:
        point: When it is called, such as ``before_execute``.
        tool: Name of the tool.
        arguments: The validated arguments; empty before they are.
        output: What the tool returned, as text without secrets; only in ``after_execute``.
        outcome: What the stage said: `ok`, and of a failure `code` and `message`. Empty before the stage.
        job: Id of the job.
        turn: Number of the turn.
        call_id: The model's id of the call.
        working_dir: The job's.
    """

    point: HookPoint
    tool: str
    arguments: Mapping[str, JsonValue] = field(default_factory=dict)
    output: str | None = None
    outcome: Mapping[str, JsonValue] = field(default_factory=dict)
    job: str = ""
    turn: int = 0
    call_id: str = ""
    working_dir: Path = Path()


@dataclass(frozen=True, kw_only=True)
class HookAnswer:
    """What a hook wants. A hook that returns None wants nothing.

    Attributes:
        deny: Refuse the call, with this reason, which the model reads.
        arguments: Run with these instead; only in ``after_validate``, so that what is approved is what runs.
        output: Tell this instead of what the tool returned; only in ``after_execute``.
        note: Kept among the job's events.
    """

    deny: str = ""
    arguments: Mapping[str, JsonValue] | None = None
    output: str | None = None
    note: str = ""


def misuse(point: str, answer: HookAnswer) -> str:
    """Say what an answer may not want at a point; empty when it may."""
    wanted = [name for name in ("arguments", "output") if getattr(answer, name) is not None]
    wrong = [name for name in wanted if MAY_CHANGE.get(point) != name]
    if wrong:
        places = [where for where, what in MAY_CHANGE.items() if what == wrong[0]]
        return f"it changes the {wrong[0]}, which only {places[0]} may"
    if answer.deny and point in CANNOT_REFUSE:
        return "it refuses a call that is over; refuse it before"
    return ""
