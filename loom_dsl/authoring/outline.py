"""What a picture shows of a plan, whatever it is drawn in: its edges, the words for a node, and who runs which graph.

Every drawing takes its edges from `edges`, so one that is not in the graph cannot be drawn.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.fields import format_duration
from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import Body
from loom_dsl.graph.nodes import JoinSpec, LoopSpec, Map, MapSpec, Race, TimerSpec, ToolCallNode
from loom_dsl.graph.plan import Plan, runs

LINKS = {"map": "for each", "loop": "each round", "graph": "runs", "tool": "runs"}
"""What stands on the line from a node to the graph that it runs."""


@dataclass(frozen=True, slots=True)
class OutlineEdge:
    """One edge of a graph, as it is drawn.

    Attributes:
        label: Why a token goes this way; empty for always.
        dashed: Whether it is the way of a deadline, a caught error or a used-up count, and not of the node's result.
        condition: Whether the label is the condition itself.
    """

    source: str
    target: str
    label: str = ""
    dashed: bool = False
    condition: bool = False


def edges(graph: Body) -> Iterator[OutlineEdge]:
    """List every edge of a graph, in the order of the document."""
    for key, node in graph.nodes.items():
        yield from edges_of(key, node)


def edges_of(key: str, node: Node) -> Iterator[OutlineEdge]:
    """List every edge that leaves a node."""
    if isinstance(node, Race):
        yield from (OutlineEdge(key, to, "race") for to in node.race)
    yield from _result_edges(key, node)
    yield from (OutlineEdge(key, to, f"on {code}", dashed=True) for code, to in node.catch.items())
    if node.deadline is not None and node.deadline.to is not None:
        yield OutlineEdge(key, node.deadline.to, f"after {_span(node.deadline.after)}", dashed=True)
    if node.exhausted is not None:
        most = counted_visits(node.max_visits) if node.max_visits else "all visits"
        yield OutlineEdge(key, node.exhausted, f"after {most}", dashed=True)


def _result_edges(key: str, node: Node) -> Iterator[OutlineEdge]:
    chosen = any(edge.when is not None for edge in node.next.first)
    for edge in node.next.first:
        label = flat(edge.when) if edge.when is not None else "else" if chosen else ""
        yield OutlineEdge(key, edge.to, label, condition=edge.when is not None)
    for edge in node.next.each:
        yield OutlineEdge(key, edge.to, f"each: {edge.when}" if edge.when is not None else "each: none of them")
    times = f"{bare(node.next.times)} times" if node.next.times is not None else ""
    yield from (OutlineEdge(key, to, times) for to in node.next.all)


def about(node: Node) -> str:
    """Say what a node does, in some words that begin with its kind; an activity is only named, a branch not at all."""
    words = _WORDS.get(node.kind)
    return flat(words(node)) if words else ""


def counted_visits(count: int) -> str:
    """Say how many visits of a node."""
    return f"{count} {'visit' if count == 1 else 'visits'}"


def notes(node: Node) -> list[str]:
    """Say what else holds for a node: how often, under which lock, when, and how much of a map."""
    found = [f"at most {counted_visits(node.max_visits)}"] if node.max_visits is not None else []
    found += [f"mutex {node.mutex}"] if node.mutex is not None else []
    found += [f"only while {flat(node.only_while)}"] if node.only_while is not None else []
    if isinstance(node, Map):
        found += _map_notes(node.map)
    return found


def undone_by(node: Node) -> str | None:
    """Name what takes the node's effect back, if anything does."""
    return flat(node.compensate.activity) if node.compensate is not None else None


def shown(plan: Plan, *, whole: bool = False) -> list[str]:
    """Name the graphs that a picture of a plan shows: the root, and those that are run below it.

    Args:
        plan: The plan.
        whole: Whether the graph behind tool nodes is shown, too.
    """
    found = [plan.root]
    for graph in found:
        for node in plan.bodies[graph].nodes.values():
            inner = runs(plan, graph, node) if whole or not isinstance(node, ToolCallNode) else None
            if inner is not None and inner not in found:
                found.append(inner)
    return found


def lanes(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """Group nodes by phase. A phase of one node needs no lane."""
    found: dict[str, list[str]] = {}
    for key, node in nodes.items():
        if node.phase:
            found.setdefault(node.phase, []).append(key)
    return {phase: members for phase, members in found.items() if len(members) > 1}


def flat(text: str) -> str:
    """Give a text as one line."""
    return " ".join(text.split())


def short(text: str, most: int) -> str:
    """Give a text as one line of at most so many characters."""
    line = flat(text)
    return line if len(line) <= most else line[: most - 1] + "…"


def bare(value: object) -> str:
    """Give a value, or the expression inside its ``${…}``."""
    whole = re.fullmatch(r"\$\{(.*)\}", str(value), re.DOTALL)
    return flat(whole[1] if whole else str(value))


def _span(value: str | float | None) -> str:
    return format_duration(value) if isinstance(value, int | float) else bare(value)


def _approval(request: Any) -> str:
    summary = request.get("summary") if isinstance(request, dict) else None
    return f"approval: {summary}" if isinstance(summary, str) else "approval"


def _timer(timer: TimerSpec) -> str:
    return f"timer: {_span(timer.after)}" if timer.after is not None else f"timer: until {bare(timer.until)}"


_REST = {"ignore": "", "cancel": ", cancel the rest", "block": ", keep the rest out"}


def _join(join: JoinSpec) -> str:
    if join.threads is not None:
        return f"join: {bare(join.threads)} threads"
    return f"join: the first {bare(join.need)}{_REST[join.rest]}" if join.need is not None else f"join: {join.mode}"


def _loop(loop: LoopSpec) -> str:
    how = f"while {loop.while_}" if loop.while_ is not None else f"until {loop.until}"
    return f"loop: {loop.do}, {how}, at most {loop.max} rounds"


def _map_notes(given: MapSpec) -> Iterator[str]:
    if given.need is not None:
        yield f"{bare(given.need)} results suffice"
    if given.done_when is not None:
        yield f"done when {flat(given.done_when)}"
    if given.open is not None:
        yield f"more items by {given.open.add}, until {given.open.close}"
    if given.complete is not None:
        yield f"complete by {given.complete}"
    if given.detach:
        yield "not waited for"


_WORDS: dict[str, Callable[[Any], str]] = {
    "activity": lambda node: node.activity,
    "tool": lambda node: f"tool: {node.tool}",
    "agent": lambda node: f"agent: {node.agent}",
    "llm": lambda node: f"llm: {node.llm.model}",
    "approval": lambda node: _approval(node.approval.request),
    "event": lambda node: f"event: {node.event.name}",
    "timer": lambda node: _timer(node.timer),
    "join": lambda node: _join(node.join),
    "map": lambda node: f"for each: {node.map.do}",
    "loop": lambda node: _loop(node.loop),
    "graph": lambda node: f"graph: {node.called}" if node.called else f"graph from {bare(node.graph.from_)}",
    "race": lambda _: "race",
    "set": lambda node: f"set: {', '.join(node.set)}",
    "cancel": lambda node: f"cancel: {', '.join(node.cancel)}",
    "recurse": lambda node: "recurse",
    "end": lambda node: "end of everything" if node.terminate else "",
    "fail": lambda node: f"fail: {bare(node.fail.message)}",
}
