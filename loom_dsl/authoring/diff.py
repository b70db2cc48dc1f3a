"""What differs between two plans: graph by graph, node by node, edge by edge."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loom_dsl.authoring.outline import OutlineEdge, edges, edges_of
from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import Body
from loom_dsl.graph.plan import Plan
from loom_dsl.text.canonical import canonical_json

# Which nodes of two graphs are the same under another name, and a graph with such nodes renamed.


ROUNDS = 20
_OF_EDGES = frozenset({"next", "catch", "exhausted", "race"})
_READ = re.compile(r"(?<![\w.])nodes\.([A-Za-z]\w*)")


def renames(old: Body, new: Body) -> dict[str, str]:
    """Find the nodes that only have another name: the same in themselves, and with the same neighbours.

    A node that says nothing of itself, such as ``end: null``, needs all of its neighbours; any other one half of them.
    What is found makes more neighbours known, so it is looked again, `ROUNDS` times at most.

    Returns:
        New names by old ones.
    """
    gone, come = old.nodes.keys() - new.nodes.keys(), new.nodes.keys() - old.nodes.keys()
    either = dict.fromkeys(gone | come, "?")
    bodies: dict[str, list[str]] = {}
    for key in new.nodes:
        if key in come:
            bodies.setdefault(_body(new.nodes[key], either), []).append(key)
    alike = [(a, b) for a in old.nodes if a in gone for b in bodies.get(_body(old.nodes[a], either), ())]
    found: dict[str, str] = {}
    for _ in range(ROUNDS if alike else 0):
        before = _neighbours(old, either | found)
        after = _neighbours(new, either | {b: b for b in found.values()})
        pairs = [(_likeness(before[a], after[b]), a, b) for a, b in alike if a not in found]
        more = 0
        for part, a, b in sorted(pairs, key=lambda pair: -pair[0]):
            enough = part >= 0.5 if _says_something(old.nodes[a]) else part == 1.0 and _is_known(before[a])
            if enough and a not in found and b not in found.values():
                found[a], more = b, more + 1
        if not more:
            break
    return found


def renamed(body: Body, names: Mapping[str, str]) -> Body:
    """Give a graph with nodes renamed wherever it names them."""
    data = body.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    data["nodes"] = {names.get(key, key): _node(node, names) for key, node in data["nodes"].items()}
    for key in ("start", "on_abort"):
        if data.get(key) in names:
            data[key] = names[data[key]]
    return type(body).model_validate(data)


def _node(node: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    node = _read(node, names)
    node["next"] = _targets(node.get("next", {}), names)
    for key in ("race", "cancel", "exhausted"):
        if key in node:
            node[key] = _targets(node[key], names)
    if "catch" in node:
        node["catch"] = {code: names.get(to, to) for code, to in node["catch"].items()}
    if "deadline" in node:
        node["deadline"] = _targets(node["deadline"], names)
    return node


def _targets(value: Any, names: Mapping[str, str]) -> Any:
    """Rename what an edge leads to: a name, a list of names, or what stands under `to`."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_targets(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    led = ("to", "first", "each", "all")
    return {key: _targets(item, names) if key in led else item for key, item in value.items()}


def _read(value: Any, names: Mapping[str, str]) -> Any:
    """Rename in expressions: ``nodes.old`` is ``nodes.new``."""
    if isinstance(value, str):
        return _READ.sub(lambda match: f"nodes.{names.get(match[1], match[1])}", value)
    if isinstance(value, dict):
        return {key: _read(item, names) for key, item in value.items()}
    return [_read(item, names) for item in value] if isinstance(value, list) else value


def _own(node: Node) -> dict[str, Any]:
    """What a node says of itself, without where it leads."""
    data = node.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    data = {key: value for key, value in data.items() if key not in _OF_EDGES}
    if "deadline" in data:
        data["deadline"] = data["deadline"].get("after")
    return data


def _says_something(node: Node) -> bool:
    return any(value is not None for value in _own(node).values())


def _body(node: Node, names: Mapping[str, str]) -> str:
    return f"{node.kind} {canonical_json(_read(_own(node), names))}"


def _neighbours(body: Body, names: Mapping[str, str]) -> dict[str, set[tuple[str, str, str]]]:
    """The edges of each node: direction, label and the other end, as `names` has it."""
    found: dict[str, set[tuple[str, str, str]]] = {key: set() for key in body.nodes}
    for source, target, label in _lines(body):
        for key, way, other in ((source, "out", target), (target, "in", source)):
            if key in found:
                found[key].add((way, label, names.get(other, other)))
    return found


def _lines(body: Body) -> Iterator[tuple[str, str, str]]:
    return ((line.source, line.target, line.label) for line in edges(body))


def _is_known(edges: set[tuple[str, str, str]]) -> bool:
    return all(other != "?" for _, _, other in edges)


def _likeness(before: set[tuple[str, str, str]], after: set[tuple[str, str, str]]) -> float:
    """Which part of two nodes' edges they have in common; an edge to itself is the same under another name."""
    return len(before & after) / (len(before | after) or 1)


@dataclass(frozen=True, slots=True)
class Change:
    """A field that is not the same.

    Attributes:
        field: Its path, such as ``retry.attempts``.
        old: What it was; null where there was nothing.
        new: What it is now; null where there is nothing.
    """

    field: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class NodeDiff:
    """A node that is not the same.

    Attributes:
        node: Its id.
        change: ``added``, ``removed``, ``changed`` or ``renamed``.
        fields: What is not the same of one that changed.
        was: The id before, of one that was renamed.
    """

    node: str
    change: str
    fields: tuple[Change, ...] = ()
    was: str = ""


