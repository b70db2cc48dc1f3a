"""Write the generated tables into the documentation: ``python docs/tables.py [--check] [FILE…]``.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; `TABLES` has the names. With ``--check``
nothing is written, and the status is 1 when a file is not up to date.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from commands import commands
from fields import Rows, about, code, fields, schema_of, table, type_of
from patterns import pattern_list, pattern_rows

import loom_client
import loom_dsl
from loom_client.settings import Settings
from loom_dsl import errors
from loom_dsl.agent.definition import Agent, Limits
from loom_dsl.agent.run import LoopLimits, ModelResult, RunInput, RunResult, RunUsage, ToolPolicy
from loom_dsl.agent.turn import Usage
from loom_dsl.approvals.decision import Decision, Signature
from loom_dsl.approvals.policy import ApprovalPolicy, Escalation
from loom_dsl.approvals.signature import ApproverKey
from loom_dsl.authoring.schema import field_docstrings
from loom_dsl.fields import Retry, format_duration
from loom_dsl.graph.checks.structure import ENGINE_CODES
from loom_dsl.graph.edges import Compensation, Deadline, Edge, Next, Node
from loom_dsl.graph.generated import Allow, GeneratedGraph
from loom_dsl.graph.graph import Defaults, Graph
from loom_dsl.graph.nodes import (
    NODE_KINDS,
    Activity,
    AgentNode,
    ApprovalSpec,
    Barrier,
    Cancel,
    End,
    EventSpec,
    FailSpec,
    JoinSpec,
    LlmSpec,
    LoopSpec,
    MapSpec,
    Open,
    Race,
    RecurseSpec,
    Set,
    Subgraph,
    TimerSpec,
)
from loom_dsl.graph.nodes import ToolCallNode as ToolCallNode
from loom_dsl.graph.plan import RUN
from loom_dsl.graph.state import InputField, StateField
from loom_dsl.machine.signals import Control
from loom_dsl.observe.events import FIELDS, EventType, kind_of
from loom_dsl.observe.metrics import METRICS
from loom_dsl.observe.webhooks import DeliveryRetry, Endpoint, WebhookSettings
from loom_dsl.permissions.deployment import Policy
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.roles import Role
from loom_dsl.simulation.scenario import (
    Expected,
    ExpectedEvent,
    ExpectedFailure,
    MockedDecision,
    MockedError,
    MockedResult,
    Scenario,
    ScenarioCase,
    SentEvent,
    Steered,
)
from loom_dsl.simulation.script import Case, Script, ScriptedCall, ScriptedFailure, ScriptedStep, ScriptedUsage, When
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import Tool
from loom_tools.builtin import BUILTIN_TOOLS

PLACE = re.compile(r"(<!-- table: (?P<name>\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(text: str) -> str:
    """Give a document's text with its tables as they are now."""
    return PLACE.sub(lambda found: f"{found[1]}{TABLES[found['name']]()}\n{found[3]}", text)


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


VALUES = {
    "Arguments": "The arguments of a call, by name: what a `preview`, a `reconcile` or a `compensate` is given.",
    "R": "In a graph: the result of the node before, or of the node itself in its edges, `write` and `compensate`.",
    "event": "In a graph: the event that came.",
    "functions": "The functions of expressions, such as `functions.len_`.",
    "index": "In the graph of a `map` or a `loop`: the number of the item or the round, from 0.",
    "item": "In the graph of a `map`: the item; of a `loop`: the result of the round before.",
    "nodes": "In a graph: the results of nodes by their ids.",
    "run": "In a graph: facts of the run, such as `run.id`.",
}
"""What public names are that have no docstring of their own."""


def _names(package: ModuleType) -> Rows:
    for name in package.__all__:
        value = getattr(package, name)
        yield (
            code(name),
            VALUES.get(name) or " ".join((value.__doc__ or "").partition("\n\n")[0].replace("``", "`").split()),
        )


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
            yield code(made.name), code(name), type_of(schema, definitions), default, schema.get("description", "")


def _kinds() -> Rows:
    for kind, model in NODE_KINDS.items():
        schema = schema_of(model)
        yield code(kind), about(model), type_of(schema["properties"].get(kind, {}), schema.get("$defs", {}))


EVENT_HEAD = ("type", "kind", "data, at least")
ERROR_HEAD = ("code", "class", "meaning", "engine retries", "model may retry", "exit code")
TABLES: dict[str, Callable[[], str]] = {
    "agent": fields(Agent, Permissions, Limits, ApprovalPolicy, Escalation),
    "graph": fields(
        *(Graph, InputField, StateField, Defaults, Node, Edge, Next, Deadline, Compensation, Retry),
        *(
            Activity,
            ToolCallNode,
            AgentNode,
            LlmSpec,
            ApprovalSpec,
            EventSpec,
            TimerSpec,
            JoinSpec,
            MapSpec,
            Barrier,
            Open,
        ),
        *(LoopSpec, Subgraph, GeneratedGraph, Allow, Race, Set, Cancel, End, FailSpec, RecurseSpec),
    ),
    "node-kinds": lambda: table(("kind", "what it does", "its value"), _kinds()),
    "scenario": fields(
        *(Scenario, ScenarioCase, MockedResult, MockedError, MockedDecision, SentEvent, Steered),
        *(Expected, ExpectedFailure, ExpectedEvent),
    ),
    "script": fields(Script, ScriptedStep, ScriptedCall, ScriptedUsage, ScriptedFailure, Case, When),
    "policy": fields(Policy),
    "role": fields(Role),
    "decision": fields(Decision, Signature),
    "approver-key": fields(ApproverKey),
    "control": fields(Control),
    "run-input": fields(RunInput, LoopLimits, ToolPolicy),
    "node-results": fields(RunResult, RunUsage, ModelResult, Usage),
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
    "names-loom_dsl": lambda: table(("name", "what it is"), _names(loom_dsl)),
    "names-loom_client": lambda: table(("name", "what it is"), _names(loom_client)),
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
