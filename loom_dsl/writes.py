"""What a node may write into its turn, and how a written value combines with what the turn holds."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from loom_dsl.errors import ExpressionError, PlanError
from loom_dsl.turn import TurnState, Usage

SUMS = ("model_calls", "tool_calls", "tool_rounds", "cost_microusd", "usage")
"""Fields that add up; the others are replaced."""
FIELDS = (*SUMS, "entries", "metadata")


def written(turn: TurnState, values: Mapping[str, Any]) -> TurnState:
    """Give the turn with values written into it.

    Raises:
        ExpressionError: A value does not fit its field.
    """
    try:
        changes = {field: _combined(turn, field, value) for field, value in values.items()}
        return turn.replace(**changes)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ExpressionError(f"`write` does not fit the turn: {first['msg']}") from None
    except (PlanError, TypeError) as error:
        raise ExpressionError(f"`write` does not fit the turn: {error}") from None


def _combined(turn: TurnState, field: str, value: Any) -> Any:
    if field == "usage":
        return turn.usage + Usage.model_validate(value)
    if field in SUMS:
        return getattr(turn, field) + value
    return value
