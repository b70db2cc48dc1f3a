"""What a scenario for a graph has to say: the values that the graph reads of its work, and a document to start from."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loom_dsl.documents.yaml_writer import Rows, write_yaml
from loom_dsl.graph.checks.expressions import expressions_of
from loom_dsl.graph.checks.slots import Slot, readings, slots_of, type_of
from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import Body
from loom_dsl.graph.nodes import Approval, Branch, End, EventNode, Join, Loop, Subgraph
from loom_dsl.graph.plan import Plan, runs
from loom_dsl.graph.state import InputField
from loom_dsl.simulation.names import MAX_CHILD_DEPTH, runs_something, user_graphs
from loom_dsl.text.canonical import canonical_json

_EMPTY: dict[str, Any] = {"str": "", "int": 0, "float": 0.0, "bool": False, "list": [], "dict": {}, "any": None}
Steps = tuple[str, ...]
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COMBINED = {"append": "any", "extend": "list", "merge": "dict"}
"""The types that reducers take, where that is not the type of the field."""
_LISTS = ("len", "any", "all", "sum", "sorted", "reversed", "unique", "flatten", "first", "last", "join")
_TAKEN: dict[str, str] = {
    **dict.fromkeys(_LISTS, "list"),
    **dict.fromkeys(("lower", "upper", "strip", "startswith", "endswith", "replace", "split"), "str"),
    **dict.fromkeys(("keys", "values", "items", "merge"), "dict"),
    **dict.fromkeys(("abs", "round", "floor", "ceil"), "int"),
}
"""The type of a function's first argument."""


def empty_input(plan: Plan) -> dict[str, Any]:
    """The values that must be given, each as empty as its type can be."""
    fields = plan.bodies[plan.root].input
    return {name: _EMPTY[field.type] for name, field in fields.items() if _is_required(field)}


def empty_results(plan: Plan) -> dict[str, Any]:
    """A result for each node that does work: null, or what has the fields that the graph reads, and nothing in them."""
    found: dict[str, Any] = {}
    for graph in user_graphs(plan):
        body = plan.bodies[graph]
        found |= {key: found.get(key) for key, node in body.nodes.items() if runs_something(node)}
        for key, path, empty in _reads(plan, graph):
            found[key] = _with(found.get(key), path, empty)
    return found


def starting_point(plan: Plan, file: str | None = None) -> str:
    """A scenario as a document, with everything that a user has to fill in.

    Args:
        plan: The graph.
        file: The graph's file.
    """
    document = Rows({"loom": 1, "kind": "scenario", "name": "first", "graph": file or plan.root})
    case = Rows({"name": "everything is well"})
    asked = {key: node.approval.choices[0] for key, node in _nodes(plan) if isinstance(node, Approval)}
    events = [{"name": node.event.name, "when": key} for key, node in _nodes(plan) if isinstance(node, EventNode)]
    for field, value in (
        ("input", empty_input(plan)),
        ("results", Rows({key: {"result": value} for key, value in empty_results(plan).items()})),
    ):
        document |= {field: value} if value else {}
    case |= {"decisions": asked} if asked else {}
    case |= {"events": events} if events else {}
    return write_yaml(Rows({**document, "cases": [Rows({**case, "expect": {"status": "completed"}})]}))


def _nodes(plan: Plan) -> Iterator[tuple[str, Node]]:
    for graph in user_graphs(plan):
        yield from plan.bodies[graph].nodes.items()


def _is_required(field: InputField) -> bool:
    return field.default is None and not field.optional


def assumptions(plan: Plan) -> list[str]:
    """Say what a graph is played with when there is no scenario."""
    given, results = empty_input(plan), empty_results(plan)
    asked = [key for key, node in _nodes(plan) if isinstance(node, Approval)]
    awaited = [node.event.name for _, node in _nodes(plan) if isinstance(node, EventNode)]
    lines = [f"input: {canonical_json(given)}"] if given else []
    lines += [f"{key} gives {canonical_json(value)}" for key, value in results.items()]
    lines += [f"nobody decides {', '.join(asked)}"] if asked else []
    return lines + ([f"no event comes: {', '.join(dict.fromkeys(awaited))}"] if awaited else [])


def _reads(plan: Plan, graph: str) -> Iterator[tuple[str, Steps, Any]]:
    """The fields that a graph reads of the results of its work: node, path, and an empty value that fits."""
    body = plan.bodies[graph]
    for key, node in body.nodes.items():
        for slot in slots_of(node):
            for _, reading in expressions_of(slot):
                for reference in reading.references:
                    if not reference.soft:
                        name = ".".join(reference.path)
                        written = _written(body, slot) if slot.value == f"${{{name}}}" else None
                        empty = _empty(slot, reading.source.strip(), name) if written is None else written
                        for source, path in _read_of(_Graphs(plan, graph), key, slot, reference.path):
                            yield source, path, empty


@dataclass(frozen=True, slots=True)
class _Graphs:
    """One graph of a plan, and the way into those that its nodes run."""

    plan: Plan
    graph: str
    depth: int = 0

    @property
    def body(self) -> Body:
        return self.plan.bodies[self.graph]

    def below(self, node: Node) -> "_Graphs | None":
        inner = runs(self.plan, self.graph, node) if isinstance(node, Loop | Subgraph) else None
        return _Graphs(self.plan, inner, self.depth + 1) if inner is not None and self.depth < MAX_CHILD_DEPTH else None


