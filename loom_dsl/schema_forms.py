"""The short forms that the validators of a graph's parts accept, as JSON Schema.

One schema often stands for several forms: `pattern` and `enum` look at texts only, `items` at lists only and
`properties` at mappings only, so that an editor tells what is wrong with the form that was written.
"""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from loom_dsl.parts import seconds, seconds_or_mapping

Schema = dict[str, Any]

DURATION: Schema = {
    "description": "A duration, such as 500ms, 90s, 5m, 4h or 1d.",
    "type": "string",
    "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
    "patternErrorMessage": "this is no duration: write a number and a unit, such as 500ms, 90s, 5m, 4h or 1d",
}
"""`patternErrorMessage` is a word of editors; validators pass it over."""
MAPPED: Schema = {"description": "A `${…}` that gives the value.", "type": "string", "pattern": r"^\$\{"}
EDGE = {"$ref": "#/definitions/Edge"}


def with_durations(model: type[BaseModel], schema: Schema) -> Schema:
    """Let the fields that read durations take them: which they are is told by the validators of the class."""
    properties = dict(schema["properties"])
    for decorator in model.__pydantic_decorators__.field_validators.values():
        if decorator.func in (seconds, seconds_or_mapping):
            forms = [DURATION] if decorator.func is seconds else [DURATION, MAPPED]
            for name in decorator.info.fields:
                if name in model.model_fields:
                    shown = model.model_fields[name].alias or name
                    properties[shown] = _timed(properties[shown], forms)
    return {**schema, "properties": properties}


def _timed(schema: Schema, forms: list[Schema]) -> Schema:
    """Put durations in place of any text."""
    kept: Schema = {key: schema[key] for key in ("default", "description") if key in schema}
    parts = schema.get("anyOf") or [{key: value for key, value in schema.items() if key not in kept}]
    return {**kept, "anyOf": [*forms, *(part for part in parts if part.get("type") != "string")]}


def _or_text(schema: Schema, **keywords: Any) -> Schema:
    """A mapping, or a text that is short for one."""
    return {**schema, "type": ["string", "object"], **keywords}


def _next(schema: Schema) -> Schema:
    names, properties = {"items": {"type": "string"}}, schema["properties"]
    thread = {"description": "The node where so many tokens go (a thread split).", "type": "string"}
    return {
        **schema,
        "description": "The ways out: a node; a list of nodes, all of them at once; a list of edges, of which the "
        "first that holds is taken; or a mapping.",
        "type": ["string", "array", "object"],
        "properties": {**properties, "to": thread},
        "if": {"type": "array", **names},
        "then": {},
        "else": {"items": EDGE},
        "dependencies": {
            "first": _without("each", "all", "times", "to"),
            "each": _without("all", "times", "to"),
            "all": _without("to"),
            "times": {"anyOf": [{"required": ["to"]}, _ONE_NODE]},
            "to": ["times"],
        },
    }


_ONE_NODE: Schema = {"required": ["all"], "properties": {"all": {"minItems": 1, "maxItems": 1}}}


def _without(*keys: str) -> Schema:
    return {"not": {"anyOf": [{"required": [key]} for key in keys]}}


def _deadline(schema: Schema) -> Schema:
    never = {"description": "There is none, on purpose.", "const": "never"}
    after = schema["properties"]["after"]
    forms = [never, DURATION, MAPPED, {"type": "number"}, {"type": "null"}]
    about = {key: value for key, value in after.items() if key == "description"}
    full = {
        **schema,
        "properties": {**schema["properties"], "after": {**about, "anyOf": forms}},
        "if": {"properties": {"after": {"enum": ["never", None]}}},
        "then": {},
        "else": {"required": ["to"], "properties": {"to": {"type": "string"}}},
    }
    return {"description": schema["description"], "anyOf": [never, full]}


def _typed(schema: Schema) -> Schema:
    """A field of the input or the state: its type's name is short for it."""
    return {"description": schema["description"], "anyOf": [{"enum": schema["properties"]["type"]["enum"]}, schema]}


