"""What the model is told of a call: how it failed before or while it ran, and the message of whatever came of it."""

from collections.abc import Mapping
from typing import Any

from loom_dsl.errors import LoomError, MissingTools, StepDied, StoreError
from loom_dsl.text.redaction import redact
from loom_dsl.tools.result import ToolMessage, failure, reference_of, refusal, success

MAX_MESSAGE = 8_000
"""Characters of a failure's message that enter the history."""


def is_told(error: LoomError) -> bool:
    """Whether the model is to hear of it. What is wrong with this worker may be right with another, or later."""
    return not isinstance(error, StoreError | MissingTools | StepDied)


def failed(error: LoomError) -> dict[str, Any]:
    """Give an error as a stage's outcome.

    Raises:
        LoomError: It is not the model's to hear of.
    """
    if not is_told(error):
        raise error
    return {"ok": False, "code": error.code, "message": error.message[:MAX_MESSAGE]}


def message_of(
    outcome: Mapping[str, Any], output: bytes, secrets: Mapping[str, str], *, reads_on: bool
) -> tuple[ToolMessage, str]:
    """Make the message of a call's outcome, and its text as it may be stored.

    Args:
        outcome: What the stage `execute` said, or who decided about the call.
        output: The content that an outcome names which is ok.
        secrets: Values that must not be stored.
        reads_on: Whether the agent can read on in an output that is cut.
    """
    if "choice" in outcome:
        message = refusal(outcome)
    elif outcome.get("ok"):
        reference = reference_of(outcome["output"]) if reads_on else ""
        message = success(output.decode(), reference=reference)
    else:
        message = failure(outcome["code"], outcome["message"])
    # An output was redacted before it was kept; what others say about a call was not.
    return message, message.content if outcome.get("ok") else redact(message.content, secrets)
