"""In which order the nodes of a graph are told, and which stand inside which: a graph as a text from top to bottom.

A node that can only be reached by way of another one (its dominator) belongs to that one: in the branch that leads to
it if the branch is small and nothing else leads there, and after all branches otherwise. So branches are moved in,
what comes together after them is not, every forward edge leads down, and only loops lead up. A branch is moved in only
if it is less than half of what its node dominates, so the depth grows with the logarithm of the size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from loom_dsl.graph import Body
from loom_dsl.sketch import Line, edges_of

TOP, START, ABORT = "", ">start", ">abort"
"""Names of what is no node: that which everything follows from, and the ways in."""
SMALL = 3
"""So many nodes are moved in, whatever share of the rest they are."""


@dataclass(frozen=True, slots=True)
class Way:
    """An edge as it is told.

    Attributes:
        line: The edge.
        inside: Whether the target is told here, moved in; otherwise it is only named.
        back: Whether the edge leads to where the text has been before.
    """

    line: Line
    inside: bool = False
    back: bool = False


@dataclass(slots=True)
class Outline:
    """What is told of each node.

    Attributes:
        ways: Its edges in the order of the document.
        sequels: What is told after it, not moved in.
    """

    ways: dict[str, list[Way]] = field(default_factory=dict)
    sequels: dict[str, list[str]] = field(default_factory=dict)


def outline(graph: Body) -> Outline:
    """Put the nodes of a graph in order. Nodes to which nothing leads come last."""
    lines: dict[str, list[Line]] = {key: list(edges_of(key, node)) for key, node in graph.nodes.items()}
    lines[START] = [Line(START, graph.start)]
    lines[ABORT] = [Line(ABORT, graph.on_abort)] if graph.on_abort is not None else []
    after = {key: [line.target for line in found] for key, found in lines.items()}
    after[TOP] = [START, ABORT] if graph.on_abort is not None else [START]
    order = _order(after)
    while missing := [key for key in graph.nodes if key not in order]:
        after[TOP].append(missing[0])
        order = _order(after)
    owner = _dominators(after, order)
    size = _sizes(owner, order)
    arrivals = _arrivals(after, order)
    result = Outline(sequels={key: [] for key in order})
    for key in order:
        result.ways[key] = []
        for line in lines.get(key, ()):
            back = order[line.target] <= order[key]
            small = size[line.target] <= max(SMALL, (size[key] - 1) // 2)
            only = not back and arrivals[line.target] == 1 and owner[line.target] == key
            result.ways[key].append(Way(line, only and small and not _carries_on(lines[key], line), back))
    inside = {way.line.target for ways in result.ways.values() for way in ways if way.inside}
    for key in order:
        if key != TOP and key not in inside:
            result.sequels[owner[key]].append(key)
    return result


def _carries_on(lines: list[Line], line: Line) -> bool:
    """Whether this is the only way of the node's result: what follows is not moved in, however small."""
    return not line.dashed and sum(not other.dashed for other in lines) == 1


def _order(after: Mapping[str, list[str]]) -> dict[str, int]:
    """Number what can be reached from the top, so that only edges that close a loop lead to a lower number."""
    done: list[str] = []
    seen, stack = {TOP}, [(TOP, _backwards(after[TOP]))]
    while stack:
        key, rest = stack[-1]
        target = next((name for name in rest if name not in seen), None)
        if target is None:
            stack.pop()
            done.append(key)
        else:
            seen.add(target)
            stack.append((target, _backwards(after[target])))
    return {key: index for index, key in enumerate(reversed(done))}


def _backwards(names: list[str]) -> Iterator[str]:
    return iter(names[::-1])


def _forward(after: Mapping[str, list[str]], order: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    return ((key, to) for key in order for to in after[key] if order[to] > order[key])


def _dominators(after: Mapping[str, list[str]], order: Mapping[str, int]) -> dict[str, str]:
    """Find the nearest node that every forward way to a node passes."""
    owner: dict[str, str] = {}
    for key, to in _forward(after, order):  # sources come in order, so all that is above a source is known
        found = owner.get(to, key)
        while found != key:
            if order[found] > order[key]:
                found = owner[found]
            else:
                key = owner[key]
        owner[to] = found
    return owner


def _sizes(owner: Mapping[str, str], order: Mapping[str, int]) -> dict[str, int]:
    """Count what each node dominates, itself too."""
    size = dict.fromkeys(order, 1)
    for key in sorted(owner, key=order.__getitem__, reverse=True):
        size[owner[key]] += size[key]
    return size


def _arrivals(after: Mapping[str, list[str]], order: Mapping[str, int]) -> dict[str, int]:
    """Count the forward edges that lead to each node."""
    count = dict.fromkeys(order, 0)
    for _, to in _forward(after, order):
        count[to] += 1
    return count