@dataclass(frozen=True, slots=True)
class EdgeDiff:
    """An edge that only one of the two has.

    Attributes:
        change: ``added`` or ``removed``.
        label: Why a token goes this way; empty for always.
    """

    change: str
    source: str
    target: str
    label: str


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """A graph that is not the same.

    Attributes:
        graph: Its name.
        change: ``added``, ``removed`` or ``changed``.
        fields: What is not the same beside its nodes.
        nodes: Nodes that are not the same, in the order of the document.
        edges: Edges that only one of the two has.
    """

    graph: str
    change: str
    fields: tuple[Change, ...] = ()
    nodes: tuple[NodeDiff, ...] = ()
    edges: tuple[EdgeDiff, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """All that is not the same in two plans.

    Attributes:
        fields: Beside the graphs: the agent, the agents, and the root's name.
        graphs: Graphs that are not the same, the root first.
    """

    fields: tuple[Change, ...] = ()
    graphs: tuple[GraphDiff, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fields or self.graphs)

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON."""
        data: dict[str, Any] = asdict(self)
        return data


def diff(old: Plan, new: Plan) -> Difference:
    """Compare two plans. The roots are compared with each other, whatever their names; other graphs by name.

    The difference is empty exactly if the plans have the same hash.
    """
    beside = _changes("", _beside(old), _beside(new))
    before, after = _by_name(old), _by_name(new)
    graphs = []
    for name in dict.fromkeys([*after, *before]):
        shown = name.removeprefix("/") or new.root
        if name not in before or name not in after:
            graphs.append(GraphDiff(shown, "removed" if name in before else "added"))
        elif found := _graph(shown, before[name], after[name]):
            graphs.append(found)
    return Difference(tuple(beside), tuple(graphs))


def _beside(plan: Plan) -> dict[str, Any]:
    return {"name": plan.root, "agent": plan.agent, "agents": plan.agents}


def _by_name(plan: Plan) -> dict[str, Body]:
    """The plan's graphs; the root's name is empty, and one inside the root begins with a slash."""
    own = f"{plan.root}/"
    named = {f"/{name.removeprefix(own)}" if name.startswith(own) else name: body for name, body in plan.bodies.items()}
    return {"": named.pop(plan.root), **named}


def _graph(name: str, old: Body, new: Body) -> GraphDiff | None:
    names = renames(old, new)
    if names:
        old = renamed(old, names)
    before = {now: was for was, now in names.items()}
    nodes = []
    for key in dict.fromkeys([*new.nodes, *old.nodes]):
        if key in before:
            nodes.append(NodeDiff(key, "renamed", was=before[key]))
        elif key not in old.nodes or key not in new.nodes:
            nodes.append(NodeDiff(key, "removed" if key in old.nodes else "added"))
        elif fields := tuple(_node_changes(key, old.nodes[key], new.nodes[key])):
            nodes.append(NodeDiff(key, "changed", fields))
    lines = tuple(_edges(list(edges(old)), list(edges(new))))
    beside = tuple(_changes("", _dumped(old), _dumped(new)))
    # A node whose edges alone differ has no fields to tell, so the edges count for themselves.
    return GraphDiff(name, "changed", beside, tuple(nodes), lines) if beside or nodes or lines else None


def _dumped(body: Body) -> dict[str, Any]:
    """What a graph says beside its nodes and the graphs inside; its name is told once, for the plan."""
    return body.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"nodes", "graphs", "name"})


def _node_changes(key: str, old: Node, new: Node) -> Iterator[Change]:
    """The fields that differ. Where edges differ they are told as edges, and a field only for what those do not say."""
    before, after = ({"kind": node.kind, **_fields(node)} for node in (old, new))
    told_by_edges = {"catch", "exhausted"}
    if Counter(edges_of(key, old)) != Counter(edges_of(key, new)):
        told_by_edges |= {"next", "race"} if _ways(key, old) != _ways(key, new) else set()
    for name in told_by_edges:
        before.pop(name, None)
        after.pop(name, None)
    yield from _changes("", before, after)


def _fields(node: Node) -> dict[str, Any]:
    return node.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _ways(key: str, node: Node) -> Counter[OutlineEdge]:
    return Counter(line for line in edges_of(key, node) if not line.dashed)


def _edges(old: list[OutlineEdge], new: list[OutlineEdge]) -> Iterator[EdgeDiff]:
    for change, lines, others in (("removed", old, new), ("added", new, old)):
        left = Counter(others)
        for line in lines:
            left[line] -= 1
            if left[line] < 0:
                yield EdgeDiff(change, line.source, line.target, line.label)


def _changes(path: str, old: Any, new: Any) -> Iterator[Change]:
    """The leaves that differ; keys that only one side has are told with null on the other."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            place = f"{path}.{key}" if path else key
            if key in old and key in new:
                yield from _changes(place, old[key], new[key])
            else:
                yield Change(place, old.get(key), new.get(key))
    elif canonical_json(old) != canonical_json(new):  # true and 1, or 1 and 1.0, are not the same in a plan
        yield Change(path, old, new)
