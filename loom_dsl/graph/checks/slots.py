"""Where a node holds expressions: conditions, values with ``${…}``, and what may be read there."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import ROOTS, compile_expression
from loom_dsl.expr.functions import FUNCTIONS
from loom_dsl.expr.template import compile_template
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.edges import Node
from loom_dsl.graph.generated import GeneratedGraph
from loom_dsl.graph.nodes import (
    Activity,
    AgentNode,
    Approval,
    End,
    EventNode,
    Fail,
    Join,
    LlmNode,
    Loop,
    Map,
    MapSpec,
    Recurse,
    Set,
    Subgraph,
    Timer,
    ToolCallNode,
)

# What an expression reads, and of which type its value is as far as that can be told.


Type = str
"""``bool``, ``int``, ``float``, ``str``, ``list``, ``dict`` or ``null``; ``number`` is one of two."""

_WORDS = {"true": "bool", "false": "bool", "True": "bool", "False": "bool", "null": "null", "None": "null"}
_RESULTS: dict[str, Type] = {name: function.gives for name, function in FUNCTIONS.items() if function.gives != "any"}


@dataclass(frozen=True, slots=True)
class Reference:
    """One path that an expression reads.

    Attributes:
        path: The root and the keys that are known, such as ``("nodes", "model", "calls")``.
        soft: Whether the expression says itself that it may be absent, with `has` or `get`.
    """

    path: tuple[str, ...]
    soft: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of an expression before it runs.

    Attributes:
        source: Its text.
        references: What it reads, each path once and as long as it is known.
        type: Type of its value, or None when that cannot be told.
        path: What it reads when it is nothing but a path, such as ``nodes.model.calls``.
        operands: Paths that it computes with whatever they are, so that they must not be null.
    """

    source: str
    references: tuple[Reference, ...]
    type: Type | None
    path: tuple[str, ...] | None = None
    operands: tuple[tuple[str, ...], ...] = ()

    @property
    def constant(self) -> bool:
        """Whether it reads nothing, so that its value never changes."""
        return not self.references


@lru_cache(maxsize=8192)
def read(source: str) -> Reading:
    """Read an expression that compiles."""
    tree = ast.parse(source.strip(), mode="eval").body
    found = dict.fromkeys(_references(tree, frozenset()))
    guarded = {ref.path for ref in found if ref.soft}
    kept = tuple(
        ref if ref.soft or not any(ref.path[: len(path)] == path for path in guarded) else Reference(ref.path, True)
        for ref in found
    )
    return Reading(source, tuple(dict.fromkeys(kept)), type_of(tree), alone(tree), tuple(_operands(tree)))


def list_of(source: str) -> list[Any] | None:
    """The list that an expression gives which reads nothing; None of every other one, or where it fails."""
    try:
        value = compile_expression(source).evaluate({}) if read(source).constant else None
    except ExpressionError:
        return None
    return value if isinstance(value, list) else None


def needed(condition: str) -> list[str]:
    """The nodes without whose results a condition is false or fails, as far as it says so plainly."""
    try:
        tree = ast.parse(condition.strip(), mode="eval").body
    except SyntaxError:
        return []
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    found = []
    for part in parts:
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "has":
            found += [ref.path[1] for ref in _references(part, frozenset()) if ref.path[0] == "nodes" and ref.path[1:]]
        elif isinstance(part, ast.Compare | ast.Attribute | ast.Subscript):
            inner = [ref for ref in _references(part, frozenset()) if not ref.soft]
            found += [ref.path[1] for ref in inner if ref.path[0] == "nodes" and ref.path[1:]]
    return found


def whole_number(value: Any) -> int | None:
    """The whole number that a document says: written out, or as a ``${…}`` that reads nothing; else None."""
    if isinstance(value, str):
        found = readings(value)
        try:
            alone = len(found) == 1 and found[0].constant
            value = compile_template(value).evaluate({}) if alone else None
        except ExpressionError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def readings(text: str) -> list[Reading]:
    """Read every ``${…}`` of a text."""
    if "${" not in text:
        return []
    try:
        return [read(expression.source) for expression in compile_template(text).expressions]
    except ExpressionError:  # data that is no template, such as a default
        return []


def type_of_text(text: str) -> Type | None:
    """The type that a value has whose document holds this text."""
    found = readings(text)
    whole = len(found) == 1 and text.startswith("${") and text.endswith("}") and text.count("${") == 1
    return found[0].type if whole else "str"