def _read_of(graphs: _Graphs, key: str, slot: Slot, path: Steps) -> Iterator[tuple[str, Steps]]:
    root, *rest = path
    body = graphs.body
    if root == "nodes" and rest and rest[0] in body.nodes:
        yield from _of_result(graphs, rest[0], tuple(rest[1:]))
    elif root == "result" and (slot.after or slot.place[0] == "loop"):  # a loop's conditions are about its rounds
        yield from _of_result(graphs, key, tuple(rest))
    elif root == "result":
        for source in _before(body, key):
            yield from _of_result(graphs, source, tuple(rest))


def _of_result(graphs: _Graphs, key: str, path: Steps) -> Iterator[tuple[str, Steps]]:
    """Whose result it is that a node has."""
    body, node = graphs.body, graphs.body.nodes[key]
    below = graphs.below(node)
    if runs_something(node) and below is None:
        yield key, path
    elif below is not None:
        for name, end in below.body.nodes.items():
            if isinstance(end, End):
                yield from _of_end(below, name, end.end, path)
    elif isinstance(node, Join) and path and _works(body, path[0]):
        yield path[0], path[1:]
    elif type(node) is Branch:
        for source in _before(body, key):
            yield from _of_result(graphs, source, path)


def _of_end(graphs: _Graphs, key: str, value: Any, path: Steps) -> Iterator[tuple[str, Steps]]:
    """Whose result it is that an end gives at a path."""
    if isinstance(value, dict) and path and path[0] in value:
        yield from _of_end(graphs, key, value[path[0]], path[1:])
    whole = readings(value) if isinstance(value, str) and value.startswith("${") else []
    if len(whole) == 1 and len(whole[0].references) == 1:
        read = whole[0].references[0].path
        if value == "${" + ".".join(read) + "}":
            yield from _read_of(graphs, key, Slot(("end",), value), (*read, *path))


def _before(body: Body, key: str) -> list[str]:
    """The nodes whose result can be that which comes to a node, without those that only choose the way."""
    found: dict[str, None] = {}
    seen, queue = set[str](), [key]
    while queue:
        to = queue.pop()
        for name, node in body.nodes.items():
            if to not in node.next.targets() or name in seen:
                continue
            seen.add(name)
            if type(node) is Branch:
                queue.append(name)
            else:
                found[name] = None
    return list(found)


def _works(body: Body, key: str) -> bool:
    return key in body.nodes and runs_something(body.nodes[key])


def _written(body: Body, slot: Slot) -> Any:
    """An empty value of what is written into a state field; None where it takes any, and in all other places."""
    field = body.state.get(str(slot.place[-1])) if slot.place[0] in ("write", "set") else None
    return None if field is None else _EMPTY[_COMBINED.get(field.reduce, field.type)]


def _empty(slot: Slot, source: str, name: str) -> Any:
    """A value for what an expression reads: as empty as it lets it be; what ends a loop ends it after one round."""
    ends = slot.place == ("loop", "until")
    if source == name and slot.kind == "condition":
        return ends
    if source == name and slot.place == ("map", "over"):
        return []
    for part in ast.walk(ast.parse(source, mode="eval")):
        known = _enough(part, name) if ends and isinstance(part, ast.Compare) else None
        known = _worked_with(part, name) if known is None else known
        if known is not None:
            return known
    return None


def _worked_with(part: ast.AST, name: str) -> Any:
    """An empty value that a part of an expression can work with; None when it takes any, or is about others."""
    if isinstance(part, ast.ListComp | ast.GeneratorExp):
        return [] if ast.unparse(part.generators[0].iter) == name else None
    if isinstance(part, ast.Subscript):
        return "" if isinstance(part.slice, ast.Slice) and ast.unparse(part.value) == name else None
    if isinstance(part, ast.Call):
        first = name in map(ast.unparse, part.args[:1])
        return _EMPTY[_TAKEN.get(ast.unparse(part.func), "any")] if first else None
    if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.In | ast.NotIn):
        inside = ast.unparse(part.comparators[0]) == name
        return None if not inside else "" if type_of(part.left) == "str" else []
    if isinstance(part, ast.Compare) and all(isinstance(one, _ORDERS) for one in part.ops):
        return _beside(name, [part.left, *part.comparators])
    if isinstance(part, ast.BinOp):
        return _beside(name, [part.left, part.right])
    return None


def _beside(name: str, parts: list[ast.expr]) -> Any:
    """The empty value that goes with what else an operator is given."""
    if name not in map(ast.unparse, parts):
        return None
    known = [_EMPTY[kind] for part in parts if (kind := type_of(part)) in ("str", "list")]
    return known[0] if known else 0


def _enough(part: ast.Compare, name: str) -> Any:
    """The value for which a comparison with a constant holds; None when that cannot be told."""
    right = part.comparators[0]
    if len(part.ops) != 1 or ast.unparse(part.left) != name or not isinstance(right, ast.Constant):
        return None
    value, op = right.value, part.ops[0]
    if isinstance(op, ast.Eq | ast.GtE | ast.LtE):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and isinstance(op, ast.Gt | ast.Lt):
        return value + (1 if isinstance(op, ast.Gt) else -1)
    return None


def _with(value: Any, path: Steps, empty: Any) -> Any:
    """A value that has something at a path."""
    if not path:
        return empty if value is None else value
    inner = value if isinstance(value, dict) else {}
    return {**inner, path[0]: _with(inner.get(path[0]), path[1:], empty)}
