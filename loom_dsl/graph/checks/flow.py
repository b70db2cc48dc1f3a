"""A graph as nodes and edges: what the checks of its structure walk over."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import Body
from loom_dsl.graph.nodes import End, Fail, Join, Race, Recurse

Kind = Literal["first", "each", "all", "race", "catch", "deadline", "exhausted"]
ENDS = (End, Fail, Recurse)


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """One edge.

    Attributes:
        source: Id of the node that it leaves.
        target: Id that it names, whether there is such a node or not.
        kind: Why a token takes it.
        place: Path below the node to the target's name.
    """

    source: str
    target: str
    kind: Kind
    place: tuple[str | int, ...]


def ways_of(key: str, node: Node) -> list[FlowEdge]:
    """Every edge that leaves a node; not `next` where it is never taken."""
    ways: list[FlowEdge] = []
    if not isinstance(node, (*ENDS, Race)):
        ways += [FlowEdge(key, edge.to, "first", ("next", "first", i, "to")) for i, edge in enumerate(node.next.first)]
        ways += [FlowEdge(key, edge.to, "each", ("next", "each", i, "to")) for i, edge in enumerate(node.next.each)]
        ways += [FlowEdge(key, to, "all", ("next", "all", i)) for i, to in enumerate(node.next.all)]
    if isinstance(node, Race):
        ways += [FlowEdge(key, arm, "race", ("race", i)) for i, arm in enumerate(node.race)]
    ways += [FlowEdge(key, to, "catch", ("catch", code)) for code, to in node.catch.items()]
    if node.deadline is not None and node.deadline.to is not None:
        ways.append(FlowEdge(key, node.deadline.to, "deadline", ("deadline", "to")))
    if node.exhausted is not None:
        ways.append(FlowEdge(key, node.exhausted, "exhausted", ("exhausted",)))
    return ways


class ControlFlow:
    """Nodes and edges of one graph.

    Attributes:
        ways: Every edge, also those to nodes that do not exist.
        out: The edges that leave each node, to nodes that exist.
        into: The edges that lead to each node.
        entries: Where a token can begin.
        reached: The nodes that a token can come to.
    """

    def __init__(self, body: Body) -> None:
        self.body = body
        self.ways = [way for key, node in body.nodes.items() for way in ways_of(key, node)]
        self.out: dict[str, list[FlowEdge]] = {key: [] for key in body.nodes}
        self.into: dict[str, list[FlowEdge]] = {key: [] for key in body.nodes}
        for way in self.ways:
            if way.target in body.nodes:
                self.out[way.source].append(way)
                self.into[way.target].append(way)
        starts = (body.start, body.on_abort)
        self.entries = tuple(dict.fromkeys(key for key in starts if key is not None and key in body.nodes))
        self.reached = self.reach(self.entries)

    def reach(self, starts: Iterable[str], stop: frozenset[str] = frozenset()) -> set[str]:
        """The nodes that a token at one of these can come to, them included, without going on from a node of `stop`."""
        return _spread(starts, lambda key: [] if key in stop else [way.target for way in self.out[key]])

    def sources(self, key: str) -> list[str]:
        """The nodes with an edge to this one that a token can come to."""
        return list(dict.fromkeys(way.source for way in self.into[key] if way.source in self.reached))

    def leading_to(self, goals: Iterable[str]) -> set[str]:
        """The nodes from which one of these can be reached, them included."""
        return _spread(goals, lambda key: [way.source for way in self.into[key]])

    def cycles(self, without: Iterable[str]) -> list[list[str]]:
        """The sets of nodes that go round in circles when some nodes are left out, in the order of the graph."""
        left = {key: [w.target for w in ways] for key, ways in self.out.items()}
        for key in without:
            left.pop(key, None)
        found = [part for part in _components(left) if len(part) > 1 or part[0] in left[part[0]]]
        order = {key: index for index, key in enumerate(self.body.nodes)}
        return sorted((sorted(part, key=order.__getitem__) for part in found), key=lambda part: order[part[0]])


def _spread(starts: Iterable[str], steps: Callable[[str], Iterable[str]]) -> set[str]:
    """Everything that can be come to step by step, the starts included."""
    seen: set[str] = set()
    queue = list(starts)
    while queue:
        key = queue.pop()
        if key not in seen:
            seen.add(key)
            queue += steps(key)
    return seen


def _components(edges: dict[str, list[str]]) -> list[list[str]]:
    """The strongly connected parts of a graph (Tarjan's way, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    parts: list[list[str]] = []
    done: set[str] = set()
    for root in edges:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        work = [(root, iter(edges[root]))]
        while work:
            key, rest = work[-1]
            for target in rest:
                if target not in edges or target in done:
                    continue
                if target not in number:
                    number[target] = low[target] = len(number)
                    stack.append(target)
                    work.append((target, iter(edges[target])))
                    break
                low[key] = min(low[key], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[key])
                if low[key] == number[key]:
                    at = stack.index(key)
                    parts.append(stack[at:])
                    done.update(stack[at:])
                    del stack[at:]
    return parts


@dataclass(frozen=True, slots=True)
class Split:
    """A node after which several tokens are under way.

    Attributes:
        key: The node's id.
        kind: ``all``: every branch gets a token; ``each``: some may not; ``times``: one branch gets several.
        targets: The first node of each branch.
        branches: Which branches can come to a node before they are joined again: bit i for branch i, by node.
        several: The same, where a join of `all` that makes one token of each round of them counts as none: of what
            comes over one edge it takes one at a time, and lets the next go on after it.
    """

    key: str
    kind: Literal["all", "each", "times"]
    targets: tuple[str, ...]
    branches: dict[str, int]
    several: dict[str, int]

    def parallel(self, first: str, second: str) -> bool:
        """Whether a token can be at the one node while another is at the second."""
        one, two = self.branches.get(first, 0), self.branches.get(second, 0)
        return bool(one and two) and (one | two).bit_count() > 1

    def over(self, source: str, target: str) -> int:
        """The branches that can come from one node to the next."""
        if source == self.key:
            return sum(1 << i for i, first in enumerate(self.targets) if first == target)
        return self.branches.get(source, 0)

    def brings(self, sources: Iterable[str], target: str) -> bool:
        """Whether more than one token can come to a node over these edges, one after the other."""
        found = 0
        for source in sources:
            found |= self.over(source, target) | self.several.get(source, 0)
        return found.bit_count() > 1


def splits_of(flow: ControlFlow) -> list[Split]:
    """Every split that a token can come to."""
    return [
        _split(flow, key, kind, targets)
        for key, node in flow.body.nodes.items()
        if key in flow.reached
        for kind, targets in _branches(flow, node)
    ]


def _branches(flow: ControlFlow, node: Node) -> list[tuple[Literal["all", "each", "times"], tuple[str, ...]]]:
    if isinstance(node, (*ENDS, Race)):
        return []
    known = tuple(to for to in node.next.all if to in flow.out)
    if node.next.times is not None and known:
        return [("times", (known[0], known[0]))] if node.next.times != 1 else []
    each = tuple(edge.to for edge in node.next.each if edge.to in flow.out)
    found: list[tuple[Literal["all", "each", "times"], tuple[str, ...]]] = [("all", known), ("each", each)]
    return [(kind, targets) for kind, targets in found if len(targets) > 1]


def _split(flow: ControlFlow, key: str, kind: Literal["all", "each", "times"], targets: tuple[str, ...]) -> Split:
    whole = [flow.reach((target,)) for target in dict.fromkeys(targets)]
    # After a join that every branch leads to, there is one token again.
    closing = frozenset(name for name in set.intersection(*whole) if closes(flow.body.nodes[name]))
    branches = _reached_by(flow, targets, closing)
    in_rounds = {name for name in closing if _in_rounds(flow, name, key, targets, branches)}
    several = _reached_by(flow, targets, closing - in_rounds) if in_rounds else branches
    return Split(key, kind, targets, branches, several)


def _reached_by(flow: ControlFlow, targets: tuple[str, ...], stop: frozenset[str]) -> dict[str, int]:
    branches: dict[str, int] = {}
    for index, target in enumerate(targets):
        for name in flow.reach((target,), stop=stop):
            branches[name] = branches.get(name, 0) | 1 << index
    return branches


def _in_rounds(flow: ControlFlow, name: str, key: str, targets: tuple[str, ...], branches: dict[str, int]) -> bool:
    """Whether several branches of a split come to a join of `all` over the same edge."""
    spec = flow.body.nodes[name]
    if not isinstance(spec, Join) or (spec.join.mode, spec.join.need, spec.join.threads) != ("all", None, None):
        return False
    first = targets.count(name) if key in flow.sources(name) else 0
    return first > 1 or any(branches.get(s, 0).bit_count() > 1 for s in flow.sources(name) if s != key)


def closes(node: Node) -> bool:
    """Whether one token goes on from a node, whatever came there."""
    return isinstance(node, Join) and (node.join.need is None or node.join.rest == "cancel")
