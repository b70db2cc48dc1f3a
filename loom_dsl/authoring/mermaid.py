"""Drawing a graph: Mermaid text in which every edge of the graph is one line, and nothing else is an edge."""

import re
from collections.abc import Iterable, Iterator

from loom_dsl.authoring.kinds import BEEN, HERE, INK, KINDS
from loom_dsl.authoring.outline import LINKS, OutlineEdge, about, edges, lanes, notes, short, undone_by
from loom_dsl.authoring.overlay import Overlay
from loom_dsl.authoring.view import Cutout, Excerpt, cutout, view
from loom_dsl.graph.graph import Body
from loom_dsl.graph.plan import Plan

__all__ = ["MAX_LABEL", "OutlineEdge", "edges", "mermaid", "mermaid_plan"]

MAX_LABEL = 90
"""Characters of a condition that are shown."""
_NEAR_DOTS = "stroke-dasharray:1 4"

_SHAPES = {
    "branch": ('{"', '"}'),
    "activity": ('["', '"]'),
    "tool": ('[/"', '"/]'),
    "agent": ('("', '")'),
    "llm": ('[\\"', '"\\]'),
    "approval": ('{{"', '"}}'),
    "event": ('[/"', '"\\]'),
    "timer": ('[\\"', '"/]'),
    "join": ('(("', '"))'),
    "map": ('[["', '"]]'),
    "loop": ('[["', '"]]'),
    "graph": ('[["', '"]]'),
    "race": ('{"', '"}'),
    "set": ('[("', '")]'),
    "cancel": ('>"', '"]'),
    "recurse": ('(["', '"])'),
    "end": ('((("', '")))'),
    "fail": ('>"', '"]'),
}
_RESERVED = {
    *("accdescr", "acctitle", "call", "class", "classdef", "click", "default", "direction", "end", "flowchart"),
    *("graph", "href", "linkstyle", "style", "subgraph"),
}
_SPECIAL = re.compile(
    r"[^\w \t.,:=!?()\[\]'/+…→·-]"
    # Mermaid reads labels as Markdown, and refuses those with a list or a link in them.
    r"|(?<=^)[-+]|(?<=^\d)[.)]|(?<=^\d\d)[.)]|\](?=\()|:(?=//)|(?<=www)\.|(?<![^\W_])_|_(?![^\W_])"
)
_NAMES = {'"': "quot", "<": "lt", ">": "gt", "&": "amp"}
_CLASSES = {
    **{name: f"fill:{fill},stroke:{line},color:{INK}" for name, fill, line in KINDS.values()},
    "been": f"stroke:{BEEN},stroke-width:2.5px",
    "here": f"stroke:{HERE},stroke-width:4px",
}


def mermaid(graph: Body) -> str:
    """Draw one graph as a Mermaid flowchart.

    A node's shape is its kind: a box for an activity, a diamond for a branch and a race, a hexagon for an approval, a
    framed box for what runs a graph, a circle for a join, a stadium for the next turn, a ringed circle for an end, a
    flag for a failure; its second line says more. The ways of a node's result are solid lines with their conditions;
    those of deadlines, caught errors and used-up counts are dashed. A line of dots that ends in a circle leads to what
    takes the node's effect back.
    """
    drawing = _Drawing(cutout(graph), "", "", Overlay())
    return _flowchart(_indented(drawing.body()), [drawing])


def mermaid_plan(
    plan: Plan, *, whole: bool = False, overlay: Overlay | None = None, part: Excerpt | None = None
) -> str:
    """Draw the graphs of a plan in one flowchart; a dotted line leads from each node that runs one to its frame.

    Args:
        plan: The plan.
        whole: Whether the graph behind tool nodes is drawn, too.
        overlay: Where a job stands: visits and tokens are written to the nodes, whose borders are coloured.
        part: What is drawn, where it is not everything; `whole` is not looked at then.
    """
    over = overlay or Overlay()
    seen = part or view(plan, whole=whole)
    names = [*seen.graphs, *seen.folded]
    if len(names) == 1 and len(seen.graphs[names[0]].nodes) == seen.graphs[names[0]].total:
        drawing = _Drawing(seen.graphs[names[0]], "", names[0], over)
        return _flowchart(_indented(drawing.body()), [drawing])
    drawings = {
        name: _Drawing(graph, f"g{index}_", name, over) for index, (name, graph) in enumerate(seen.graphs.items())
    }
    lines: list[str] = []
    for index, (name, drawing) in enumerate(drawings.items()):
        lines += [
            f'    subgraph g{index}["{_escaped(drawing.graph.title(name))}"]',
            *_indented(drawing.body(), 8),
            "    end",
        ]
    boxes = {name: f"g{index}" for index, name in enumerate(names) if name in seen.folded}
    lines += [f'    {box}[["{_escaped(name)}<br>{_text(seen.folded[name])}"]]' for name, box in boxes.items()]
    for name, drawing in drawings.items():
        for key, inner in seen.links.get(name, {}).items():
            if inner != name:  # Mermaid cannot draw a line from a node to its own frame
                kind = drawing.graph.nodes[key].kind
                lines.append(f'    {drawing.ids[key]} -. "{LINKS[kind]}" .- g{names.index(inner)}')
    return _flowchart(lines, list(drawings.values()), list(boxes.values()))


