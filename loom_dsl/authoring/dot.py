"""Drawing a plan in DOT, the language of Graphviz: ``dot -Tsvg`` makes an SVG picture of it."""

import textwrap
from collections.abc import Iterator

from loom_dsl.authoring.kinds import BEEN, HERE, INK, KINDS, PAPER, WARNING
from loom_dsl.authoring.outline import LINKS, about, lanes, notes, short, undone_by
from loom_dsl.authoring.overlay import Overlay
from loom_dsl.authoring.view import Cutout, Excerpt, view
from loom_dsl.graph.edges import Node
from loom_dsl.graph.plan import Plan

MAX_LABEL = 90
"""Characters of a condition that are shown."""
MAX_LINE_WIDTH = 36
"""Characters after which a label goes on in the next line, so that the labels of ways side by side do not meet."""
_FONT = 'fontname="Helvetica,Arial,sans-serif"'
"""Graphviz knows the widths of these letters, whatever fonts there are where it runs."""
_SHAPES = {
    "branch": "diamond",
    "activity": "box",
    "tool": "parallelogram",
    "agent": "component",
    "llm": "note",
    "approval": "hexagon",
    "event": "cds",
    "timer": "ellipse",
    "join": "invtriangle",
    "map": "box3d",
    "loop": "folder",
    "graph": "tab",
    "race": "Mdiamond",
    "set": "cylinder",
    "cancel": "octagon",
    "recurse": "rarrow",
    "end": "doublecircle",
    "fail": "invhouse",
}


def dot(plan: Plan, *, whole: bool = False, overlay: Overlay | None = None, part: Excerpt | None = None) -> str:
    """Draw the graphs of a plan as one directed graph with a cluster for each.

    A node's shape is its kind, and its colour the family of kinds. Solid lines are the ways of its result, dashed ones
    those of deadlines, caught errors and used-up counts; lines of dots without an arrow lead to what takes its effect
    back, and to the graph that it runs.

    Args:
        plan: The plan.
        whole: Whether the graph behind tool nodes is drawn, too.
        overlay: Where a job stands: visits and tokens are written to the nodes, whose borders are coloured.
        part: What is drawn, where it is not everything; `whole` is not looked at then.
    """
    seen = part or view(plan, whole=whole)
    names = [*seen.graphs, *seen.folded]
    lines = [
        f"digraph {_quoted(plan.root)} {{",
        "    compound=true",
        f'    graph [{_FONT}, fontcolor="{INK}", bgcolor="{PAPER}", nodesep=0.4]',
        f'    node [{_FONT}, fontcolor="{INK}", fontsize=12, margin="0.25,0.1"]',
        f'    edge [{_FONT}, fontcolor="{INK}", fontsize=10]',
    ]
    for index, (name, graph) in enumerate(seen.graphs.items()):
        body = _body(graph, name, f"g{index}", overlay or Overlay())
        cluster = [f"    label={_label(graph.title(name))}", *body]
        lines += [f"    subgraph cluster_g{index} {{", *(f"    {line}" for line in cluster), "    }"]
    for index, (name, size) in enumerate(seen.folded.items(), len(seen.graphs)):
        box = _id(f"g{index}", ">", "start")
        lines.append(f"    {box} [label={_label(name, size)}, shape=tab, peripheries=2, {_fill('graph')}]")
    for index, name in enumerate(seen.graphs):
        lines += _links(seen, name, names, index)
    return "\n".join([*lines, "}"]) + "\n"


