"""Reading the arguments that a model wrote, and telling it what is wrong with them."""

import contextlib
import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from loom_dsl.errors import ToolValidationError
from loom_dsl.text.canonical import canonical_json, read_json

# The part of JSON Schema that tool arguments use, with messages that a model can act on.
#
# Keywords that are not known here (`pattern`, `format`) are left to the tool: a pattern from a foreign server must
# not be run as a regular expression over a model's text.


Schema = Mapping[str, Any]
_MAX_ARGUMENT_DEPTH = 64
_MAX_SHOWN = 60


@dataclass(frozen=True)
class Violation:
    """One place where a value does not fit.

    Attributes:
        path: Keys and positions that lead to the object concerned.
        text: What is wrong.
        unknown: The name of a member that the schema does not know, if that is what is wrong.
    """

    path: tuple[str | int, ...]
    text: str
    unknown: str | None = None


def violations(schema: Schema, value: Any) -> list[Violation]:
    """List where a JSON value does not fit a schema; empty when it does."""
    return list(_check(schema, value, (), schema, 0))


def describe_type(schema: Schema, root: Schema | None = None) -> str:
    """Say in a few words what a schema asks for."""
    schema = _follow(schema, root or schema)
    if "const" in schema:
        return _show(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(_show(item) for item in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(describe_type(branch, root) for branch in schema[key]))
    kind = schema.get("type", "any value")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {describe_type(schema['items'], root)}"
    return str(kind)


def describe_value(value: Any) -> str:
    """Say what a value is: its JSON type, and the value when it is short."""
    kind = _kind(value)
    if value is None:
        return "null"
    if isinstance(value, list | dict):
        return f"{kind} with {len(value)} {'items' if isinstance(value, list) else 'members'}"
    return f"{kind} {_show(value)}"


def schema_at(schema: Schema, path: Sequence[str | int]) -> Schema:
    """Return the schema of a member; empty when the path leads to none."""
    current = _follow(schema, schema)
    for part in path:
        members = current if isinstance(part, int) else current.get("properties", {})
        found = members.get("items" if isinstance(part, int) else part, {})
        current = _follow(found, schema) if isinstance(found, Mapping) else {}
    return current


def _follow(schema: Schema, root: Schema) -> Schema:
    for _ in range(_MAX_ARGUMENT_DEPTH):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        found: Any = root
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        schema = found if isinstance(found, Mapping) else {}
    return {}


def _check(schema: Schema, value: Any, path: tuple[str | int, ...], root: Schema, depth: int) -> Iterator[Violation]:
    schema = _follow(schema, root)
    if depth > _MAX_ARGUMENT_DEPTH:
        yield Violation(path, f"{_name(path)} is nested too deeply")
        return
    for part in schema.get("allOf", ()):
        yield from _check(part, value, path, root, depth + 1)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        yield from _check_branches(schema, branches, value, path, root, depth)
        return
    if not _fits(schema, value):
        text = f"{_name(path)}: expected {describe_type(schema, root)}, got {describe_value(value)}"
        yield Violation(path, text)
        return
    yield from _check_bounds(schema, value, path)
    if isinstance(value, dict):
        yield from _check_members(schema, value, path, root, depth)
    elif isinstance(value, list):
        items = schema.get("items")
        for position, item in enumerate(value if isinstance(items, Mapping) else ()):
            yield from _check(items or {}, item, (*path, position), root, depth + 1)


def _check_branches(
    schema: Schema, branches: Sequence[Schema], value: Any, path: tuple[str | int, ...], root: Schema, depth: int
) -> Iterator[Violation]:
    problems = [list(_check(branch, value, path, root, depth + 1)) for branch in branches]
    if not all(problems):
        return
    same_type = [found for branch, found in zip(branches, problems, strict=True) if _fits(_follow(branch, root), value)]
    if len(same_type) == 1:
        yield from same_type[0]
    else:
        text = f"{_name(path)}: expected {describe_type(schema, root)}, got {describe_value(value)}"
        yield Violation(path, text)


def _check_members(
    schema: Schema, value: Mapping[str, Any], path: tuple[str | int, ...], root: Schema, depth: int
) -> Iterator[Violation]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            kind = describe_type(properties.get(name, {}), root)
            yield Violation((*path, name), f"{_name((*path, name))} is missing; expected {kind}")
    others = schema.get("additionalProperties", True)
    for name, member in value.items():
        if name in properties:
            yield from _check(properties[name], member, (*path, name), root, depth + 1)
        elif others is False:
            yield Violation(path, f"{_name((*path, name))} is not an argument", unknown=name)
        elif isinstance(others, Mapping):
            yield from _check(others, member, (*path, name), root, depth + 1)


def _check_bounds(schema: Schema, value: Any, path: tuple[str | int, ...]) -> Iterator[Violation]:
    if isinstance(value, bool) or not isinstance(value, int | float | str | list):
        return
    if isinstance(value, int | float):
        size: float = value
        keys = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "over", "exclusiveMaximum": "under"}
        what = ""
    else:
        size = len(value)
        low, high = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
        keys = {low: "at least", high: "at most"}
        what = " characters" if isinstance(value, str) else " items"
    for key, words in keys.items():
        bound = schema.get(key)
        if isinstance(bound, int | float) and _breaks(key, size, bound):
            yield Violation(path, f"{_name(path)}: expected {words} {bound}{what}, got {size}")


