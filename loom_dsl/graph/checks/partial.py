"""What can be told of a graph although parts of the document are wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from loom_dsl.expr.template import mended
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.data import writes_of
from loom_dsl.graph.checks.durability import check_durability
from loom_dsl.graph.checks.expressions import check_expressions, check_meant, check_operands
from loom_dsl.graph.checks.literals import check_literals
from loom_dsl.graph.checks.references import check_arguments_given, check_registry
from loom_dsl.graph.checks.shapes import check_shapes
from loom_dsl.graph.checks.slots import texts_of
from loom_dsl.graph.checks.structure import check_structure, did_you_mean
from loom_dsl.graph.checks.unit import CheckContext, Contracts, Finding, Resolve, Unit
from loom_dsl.graph.edges import Next, Node
from loom_dsl.graph.graph import Body, Graph, with_end
from loom_dsl.graph.nodes import AnyNode, Branch, End, Fail, Recurse, kind_of
from loom_dsl.graph.state import InputField, StateField
from loom_dsl.text.canonical import Json

_NODE: TypeAdapter[Node] = TypeAdapter(AnyNode)


_FIELDS: Mapping[str, TypeAdapter[Any]] = {"input": TypeAdapter(InputField), "state": TypeAdapter(StateField)}


@dataclass
class _Broken:
    """What of a document cannot be read.

    Attributes:
        places: Where it is; nothing is told about what is there.
        texts: Texts in which it is only some of the expressions.
        nodes: The nodes that stand-ins stand for, by the graph that they are in; nothing is told of their results.
        open: The graphs whose `input` or `state` is not known.
    """

    places: list[DocumentPath] = field(default_factory=list)
    texts: list[DocumentPath] = field(default_factory=list)
    nodes: set[tuple[str, str]] = field(default_factory=set)
    open: set[tuple[str, str]] = field(default_factory=set)


def check_partly(
    data: Mapping[str, Any],
    library: Mapping[str, Graph],
    resolve: Resolve | None = None,
    contracts: Contracts | None = None,
) -> Iterator[Finding]:
    """Check a document that does not fit the schema, as far as it can be read.

    A node that cannot be read counts as one that leads wherever it names a node, and nothing is told about it.
    """
    broken = _Broken()
    graphs = data.get("graphs")
    bodies: dict[str, Body] = {}
    for name, inner in graphs.items() if isinstance(graphs, dict) else ():
        if isinstance(inner, dict) and isinstance(inner.get("nodes"), dict):
            bodies[name] = _body(Body, with_end(inner), name, broken)
        else:
            library = {**library, name: Graph.model_construct(name=name, start="", nodes={})}
    name, agents = data.get("name"), data.get("agents", {})
    head = {"name": name if isinstance(name, str) else "", "graphs": bodies}
    graph = _body(Graph, data, "", broken, **head, agents=agents if isinstance(agents, dict) else {})
    checked = CheckContext(graph, library, resolve, contracts, whole=False)
    for unit in checked.units.values():
        for finding in _findings(unit, checked):
            hidden = any(finding.place[: len(place)] == place for place in broken.places)
            # A text is read without its wrong holes, so what the others read can be told.
            hidden |= finding.code != "L121" and any(finding.place[: len(text)] == text for text in broken.texts)
            if not hidden and not _guessed(unit, checked, finding, broken):
                yield finding


def _findings(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """What does not depend on all of the document: not what is never used, may not have run, or joins what."""
    yield from check_structure(unit, checked)
    yield from check_expressions(unit, checked)
    yield from check_literals(unit, checked)
    yield from check_operands(unit, checked)
    yield from check_meant(unit, checked)
    yield from check_shapes(unit, checked)
    yield from check_arguments_given(unit, checked)
    yield from check_durability(unit, checked)
    yield from check_registry(unit, checked)
    variables = checked.variables(unit.name)
    for key, node in unit.body.nodes.items():
        for name, place, _ in writes_of(node):
            if name not in variables and not checked.turns:
                message = f"`{key}` writes `{name}`, which the graph's `state` does not have"
                fix = did_you_mean(name, variables, "fields") if variables else f"declare it: `state: {{{name}: any}}`"
                yield Finding("L121", message, unit.at(key, *place), fix, key=True, about=("state", name))


def _guessed(unit: Unit, checked: CheckContext, finding: Finding, broken: _Broken) -> bool:
    """Whether a finding depends on what cannot be read."""
    if finding.code == "L140":
        return _may_race(unit, str(finding.place[-1]), {key for graph, key in broken.nodes if graph == unit.name})
    if finding.code == "L126":
        return _may_come_from_anywhere(unit, finding) and any(graph == unit.name for graph, _ in broken.nodes)
    if finding.code != "L121":
        return False
    around = {other.name for other in checked.around(unit.name)}
    around |= {call.unit for calls in checked.callers.values() for call in calls}
    root, *names = finding.about
    if any(group == root and graph in around for graph, group in broken.open):
        return True
    if root in ("item", "index") or (root in ("turn", "agent", "limits") and not checked.turns):
        return bool(broken.nodes)  # one of them may be what gives it a value here
    return root == "nodes" and (unit.name, names[0]) in broken.nodes


def _may_race(unit: Unit, key: str, broken: set[str]) -> bool:
    """Whether what leads to a node may be a race against time: one that cannot be read, or an arm of it."""
    before = {way.source for way in unit.flow.into[key]}
    arms = {way.target for name in before for way in unit.flow.out[name] if way.kind == "race"}
    return bool((before | arms) & broken)


def _may_come_from_anywhere(unit: Unit, finding: Finding) -> bool:
    """Whether the `result` that a finding is about is that of nodes before, which may not be readable."""
    key, slot, *_ = finding.place[len(unit.place) + 1 :]
    own = slot in ("next", "write", "compensate") and not isinstance(unit.body.nodes[str(key)], Branch)
    return not own and finding.about == ("result",)


def _body(kind: Any, data: Mapping[str, Any], within: str, broken: _Broken, **more: Any) -> Any:
    place: DocumentPath = ("graphs", within) if within else ()
    raw = data.get("nodes")
    given = raw if isinstance(raw, dict) else {}
    nodes: dict[str, Node] = {}
    for key, node in given.items():
        partly: list[DocumentPath] = []
        found, wrong = _node(node, partly)
        broken.places += [(*place, "nodes", key, *path) for path in wrong]
        broken.texts += [(*place, "nodes", key, *path) for path in partly]
        if found is None:
            broken.nodes.add((within, key))
        nodes[key] = found or _stand_in(node, given)
    start, on_abort = data.get("start", next(iter(nodes), "")), data.get("on_abort")
    for key, value in (("start", start), ("on_abort", on_abort)):
        if not isinstance(value, str) and value is not None:
            broken.places.append((*place, key))
    first = start if isinstance(start, str) else next(iter(nodes), "")
    texts = {"start": first, "on_abort": on_abort if isinstance(on_abort, str) else None}
    fields = {group: _fields(group, data.get(group, {}), within, broken) for group in _FIELDS}
    return kind.model_construct(nodes=nodes, **texts, **fields, **more)


def _fields(group: str, given: Any, name: str, broken: _Broken) -> dict[str, Any]:
    """The declared fields of `input` or `state`; one that cannot be read is there, and may be anything."""
    if not isinstance(given, dict):
        broken.open.add((name, group))
        return {}
    found: dict[str, Any] = {}
    for key, value in given.items():
        try:
            found[key] = _FIELDS[group].validate_python(value)
        except (ValidationError, RecursionError):
            found[key] = _FIELDS[group].validate_python("any")
    return found


def _node(given: Any, texts: list[DocumentPath]) -> tuple[Node | None, list[DocumentPath]]:
    """Read a node, with stand-ins for expressions and durations that are wrong; and the places below it of what is.

    Where only some of a value's `${…}` are wrong, their texts are added to `texts`.
    """
    try:
        return _NODE.validate_python(given), []
    except RecursionError:
        return None, [()]
    except ValidationError as error:
        details = []
        for detail in error.errors(include_url=False):
            place = _deepest(given, detail["loc"][1:])
            if detail["type"] == "L130" and place and place[-1] not in _CONDITIONS:
                given = _mended(given, place)
                texts += [(*place, *one.path) for one in detail.get("ctx", {}).get("wrong", ())]
            else:
                details.append(detail)
        # The first part of a location is the kind of the node.
        wrong = [_value_at(given, detail["loc"][1:]) for detail in details]
    places = [place for place in wrong if place is not None and place[-1] in _REPAIRS]
    if len(places) < len(wrong):
        return None, [()]
    for place in places:
        given = _replaced(given, place, _REPAIRS[place[-1]])
    try:
        return _NODE.validate_python(given), places
    except ValidationError:
        return None, [()]


_CONDITIONS = ("if", "while", "until", "only_while", "done_when", "exclusive")
_REPAIRS: Mapping[str | int, Json] = {
    **dict.fromkeys(_CONDITIONS, "has(run, 'now')"),
    "with": {"task": ""},
    "end": None,
    **dict.fromkeys(("timeout", "heartbeat", "after", "initial", "longest", "max_outage"), 1.0),
}
"""What stands in for a value that cannot be read, so that the rest of its node can."""


def _value_at(given: Any, location: tuple[str | int, ...]) -> DocumentPath | None:
    """The place below a node that an error is about; None when it is not about one value that is there."""
    place: DocumentPath = ()
    for part in location:
        inner = given[part] if isinstance(given, dict) and part in given else None
        in_list = isinstance(given, list) and isinstance(part, int) and part < len(given)
        if inner is not None or in_list:
            given, place = (given[part], (*place, part))
    there = bool(place) and place[-1] == location[-1]
    return place if there and (place[-1] in ("with", "end") or not isinstance(given, dict | list)) else None


def _deepest(given: Any, location: tuple[str | int, ...]) -> DocumentPath:
    """As much of a location as is there: a short form stands for what is left."""
    place: DocumentPath = ()
    for part in location:
        in_list = isinstance(given, list) and isinstance(part, int) and part < len(given)
        if in_list or (isinstance(given, dict) and part in given):
            given, place = given[part], (*place, part)
    return place


def _mended(given: Any, place: DocumentPath) -> Any:
    value = given
    for part in place:
        value = value[part]
    return _replaced(given, place, mended(value))


def _replaced(given: Any, place: DocumentPath, value: Json) -> Any:
    if not place:
        return value
    first, *rest = place
    if isinstance(given, list):
        return [_replaced(item, tuple(rest), value) if index == first else item for index, item in enumerate(given)]
    return {key: _replaced(item, tuple(rest), value) if key == first else item for key, item in given.items()}


_ENDS = frozenset({End.kind, Fail.kind, Recurse.kind})


def _stand_in(node: Any, nodes: Mapping[str, Any]) -> Node:
    """A node with an edge to every node that the broken one names anywhere, and with a bound."""
    if kind_of(node) in _ENDS:
        ahead = dict.fromkeys(text for _, text in texts_of(node.get("next")) if text in nodes)
        return End.model_construct(end=None, next=Next.model_construct(all=tuple(ahead)), max_visits=1)
    named = dict.fromkeys(text for _, text in texts_of(node) if text in nodes)
    return Branch.model_construct(next=Next.model_construct(all=tuple(named)), max_visits=1)
