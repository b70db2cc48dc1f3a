"""Graphs that are written where they are run: ``map: {over: input.files, do: {activity: "m:f"}}``.

They are moved into the document's `graphs`, under names made of the nodes that run them, so that everything else knows
only graphs with names. A document that is read keeps the places where they were written.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loom_dsl.documents.document import Document
from loom_dsl.errors import Diagnostic
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.nodes import NODE_KINDS, kind_of
from loom_dsl.text.wording import suggest

_SLOTS = (("map", "do"), ("loop", "do"), ("graph",))
"""Where a node names the graph that it runs."""
_LONGEST = 64
_OF_BODIES = frozenset({"nodes", "file", "start", "on_abort", "input"})
"""Fields that a graph has, or the mention of its file, and no node."""
T = TypeVar("T")


@dataclass
class Inlined:
    """A document's data with the graphs that were written in nodes in `graphs`.

    Attributes:
        data: The data.
        moved: Where a graph or a node was, and where it is now; one inside another was where the outer one is now.
    """

    data: Any
    moved: dict[DocumentPath, DocumentPath] = field(default_factory=dict)


def inlined(data: Any) -> Inlined:
    """Give graphs that are written where they are run a name, and move them into `graphs`.

    Args:
        data: A graph's document, or whatever stands in its place.

    Returns:
        The data with the graphs moved; what was given where there are none.
    """
    graphs = data.get("graphs", {}) if isinstance(data, dict) else None
    if not isinstance(graphs, dict):
        return Inlined(data)
    found = Inlined(data)
    named, queue = dict(graphs), [(), *(("graphs", name) for name in graphs)]
    taken = {*graphs, data.get("name")} if isinstance(data.get("name"), str) else set(graphs)
    root = data
    while queue:
        place = queue.pop(0)
        body = named[place[1]] if place else root
        nodes = body.get("nodes") if isinstance(body, dict) else None
        if not isinstance(nodes, dict):
            continue
        changed = dict(nodes)
        for key, slot, written in _written_in(nodes):
            name = _free(f"{key}_do", taken)
            taken.add(name)
            named[name], inner = _as_graph(written)
            found.moved[(*place, "nodes", key, *slot)] = ("graphs", name, *inner)
            changed[key] = _naming(changed[key], slot, name)
            queue.append(("graphs", name))
        if place:
            named[place[1]] = {**body, "nodes": changed}
        else:
            root = {**body, "nodes": changed}
    if found.moved:
        found.data = {**root, "graphs": named}
    return found


def with_graphs_moved(document: Document) -> tuple[Document, list[Diagnostic]]:
    """Move the graphs that a document has in its nodes into its `graphs`; findings keep the places where they stand.

    Args:
        document: Of the kind graph.

    Returns:
        The document, and what is wrong with nodes that stand for a graph.
    """
    found = inlined(document.data)
    if not found.moved:
        return document, []
    findings = list(_leading_on(document, found))
    origins = {now[:length]: before for before, now in found.moved.items() for length in (2, len(now))}
    values = {**document._values, **_below(document._values, found.moved)}
    keys = {**document._keys, **_below(document._keys, found.moved)}
    for before, now in found.moved.items():
        # What nobody has written, the graph of one node and its `nodes`, is where that node is.
        for around in (now[:length] for length in range(2, len(now) + 1) if before in values):
            values[around] = values[before]
            keys[around] = keys.get(before, values[before]) if len(around) == 2 else values[before]
    texts = {**document._texts, **_below(document._texts, found.moved)}
    places: dict[str, Any] = {
        "_values": values,
        "_keys": keys,
        "_texts": texts,
        "_origins": {**document._origins, **origins},
    }
    return dataclasses.replace(document, data=found.data, **places), findings


def _written_in(nodes: Mapping[Any, Any]) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """The nodes that have a graph, or a node in its place, where they would name one."""
    for key, node in nodes.items():
        for slot in _SLOTS if isinstance(node, dict) and isinstance(key, str) else ():
            value: Any = node
            for part in slot:
                value = value.get(part) if isinstance(value, dict) else None
            if isinstance(value, dict) and (slot != ("graph",) or "nodes" in value):
                yield key, slot, value


def _as_graph(written: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Give the graph that is written, and the place in it of what is: a node alone is named by its kind."""
    kinds = any(kind in written for kind in NODE_KINDS)
    meant = any(name in _OF_BODIES or (isinstance(name, str) and suggest(name, ["nodes"])) for name in written)
    if "nodes" in written or (meant and not kinds):
        return written, ()
    key = kind_of(written)
    return {"nodes": {key: written}}, ("nodes", key)


def _naming(node: dict[str, Any], slot: tuple[str, ...], name: str) -> dict[str, Any]:
    kind, *rest = slot
    return {**node, kind: {**node[kind], rest[0]: name} if rest else name}


def _free(wanted: str, taken: set[str]) -> str:
    number, name = 1, wanted[:_LONGEST]
    while name in taken:
        number += 1
        end = f"_{number}"
        name = wanted[: _LONGEST - len(end)] + end
    return name


def _leading_on(document: Document, found: Inlined) -> Iterator[Diagnostic]:
    """A node in the place of a graph has no way out, as there is nothing to lead to; the finding is told once."""
    for before, (_, name, *inner) in found.moved.items():
        node = found.data["graphs"][name]["nodes"][inner[1]] if inner else {}
        ways = [way for way in ("next", "approved", "rejected") if way in node]
        if ways:
            place = (*_origin(before, found.moved), ways[0])
            message = f"a node that stands for a graph leads nowhere, so it has no `{ways[0]}`"
            fix = f"take it away, or write several nodes: `{before[-1]}: {{nodes: {{…}}}}`"
            yield document.diagnostic("L102", message, place, fix=fix, key=True)
            found.data["graphs"][name]["nodes"] = {inner[1]: {k: v for k, v in node.items() if k not in ways}}


def _origin(place: DocumentPath, moved: Mapping[DocumentPath, DocumentPath]) -> DocumentPath:
    """Where something inside a moved graph was written, all graphs around it taken into account."""
    back = {now: before for before, now in moved.items()}
    length = len(place)
    while length:
        if place[:length] in back:
            place = (*back[place[:length]], *place[length:])
            length = len(place)
        else:
            length -= 1
    return place


def _below(places: Mapping[DocumentPath, T], moved: Mapping[DocumentPath, DocumentPath]) -> dict[DocumentPath, T]:
    """What is known of places in graphs that were moved, by the places that they have now."""
    found: dict[DocumentPath, T] = {}
    for path, place in places.items():
        now = path
        length = 1
        while length <= len(now):
            if now[:length] in moved:
                now, length = (*moved[now[:length]], *now[length:]), 0
            length += 1
        if now != path:
            found[now] = place
    return found