def _approval(schema: Schema) -> Schema:
    ask = {"description": "What people read: short for a request with this `summary`."}
    full = {key: value for key, value in schema.items() if key != "required"}
    return _or_text(
        {**full, "properties": {"ask": ask, **schema["properties"]}},
        **{
            "if": {"type": "object"},
            "then": {"oneOf": [{"required": ["ask"]}, {"required": ["request"]}]},
        },
    )


def _fail(schema: Schema) -> Schema:
    return {**schema, "properties": {**schema["properties"], "fail": _either_text(schema["properties"]["fail"])}}


def _either_text(schema: Schema) -> Schema:
    kept = {key: value for key, value in schema.items() if key == "description"}
    return {**kept, "anyOf": [{"type": "string"}, {"$ref": schema["$ref"]}]}


def _timer(schema: Schema) -> Schema:
    properties = schema["properties"]
    full = {**schema, "oneOf": [{"required": ["after"]}, {"required": ["until"]}]}
    return {"description": schema["description"], "anyOf": [*properties["after"]["anyOf"][:-1], full]}


def _join(schema: Schema) -> Schema:
    modes = schema["properties"]["mode"]["enum"]
    alone = [{"not": {"required": ["need", "threads"]}}]
    taken = {"required": ["mode"], "properties": {"mode": {"const": "taken"}}}
    full = {**schema, "allOf": [*alone, {"if": taken, "then": _without("need", "threads")}]}
    return {"description": schema["description"], "anyOf": [{"enum": modes}, full]}


def _cancel(schema: Schema) -> Schema:
    nodes = {**schema["properties"]["cancel"], "type": ["string", "array"]}
    return {**schema, "properties": {**schema["properties"], "cancel": nodes}}


def _loop(schema: Schema) -> Schema:
    return {**schema, "oneOf": [{"required": ["while"]}, {"required": ["until"]}]}


def _permissions(schema: Schema) -> Schema:
    """Lists of rules, or a map from a tool to what is decided about it."""
    decisions = schema["properties"]["default"]["anyOf"][0]["enum"]
    listed = [{"required": [name]} for name in decisions]
    return {
        **schema,
        "additionalProperties": {"description": "What is decided about this tool.", "enum": decisions},
        "if": {"anyOf": listed},
        "then": {"propertyNames": {"enum": list(schema["properties"])}},
    }


def _role(schema: Schema) -> Schema:
    """Lists of names, or one name."""
    lists = ("who", "start", "directories")
    properties = {name: _or_one(part) if name in lists else part for name, part in schema["properties"].items()}
    return {**schema, "properties": properties}


def _or_one(schema: Schema) -> Schema:
    kept = {key: value for key, value in schema.items() if key in ("description", "default")}
    several = {key: value for key, value in schema.items() if key not in kept}
    return {**kept, "anyOf": [several["items"], several]}


def _mocked_result(schema: Schema) -> Schema:
    """What is no mapping is the result itself."""
    return {key: value for key, value in schema.items() if key != "type"}


def _decision(schema: Schema) -> Schema:
    return {**schema, "type": ["string", "object", "null"]}


FORMS: dict[str, Callable[[Schema], Schema]] = {
    "Next": _next,
    "Deadline": _deadline,
    "InputField": _typed,
    "StateField": _typed,
    "ApprovalSpec": _approval,
    "EventSpec": _or_text,
    "TimerSpec": _timer,
    "JoinSpec": _join,
    "Cancel": _cancel,
    "Fail": _fail,
    "LoopSpec": _loop,
    "Permissions": _permissions,
    "Role": _role,
    "MockedError": _or_text,
    "MockedResult": _mocked_result,
    "MockedDecision": _decision,
    "ExpectedFailure": _or_text,
    "ExpectedEvent": _or_text,
}
"""What a class with short forms makes of its schema. Every model with a validator that reads one is here."""