MAX_EDGES = 500
"""Edges that Mermaid draws. A page may allow more (`maxEdges` of mermaid.initialize), a drawing may not."""


def edges_of(drawing: str) -> int:
    """Count the edges of a flowchart."""
    return sum(1 for line in drawing.splitlines() if _LINK.match(line))


def _flowchart(lines: list[str], drawings: "list[_Drawing]", boxes: list[str] | None = None) -> str:
    """Put the head before the lines, and after them what colours nodes and spaces the dots of compensation."""
    links = [line for line in lines if _LINK.match(line)]
    dots = [str(index) for index, line in enumerate(links) if " -.-o " in line]
    tail = [f"    linkStyle {','.join(dots)} {_NEAR_DOTS}"] if dots else []
    for name, style in _CLASSES.items():
        members = [key for drawing in drawings for key in drawing.of_class(name)]
        members += (boxes or []) if name == KINDS["graph"].family else []
        tail += [f"    classDef {name} {style}", f"    class {','.join(members)} {name}"] if members else []
    return "\n".join(["flowchart TD", *lines, *tail]) + "\n"


_LINK = re.compile(r" *\w+ (-->|-\.->|-\.-o|-\. )")


class _Drawing:
    """The lines of one graph; ids have a prefix where several graphs share a picture."""

    def __init__(self, graph: Cutout, prefix: str, name: str, overlay: Overlay) -> None:
        self.graph, self._name, self._overlay = graph, name, overlay
        self._taken: set[str] = set()
        self.ids = {key: self._free(f"{prefix}{key}") for key in graph.nodes}
        self._ways_in = {way: (self._free(f"{prefix}{way}"), to) for way, to in graph.ways_in.items()}
        self._undo = {key: self._free(f"{prefix}undo_{key}") for key, node in graph.nodes.items() if node.compensate}
        self._lanes = {
            phase: (self._free(f"{prefix}lane_{re.sub(r'[^A-Za-z0-9]', '_', phase)}"), members)
            for phase, members in lanes(graph.nodes).items()
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
        for key, undo in self._undo.items():
            yield f'{undo}["{_text(undone_by(self.graph.nodes[key]) or "?")}"]'
        yield from (f"{way} --> {self.ids[to]}" for way, to in self._ways_in.values())
        for line in self.graph.edges:
            label = f'|"{_text(line.label)}"|' if line.label else ""
            arrow = "-.->" if line.dashed else "-->"
            yield f"{self.ids[line.source]} {arrow}{label} {self.ids[line.target]}"
        yield from (f'{self.ids[key]} -.-o |"undone by"| {undo}' for key, undo in self._undo.items())

    def of_class(self, name: str) -> list[str]:
        """The ids of a family of kinds, of the nodes with a token (``here``), or visited without one (``been``)."""
        if name not in ("here", "been"):
            return [self.ids[key] for key, node in self.graph.nodes.items() if KINDS[node.kind].family == name]
        holding = {key for key in self.ids if self._overlay.holds(self._name, key)}
        if name == "here":
            return [self.ids[key] for key in self.ids if key in holding]
        return [self.ids[key] for key in self.ids if key not in holding and self._overlay.words(self._name, key)]

    def _node(self, key: str) -> str:
        node = self.graph.nodes[key]
        lines = [about(node), *notes(node), ", ".join(self._overlay.words(self._name, key))]
        label = "<br>".join([_escaped(key), *(_text(line) for line in lines if line)])
        opening, closing = _SHAPES[node.kind]
        return f"{self.ids[key]}{opening}{label}{closing}"

    def _free(self, name: str) -> str:
        """Make an id that is no word of Mermaid's and not taken."""
        while name.lower() in _RESERVED or name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _indented(lines: Iterable[str], by: int = 4) -> list[str]:
    return [" " * by + line for line in lines]


def _text(text: str) -> str:
    return _escaped(short(text, MAX_LABEL))


def _escaped(text: str) -> str:
    """Write characters that mean something to Mermaid, or to Markdown inside it, as its entities."""
    return _SPECIAL.sub(lambda found: f"#{_NAMES.get(found[0], ord(found[0]))};", text)
