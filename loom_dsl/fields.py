"""Fields of documents: where one stands, and durations as people write them: ``500ms``, ``90s``, ``5m``, ``1d``."""

import re
from collections.abc import Iterator
from datetime import timedelta
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

DocumentPath = tuple[str | int, ...]
"""Where something stands in a document: the keys of mappings and the positions in lists that lead to it."""
MAX_OUTAGE = 86_400.0
"""Seconds for which an outage is waited for where nothing else is said: a day."""


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
MAX_DURATION = 10 * 365 * 86400.0
"""Ten years, in seconds: what the engine's timers can carry without doubt."""


def parse_duration(text: str) -> float:
    """Read a duration such as ``90s`` or ``1h30m`` as seconds.

    Raises:
        ValueError: The text is not a duration, or is over ten years.
    """
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write a number and a unit, such as 500ms, 90s, 5m, 4h or 1d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds > MAX_DURATION:
        raise ValueError(f"{text!r} is longer than ten years")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds in the form that `parse_duration` reads, to the millisecond."""
    left = round(seconds * 1000)
    if left == 0:
        return "0s"
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _seconds(value: object) -> float:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = parse_duration(value)
    else:
        raise ValueError(f"{value!r} has no unit; write a duration such as 90s, 5m, 4h or 1d")
    if round(seconds * 1000) <= 0:
        raise ValueError(f"{value!r} must be at least 1ms")
    return round(seconds * 1000) / 1000


def _seconds_or_never(value: object) -> float | None:
    return None if value is None or value == "never" else _seconds(value)


_DURATION_SCHEMA = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"}
Duration = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""Seconds, to the millisecond; written as ``90s`` or ``2h``, or given as a timedelta."""

Expiry = Annotated[
    float | None,
    BeforeValidator(_seconds_or_never),
    PlainSerializer(lambda value: "never" if value is None else format_duration(value), return_type=str),
    WithJsonSchema({"anyOf": [{"const": "never"}, _DURATION_SCHEMA]}),
]
"""Seconds until something expires, or None for never; written as ``24h`` or ``never``."""


def seconds(value: Any) -> Any:
    """Read a duration where there is one."""
    return parse_duration(value) if isinstance(value, str) else value


def some_time(value: Any) -> Any:
    """Refuse an attempt that has no time."""
    if isinstance(value, int | float) and value <= 0:
        raise ValueError("no attempt could be done in no time; give a duration, such as 30s")
    return value


def listed(value: Any) -> Any:
    """Read one text as a list of one."""
    return [value] if isinstance(value, str) else value


def coded(code: str, message: str, **more: Any) -> PydanticCustomError:
    """Make what a validator raises whose finding has a code of its own; with what else is known of it."""
    return PydanticCustomError(code, "{message}", {"message": message, **more})


class Part(BaseModel):
    """Base of everything in a graph: frozen, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_type(cls, value: Any, info: ValidationInfo) -> Any:
        """Take no text and no `true` for a number, and nothing else for `true`: ``attempts: inf`` is a mistake."""
        field = cls.model_fields[str(info.field_name)]
        if any(isinstance(part, BeforeValidator) for part in field.metadata):
            return value  # it reads other forms itself, such as durations
        members = set(_members(field.annotation))
        wanted = members & set(_KINDS)
        other = str if isinstance(value, str) else bool if isinstance(value, bool) else None
        number = isinstance(value, int | float) and not isinstance(value, bool) and wanted == {bool}
        if wanted and (number or (other is not None and other not in members)) and Any not in members:
            kind = next(kind for kind in _KINDS if kind in wanted)
            raise PydanticCustomError(_KINDS[kind], "should be of its type")
        return value


_KINDS: dict[Any, Any] = {bool: "bool_type", float: "float_type", int: "int_type"}
"""What pydantic calls the errors of fields of these types."""


def _members(annotation: Any) -> Iterator[Any]:
    """The types of which a field's value may be."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        yield from [Any] if any(isinstance(part, BeforeValidator) for part in more) else _members(inner)
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield str if origin is Literal else annotation


class Retry(Part):
    """How often and how soon a step is tried again that was answered with a failure."""

    attempts: Annotated[int, Field(ge=1, le=1000)] = 3
    """Attempts in all that are answered."""
    initial: Annotated[float, Field(gt=0)] = 1.0
    """Seconds before the second attempt."""
    backoff: Annotated[float, Field(ge=1)] = 2.0
    """Factor from one wait to the next."""
    longest: Annotated[float, Field(gt=0)] = 60.0
    """Longest wait in seconds."""

    _durations = field_validator("initial", "longest", mode="before")(seconds)

    @model_validator(mode="before")
    @classmethod
    def _no_short_form(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValueError(f"write `{{attempts: {value}}}`")
        return value
