"""Graphs as YAML text: the shortest form that is read as the same graph.

Loading what `to_yaml` gives and dumping it again gives the same text, and plans of the two have the same hash. What a
graph does not keep is lost: comments, and defaults of a document, which are in its activities then.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from loom_dsl.documents.yaml_writer import Rows, write_yaml
from loom_dsl.fields import format_duration, parse_duration
from loom_dsl.graph.graph import Body, Graph
from loom_dsl.graph.nodes import NODE_KINDS
from loom_dsl.text.canonical import Json

_HEAD = (
    "loom",
    "kind",
    "name",
    "version",
    "doc",
    "input",
    "state",
    "permissions",
    "approvals",
    "agents",
    "start",
    "on_abort",
)
_FIRST = ("doc", "phase", "state", "only_while", "mutex", "emit", *NODE_KINDS, "with")
_LAST = ("write", "compensate", "max_visits", "exhausted", "deadline", "catch", "next")
_DURATIONS = ("timeout", "heartbeat", "initial", "longest", "after", "max_outage")
_TIMED = ("retry", "deadline", "timer", "compensate")
_SHORT = {"fail": "message", "event": "name", "timer": "after", "join": "mode"}
"""Kinds that need no mapping to say one thing: kind → the field that it is."""


def to_yaml(graph: Graph) -> str:
    """Write a graph as a document.

    Args:
        graph: The graph.

    Returns:
        YAML in the shortest form that is read as the same graph; comments and `defaults` are lost.

    Raises:
        DocumentError: It holds half of a surrogate pair, which no document can.
    """
    data = _body(graph, graph.dump())
    if graph.graphs:
        data["graphs"] = Rows({name: _body(body, data["graphs"][name]) for name, body in graph.graphs.items()})
    return write_yaml(data)


def _body(body: Body, dumped: Mapping[str, Any]) -> Rows:
    given = {key: value for key, value in dumped.items() if key != "start"}
    if body.start != next(iter(body.nodes)):
        given["start"] = body.start
    for group in ("input", "state"):
        if group in given:
            given[group] = {name: _short({"type": "any"} | field, "type") for name, field in given[group].items()}
    given["nodes"] = Rows({name: _node(node) for name, node in given["nodes"].items()})
    return Rows(_ordered(given, _HEAD, ("nodes", "graphs")))


def _node(node: Mapping[str, Any]) -> dict[str, Json]:
    given = _timed(node)
    for part in _TIMED:
        if part in given:
            given[part] = _timed(given[part])
    if "retry" in given.get("compensate", {}):
        given["compensate"]["retry"] = _timed(given["compensate"]["retry"])
    for kind, field in _SHORT.items():
        if kind in given:
            given[kind] = _short({"mode": "all"} if kind == "join" and not given[kind] else given[kind], field)
    if "cancel" in given and len(given["cancel"]) == 1:
        given["cancel"] = given["cancel"][0]
    if given.get("deadline") == {"after": None}:
        given["deadline"] = "never"
    if "approval" in given:
        given["approval"] = _asking(given["approval"])
    if "next" in given:
        given["next"] = _way(given["next"])
    return _ordered(given, _FIRST, _LAST)


def _way(way: dict[str, Any]) -> Json:
    if "times" in way:
        return {"times": way["times"], "to": way["all"][0]}
    edges = [_ordered(edge, ("if",), ()) for edge in way.get("first") or way.get("each") or ()]
    if "each" in way:
        return {"each": edges}
    if "all" in way:
        return way["all"]
    return edges[0]["to"] if len(edges) == 1 and "if" not in edges[0] else edges


def _asking(approval: dict[str, Any]) -> dict[str, Json]:
    request = approval["request"]
    if isinstance(request, dict) and list(request) == ["summary"]:
        return {"ask": request["summary"], **{key: value for key, value in approval.items() if key != "request"}}
    return approval


def _short(value: dict[str, Any], field: str) -> Json:
    return value[field] if list(value) == [field] and isinstance(value[field], str) else value


def _timed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Write seconds as people do, where nothing is lost."""
    return {key: _duration(value) if key in _DURATIONS else value for key, value in fields.items()}


def _duration(value: Json) -> Json:
    if not isinstance(value, float):
        return value
    try:
        text = format_duration(value)
        return text if parse_duration(text) == value else value
    except (ValueError, OverflowError):
        return value


def _ordered(given: Mapping[str, Any], first: Iterable[str], last: Iterable[str]) -> dict[str, Any]:
    late = set(last)
    order = [*first, *(key for key in given if key not in late), *last]
    return {key: given[key] for key in dict.fromkeys(order) if key in given}
