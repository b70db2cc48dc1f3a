"""Tables in Markdown, among them those of the fields of models."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from loom_dsl.authoring.schema import field_docstrings
from loom_dsl.fields import format_duration
from loom_dsl.graph.edges import Node

Rows = Iterator[Sequence[str]]


def table(head: Sequence[str], rows: Rows) -> str:
    """Write a table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def code(value: object) -> str:
    """Write a value as code, or nothing."""
    return f"`{value}`" if value != "" else ""


class _Schema(GenerateJsonSchema):
    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {}  # a function in a context, which no document holds


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Give a model's JSON schema, with its names as documents have them."""
    return model.model_json_schema(by_alias=True, schema_generator=_Schema)


def about(model: type[BaseModel]) -> str:
    """Give the first paragraph of a model's docstring."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].replace("``", "`").split())


def fields(*models: type[BaseModel]) -> Callable[[], str]:
    """Make a table of the fields of models; each model but the first gets a heading line."""

    def write() -> str:
        parts = []
        for index, model in enumerate(models):
            heading = "" if index == 0 else f"**{model.__name__}.** {about(model)}\n\n"
            parts.append(heading + table(("field", "type", "default", "meaning"), _field_rows(model)))
        return "\n\n".join(parts)

    return write


def _field_rows(model: type[BaseModel]) -> Rows:
    schema = schema_of(model)
    meanings = {**field_docstrings(model), **EXTRA.get(model.__name__, {})}
    inherited = Node.model_fields if issubclass(model, Node) and model is not Node else ()
    for name, field in model.model_fields.items():
        if name in inherited:
            continue
        shown = field.alias or name
        if shown not in schema["properties"]:  # Loom writes it itself
            continue
        kind = type_of(schema["properties"].get(shown, {}), schema.get("$defs", {}))
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True), kind)
        yield code(shown), kind, default, meanings.get(name, "")


EXTRA: dict[str, dict[str, str]] = {
    "RunInput": {
        "tool_policy": "How this run may use tools.",
        "loop_limits": "Limits of this run.",
        "runtime_init_data": "For tools that say `requires_runtime`; kept in the session, read by no model.",
        "runtime_hints": "Kept with the input; nothing of this release reads it.",
        "context": "Working directory, correlation id, and what the model is told of the project.",
    },
    "LoopLimits": {
        "max_iterations": "Turns.",
        "max_tool_rounds": "Turns that call tools.",
        "max_run_duration": "Active time.",
    },
    "ToolPolicy": {"max_parallel": "Tool calls at the same time.", "max_calls_per_run": "Tool calls in all."},
    "RunResult": {
        "session_id": "The conversation.",
        "run_id": "The job.",
        "status": "How the run ended.",
        "error": "Code and message, unless it completed.",
        "usage": "Tokens, calls and money.",
        "recursion_stats": "`max_depth`, `tool_calls`, `recursion_events`.",
    },
    "RunUsage": {
        "prompt_tokens": "Tokens of requests.",
        "completion_tokens": "Tokens of answers.",
        "model_calls": "Model calls.",
        "tool_calls": "Tool calls.",
        "cost_usd": "US dollars, by the public price list.",
    },
}
"""Meanings of fields that have no docstring of their own."""


def type_of(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Say what a value may be, from its JSON schema and the definitions that this refers to."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if not definitions.get(name, name):  # whatever JSON has
            return "any"
        return type_of(definitions[name], definitions) if "enum" in definitions.get(name, {}) else name
    if "const" in schema:
        return code(json.dumps(schema["const"]).strip('"'))
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    if "anyOf" in schema:
        kinds = (type_of(part, definitions) for part in schema["anyOf"])
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if str(schema.get("pattern", "")).startswith("^([0-9]+"):
        return "duration"
    if schema.get("type") == "array":
        items = type_of(schema.get("items", {}), definitions)
        return f"list of {items}" if items != "any" else "list"
    return {"string": "text", "integer": "whole number", "object": "map", "boolean": "true or false"}.get(
        schema.get("type", "any"), schema.get("type", "any")
    )


def _default(value: object, kind: str) -> str:
    if value is None or value is PydanticUndefined:
        return "`never`" if kind.startswith("`never`") else "none"
    if isinstance(value, BaseModel):
        return ""
    if value in ("", (), [], {}):
        return "empty"
    if isinstance(value, float) and kind == "duration":
        return code(format_duration(value)) if value else "`0s`"
    return code(json.dumps(value) if not isinstance(value, str) else value)