def _body(graph: Cutout, name: str, prefix: str, overlay: Overlay) -> Iterator[str]:
    """The inside of a cluster: ways in, nodes in their lanes, and edges."""
    yield from (f"    {_id(prefix, '>', way)} [label={way}, shape=circle]" for way in graph.ways_in)
    grouped = lanes(graph.nodes)
    in_lanes = {key for members in grouped.values() for key in members}
    drawn = {key: _node(node, name, key, prefix, overlay) for key, node in graph.nodes.items()}
    yield from (line for key, line in drawn.items() if key not in in_lanes)
    for index, (phase, members) in enumerate(grouped.items()):
        yield f"    subgraph cluster_{prefix}_{index} {{"
        yield f"        label={_label(phase)}"
        yield from (f"    {drawn[key]}" for key in members)
        yield "    }"
    for key, node in graph.nodes.items():
        if (undo := undone_by(node)) is not None:
            there = _id(prefix, "<", key)
            yield f"    {there} [label={_label(undo)}, shape=box, style=rounded]"
            yield f"    {_id(prefix, key)} -> {there} [style=dotted, dir=none, label={_beside('undone by')}]"
    yield from (f"    {_id(prefix, '>', way)} -> {_id(prefix, to)}" for way, to in graph.ways_in.items())
    for line in graph.edges:
        fields = [f"label={_beside(line.label)}"] if line.label else []
        fields += ["style=dashed", f'color="{WARNING}"', f'fontcolor="{WARNING}"'] if line.dashed else []
        told = f" [{', '.join(fields)}]" if fields else ""
        yield f"    {_id(prefix, line.source)} -> {_id(prefix, line.target)}{told}"


def _node(node: Node, name: str, key: str, prefix: str, overlay: Overlay) -> str:
    words = overlay.words(name, key)
    label = _label(key, about(node), *notes(node), ", ".join(words))
    fields = [f"label={label}", f"shape={_SHAPES[node.kind]}"]
    if overlay.holds(name, key):
        fields += [_fill(node.kind, "filled,bold", HERE), "penwidth=4"]
    elif words:
        fields += [_fill(node.kind, border=BEEN), "penwidth=2.5"]
    else:
        fields.append(_fill(node.kind))
    return f"    {_id(prefix, key)} [{', '.join(fields)}]"


def _fill(kind: str, style: str = "filled", border: str = "") -> str:
    colour = KINDS[kind]
    said = f'"{style}"' if "," in style else style
    return f'style={said}, fillcolor="{colour.fill}", color="{border or colour.line}"'


def _links(seen: Excerpt, name: str, names: list[str], index: int) -> Iterator[str]:
    """A line from each node that runs a graph to the cluster of that graph, or to its box."""
    for key, inner in seen.links.get(name, {}).items():
        place, kind = names.index(inner), seen.graphs[name].nodes[key].kind
        # Graphviz cuts a line off at a cluster's border, but not where it starts inside the cluster.
        head = f", lhead=cluster_g{place}" if inner != name and inner in seen.graphs else ""
        target = _id(f"g{place}", *_way_in(seen, inner))
        label = _beside(LINKS[kind])
        yield f"    {_id(f'g{index}', key)} -> {target} [style=dotted, dir=none, label={label}{head}]"


def _way_in(seen: Excerpt, name: str) -> tuple[str, ...]:
    """What a line to a graph ends at: its start, or one of its nodes where the start is not drawn."""
    graph = seen.graphs.get(name)
    return (">", "start") if graph is None or "start" in graph.ways_in else (next(iter(graph.nodes)),)


def _beside(text: str) -> str:
    """Write the label of an edge. Graphviz puts it at the right of its line.

    So its rows begin at the left, a space away from the line, and have room at their right: where the reader's letters
    are wider than those that Graphviz measured with, they grow away from the line and not over it.
    """
    space = "\N{NO-BREAK SPACE}"
    rows = _rows(short(text, MAX_LABEL))
    return '"' + "".join(f"{space * 2}{_plain(row)}{space * (2 + len(row) // 6)}\\l" for row in rows) + '"'


def _id(*parts: str) -> str:
    """Name something; no node has ``<`` or ``>`` in its name, so other things do."""
    return _quoted("/".join(parts))


def _label(*lines: str) -> str:
    """Write lines as a label."""
    return '"' + "\\n".join(_plain(row) for line in lines if line for row in _rows(short(line, MAX_LABEL))) + '"'


def _plain(row: str) -> str:
    r"""Write a row of a label: Graphviz reads backslashes and ``&…;`` in one, so both are escaped."""
    return row.replace("\\", "\\\\").replace("&", "&amp;").replace('"', '\\"')


def _rows(line: str) -> list[str]:
    return textwrap.wrap(line, MAX_LINE_WIDTH, break_long_words=False, break_on_hyphens=False) or [line]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
