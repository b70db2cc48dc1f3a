"""Write the generated tables into the documentation: ``python docs/tables.py [--check] [FILE…]``.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; `TABLES` has the names. With ``--check``
nothing is written, and the status is 1 when a file is not up to date.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from commands import commands
from patterns import pattern_list, pattern_rows
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from activities.builtin import BUILTIN_TOOLS
from loom_client.settings import Settings
from loom_dsl import errors
from loom_dsl.agent import Agent, Limits
from loom_dsl.approval import Control, Decision
from loom_dsl.approval_policy import Approvals, Escalation
from loom_dsl.approver_key import ApproverKey
from loom_dsl.docstrings import field_docstrings
from loom_dsl.duration import format_duration
from loom_dsl.error_codes import ENGINE_CODES
from loom_dsl.events import FIELDS, EventType, kind_of
from loom_dsl.graph import Defaults, Graph, InputField, StateField
from loom_dsl.metrics import METRICS
from loom_dsl.nodes import NODE_KINDS
from loom_dsl.nodes_flow import (
    ApprovalSpec,
    Cancel,
    End,
    EventSpec,
    FailSpec,
    JoinSpec,
    Race,
    RecurseSpec,
    Set,
    TimerSpec,
)
from loom_dsl.nodes_work import Activity, AgentNode, Barrier, LlmSpec, LoopSpec, MapSpec, Open, Subgraph
from loom_dsl.nodes_work import Tool as ToolNode
from loom_dsl.parts import Compensation, Deadline, Edge, Next, Node, Retry
from loom_dsl.permission_lists import Permissions
from loom_dsl.policy import Policy
from loom_dsl.roles import Role
from loom_dsl.run import LoopLimits, RunInput, RunResult, RunUsage, ToolPolicy
from loom_dsl.scenario import MockedDecision, MockedError, MockedResult, Scenario, ScenarioCase, SentEvent, Steered
from loom_dsl.scenario_expected import Expected, ExpectedEvent, ExpectedFailure
from loom_dsl.scope import RUN
from loom_dsl.script import Case, Failure, Script, ScriptedCall, ScriptedUsage, Step, When
from loom_dsl.signature import Signature
from loom_dsl.tools import Tool, ToolContext
from loom_dsl.webhooks import DeliveryRetry, Endpoint, WebhookSettings
from loom_dsl.written import Allow, Written

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
    meanings = {**field_docstrings(model), **EXTRA.get(model.__name__, {})}
    inherited = Node.model_fields if issubclass(model, Node) and model is not Node else ()
    for name, field in model.model_fields.items():
        if name in inherited:
            continue
        shown = field.alias or name
        if shown not in schema["properties"]:  # Loom writes it itself
            continue
        kind = _type(schema["properties"].get(shown, {}), schema.get("$defs", {}))
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True), kind)
        yield code(shown), kind, default, meanings.get(name, "")


EXTRA: dict[str, dict[str, str]] = {
    "RunInput": {
        "tool_policy": "How this run may use tools.",
        "loop_limits": "Limits of this run.",
        "runtime_init_data": "For tools that say `requires_runtime`; kept in the session, read by no model.",
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
        name = schema["$ref"].rpartition("/")[2]
        return _type(definitions[name], definitions) if "enum" in definitions.get(name, {}) else name
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
        yield f"`LOOM_{name.upper()}`{also.get(name, '')}", shown, field_docstrings(Settings)[name]


def _metrics() -> Rows:
    for name, metric in METRICS.items():
        yield code(name), metric.kind, metric.unit, ", ".join(code(key) for key in metric.attributes), metric.meaning


def _tools() -> Rows:
    for made in BUILTIN_TOOLS:
        said = made.description.split("\n\n")[0].split(". ")[0].rstrip(".") + "."
        asks = "runs" if made.read_only else "asks"
        yes = "yes" if made.read_only else "no"
        yield code(made.name), said, str(made.risk), yes, asks, format_duration(made.timeout)


def _tool_arguments() -> Rows:
    for made in BUILTIN_TOOLS:
        definitions, required = made.parameters.get("$defs", {}), made.parameters.get("required", ())
        for name, schema in made.parameters["properties"].items():
            default = (
                "required" if name in required else code(json.dumps(schema["default"])) if "default" in schema else ""
            )
            yield code(made.name), code(name), _type(schema, definitions), default, schema.get("description", "")


def _kinds() -> Rows:
    for kind, model in NODE_KINDS.items():
        about = " ".join((model.__doc__ or "").split("\n\n")[0].replace("``", "`").split())
        own = _type(
            model.model_json_schema(by_alias=True, schema_generator=_Schema)["properties"].get(kind, {}),
            model.model_json_schema(by_alias=True, schema_generator=_Schema).get("$defs", {}),
        )
        yield code(kind), about, own


EVENT_HEAD = ("type", "kind", "data, at least")
ERROR_HEAD = ("code", "class", "meaning", "engine retries", "model may retry", "exit code")
TABLES: dict[str, Callable[[], str]] = {
    "agent": fields(Agent, Permissions, Limits, Approvals, Escalation),
    "graph": fields(
        *(Graph, InputField, StateField, Defaults, Node, Edge, Next, Deadline, Compensation, Retry),
        *(Activity, ToolNode, AgentNode, LlmSpec, ApprovalSpec, EventSpec, TimerSpec, JoinSpec, MapSpec, Barrier, Open),
        *(LoopSpec, Subgraph, Written, Allow, Race, Set, Cancel, End, FailSpec, RecurseSpec),
    ),
    "node-kinds": lambda: table(("kind", "what it does", "its value"), _kinds()),
    "scenario": fields(
        *(Scenario, ScenarioCase, MockedResult, MockedError, MockedDecision, SentEvent, Steered),
        *(Expected, ExpectedFailure, ExpectedEvent),
    ),
    "script": fields(Script, Step, ScriptedCall, ScriptedUsage, Failure, Case, When),
    "policy": fields(Policy),
    "role": fields(Role),
    "decision": fields(Decision, Signature),
    "approver-key": fields(ApproverKey),
    "control": fields(Control),
    "run-input": fields(RunInput, LoopLimits, ToolPolicy),
    "run-result": fields(RunResult, RunUsage),
    "tool": attributes(Tool),
    "tool-context": attributes(ToolContext),
    "commands": commands,
    "events": lambda: table(EVENT_HEAD, _events()),
    "errors": lambda: table(ERROR_HEAD, _errors()),
    "engine-codes": lambda: table(("code", "meaning"), [(f"`{code}`", what) for code, what in ENGINE_CODES.items()]),
    "run-names": lambda: table(("name", "what it is"), [(f"`run.{name}`", what) for name, what in RUN.items()]),
    "webhooks": fields(WebhookSettings, Endpoint, DeliveryRetry),
    "settings": lambda: table(("variable", "default", "meaning"), _settings()),
    "metrics": lambda: table(("name", "kind", "unit", "attributes", "meaning"), _metrics()),
    "pattern-list": pattern_list,
    "patterns": lambda: table(("no.", "pattern", "what it means", "said with"), pattern_rows()),
    "tools": lambda: table(("tool", "what it does", "risk", "only reads", "without a rule", "time"), _tools()),
    "tool-arguments": lambda: table(("tool", "argument", "type", "default", "meaning"), _tool_arguments()),
}


def main(arguments: list[str]) -> int:
    """Rewrite, or check, the named files; by default the README and every Markdown file below this directory."""
    here = Path(__file__).parent
    default = [here.parent / "README.md", *sorted(here.rglob("*.md"))]
    files = [Path(name) for name in arguments if name != "--check"] or default
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
