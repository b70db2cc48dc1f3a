"""L126: an expression reads a field that a result never has; L131: it asks for a choice that nobody can make."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loom_dsl.graph.checks.expressions import expressions_of
from loom_dsl.graph.checks.flow import FlowEdge
from loom_dsl.graph.checks.slots import Reading, Slot, slots_of
from loom_dsl.graph.checks.structure import did_you_mean
from loom_dsl.graph.checks.types import AGENT, LLM, Schema
from loom_dsl.graph.checks.unit import CheckContext, Finding, Unit
from loom_dsl.graph.nodes import (
    Activity,
    AgentNode,
    Approval,
    Branch,
    End,
    Join,
    LlmNode,
    Race,
    Set,
    Subgraph,
    ToolCallNode,
)
from loom_dsl.tools.arguments import schema_at

Fields = frozenset[str]
APPROVAL: Fields = frozenset({"choice", "by", "message", "edited"})
FAILED: Fields = frozenset({"ok", "code", "message"})
"""What a token carries that left a node by `catch` or by its deadline."""
EXPIRED = "expired"
"""The choice in the result of an approval that nobody decided in time."""


def check_shapes(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph."""
    if checked.shipped:
        return
    shapes = Shapes(unit, checked)
    for key, node in unit.body.nodes.items():
        for slot in slots_of(node):
            for place, reading in expressions_of(slot):
                yield from _fields(shapes, key, slot, place, reading)
                yield from _choices(shapes, key, slot, place, reading)


@dataclass(frozen=True)
class Shapes:
    """Says which fields results have, as far as the document and the contracts of functions and tools tell."""

    unit: Unit
    checked: CheckContext

    def of(self, key: str) -> list[Schema] | None:
        """What a node's result may be; None when it may have any fields, or is no object."""
        node = self.unit.body.nodes[key]
        if isinstance(node, Approval):
            return [_object(APPROVAL)]
        if isinstance(node, AgentNode):
            return [AGENT]
        if isinstance(node, LlmNode):
            return [LLM]
        if isinstance(node, Set):
            return [_object(node.set)]
        if isinstance(node, Join):
            return [_object(self.unit.flow.sources(key))] if node.join.threads is None else None
        if isinstance(node, Activity | ToolCallNode):
            contract = self.checked.contract(node)
            return [contract.result] if contract is not None and contract.result is not None else None
        return self._of_graph(node) if isinstance(node, Subgraph) and node.called else None

    def read(self, key: str, slot: Slot) -> list[Schema] | None:
        """What `result` may be in a slot."""
        if slot.items:
            return None
        own = slot.after and not isinstance(self.unit.body.nodes[key], Branch | Race)
        return self.of(key) if own else self._arriving(key)

    def _arriving(self, key: str) -> list[Schema] | None:
        """What a token may carry that comes to a node, over nodes that only choose the way."""
        flow = self.unit.flow
        found: list[Schema] = []
        seen, queue = {key}, [key]
        while queue:
            to = queue.pop()
            if to in flow.entries or not flow.into[to]:
                return None
            for way in flow.into[to]:
                if way.source not in flow.reached:
                    continue
                if self._passes(way):
                    queue += [way.source] if way.source not in seen else []
                    seen.add(way.source)
                    continue
                carried = self._over(way)
                if carried is None:
                    return None
                found += carried
        return found

    def _over(self, way: FlowEdge) -> list[Schema] | None:
        if way.kind == "catch" or (way.kind == "deadline" and not self._asks(way.source)):
            return [_object(FAILED)]
        return self.of(way.source)

    def _passes(self, way: FlowEdge) -> bool:
        """Whether what came to the node before goes on as it is."""
        return way.kind in ("exhausted", "race") or isinstance(self.unit.body.nodes[way.source], Branch)

    def _asks(self, key: str) -> bool:
        return isinstance(self.unit.body.nodes[key], Approval)

    def _of_graph(self, node: Subgraph) -> list[Schema] | None:
        called = self.checked.find(node.called)
        ends: list[Any] = [end.end for end in called.body.nodes.values() if isinstance(end, End)] if called else []
        if not ends or not all(isinstance(end, dict) for end in ends):
            return None
        return [_object([name for end in ends for name in end])]


