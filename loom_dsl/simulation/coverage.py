"""Which nodes and edges of a graph have been used, counted while a machine runs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.graph.checks.flow import ways_of
from loom_dsl.graph.library import TOOL_NODE
from loom_dsl.graph.nodes import Join
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.state import JOINING, MachineState, Token
from loom_dsl.simulation.names import aliases, user_graphs

Edge = tuple[str, str, str]
"""Graph, node, and the node that follows."""


@dataclass(slots=True)
class Coverage:
    """What has been used.

    Attributes:
        visits: How often each node was entered, by graph and node; of a join, how often it fired.
        edges: How often each edge was taken.
        names: How often what a scenario means by a name was entered, such as ``tests`` and ``each[2]/tests``.
        first: When that was for the first time.
    """

    visits: Counter[tuple[str, str]] = field(default_factory=Counter)
    edges: Counter[Edge] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    first: dict[str, float] = field(default_factory=dict)

    def add(self, other: "Coverage") -> None:
        """Count the nodes and edges that another run has used, too."""
        self.visits.update(other.visits)
        self.edges.update(other.edges)


@dataclass(frozen=True, slots=True)
class Covered:
    """How much of a plan's own graphs was used.

    Attributes:
        nodes: Nodes that were entered.
        all_nodes: Nodes that there are.
        edges: Edges that were taken.
        all_edges: Edges that there are; several from one node to the same other one count as one.
        unused_nodes: ``node``, or ``graph/node`` in a graph inside the document.
        unused_edges: ``node -> node``.
    """

    nodes: int
    all_nodes: int
    edges: int
    all_edges: int
    unused_nodes: tuple[str, ...]
    unused_edges: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The numbers and the names, as JSON."""
        return {
            "nodes": {"used": self.nodes, "all": self.all_nodes, "unused": list(self.unused_nodes)},
            "edges": {"used": self.edges, "all": self.all_edges, "unused": list(self.unused_edges)},
        }


def covered(plan: Plan, coverage: Coverage) -> Covered:
    """Compare what was used with what there is, in the order of the document."""
    nodes: list[tuple[str, str]] = []
    edges: dict[Edge, None] = {}
    for graph in user_graphs(plan):
        for key, node in plan.bodies[graph].nodes.items():
            nodes.append((graph, key))
            edges |= dict.fromkeys((graph, key, way.target) for way in ways_of(key, node))
    unused = [place for place in nodes if not coverage.visits[place]]
    untaken = [edge for edge in edges if not coverage.edges[edge]]
    shown = {graph: f"{graph.partition('/')[2]}/" if "/" in graph else "" for graph in user_graphs(plan)}
    return Covered(
        nodes=len(nodes) - len(unused),
        all_nodes=len(nodes),
        edges=len(edges) - len(untaken),
        all_edges=len(edges),
        unused_nodes=tuple(shown[graph] + key for graph, key in unused),
        unused_edges=tuple(f"{shown[graph]}{source} -> {target}" for graph, source, target in untaken),
    )


class CountingMachine(Machine):
    """A machine that counts what it enters, and where tokens go.

    Attributes:
        coverage: What has been counted.
        prefix: What stands before the names of executions in a job below another one.
    """

    def __init__(self, plan: Plan, state: MachineState, job: str, coverage: Coverage, prefix: str = "") -> None:
        super().__init__(plan, state, job)
        self.coverage, self.prefix = coverage, prefix

    def place(
        self, frame_key: str, target: str, source: str = "", value: Any = None, *, via: str = "", race: str = ""
    ) -> None:
        """Put a token before a node, and count the edges on its way there."""
        super().place(frame_key, target, source, value, via=via, race=race)
        graph = self.state.frames[frame_key].graph
        reached = next(reversed(self.state.tokens.values())).node
        if via:
            self.coverage.edges[graph, via, target] += 1
        while target != reached:  # the node had been entered often enough
            following = self.plan.node(graph, target).exhausted
            assert following is not None
            self.coverage.edges[graph, target, following] += 1
            target = following

    def complete(self, token: Token, result: Any) -> None:
        """Go on from a node; a join is counted here, for it is entered by every token."""
        if token.status == JOINING:
            self._count(token)
        super().complete(token, result)

    def _enter(self, token: Token) -> None:
        if not isinstance(self.node(token), Join) and token.full is None:
            self._count(token)
        super()._enter(token)

    def _count(self, token: Token) -> None:
        graph = self.state.frames[token.frame].graph
        if graph == TOOL_NODE and token.frame:
            return  # a tool's pipeline is no part of what the user wrote
        self.coverage.visits[graph, token.node] += 1
        for name in aliases(self.prefix + token.at):
            self.coverage.names[name] += 1
            self.coverage.first.setdefault(name, self.state.last)
