"""Where a node holds expressions: conditions, values with ``${…}``, and what may be read there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from loom_dsl.nodes_flow import Approval, End, Event, Fail, Join, Recurse, Set, Timer
from loom_dsl.nodes_work import Activity, AgentNode, Llm, Loop, Map, MapSpec, Subgraph, Tool
from loom_dsl.parts import Node
from loom_dsl.written import Written

Place = tuple[str | int, ...]


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

    place: Place
    value: Any
    kind: Literal["condition", "expression", "mapping"] = "mapping"
    after: bool = False
    items: bool = field(default=False, kw_only=True)
    shown: bool = field(default=False, kw_only=True)


def slots_of(node: Node) -> Iterator[Slot]:
    """Every place of a node with a value that is computed."""
    if node.only_while is not None:
        yield Slot(("only_while",), node.only_while, "condition")
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
    elif isinstance(node, (Activity, Tool, AgentNode, Llm)):
        yield from _of_work(node)
    elif isinstance(node, Subgraph):
        if isinstance(node.graph, Written):
            yield Slot(("graph", "from"), node.graph.from_, shown=True)
        yield Slot(("with",), node.with_)
    else:
        yield from _of_flow(node)


def _of_work(node: Activity | Tool | AgentNode | Llm) -> Iterator[Slot]:
    if isinstance(node, Llm):
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
    elif isinstance(node, Event):
        yield Slot(("event", "key"), node.event.key)
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
        yield Slot(("recurse", "policy"), node.recurse.policy)


def _of_map(spec: MapSpec) -> Iterator[Slot]:
    yield Slot(("map", "over"), spec.over, "expression")
    yield Slot(("map", "with"), spec.with_, items=True)
    yield Slot(("map", "need"), spec.need)
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


def texts_of(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Every text in a value, with its path."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts_of(item, (*place, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts_of(item, (*place, index))
