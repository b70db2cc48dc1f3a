"""Drawing a graph: Mermaid text in which every edge of the graph is one line, and nothing else is an edge."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from loom_dsl.duration import format_duration
from loom_dsl.graph import Activity, Graph, Map, Node
from loom_dsl.plan import Plan

LONGEST_LABEL = 90
"""Characters of a condition that are shown."""

_SHAPES = {
    "branch": ('{"', '"}'),
    "activity": ('["', '"]'),
    "map": ('[["', '"]]'),
    "approval": ('{{"', '"}}'),
    "recurse": ('(["', '"])'),
    "end": ('((("', '")))'),
    "fail": ('>"', '"]'),
}
_RESERVED = {
    *("accdescr", "acctitle", "call", "class", "classdef", "click", "default", "direction", "end", "flowchart"),
    *("graph", "href", "linkstyle", "style", "subgraph"),
}
_SPECIAL = re.compile(r"[^\w \t.,:=!?()\[\]'/+…→·-]")
_NAMES = {'"': "quot", "<": "lt", ">": "gt", "&": "amp"}


@dataclass(frozen=True, slots=True)
class Line:
    """One edge of a graph, as it is drawn.

    Attributes:
        label: Why a token goes this way; empty for always.
        dashed: Whether it is the way of a deadline, a caught error or a used-up count, and not of the node's result.
    """

    source: str
    target: str
    label: str = ""
    dashed: bool = False


def mermaid(graph: Graph) -> str:
    """Draw one graph as a Mermaid flowchart.

    A node's shape is its kind: a box for an activity, a diamond for a branch, a hexagon for an approval, a framed box
    for a map, a stadium for the next turn, a ringed circle for an end, a flag for a failure. The ways of a node's
    result are solid lines with their conditions; those of deadlines, caught errors and used-up counts are dashed.
    """
    drawing = _Drawing(graph, "")
    return "\n".join(["flowchart TD", *_indented(drawing.body())]) + "\n"


def mermaid_plan(plan: Plan) -> str:
    """Draw all graphs of a plan in one flowchart; a dotted line leads from each map to the graph that it runs."""
    if len(plan.graphs) == 1:
        return mermaid(plan.graphs[plan.root])
    names = [plan.root, *sorted(plan.graphs.keys() - {plan.root})]
    drawings = {name: _Drawing(plan.graphs[name], f"g{index}_") for index, name in enumerate(names)}
    lines = ["flowchart TD"]
    for index, (name, drawing) in enumerate(drawings.items()):
        lines += [f'    subgraph g{index}["{_escaped(name)}"]', *_indented(drawing.body(), 8), "    end"]
    for drawing in drawings.values():
        for key, node in drawing.graph.nodes.items():
            if isinstance(node, Map) and node.map.do in drawings:
                lines.append(f'    {drawing.ids[key]} -. "for each" .- g{names.index(node.map.do)}')
    return "\n".join(lines) + "\n"


def edges(graph: Graph) -> Iterator[Line]:
    """List every edge of a graph, in the order of the document."""
    for key, node in graph.nodes.items():
        yield from _result_edges(key, node)
        yield from (Line(key, to, f"on {code}", dashed=True) for code, to in node.catch.items())
        if node.deadline is not None:
            yield Line(key, node.deadline.to, f"after {_after(node.deadline.after)}", dashed=True)
        if node.exhausted is not None:
            yield Line(key, node.exhausted, f"after {node.max_visits} visits", dashed=True)


def _result_edges(key: str, node: Node) -> Iterator[Line]:
    chosen = any(edge.when is not None for edge in node.next.first)
    for edge in node.next.first:
        yield Line(key, edge.to, edge.when if edge.when is not None else "else" if chosen else "")
    yield from (Line(key, to) for to in node.next.all)


def _after(value: str | float | None) -> str:
    if value is None:
        return "never"
    return format_duration(value) if isinstance(value, float) else value.removeprefix("${").removesuffix("}")


class _Drawing:
    """The lines of one graph; ids have a prefix where several graphs share a picture."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        self.graph = graph
        self._taken: set[str] = set()
        self.ids = {key: self._free(f"{prefix}{key}") for key in graph.nodes}
        ways_in = {"start": graph.start, "abort": graph.on_abort}
        self._ways_in = {name: (self._free(f"{prefix}{name}"), to) for name, to in ways_in.items() if to is not None}
        self._lanes = {
            phase: (self._free(f"{prefix}lane_{re.sub(r'[^A-Za-z0-9]', '_', phase)}"), members)
            for phase, members in _lanes(graph.nodes).items()
        }

    def body(self) -> Iterator[str]:
        """Nodes, in lanes where a phase has several of them, then edges."""
        yield from (f'{way}(("{name}"))' for name, (way, _) in self._ways_in.items())
        in_lanes = {key for _, members in self._lanes.values() for key in members}
        yield from (self._node(key) for key in self.graph.nodes if key not in in_lanes)
        for phase, (lane, members) in self._lanes.items():
            yield f'subgraph {lane}["{_escaped(phase)}"]'
            yield from (f"    {self._node(key)}" for key in members)
            yield "end"
        yield from (f"{way} --> {self.ids[to]}" for way, to in self._ways_in.values())
        for line in edges(self.graph):
            label = f'|"{_escaped(_short(line.label))}"|' if line.label else ""
            arrow = "-.->" if line.dashed else "-->"
            yield f"{self.ids[line.source]} {arrow}{label} {self.ids[line.target]}"

    def _node(self, key: str) -> str:
        node = self.graph.nodes[key]
        label = _escaped(key)
        if isinstance(node, Activity):
            label += f"<br>{_escaped(_short(node.activity))}"
        elif isinstance(node, Map):
            label += f"<br>for each: {_escaped(_short(node.map.do))}"
        opening, closing = _SHAPES[node.kind]
        return f"{self.ids[key]}{opening}{label}{closing}"

    def _free(self, name: str) -> str:
        """Make an id that is no word of Mermaid's and not taken."""
        while name.lower() in _RESERVED or name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _lanes(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """Group nodes by phase. A phase of one node needs no lane."""
    lanes: dict[str, list[str]] = {}
    for key, node in nodes.items():
        if node.phase:
            lanes.setdefault(node.phase, []).append(key)
    return {phase: members for phase, members in lanes.items() if len(members) > 1}


def _indented(lines: Iterable[str], by: int = 4) -> list[str]:
    return [" " * by + line for line in lines]


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST_LABEL else flat[: LONGEST_LABEL - 1] + "…"


def _escaped(text: str) -> str:
    """Write characters that mean something to Mermaid, or to Markdown inside it, as its entities."""
    return _SPECIAL.sub(lambda found: f"#{_NAMES.get(found[0], ord(found[0]))};", text)
