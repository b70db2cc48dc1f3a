"""L152 and L153: what a node gives to a function, a tool or an agent, against what that takes."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.checks_slots import texts_of
from loom_dsl.checks_structure import did_you_mean
from loom_dsl.checks_types import EVERY, kinds_of_schema, kinds_of_text, words
from loom_dsl.checks_unit import Checked, Finding, Place, Unit
from loom_dsl.json_schema import describe_type, schema_at, violations
from loom_dsl.nodes_work import Activity, AgentNode, Tool

Schema = Mapping[str, Any]
_TASKS = frozenset(
    {"prompt", "user_prompt", "message", "messages", "user_message", "instruction", "instructions", "goal", "objective"}
)
"""What others call an agent's task. Not what may as well be data: `question`, `input`, `request`."""


@dataclass(frozen=True)
class _Call:
    """A node's call of a function or a tool."""

    unit: Unit
    checked: Checked
    key: str
    name: str
    schema: Schema


def check_arguments_given(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check one graph."""
    for key, node in unit.body.nodes.items():
        if isinstance(node, Activity | Tool):
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


def _misfit(call: _Call, argument: str, value: Any, place: Place) -> Iterator[Finding]:
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