def _breaks(key: str, size: float, bound: float) -> bool:
    if key == "exclusiveMinimum":
        return size <= bound
    if key == "exclusiveMaximum":
        return size >= bound
    return size < bound if key.startswith("min") else size > bound


def _fits(schema: Schema, value: Any) -> bool:
    if "const" in schema:
        return canonical_json(schema["const"]) == canonical_json(value)
    if "enum" in schema:
        return canonical_json(value) in {canonical_json(item) for item in schema["enum"]}
    kinds = schema.get("type")
    if kinds is None:
        return True
    kind = _kind(value)
    allowed = kinds if isinstance(kinds, list) else [kinds]
    return kind in allowed or (kind == "integer" and "number" in allowed)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)


def _name(path: tuple[str | int, ...]) -> str:
    return repr(".".join(str(part) for part in path)) if path else "the arguments"


def _show(value: Any) -> str:
    text = canonical_json(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text)} characters)"


ADVICE = "Check types and format, then call again."
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_LAST_COMMA = re.compile(r"\"[^\"\\]*+(?:\\[\s\S][^\"\\]*+)*(?:\"|\\?\Z)|(?<=[\w\"}\]])(\s*,)(?=\s*[}\]])")
"""A text, or (as its group) a comma behind the last item, which can mean only one thing."""
_MAX_MENDED = 1_000_000
"""Characters."""
_MAX_REPORTED = 10


@dataclass(frozen=True)
class CheckedArguments:
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
            return _value_of(text if len(text) > _MAX_MENDED else _without_last_commas(text))
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
) -> CheckedArguments:
    """Check an object against a tool's schema, and against its model when it has one.

    Raises:
        ToolValidationError: Lists every argument that is wrong.
    """
    if found := misfits(schema, data):
        _refuse(tool, *found)
    if model is None:
        return CheckedArguments(data, dict(data))
    try:
        instance = model.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        _refuse(tool, *_from_pydantic(schema, error))
    except (ValueError, RecursionError) as error:
        _refuse(tool, str(error))
    keywords = {info.alias or name: getattr(instance, name) for name, info in type(instance).model_fields.items()}
    return CheckedArguments(instance.model_dump(mode="json", by_alias=True), keywords)


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
    shown = list(problems[:_MAX_REPORTED])
    if len(problems) > _MAX_REPORTED:
        shown.append(f"and {len(problems) - _MAX_REPORTED} more")
    if len(shown) == 1:
        raise ToolValidationError(f"{tool}: {shown[0]}. {ADVICE}")
    listed = "".join(f"- {problem}\n" for problem in shown)
    raise ToolValidationError(f"{tool}: {len(problems)} things are wrong with the arguments\n{listed}{ADVICE}")
