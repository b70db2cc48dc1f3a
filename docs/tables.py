"""Write the generated tables into the documentation: ``python docs/tables.py [--check] [FILE…]``.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; `TABLES` has the names. With ``--check``
nothing is written, and the status is 1 when a file is not up to date.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from commands import commands
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from activities.builtin import BUILTIN_TOOLS
from loom_client.settings import Settings
from loom_dsl import errors
from loom_dsl.agent import Agent, Approvals, Limits
from loom_dsl.approval import Control, Decision
from loom_dsl.duration import format_duration
from loom_dsl.events import FIELDS, EventType, kind_of
from loom_dsl.graph import (
    Activity,
    ApprovalSpec,
    Barrier,
    Deadline,
    Edge,
    FailSpec,
    Graph,
    MapSpec,
    Next,
    Node,
    RecurseSpec,
    Retry,
)
from loom_dsl.permissions import Permissions
from loom_dsl.run import LoopLimits, RunInput, RunResult, RunUsage, ToolPolicy
from loom_dsl.script import Case, Failure, Script, ScriptedCall, ScriptedUsage, Step, When
from loom_dsl.tools import Tool, ToolContext

PLACE = re.compile(r"(<!-- table: (?P<name>\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
Rows = Iterator[Sequence[str]]


def filled(text: str) -> str:
    """Give a document's text with its tables as they are now."""
    return PLACE.sub(lambda found: f"{found[1]}{TABLES[found['name']]()}\n{found[3]}", text)


def table(head: Sequence[str], rows: Rows) -> str:
    """Write a table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def code(value: object) -> str:
    """Write a value as code, or nothing."""
    return f"`{value}`" if value != "" else ""


# -- models of documents and messages --------------------------------------------------------------


def docstrings(cls: type) -> dict[str, str]:
    """Give the docstring below each attribute of a class, the bases' included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("loom_"):
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            assert isinstance(body, ast.ClassDef)
            for field, text in zip(body.body, body.body[1:], strict=False):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                        found[name] = " ".join(meaning.replace("``", "`").split())
    return found


class _Schema(GenerateJsonSchema):
    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {}  # a function in a context, which no document holds


def fields(*models: type[BaseModel]) -> Callable[[], str]:
    """Make a table of the fields of models; each model but the first gets a heading line."""

    def write() -> str:
        parts = []
        for index, model in enumerate(models):
            about = " ".join((model.__doc__ or "").split("\n\n")[0].replace("``", "`").split())
            heading = "" if index == 0 else f"**{model.__name__}.** {about}\n\n"
            parts.append(heading + table(("field", "type", "default", "meaning"), _field_rows(model)))
        return "\n\n".join(parts)

    return write


def _field_rows(model: type[BaseModel]) -> Rows:
    schema = model.model_json_schema(by_alias=True, schema_generator=_Schema)
    meanings = {**docstrings(model), **EXTRA.get(model.__name__, {})}
    inherited = Node.model_fields if issubclass(model, Node) and model is not Node else ()
    for name, field in model.model_fields.items():
        if name in inherited:
            continue
        shown = field.alias or name
        kind = _type(schema["properties"].get(shown, {}), schema.get("$defs", {}))
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True), kind)
        yield code(shown), kind, default, meanings.get(name, "")