def _references(node: ast.AST, bound: frozenset[str]) -> Iterator[Reference]:
    path = _path(node, bound)
    if path is not None:
        yield Reference(path)
        yield from _inside_keys(node, bound)
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield from _of_call(node, node.func.id, bound)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        clause = node.generators[0]
        yield from _references(clause.iter, bound)
        inner = bound | {name.id for name in ast.walk(clause.target) if isinstance(name, ast.Name)}
        for part in (*clause.ifs, node.elt):
            yield from _references(part, inner)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _references(child, bound)


def _of_call(node: ast.Call, name: str, bound: frozenset[str]) -> Iterator[Reference]:
    arguments = list(node.args)
    if name in ("has", "get") and len(arguments) > 1:
        path, key = _path(arguments[0], bound), arguments[1]
        if path is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield Reference((*path, key.value), soft=True)
            if len(path) > 1:
                yield Reference(path)
            arguments = arguments[2:]
    for part in arguments:
        yield from _references(part, bound)


def _path(node: ast.AST, bound: frozenset[str]) -> tuple[str, ...] | None:
    """The keys from a root on, up to the first that is computed; None for what begins with no root."""
    keys: list[str | None] = []
    inner = node
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        if isinstance(inner, ast.Attribute):
            keys.append(inner.attr)
        else:
            key = inner.slice.value if isinstance(inner.slice, ast.Constant) else None
            keys.append(key if isinstance(key, str) else None)
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.id in bound or inner.id not in ROOTS:
        return None
    known = keys[::-1]
    return (inner.id, *(str(key) for key in (known[: known.index(None)] if None in known else known)))


def alone(node: ast.AST, bound: frozenset[str] = frozenset()) -> tuple[str, ...] | None:
    """The keys of an expression that is a path and nothing else, all of them known; `bound` are names of its own."""
    path, steps, inner = _path(node, bound), 0, node
    while isinstance(inner, ast.Attribute | ast.Subscript):
        steps, inner = steps + 1, inner.value
    return path if path is not None and len(path) == steps + 1 else None


def _operands(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """The paths on both sides of arithmetic; none where a condition may keep them out of it."""
    parts = list(ast.walk(tree))
    if any(isinstance(part, ast.IfExp | ast.BoolOp | ast.ListComp | ast.GeneratorExp) for part in parts):
        return
    for part in parts:
        if isinstance(part, ast.BinOp):
            yield from (path for side in (part.left, part.right) if (path := _path(side, frozenset())))


def _inside_keys(node: ast.AST, bound: frozenset[str]) -> Iterator[Reference]:
    """What the computed keys of a path read: ``nodes.a[input.n]``."""
    inner: ast.AST = node
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        if isinstance(inner, ast.Subscript):
            yield from _references(inner.slice, bound)
        inner = inner.value


def type_of(node: ast.AST) -> Type | None:
    """The type of an expression's value, or None when it cannot be told."""
    if isinstance(node, ast.Constant):
        return "null" if node.value is None else type(node.value).__name__
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id)
    if isinstance(node, ast.Compare):
        return "bool"
    if isinstance(node, ast.UnaryOp):
        return "bool" if isinstance(node.op, ast.Not) else "number"
    if isinstance(node, ast.BinOp):
        return _of_operator(node)
    if isinstance(node, ast.BoolOp):
        return _same([type_of(part) for part in node.values])
    if isinstance(node, ast.IfExp):
        return _same([type_of(node.body), type_of(node.orelse)])
    return _of_rest(node)


def _of_rest(node: ast.AST) -> Type | None:
    if isinstance(node, (ast.List, ast.ListComp, ast.GeneratorExp)):
        return "list"
    if isinstance(node, ast.Dict):
        return "dict"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _RESULTS.get(node.func.id)
    return None


def _of_operator(node: ast.BinOp) -> Type | None:
    if not isinstance(node.op, ast.Add):
        return "number"
    left, right = type_of(node.left), type_of(node.right)
    known = left or right
    return "number" if known in ("int", "float", "number") else known


def _same(types: list[Type | None]) -> Type | None:
    return types[0] if len(set(types)) == 1 else None


@dataclass(frozen=True, slots=True)
class Slot:
    """One place of a node with a value that is computed.

    Attributes:
        place: Path below the node.
        value: An expression, or a value with ``${…}``.
        kind: ``condition`` and ``expression`` are expressions as a whole, ``mapping`` is a value with some in it.
        after: Whether it is looked at when the node has its result.
        items: Whether `item` and `index` have values here whatever the graph is.
        shown: Whether people or observers see the value, or a model does, so that no secret may be in it.
    """

    place: DocumentPath
    value: Any
    kind: Literal["condition", "expression", "mapping"] = "mapping"
    after: bool = False
    items: bool = field(default=False, kw_only=True)
    shown: bool = field(default=False, kw_only=True)


