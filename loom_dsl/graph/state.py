"""How a written value combines with what is there: in a turn, and in the variables of a graph."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import JsonValue, ValidationError, model_validator

from loom_dsl.agent.turn import TurnState, Usage
from loom_dsl.errors import ExpressionError, PlanError
from loom_dsl.expr.template import plain
from loom_dsl.fields import Part

Type = Literal["any", "str", "int", "float", "bool", "list", "dict"]


class InputField(Part):
    """A value that a graph is started with."""

    type: Type = "any"
    """What a value must be."""
    default: JsonValue = None
    """What it is when it is not given; absent means that it must be."""
    optional: bool = False
    """Whether it may be left out without a default; it is null then."""
    doc: str = ""
    """What it is for: one sentence for people."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value


class StateField(Part):
    """A variable of a graph."""

    type: Type = "any"
    """What its value must be."""
    reduce: Literal["replace", "append", "extend", "add", "merge", "min", "max"] = "replace"
    """How a written value combines with what is there: needed where parallel branches write."""
    default: JsonValue = None
    """What it is at first; absent: empty for a list, a dict, and a text with `add`, 0 for
    another `add`, else null."""
    doc: str = ""
    """What it is for: one sentence for people."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value


SUMS = ("model_calls", "tool_calls", "tool_rounds", "cost_microusd", "usage")
"""Fields that add up; the others are replaced."""
FIELDS = (*SUMS, "entries", "metadata")
MAX_STATE = 256 * 1024
"""Characters of a graph's variables: they go through every continue-as-new."""
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "list": (list,), "dict": (dict,)
}  # fmt: skip


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


def fits(type_name: str, value: Any) -> bool:
    """Whether a value is of a type that a graph's input or state names."""
    if type_name == "any":
        return True
    return isinstance(value, _TYPES[type_name]) and (type_name == "bool" or not isinstance(value, bool))


def initial(fields: Mapping[str, StateField]) -> dict[str, Any]:
    """Give the variables of a graph as it starts."""
    return {name: _first(field) for name, field in fields.items()}


def _first(field: StateField) -> Any:
    if field.default is not None:
        return plain(field.default)
    if field.reduce in ("append", "extend") or field.type == "list":
        return []
    if field.reduce == "merge" or field.type == "dict":
        return {}
    return {"str": "", "any": 0, "int": 0, "float": 0}.get(field.type) if field.reduce == "add" else None


def reduced(name: str, field: StateField, old: Any, value: Any) -> Any:
    """Combine what a variable holds with what is written.

    Raises:
        ExpressionError: The value does not fit the variable.
    """
    try:
        new = _reduce(field.reduce, old, value)
    except TypeError:
        raise ExpressionError(
            f"`{name}` cannot {field.reduce} {str(value)[:60]!r}: it holds {str(old)[:60]!r}"
        ) from None
    if new is not None and not fits(field.type, new):
        raise ExpressionError(f"`{name}` is of the type {field.type} and cannot become {str(new)[:60]!r}")
    return new


def _reduce(how: str, old: Any, value: Any) -> Any:
    match how:
        case "append":
            return [*old, value]
        case "extend":
            if not isinstance(value, list):
                raise TypeError
            return [*old, *value]
        case "add":
            if isinstance(old, str) is not isinstance(value, str) or isinstance(value, bool):
                raise TypeError
            return old + value
        case "merge":
            if not isinstance(value, dict):
                raise TypeError
            return {**old, **value}
        case "min" | "max":
            if old is None:
                return value
            return min(old, value) if how == "min" else max(old, value)
    return value
