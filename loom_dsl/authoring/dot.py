"""Drawing a plan in DOT, the language of Graphviz: ``dot -Tsvg`` makes an SVG picture of it."""

import textwrap
from collections.abc import Iterator

from loom_dsl.authoring.outline import LINKS, about, edges, lanes, notes, short, shown, undone_by
from loom_dsl.authoring.overlay import Overlay
from loom_dsl.graph.plan import Plan, runs

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


def dot(plan: Plan, *, whole: bool = False, overlay: Overlay | None = None) -> str:
    """Draw the graphs of a plan as one directed graph with a cluster for each.

    A node's shape is its kind. Solid lines are the ways of its result, dashed ones those of deadlines, caught errors
    and used-up counts; lines of dots without an arrow lead to what takes its effect back, and to the graph that it
    runs.

    Args:
        plan: The plan.
        whole: Whether the graph behind tool nodes is drawn, too.
        overlay: Where a job stands: visits and tokens are written to the nodes and coloured.
    """
    names = shown(plan, whole=whole)
    lines = [
        f"digraph {_quoted(plan.root)} {{",
        "    compound=true",
        f"    graph [{_FONT}, nodesep=0.4]",
        f'    node [{_FONT}, fontsize=12, margin="0.25,0.1"]',
        f"    edge [{_FONT}, fontsize=10]",
    ]
    for index, name in enumerate(names):
        cluster = [f"    label={_label(name)}", *_body(plan, name, f"g{index}", overlay or Overlay())]
        lines += [f"    subgraph cluster_g{index} {{", *(f"    {line}" for line in cluster), "    }"]
    for index, name in enumerate(names):
        lines += _links(plan, name, names, index)
    return "\n".join([*lines, "}"]) + "\n"


def _body(plan: Plan, name: str, prefix: str, overlay: Overlay) -> Iterator[str]:
    """The inside of a cluster: ways in, nodes in their lanes, and edges."""
    body = plan.bodies[name]
    ways_in = {way: to for way, to in (("start", body.start), ("abort", body.on_abort)) if to is not None}
    yield from (f"    {_id(prefix, '>', way)} [label={way}, shape=circle]" for way in ways_in)
    grouped = lanes(body.nodes)
    in_lanes = {key for members in grouped.values() for key in members}
    yield from (_node(plan, name, key, prefix, overlay) for key in body.nodes if key not in in_lanes)
    for index, (phase, members) in enumerate(grouped.items()):
        yield f"    subgraph cluster_{prefix}_{index} {{"
        yield f"        label={_label(phase)}"
        yield from (f"    {_node(plan, name, key, prefix, overlay)}" for key in members)
        yield "    }"
    for key, node in body.nodes.items():
        if (undo := undone_by(node)) is not None:
            there = _id(prefix, "<", key)
            yield f"    {there} [label={_label(undo)}, shape=box, style=rounded]"
            yield f'    {_id(prefix, key)} -> {there} [style=dotted, dir=none, label="undone by"]'
    yield from (f"    {_id(prefix, '>', way)} -> {_id(prefix, to)}" for way, to in ways_in.items())
    for line in edges(body):
        fields = [f"label={_label(line.label)}"] if line.label else []
        fields += ["style=dashed"] if line.dashed else []
        told = f" [{', '.join(fields)}]" if fields else ""
        yield f"    {_id(prefix, line.source)} -> {_id(prefix, line.target)}{told}"


def _node(plan: Plan, name: str, key: str, prefix: str, overlay: Overlay) -> str:
    node, words = plan.bodies[name].nodes[key], overlay.words(name, key)
    label = _label(key, about(node), *notes(node), ", ".join(words))
    fields = [f"label={label}", f"shape={_SHAPES[node.kind]}"]
    if overlay.holds(name, key):
        fields += ['style="filled,bold"', 'fillcolor="#fef7e0"', 'color="#e37400"']
    elif words:
        fields += ["style=filled", 'fillcolor="#e6f4ea"', 'color="#188038"']
    return f"    {_id(prefix, key)} [{', '.join(fields)}]"


def _links(plan: Plan, name: str, names: list[str], index: int) -> Iterator[str]:
    """A line from each node that runs a graph to the cluster of that graph."""
    for key, node in plan.bodies[name].nodes.items():
        inner = runs(plan, name, node)
        if inner in names:
            place = names.index(inner)
            # Graphviz cuts a line off at a cluster's border, but not where it starts inside the cluster.
            head = f", lhead=cluster_g{place}" if inner != name else ""
            source, target = _id(f"g{index}", key), _id(f"g{place}", ">", "start")
            yield f'    {source} -> {target} [style=dotted, dir=none, label="{LINKS[node.kind]}"{head}]'


def _id(*parts: str) -> str:
    """Name something; no node has ``<`` or ``>`` in its name, so other things do."""
    return _quoted("/".join(parts))


def _label(*lines: str) -> str:
    r"""Write lines as a label: Graphviz reads backslashes and ``&…;`` in one, so both are escaped."""
    rows = (row for line in lines if line for row in _rows(short(line, MAX_LABEL)))
    texts = (row.replace("\\", "\\\\").replace("&", "&amp;") for row in rows)
    return '"' + "\\n".join(text.replace('"', '\\"') for text in texts) + '"'


def _rows(line: str) -> list[str]:
    return textwrap.wrap(line, MAX_LINE_WIDTH, break_long_words=False, break_on_hyphens=False) or [line]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
