"""Graphs that extend a shipped one: nodes are put before or after its nodes, replaced or removed.

    extends: loom.tt
    insert:
      guardrail: {before: calls, activity: "guards:look"}   # every edge to `calls` now leads here, and from here there
    replace: {finish: {…}}                                    # keeps the ways out of the old node unless it has its own
    remove: {at_cost: finish}                                 # edges to the node lead to the other one
    nodes: {…}                                                # further nodes

The result is a plain graph, checked like any other.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from loom_dsl.documents.document import Document
from loom_dsl.errors import DocumentError
from loom_dsl.text.wording import suggest

KEYS = ("extends", "insert", "replace", "remove")
Nodes = dict[str, Any]


def extended(document: Document, base_of: Callable[[str], Mapping[str, Any]], known: tuple[str, ...]) -> Document:
    """Write out what a document extends; one that extends nothing stays as it is.

    Args:
        document: Of the kind graph.
        base_of: Gives the normal form of a shipped graph.
        known: Names of the shipped graphs.

    Raises:
        DocumentError: It extends a graph that is not shipped, or changes nodes that are not there.
    """
    data = document.data
    if "extends" not in data:
        extra = [key for key in KEYS if key in data]
        if extra:
            _refuse(document, f"`{extra[0]}` needs `extends`: the graph to start from", (extra[0],))
        return document
    name = data["extends"]
    if name not in known:
        hint = suggest(str(name), known) or f"shipped graphs: {', '.join(known)}"
        _refuse(document, f"there is no graph {name!r} to extend; {hint}", ("extends",))
    base = base_of(name)
    nodes = {key: dict(node) for key, node in base["nodes"].items()}
    head = {key: value for key, value in base.items() if key not in ("loom", "kind", "name", "doc", "nodes")}
    start = [head["start"]]
    _remove(document, nodes, start, _part(document, "remove"))
    _replace(document, nodes, _part(document, "replace"))
    _insert(document, nodes, start, _part(document, "insert"))
    for key, node in _part(document, "nodes").items():
        if key in nodes:
            _refuse(document, f"`{key}` is a node of {name} already; write it under `replace`", ("nodes", key))
        nodes[key] = node
    own = {key: value for key, value in data.items() if key not in (*KEYS, "nodes")}
    values = {_moved(path): place for path, place in document._values.items()}
    keys = {_moved(path): place for path, place in document._keys.items()}
    whole = {**head, "start": start[0], **own, "nodes": nodes}
    return dataclasses.replace(document, data=whole, _values={**values, **document._values}, _keys=keys)


def _moved(path: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Where a value of `insert` or `replace` is in the graph that comes of it."""
    return ("nodes", *path[1:]) if path and path[0] in ("insert", "replace") else path


def _part(document: Document, key: str) -> Nodes:
    part = document.data.get(key, {})
    if not isinstance(part, dict):
        _refuse(document, f"`{key}` is a mapping of node names", (key,))
    return dict(part)


def _remove(document: Document, nodes: Nodes, start: list[str], removed: Nodes) -> None:
    for key, successor in removed.items():
        _known(document, nodes, key, ("remove", key))
        _known(document, nodes, successor, ("remove", key))
        del nodes[key]
        _redirect(nodes, start, key, successor)


def _replace(document: Document, nodes: Nodes, replaced: Nodes) -> None:
    for key, node in replaced.items():
        _known(document, nodes, key, ("replace", key))
        if not isinstance(node, dict):
            _refuse(document, f"`{key}` is to be replaced by a node", ("replace", key))
        ways = {"next": nodes[key]["next"]} if "next" in nodes[key] and "next" not in node else {}
        nodes[key] = {**ways, **node}


def _insert(document: Document, nodes: Nodes, start: list[str], inserted: Nodes) -> None:
    for key, node in inserted.items():
        place = [side for side in ("before", "after") if isinstance(node, dict) and side in node]
        if len(place) != 1:
            _refuse(document, f"`{key}` needs `before` or `after`: the node beside which it goes", ("insert", key))
        if key in nodes:
            _refuse(document, f"there is a node `{key}` already; choose another name", ("insert", key))
        side, other = place[0], node[place[0]]
        _known(document, nodes, other, ("insert", key, side))
        new = {name: value for name, value in node.items() if name != side}
        if side == "before":
            _redirect(nodes, start, other, key)
            nodes[key] = {"next": other, **new}
        else:
            nodes[key] = {**({"next": nodes[other]["next"]} if "next" in nodes[other] else {}), **new}
            nodes[other] = {**nodes[other], "next": key}


def _known(document: Document, nodes: Nodes, key: Any, path: tuple[str, ...]) -> None:
    if not isinstance(key, str) or key not in nodes:
        hint = suggest(str(key), nodes) or f"its nodes are {', '.join(nodes)}"
        _refuse(document, f"the extended graph has no node {key!r}; {hint}", path)


def _redirect(nodes: Nodes, start: list[str], old: str, new: str) -> None:
    """Lead every edge to one node to another one."""
    if start[0] == old:
        start[0] = new
    for key, node in nodes.items():
        nodes[key] = {name: _led(name, value, old, new) for name, value in node.items()}


def _led(name: str, value: Any, old: str, new: str) -> Any:
    if name == "exhausted":
        return new if value == old else value
    if name == "catch" and isinstance(value, dict):
        return {code: new if target == old else target for code, target in value.items()}
    if name == "deadline" and isinstance(value, dict) and value.get("to") == old:
        return {**value, "to": new}
    if name == "race" and isinstance(value, list):
        return [new if arm == old else arm for arm in value]
    return _next(value, old, new) if name == "next" else value


def _next(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, list):
        return [_next(item, old, new) for item in value]
    if isinstance(value, dict):
        inner = {key: _next(item, old, new) for key, item in value.items() if key in ("first", "each", "all", "to")}
        return {**value, **inner}
    return value


def _refuse(document: Document, message: str, path: tuple[str | int, ...]) -> None:
    raise DocumentError([document.diagnostic("L003" if "needs" in message else "L102", message, path)])
