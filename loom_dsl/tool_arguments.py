"""Reading the arguments that a model wrote, and telling it what is wrong with them."""

import contextlib
import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from loom_dsl.canonical import read_json
from loom_dsl.errors import ToolValidationError
from loom_dsl.json_schema import Violation, describe_type, describe_value, schema_at, violations

ADVICE = "Check types and format, then call again."
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_LAST_COMMA = re.compile(r"\"[^\"\\]*+(?:\\[\s\S][^\"\\]*+)*(?:\"|\\?\Z)|(?<=[\w\"}\]])(\s*,)(?=\s*[}\]])")
"""A text, or (as its group) a comma behind the last item, which can mean only one thing."""
_MOST_MENDED = 1_000_000
"""Characters."""
_MOST_REPORTED = 10


@dataclass(frozen=True)
class Checked:
    """Arguments that fit: as JSON with defaults filled in, and as the values the function gets."""

    canonical: dict[str, Any]
    keywords: dict[str, Any]


def parse_object(tool: str, raw: str | Mapping[str, Any]) -> dict[str, Any]:
    """Read the JSON text of a call's arguments.

    Args:
        tool: Name of the tool, for messages.
        raw: What the model sent.

    Raises:
        ToolValidationError: It is not one JSON object; says where it stops being one.
    """
    if not isinstance(raw, str):
        return dict(raw)
    value = _read(tool, raw)
    if isinstance(value, str) and value.strip().startswith("{"):
        value = _read(tool, value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse(tool, f"the arguments must be one JSON object, got {describe_value(value)}")
    return value


def _read(tool: str, raw: str) -> Any:
    text = raw.strip()
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1].strip()
    if not text:
        return {}
    try:
        return _value_of(text)
    except json.JSONDecodeError as error:
        with contextlib.suppress(ValueError):
            # Looking for commas in a text of many escapes takes thirty times its size for a moment.
            return _value_of(text if len(text) > _MOST_MENDED else _without_last_commas(text))
        where = f"line {error.lineno}, column {error.colno}, near {text[max(0, error.pos - 30) : error.pos + 30]!r}"
        _refuse(tool, f"the arguments are not valid JSON: {error.msg.removesuffix(' at')} at {where}")
    except ValueError as error:
        _refuse(tool, f"the arguments are not valid JSON: {error}")


def _without_last_commas(text: str) -> str:
    return _LAST_COMMA.sub(lambda found: found[0] if found[1] is None else "", text)


def _value_of(text: str) -> Any:
    return read_json(
        text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite, strict=False
    )


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice!r} is given twice; give it once")
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; give a finite number or null")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def check_arguments(
    tool: str, model: type[BaseModel] | None, schema: Mapping[str, Any], data: dict[str, Any]
) -> Checked:
    """Check an object against a tool's schema, and against its model when it has one.

    Raises:
        ToolValidationError: Lists every argument that is wrong.
    """
    if found := misfits(schema, data):
        _refuse(tool, *found)
    if model is None:
        return Checked(data, dict(data))
    try:
        instance = model.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        _refuse(tool, *_from_pydantic(schema, error))
    except (ValueError, RecursionError) as error:
        _refuse(tool, str(error))
    keywords = {info.alias or name: getattr(instance, name) for name, info in type(instance).model_fields.items()}
    return Checked(instance.model_dump(mode="json", by_alias=True), keywords)


def misfits(schema: Mapping[str, Any], data: dict[str, Any]) -> list[str]:
    """Say in a sentence each where an object does not fit a tool's schema; empty where it does."""
    return [_tell(schema, violation) for violation in violations(schema, data)]


def _tell(schema: Mapping[str, Any], violation: Violation) -> str:
    if violation.unknown is None:
        return violation.text
    names = list(schema_at(schema, violation.path).get("properties", {}))
    close = difflib.get_close_matches(violation.unknown, names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{violation.text}{hint} (it takes: {', '.join(names) or 'no arguments'})"


def _from_pydantic(schema: Mapping[str, Any], error: ValidationError) -> list[str]:
    told: dict[str, str] = {}
    for item in error.errors(include_url=False):
        path: tuple[str | int, ...] = ()
        for part in item["loc"]:
            if not schema_at(schema, (*path, part)):
                break
            path = (*path, part)
        name = ".".join(str(part) for part in path)
        expected = describe_type(schema_at(schema, path), schema)
        shown = f"{name!r}" if name else "the arguments"
        told.setdefault(name, f"{shown}: expected {expected}, got {describe_value(item['input'])}: {item['msg']}")
    return list(told.values())


def _refuse(tool: str, *problems: str) -> NoReturn:
    shown = list(problems[:_MOST_REPORTED])
    if len(problems) > _MOST_REPORTED:
        shown.append(f"and {len(problems) - _MOST_REPORTED} more")
    if len(shown) == 1:
        raise ToolValidationError(f"{tool}: {shown[0]}. {ADVICE}")
    listed = "".join(f"- {problem}\n" for problem in shown)
    raise ToolValidationError(f"{tool}: {len(problems)} things are wrong with the arguments\n{listed}{ADVICE}")