def slots_of(node: Node) -> Iterator[Slot]:
    """Every place of a node with a value that is computed."""
    if node.only_while is not None:
        yield Slot(("only_while",), node.only_while, "condition")
    if node.mutex is not None:
        yield Slot(("mutex",), node.mutex)
    if node.deadline is not None:
        yield Slot(("deadline", "after"), node.deadline.after)
    yield from (Slot(("emit", name), value, shown=True) for name, value in node.emit.items())
    yield from _own(node)
    yield from (Slot(("write", name), value, after=True, shown=True) for name, value in node.write.items())
    if node.compensate is not None:
        yield Slot(("compensate", "with"), node.compensate.with_, after=True)
    for name, edges in (("first", node.next.first), ("each", node.next.each)):
        for index, edge in enumerate(edges):
            if edge.when is not None:
                yield Slot(("next", name, index, "if"), edge.when, "condition", after=True)
    if node.next.times is not None:
        yield Slot(("next", "times"), node.next.times, after=True)


def _own(node: Node) -> Iterator[Slot]:
    """What only this kind of node has."""
    if isinstance(node, Map):
        yield from _of_map(node.map)
    elif isinstance(node, Loop):
        yield from _of_loop(node)
    elif isinstance(node, (Activity, ToolCallNode, AgentNode, LlmNode)):
        yield from _of_work(node)
    elif isinstance(node, Subgraph):
        if isinstance(node.graph, GeneratedGraph):
            yield Slot(("graph", "from"), node.graph.from_, shown=True)
        yield Slot(("with",), node.with_)
    else:
        yield from _of_flow(node)


def _of_work(node: Activity | ToolCallNode | AgentNode | LlmNode) -> Iterator[Slot]:
    if isinstance(node, LlmNode):
        yield Slot(("llm", "model"), node.llm.model)
        yield Slot(("llm", "parameters"), node.llm.parameters, shown=True)
        yield Slot(("llm", "system"), node.llm.system, shown=True)
        yield Slot(("llm", "prompt"), node.llm.prompt, shown=True)
        yield Slot(("max_outage",), node.max_outage)
        return
    yield Slot(("with",), node.with_, shown=isinstance(node, AgentNode))
    if isinstance(node, Activity):
        yield from (Slot((name,), getattr(node, name)) for name in ("carrier", "events", "timeout", "max_outage"))


def _of_flow(node: Node) -> Iterator[Slot]:
    if isinstance(node, Approval):
        yield Slot(("approval", "request"), node.approval.request, shown=True)
        yield Slot(("approval", "policy"), node.approval.policy, shown=True)
    elif isinstance(node, EventNode):
        yield from (Slot(("event", name), getattr(node.event, name)) for name in ("name", "key"))
    elif isinstance(node, Timer):
        yield from (Slot(("timer", name), getattr(node.timer, name)) for name in ("after", "until"))
    elif isinstance(node, Join):
        yield from (Slot(("join", name), getattr(node.join, name)) for name in ("need", "threads"))
    elif isinstance(node, Set):
        yield from (Slot(("set", name), value, shown=True) for name, value in node.set.items())
    elif isinstance(node, End):
        yield Slot(("end",), node.end, shown=True)
    elif isinstance(node, Fail):
        yield from (Slot(("fail", n), getattr(node.fail, n), shown=True) for n in ("code", "message", "details"))
    elif isinstance(node, Recurse):
        yield from (Slot(("recurse", name), getattr(node.recurse, name)) for name in ("policy", "compacted"))


def _of_map(spec: MapSpec) -> Iterator[Slot]:
    yield Slot(("map", "over"), spec.over, "expression")
    yield Slot(("map", "with"), spec.with_, items=True)
    yield Slot(("map", "need"), spec.need)
    yield Slot(("map", "first"), spec.first)
    if spec.barrier is not None:
        yield Slot(("map", "barrier", "limit"), spec.barrier.limit)
        if spec.barrier.exclusive != "false":
            yield Slot(("map", "barrier", "exclusive"), spec.barrier.exclusive, "condition", items=True)
        yield Slot(("map", "barrier", "key"), spec.barrier.key, "expression", items=True)
    if spec.done_when is not None:
        yield Slot(("map", "done_when"), spec.done_when, "condition", items=True)


def _of_loop(node: Loop) -> Iterator[Slot]:
    yield Slot(("loop", "with"), node.loop.with_, items=True)
    for name, value in (("while", node.loop.while_), ("until", node.loop.until)):
        if value is not None:
            yield Slot(("loop", name), value, "condition", items=True)


def texts_of(value: Any, place: DocumentPath = ()) -> Iterator[tuple[DocumentPath, str]]:
    """Every text in a value, with its path."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts_of(item, (*place, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts_of(item, (*place, index))
