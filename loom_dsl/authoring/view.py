"""What a picture shows of a plan: all of it, some nodes and what is next to them, or graphs down to a depth.

Every format draws an `Excerpt`, so what is left out is left out of all of them, and told in all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loom_dsl.authoring.outline import OutlineEdge, edges, shown
from loom_dsl.errors import UserError
from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import Body
from loom_dsl.graph.nodes import ToolCallNode
from loom_dsl.graph.plan import Plan, runs
from loom_dsl.text.wording import suggest

MAX_NAMES = 12
"""Names that a message lists where none is near."""
_FOLDED = -1
"""What is left of the depth at a graph that is one box."""


@dataclass(frozen=True, slots=True)
class Cutout:
    """What is shown of one graph.

    Attributes:
        nodes: The nodes that are drawn, by id.
        ways_in: Where tokens start: ``start`` and ``abort``, and the nodes that they lead to.
        edges: The edges between the nodes that are drawn.
        total: How many nodes the graph has.
    """

    nodes: Mapping[str, Node]
    ways_in: Mapping[str, str]
    edges: Sequence[OutlineEdge]
    total: int

    def title(self, name: str) -> str:
        """Name the graph, and say so where not all of it is drawn."""
        return name if len(self.nodes) == self.total else f"{name} ({len(self.nodes)} of {self.total} nodes)"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is shown of a plan.

    Attributes:
        graphs: The graphs that are drawn, by name, in the order of the picture.
        folded: Those that are one box, with what is said in it.
        links: Of each graph that is drawn, which node runs which graph of the picture.
    """

    graphs: Mapping[str, Cutout]
    folded: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def cutout(body: Body, kept: Iterable[str] | None = None) -> Cutout:
    """Cut some nodes out of a graph, with every edge between two of them; by default all nodes."""
    names = set(body.nodes if kept is None else kept)
    ways_in = {"start": body.start, "abort": body.on_abort}
    return Cutout(
        nodes={key: node for key, node in body.nodes.items() if key in names},
        ways_in={way: to for way, to in ways_in.items() if to is not None and to in names},
        edges=[line for line in edges(body) if line.source in names and line.target in names],
        total=len(body.nodes),
    )


def view(plan: Plan, *, whole: bool = False, only: Sequence[str] = (), depth: int | None = None) -> Excerpt:
    """Choose what a picture shows of a plan.

    Args:
        plan: The plan.
        whole: Whether the graph behind tool nodes is shown, too.
        only: Nodes, by id or ``GRAPH/NODE``: each is shown with what leads to it or from it directly. Or graphs, with
            or without the name of their document: each is shown whole. By default everything.
        depth: How many graphs deep the picture goes, from the root or from what `only` names; deeper ones are one box
            each. By default all the way, and not below nodes that `only` names.

    Raises:
        UserError: `only` names what is not in the plan, or the depth is below 0.
    """
    if depth is not None and depth < 0:
        raise UserError(f"--depth {depth}: write 0, which draws no graph inside another one, or more")
    graphs, named = _chosen(plan, only, whole)
    rest: dict[str, float] = {name: 0 if depth is None else depth for name in named}
    rest |= dict.fromkeys(graphs, float("inf") if depth is None else depth)
    queue = list(rest)
    for name in queue:
        for key, inner in _runners(plan, name, whole).items():
            below = rest[name] - 1
            if (name in graphs or key in named.get(name, ())) and below > rest.get(inner, _FOLDED - 1):
                rest[inner] = below
                if below > _FOLDED:
                    graphs.add(inner)
                    queue.append(inner)
    order = [name for name in dict.fromkeys([*shown(plan, whole=True), *plan.bodies]) if name in rest]
    drawn = {name: _cut(plan, name, graphs, named) for name in order if name in graphs or name in named}
    folded = {name: _size(plan, name, rest, whole) for name in order if name not in drawn}
    links = {name: _runners(plan, name, whole) for name in drawn}
    kept = {
        name: {key: to for key, to in found.items() if key in drawn[name].nodes and to in rest}
        for name, found in links.items()
    }
    return Excerpt(drawn, folded, kept)


def _runners(plan: Plan, name: str, whole: bool) -> dict[str, str]:
    """The nodes of a graph that run another one, and that one."""
    nodes = plan.bodies[name].nodes.items()
    found = {key: runs(plan, name, node) for key, node in nodes if whole or not isinstance(node, ToolCallNode)}
    return {key: inner for key, inner in found.items() if inner is not None}


def _cut(plan: Plan, name: str, graphs: set[str], named: Mapping[str, set[str]]) -> Cutout:
    body = plan.bodies[name]
    if name in graphs:
        return cutout(body)
    near = {
        key for line in edges(body) for key in (line.source, line.target) if {line.source, line.target} & named[name]
    }
    return cutout(body, named[name] | near)


def _size(plan: Plan, name: str, rest: Mapping[str, float], whole: bool) -> str:
    """Say how much a box stands for: the nodes of its graph, and the graphs below it that are nowhere else."""
    below = [name]
    for found in below:
        inner = _runners(plan, found, whole).values()
        below += [other for other in dict.fromkeys(inner) if other not in below and other not in rest]
    nodes = sum(len(plan.bodies[found].nodes) for found in below)
    more = len(below) - 1
    inside = f" in it and {more} {'graph' if more == 1 else 'graphs'} below" if more else ""
    return f"{nodes} {'node' if nodes == 1 else 'nodes'}{inside}"


def _chosen(plan: Plan, only: Sequence[str], whole: bool) -> tuple[set[str], dict[str, set[str]]]:
    """The graphs that are named, and the nodes by graph."""
    if not only:
        return {plan.root}, {}
    graphs: set[str] = set()
    nodes: dict[str, set[str]] = {}
    unknown: list[str] = []
    for name in only:
        found, places = _graphs_called(plan, name), _nodes_called(plan, name, whole)
        graphs.update(found)
        for graph, key in places:
            nodes.setdefault(graph, set()).add(key)
        if not found and not places:
            unknown.append(name)
    if unknown:
        raise UserError("; ".join(_unknown(plan, name, whole) for name in unknown))
    return graphs, nodes


def _graphs_called(plan: Plan, name: str) -> list[str]:
    return [graph for graph in plan.bodies if name in (graph, graph.partition("/")[2])]


def _nodes_called(plan: Plan, name: str, whole: bool) -> list[tuple[str, str]]:
    """The places of a node: in every graph of the picture that has it, or in the one that is named before it."""
    graph, slash, key = name.rpartition("/")
    where = _graphs_called(plan, graph) if slash else shown(plan, whole=whole)
    return [(found, key) for found in where if key in plan.bodies[found].nodes]


def _unknown(plan: Plan, name: str, whole: bool) -> str:
    graphs = [form for graph in plan.bodies for form in (graph, graph.partition("/")[2]) if form]
    nodes = [key for graph in shown(plan, whole=whole) for key in plan.bodies[graph].nodes]
    full = [f"{graph}/{key}" for graph in plan.bodies for key in plan.bodies[graph].nodes] if "/" in name else []
    names = list(dict.fromkeys([*nodes, *graphs]))
    more = ", …" if len(names) > MAX_NAMES else ""
    hint = suggest(name, [*names, *full]) or f"there are {', '.join(names[:MAX_NAMES])}{more}"
    return f"--only {name}: there is no such node or graph; {hint}"
