"""Which nodes of two graphs are the same under another name, and a graph with such nodes renamed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from loom_dsl.canonical import canonical_json
from loom_dsl.graph import Body
from loom_dsl.parts import Node
from loom_dsl.sketch import edges

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
