"""Of which JSON types a value may be that an expression gives, as far as the document and the contracts tell."""

from collections.abc import Mapping, Sequence
from typing import Any

from loom_dsl.agent.run import ModelResult, RunResult
from loom_dsl.graph.checks.slots import Reading, Slot, readings
from loom_dsl.graph.checks.unit import CheckContext, Unit
from loom_dsl.graph.nodes import (
    Activity,
    AgentNode,
    Approval,
    Cancel,
    End,
    Join,
    LlmNode,
    Loop,
    Map,
    Set,
    Subgraph,
    ToolCallNode,
)
from loom_dsl.tools.arguments import schema_at

Schema = Mapping[str, Any]
Kinds = frozenset[str]
"""Names of types as JSON schemas have them; all of them where nothing is known."""

EVERY: Kinds = frozenset({"string", "boolean", "integer", "number", "array", "object", "null"})
_OF_TYPES: Mapping[str, Kinds] = {
    "str": frozenset({"string"}),
    "bool": frozenset({"boolean"}),
    "int": frozenset({"integer", "number"}),
    "float": frozenset({"number", "integer"}),
    "number": frozenset({"integer", "number"}),
    "list": frozenset({"array"}),
    "dict": frozenset({"object"}),
    "null": frozenset({"null"}),
}
"""What a schema may call the types of expressions and of declared fields."""
_OBJECTS = (Approval, AgentNode, LlmNode, Join, Set)
_MAX_TYPE_DEPTH = 20
"""Results that are made of one another, one after the other, before their types are not looked at any more."""
AGENT: Schema = RunResult.model_json_schema(mode="serialization")
LLM: Schema = ModelResult.model_json_schema(mode="serialization")
"""What the results of agents and of models are, to the leaf."""
_TEXTS = {(Approval, "choice")}


def whole(text: str) -> Reading | None:
    """The expression that a text of a document consists of, without anything around it."""
    found = readings(text)
    alone = len(found) == 1 and text.startswith("${") and text.endswith("}") and text.count("${") == 1
    return found[0] if alone else None


def kinds_of_text(unit: Unit, checked: CheckContext, key: str, slot: Slot | None, text: str) -> Kinds:
    """The types of a value whose document holds this text."""
    reading = whole(text)
    if reading is None:
        return EVERY if "${secret:" in text else _OF_TYPES["str"]
    return kinds_of(unit, checked, key, slot, reading)


def kinds_of(unit: Unit, checked: CheckContext, key: str, slot: Slot | None, reading: Reading) -> Kinds:
    """The types of an expression's value.

    Args:
        unit: The graph that it is in.
        checked: The document.
        key: The node that it is in.
        slot: Where in that node, so that it is known what `result` is; None where that is not to be told.
        reading: The expression.
    """
    if reading.type is not None:
        return _OF_TYPES.get(reading.type, EVERY)
    return EVERY if reading.path is None else kinds_of_path(unit, checked, key, slot, reading.path)


def kinds_of_path(unit: Unit, checked: CheckContext, key: str, slot: Slot | None, path: tuple[str, ...]) -> Kinds:
    """The types of what stands at a path; the other arguments are those of `kinds_of`."""
    if checked.shipped:
        return EVERY
    root, *keys = path
    if root == "input":
        return _declared(unit.body.input, keys)
    if root == "state" and set(unit.body.state) & set(keys):
        return _declared(unit.body.state, keys) | {"null"}
    if root == "nodes" and keys and keys[0] in unit.body.nodes:
        return kinds_of_result(unit, checked, keys[0], keys[1:])
    own = root == "result" and slot is not None and slot.after and not slot.items
    return kinds_of_result(unit, checked, key, keys) if own else EVERY


def kinds_of_type(name: str) -> Kinds:
    """What a schema calls a type that a graph's `input` or `state` names."""
    return _OF_TYPES.get(name, EVERY)


def kinds_of_schema(schema: Schema, root: Schema) -> Kinds:
    """The types that a schema allows; all where it names none."""
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        inner = [schema_at({**branch, "$defs": root.get("$defs", {})}, ()) for branch in branches]
        return frozenset[str]().union(*(kinds_of_schema(branch, root) for branch in inner))
    kind = schema.get("type")
    if kind is None or "enum" in schema or "const" in schema:
        return EVERY
    named = {str(one) for one in kind} if isinstance(kind, list) else {str(kind)}
    return frozenset(named | ({"integer"} if "number" in named else set()))