EXTRA: dict[str, dict[str, str]] = {
    "Agent": {
        "name": "Lower-case letters, digits, `-` and `_`, at most 64.",
        "model": "The model's name, `provider:model`, or `${env:NAME}`.",
        "instructions": "What the model is told first.",
        "permissions": "What may run, what asks, what may not run.",
        "limits": "How far a job may go.",
        "approvals": "What happens to a question that nobody answers.",
        "recurse": "When a turn is a temporal run of its own.",
    },
    "Limits": {
        "max_tool_calls": "Tool calls in the whole job.",
        "max_cost_usd": "US dollars, by the public price list; a model that it does not have costs 0.",
        "max_context_tokens": "Tokens that a model call may be given.",
    },
    "Approvals": {"expires": "How long to wait.", "on_expiry": "What counts then; `halt` fails the job."},
    "Permissions": {
        "allow": "Rules of calls that run.",
        "ask": "Rules of calls that wait for an approval.",
        "deny": "Rules of calls that are refused.",
    },
    "Graph": {"kind": "What the document is."},
    "FailSpec": {"code": "Code of the job's error.", "message": "What people read.", "details": "More, as data."},
    "Script": {
        "loom": "Version of the format.",
        "kind": "What the document is.",
        "name": "The script's name.",
        "description": "For people.",
    },
    "Step": {"calls": "Tool calls that the answer asks for.", "fail": "An HTTP error in place of the answer."},
    "ScriptedUsage": {
        "prompt": "Tokens of the request.",
        "completion": "Tokens of the answer.",
        "cached": "The part of `prompt` that came from a cache.",
    },
    "Failure": {"status": "The HTTP status.", "message": "The error's message.", "headers": "More headers."},
    "Case": {"when": "Which conversations.", "steps": "Their answers.", "otherwise": "When the steps have run out."},
    "RunInput": {
        "tool_policy": "How this run may use tools.",
        "loop_limits": "Limits of this run.",
        "runtime_init_data": "Kept with the input; no tool of this release reads it.",
        "runtime_hints": "Kept with the input; nothing of this release reads it.",
        "context": "Working directory and correlation id.",
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


def _type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "const" in schema:
        return code(json.dumps(schema["const"]).strip('"'))
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    if "anyOf" in schema:
        kinds = (_type(part, definitions) for part in schema["anyOf"])
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if str(schema.get("pattern", "")).startswith("^([0-9]+"):
        return "duration"
    if schema.get("type") == "array":
        items = _type(schema.get("items", {}), definitions)
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


# -- the others --------------------------------------------------------------------------------------


def attributes(cls: type) -> Callable[[], str]:
    """Make a table of the `Attributes:` of a class's docstring."""

    def rows() -> Rows:
        listed = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2]
        for entry in re.split(r"\n(?=    \w)", listed.rstrip()):
            name, _, text = " ".join(entry.split()).partition(": ")
            yield code(name), text

    return lambda: table(("attribute", "meaning"), rows())


def _events() -> Rows:
    for member in EventType:
        yield code(member), code(kind_of(member)), ", ".join(code(name) for name in FIELDS.get(member, ()))


def _errors() -> Rows:
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.LoomError)]
    for cls in sorted(classes, key=lambda cls: inspect.getsourcelines(cls)[1]):
        yes = {True: "yes", False: ""}
        meaning = (cls.__doc__ or "").strip().splitlines()[0]
        yield code(cls.code), cls.__name__, meaning, yes[cls.retryable], yes[cls.recoverable], str(cls.exit_code)


def _settings() -> Rows:
    also = {"address": ", else `TEMPORAL_ADDRESS`", "namespace": ", else `TEMPORAL_NAMESPACE`"}
    for name, field in Settings.model_fields.items():
        default = {"address": "127.0.0.1:7233", "namespace": "default"}.get(name, field.default)
        shown = "see below" if name == "store" else code(default)
        yield f"`LOOM_{name.upper()}`{also.get(name, '')}", shown, docstrings(Settings)[name]


def _tools() -> Rows:
    for made in BUILTIN_TOOLS:
        arguments = ", ".join(code(name) for name in made.parameters.get("properties", {}))
        asks = "runs" if made.read_only else "asks"
        yield code(made.name), made.description.split("\n\n")[0].split(". ")[0].rstrip(".") + ".", arguments, asks


EVENT_HEAD = ("type", "kind", "data, at least")
ERROR_HEAD = ("code", "class", "meaning", "engine retries", "model may retry", "exit code")
TABLES: dict[str, Callable[[], str]] = {
    "agent": fields(Agent, Permissions, Limits, Approvals),
    "graph": fields(
        *(Graph, Node, Edge, Next, Deadline, Activity, Retry, MapSpec, Barrier, ApprovalSpec, RecurseSpec, FailSpec)
    ),
    "script": fields(Script, Step, ScriptedCall, ScriptedUsage, Failure, Case, When),
    "decision": fields(Decision),
    "control": fields(Control),
    "run-input": fields(RunInput, LoopLimits, ToolPolicy),
    "run-result": fields(RunResult, RunUsage),
    "tool": attributes(Tool),
    "tool-context": attributes(ToolContext),
    "commands": commands,
    "events": lambda: table(EVENT_HEAD, _events()),
    "errors": lambda: table(ERROR_HEAD, _errors()),
    "settings": lambda: table(("variable", "default", "meaning"), _settings()),
    "tools": lambda: table(("tool", "what it does", "arguments", "without a rule"), _tools()),
}


def main(arguments: list[str]) -> int:
    """Rewrite, or check, the named files; by default every Markdown file below this directory."""
    files = [Path(name) for name in arguments if name != "--check"] or sorted(Path(__file__).parent.rglob("*.md"))
    status = 0
    for file in files:
        before = file.read_text(encoding="utf-8")
        after = filled(before)
        if after != before and "--check" in arguments:
            print(f"{file} is not up to date: run python docs/tables.py", file=sys.stderr)
            status = 1
        elif after != before:
            file.write_text(after, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