def _object(names: Iterable[str]) -> Schema:
    return {"type": "object", "properties": {name: {} for name in names}, "additionalProperties": False}


def missing(schemas: list[Schema], keys: Sequence[str]) -> tuple[int, Fields] | None:
    """Which of the keys is the first that none of the schemas has, and those that there are; None if all may be."""
    at = [(_inner(schema, schema), schema) for schema in schemas]
    for depth, name in enumerate(keys):
        known = [_closed(here) for here, _ in at]
        if not known or None in known:
            return None
        there = frozenset[str]().union(*(fields for fields in known if fields is not None))
        if name not in there:
            return depth, there
        at = [(_inner(here["properties"][name], root), root) for here, root in at if name in here["properties"]]
    return None


def _inner(schema: Schema, root: Schema) -> Schema:
    """What a schema stands for: without a reference, and without null where it may be one other thing."""
    schema = schema_at({**schema, "$defs": root.get("$defs", {})}, ())
    others = [branch for branch in schema.get("anyOf", ()) if branch.get("type") != "null"]
    return schema_at({**others[0], "$defs": root.get("$defs", {})}, ()) if len(others) == 1 else schema


def _closed(schema: Schema) -> Fields | None:
    """The names of an object's members, where it has no others."""
    if schema.get("type") != "object" or "properties" not in schema or schema.get("additionalProperties"):
        return None
    return frozenset(schema["properties"])


def _fields(shapes: Shapes, key: str, slot: Slot, place: tuple[str | int, ...], reading: Reading) -> Iterator[Finding]:
    nodes = shapes.unit.body.nodes
    about: tuple[str, ...]
    for reference in reading.references:
        root, *keys = reference.path
        if root == "nodes" and len(keys) > 1 and keys[0] in nodes:
            schemas, inner, whose, about = shapes.of(keys[0]), keys[1:], f"nodes.{keys[0]}", ("nodes", keys[0])
        elif root == "result" and keys:
            schemas, inner, whose, about = shapes.read(key, slot), keys, "result", ("result",)
        else:
            continue
        found = missing(schemas, inner) if schemas is not None and not reference.soft else None
        if found is not None:
            depth, known = found
            within = [whose, *inner[:depth]]
            plain = f"the result of `{keys[0]}`" if root == "nodes" and not depth else f"`{'.'.join(within)}`"
            message = f"{plain} has no field `{inner[depth]}` when `{key}` reads it"
            fix = did_you_mean(inner[depth], sorted(known), "fields")
            yield Finding("L126", message, shapes.unit.at(key, *place), fix, about=about)


def _choices(shapes: Shapes, key: str, slot: Slot, place: tuple[str | int, ...], reading: Reading) -> Iterator[Finding]:
    if ".choice" not in reading.source:
        return
    for part in ast.walk(ast.parse(reading.source.strip(), mode="eval")):
        if not isinstance(part, ast.Compare) or len(part.ops) != 1 or not isinstance(part.ops[0], ast.Eq | ast.NotEq):
            continue
        sides = (part.left, part.comparators[0])
        for path, other in (sides, sides[::-1]):
            asked = _asked(shapes, key, slot, ast.unparse(path))
            node = shapes.unit.body.nodes[asked] if asked else None
            if not isinstance(node, Approval) or not isinstance(other, ast.Constant):
                continue
            if other.value not in (*node.approval.choices, EXPIRED):
                offered = ", ".join(node.approval.choices)
                message = f"`{ast.unparse(part)}` is always the same: `{asked}` offers {offered}"
                fix = did_you_mean(str(other.value), node.approval.choices, "choices")
                yield Finding("L131", message, shapes.unit.at(key, *place), fix)


def _asked(shapes: Shapes, key: str, slot: Slot, path: str) -> str | None:
    """The approval whose choice a path is."""
    nodes = shapes.unit.body.nodes
    if path == "result.choice" and slot.after:
        return key
    if path.startswith("nodes.") and path.endswith(".choice"):
        name = path.removeprefix("nodes.").removesuffix(".choice")
        return name if name in nodes else None
    return None
