"""L152 and L153: what a node gives to a function, a tool or an agent, against what that takes."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.slots import texts_of
from loom_dsl.graph.checks.structure import did_you_mean
from loom_dsl.graph.checks.types import EVERY, kinds_of_schema, kinds_of_text, words
from loom_dsl.graph.checks.unit import CheckContext, Finding, Unit
from loom_dsl.graph.edges import Node
from loom_dsl.graph.generated import GeneratedGraph
from loom_dsl.graph.nodes import Activity, AgentNode, LlmNode, Subgraph, ToolCallNode
from loom_dsl.text.wording import strange_letter
from loom_dsl.tools.arguments import describe_type, schema_at, violations
from loom_dsl.tools.mcp import is_mcp

Schema = Mapping[str, Any]
_TASKS = frozenset(
    {"prompt", "user_prompt", "message", "messages", "user_message", "instruction", "instructions", "goal", "objective"}
)
"""What others call an agent's task. Not what may as well be data: `question`, `input`, `request`."""


@dataclass(frozen=True)
class _Call:
    """A node's call of a function or a tool."""

    unit: Unit
    checked: CheckContext
    key: str
    name: str
    schema: Schema


def check_arguments_given(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph."""
    for key, node in unit.body.nodes.items():
        if isinstance(node, Activity | ToolCallNode):
            contract = checked.contract(node)
            if contract is not None and contract.arguments is not None:
                name = node.activity if isinstance(node, Activity) else node.tool
                yield from _given(_Call(unit, checked, key, name, contract.arguments), node.with_)
        elif isinstance(node, AgentNode) and "task" not in node.with_:
            yield from _task(unit, key, node)
        if node.compensate is not None and checked.contracts is not None:
            contract = checked.contracts("activity", node.compensate.activity)
            if contract is not None and contract.arguments is not None:
                call = _Call(unit, checked, key, node.compensate.activity, contract.arguments)
                yield from _given(call, node.compensate.with_, "compensate")


def _task(unit: Unit, key: str, node: AgentNode) -> Iterator[Finding]:
    if not node.with_:
        message = f"`{key}` tells the agent `{node.agent}` nothing, and so it would fail"
        yield Finding("L153", message, unit.at(key, "agent"), "give it `with: {task: …}`")
        return
    # The nearness of two texts does not count letters that changed places.
    named = [name for name in node.with_ if name.lower() in _TASKS or sorted(name.lower()) == sorted("task")]
    near = difflib.get_close_matches("task", node.with_, 1, 0.8) or named
    if near:
        message = f"`{key}` gives `{near[0]}` and no `task`; the agent is told it as JSON, not as what to do"
        yield Finding("L153", message, unit.at(key, "with", near[0]), "write `task` when that is meant", True)


def _given(call: _Call, given: Mapping[str, Any], *outer: str) -> Iterator[Finding]:
    schema = call.schema
    properties = schema.get("properties", {})
    place = call.unit.at(call.key, *outer, "with")
    for argument in schema.get("required", ()):
        if argument not in given:
            kind = describe_type(properties.get(argument, {}), schema)
            message = f"`{call.key}` calls `{call.name}` without `{argument}` ({kind}), which that needs"
            yield Finding("L152", message, place, f"give it: `with: {{{argument}: …}}`")
    for argument, value in given.items():
        if argument in properties:
            yield from _misfit(call, argument, value, (*place, argument))
        elif schema.get("additionalProperties") is False:
            fix = did_you_mean(argument, properties, "arguments")
            yield Finding("L152", f"`{call.name}` takes no `{argument}`", (*place, argument), fix, True)


def _misfit(call: _Call, argument: str, value: Any, place: DocumentPath) -> Iterator[Finding]:
    name, schema = call.name, call.schema
    if not any("${" in text for _, text in texts_of(value)):
        whole = {**schema, "required": [], "properties": {argument: schema["properties"][argument]}}
        for found in violations(whole, {argument: value})[:1]:
            yield Finding("L152", f"`{name}`: {found.text}", place, "give a value of that type")
        return
    kinds = kinds_of_text(call.unit, call.checked, call.key, None, value) if isinstance(value, str) else EVERY
    wanted = schema_at(schema, (argument,))
    if not kinds & kinds_of_schema(wanted, schema):
        said = describe_type(wanted, schema)
        message = f"`{name}`: '{argument}' expects {said}, and this is always {words(kinds)}"
        yield Finding("L152", message, place, "give a value of that type")


# L150: names of agents, tools, models and activities that are not known.


def check_registry(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph. Only agents are known by the document itself; for the rest the caller is asked."""
    for key, node in unit.body.nodes.items():
        yield from _agents(unit, checked, key, node)
        for what, name, place in _names(node):
            if not name.strip():
                yield Finding("L150", f"`{key}` names no {what}", unit.at(key, *place), f"give the name of one {what}")
            elif wrong_name := _no_reference(what, name):
                yield Finding("L150", wrong_name, unit.at(key, *place), "write `module:function`, in plain letters")
            elif checked.resolve is not None and "${" not in name:
                wrong = checked.resolve(what, name)
                if wrong is not None:
                    yield Finding("L150", wrong, unit.at(key, *place))


def _agents(unit: Unit, checked: CheckContext, key: str, node: Node) -> Iterator[Finding]:
    if isinstance(node, AgentNode) and node.agent not in checked.graph.agents and "${" not in node.agent:
        message = f"`{key}` runs the agent `{node.agent}`, which is not in `agents`"
        fix = did_you_mean(node.agent, checked.graph.agents, "agents")
        yield Finding("L150", message, unit.at(key, "agent"), fix)
    if isinstance(node, Subgraph) and isinstance(node.graph, GeneratedGraph):
        for index, name in enumerate(node.graph.allow.agents):
            if name not in checked.graph.agents:
                message = f"`{key}` allows the agent `{name}`, which is not in `agents`"
                fix = did_you_mean(name, checked.graph.agents, "agents")
                yield Finding("L150", message, unit.at(key, "graph", "allow", "agents", index), fix)


_REFERENCE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")


def _no_reference(what: str, name: str) -> str:
    """Why a name cannot be that of a function in a module, or of a tool; nothing where it can."""
    if what not in ("activity", "tool") or "${" in name or is_mcp(name):
        return ""
    if foreign := strange_letter(name):
        return f"`{name[:60]}` has {foreign}"
    if ":" in name and not _REFERENCE.fullmatch(name):
        return f"`{name[:60]}` names no function of a module"
    return ""


def _names(node: Node) -> Iterator[tuple[str, str, DocumentPath]]:
    if isinstance(node, Activity):
        yield "activity", node.activity, ("activity",)
    if isinstance(node, ToolCallNode):
        yield "tool", node.tool, ("tool",)
    if isinstance(node, LlmNode):
        yield "model", node.llm.model, ("llm", "model")
    if isinstance(node, Subgraph) and isinstance(node.graph, GeneratedGraph):
        allow, at = node.graph.allow, ("graph", "allow")
        yield from (("tool", name, (*at, "tools", index)) for index, name in enumerate(allow.tools))
        yield from (("model", name, (*at, "models", index)) for index, name in enumerate(allow.models))
        whole = [(index, name) for index, name in enumerate(allow.functions) if ":" in name]
        yield from (("activity", name, (*at, "functions", index)) for index, name in whole)
    if node.compensate is not None:
        yield "activity", node.compensate.activity, ("compensate", "activity")
