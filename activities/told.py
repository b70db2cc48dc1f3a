"""What the model is told of a call that failed before or while it ran."""

from typing import Any

from loom_dsl.errors import LoomError, MissingTools, StoreError

MOST_MESSAGE = 8_000
"""Characters of a failure's message that enter the history."""


def is_told(error: LoomError) -> bool:
    """Whether the model is to hear of it. What is wrong with this worker may be right with another, or later."""
    return not isinstance(error, StoreError | MissingTools)


def failed(error: LoomError) -> dict[str, Any]:
    """Give an error as a stage's outcome.

    Raises:
        LoomError: It is not the model's to hear of.
    """
    if not is_told(error):
        raise error
    return {"ok": False, "code": error.code, "message": error.message[:MOST_MESSAGE]}