def words(kinds: Kinds) -> str:
    """Name types for people: ``text``, ``a number``, ``a list or null``."""
    names = {
        "string": "text",
        "boolean": "true or false",
        "integer": "a number",
        "number": "a number",
        "array": "a list",
        "object": "an object",
        "null": "null",
    }
    return " or ".join(dict.fromkeys(name for kind, name in names.items() if kind in kinds))


def _declared(fields: Mapping[str, Any], keys: Sequence[str]) -> Kinds:
    if len(keys) != 1 or keys[0] not in fields:
        return EVERY
    field = fields[keys[0]]
    return _OF_TYPES.get(field.type, EVERY) | ({"null"} if getattr(field, "optional", False) else frozenset())


def kinds_of_result(unit: Unit, checked: CheckContext, key: str, keys: Sequence[str] = ()) -> Kinds:
    """The types of a node's result, or of what is in it under keys."""
    place = (unit.name, key, *keys)
    if place not in checked.kinds:
        if len(checked.looking) >= _MAX_TYPE_DEPTH:
            return EVERY
        checked.kinds[place] = EVERY  # for what is made of itself
        checked.looking.append(place)
        checked.kinds[place] = _of_node(unit, checked, key, keys)
        checked.looking.pop()
    return checked.kinds[place]


def _of_node(unit: Unit, checked: CheckContext, key: str, keys: Sequence[str]) -> Kinds:
    node = unit.body.nodes[key]
    if isinstance(node, Activity | ToolCallNode):
        contract = checked.contract(node)
        schema = contract.result if contract is not None else None
        return EVERY if schema is None else kinds_of_schema(schema_at(schema, keys), schema)
    if isinstance(node, Set) and keys:
        return _of_value(unit, checked, key, node.set, keys)
    if isinstance(node, Subgraph | Loop):
        return _of_graph(unit, checked, node, keys)
    if isinstance(node, AgentNode | LlmNode) and keys:
        schema = AGENT if isinstance(node, AgentNode) else LLM
        return kinds_of_schema(schema_at(schema, keys), schema)
    if isinstance(node, Join) and keys and node.join.threads is None and keys[0] in unit.body.nodes:
        return kinds_of_result(unit, checked, keys[0], keys[1:])
    several = (isinstance(node, Map) and not node.map.detach) or (isinstance(node, Join) and node.join.threads)
    if several and not keys:
        return _OF_TYPES["list"]
    if isinstance(node, _OBJECTS) and not keys:
        return _OF_TYPES["dict"]
    return _OF_TYPES["str"] if len(keys) == 1 and (type(node), keys[0]) in _TEXTS else EVERY


def _of_graph(unit: Unit, checked: CheckContext, node: Subgraph | Loop, keys: Sequence[str]) -> Kinds:
    """The types of what the ends of a graph give at a path."""
    called = checked.find(node.called if isinstance(node, Subgraph) else node.loop.do)
    if called is None or not checked.whole or called in checked.around(unit.name):
        return EVERY  # not of this document, not read, or it runs itself
    nodes = {key: inner for key, inner in called.body.nodes.items() if key in called.flow.reached}
    ends = {key: inner.end for key, inner in nodes.items() if isinstance(inner, End)}
    if not ends or any(isinstance(inner, Cancel) for inner in nodes.values()):
        return EVERY
    none = {"null"} if isinstance(node, Loop) and node.loop.while_ is not None else set[str]()
    return frozenset(none).union(*(_of_value(called, checked, key, value, keys) for key, value in ends.items()))


def _of_value(unit: Unit, checked: CheckContext, key: str, value: Any, keys: Sequence[str]) -> Kinds:
    """The types of what a value of a document gives at a path."""
    if isinstance(value, str):
        reading = whole(value)
        if not keys:
            return kinds_of_text(unit, checked, key, None, value)
        if reading is None or reading.path is None:
            return EVERY
        return kinds_of_path(unit, checked, key, None, (*reading.path, *keys))
    if keys:
        there = isinstance(value, dict) and keys[0] in value
        return _of_value(unit, checked, key, value[keys[0]], keys[1:]) if there else EVERY
    names = {bool: "bool", int: "int", float: "float", list: "list", dict: "dict", type(None): "null"}
    return _OF_TYPES[names[type(value)]]
