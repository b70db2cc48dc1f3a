"""Checks of what a job may wait for, hold and take back: deadlines, heartbeats, sizes, compensation."""

from collections.abc import Iterator
from typing import Any

from loom_dsl.canonical import canonical_json
from loom_dsl.checks_reading import list_of
from loom_dsl.checks_slots import slots_of
from loom_dsl.checks_unit import Checked, Finding, Place, Unit
from loom_dsl.map_readers import ADVICE, unreadable
from loom_dsl.nodes_flow import Approval, Branch, Cancel, End, Event, Fail, Join, Race, Recurse, Set, Timer
from loom_dsl.nodes_work import Activity, Llm, Map, Subgraph
from loom_dsl.parts import Node

LONG = 60.0
"""Seconds that an activity may run without telling that it is alive, before the checks ask for a heartbeat."""
MOST_ITEMS = 1_000
LARGEST_VALUE = 256 * 1024
"""Bytes: what one value of a node may have as JSON, so that a payload holds it."""
_NOTHING_WAITS = (Branch, Set, End, Fail, Recurse, Cancel, Race)
_NO_EFFECT = (*_NOTHING_WAITS, Join, Timer, Approval, Event, Llm)


def check_durability(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check one graph: L118, L140, L141, L143 to L147."""
    for key, node in unit.body.nodes.items():
        yield from _deadline(unit, checked, key, node)
        yield from _heartbeat(unit, key, node)
        yield from _refusal(unit, key, node)
        if node.compensate is not None and isinstance(node, _NO_EFFECT):
            message = f"`{key}` has no effect that could be taken back"
            yield Finding("L145", message, unit.at(key, "compensate"), "move it to the node that has one", True)
        if node.exhausted is not None and node.max_visits is None:
            message = f"`{key}` says where to go when it is exhausted, but not when it is"
            yield Finding("L147", message, unit.at(key, "exhausted"), "add `max_visits`")
        yield from _readers(unit, key, node)
        for slot in slots_of(node):
            if slot.kind == "mapping":
                yield from _size(unit.at(key, *slot.place), slot.value)
    for group, fields in (("input", unit.body.input), ("state", unit.body.state)):
        for name, field in fields.items():
            yield from _size((*unit.place, group, name, "default"), field.default)


def _deadline(unit: Unit, checked: Checked, key: str, node: Node) -> Iterator[Finding]:
    if node.deadline is not None:
        if isinstance(node, _NOTHING_WAITS) and node.mutex is None and node.only_while is None:
            fix = "add a timer to its arms" if isinstance(node, Race) else "give it to a node that waits or works"
            message = f"`{key}` has a deadline, but a token never waits there"
            yield Finding("L146", message, unit.at(key, "deadline"), fix, True)
        return
    if isinstance(node, Approval) and isinstance(node.approval.policy, dict) and "expires" in node.approval.policy:
        return
    awaited = _awaited(node)
    if awaited and not checked.shipped and not _timed(unit, key):
        message = f"`{key}` waits for {awaited}, and nothing bounds that"
        fix = "add `deadline: {after: 4h, to: NODE}`, or `deadline: never` when that is meant"
        yield Finding("L140", message, unit.at(key), fix, True)


def _awaited(node: Node) -> str:
    if isinstance(node, Subgraph):
        return "" if node.called else "a graph that is not written yet"
    return "a human" if isinstance(node, Approval) else "an event" if isinstance(node, Event) else ""


def _timed(unit: Unit, key: str) -> bool:
    """Whether the node is an arm of a race against time."""
    nodes = unit.body.nodes
    for race in nodes.values():
        if isinstance(race, Race) and key in race.race:
            arms = [nodes[arm] for arm in race.race if arm in nodes]
            if any(isinstance(arm, Timer) or (arm.deadline and arm.deadline.to) for arm in arms):
                return True
    return False


def _heartbeat(unit: Unit, key: str, node: Node) -> Iterator[Finding]:
    if not isinstance(node, Activity) or node.heartbeat is not None or node.carrier == "local":
        return
    if isinstance(node.timeout, float) and node.timeout > LONG:
        message = f"`{key}` may run for {node.timeout:g} s, and a lost worker is noticed only after that"
        fix = "add `heartbeat: 20s`, and let the activity tell that it is alive"
        yield Finding("L141", message, unit.at(key, "timeout"), fix)


def _refusal(unit: Unit, key: str, node: Node) -> Iterator[Finding]:
    if isinstance(node, Subgraph) and not node.called and not {"graph_refused", "any"} & set(node.catch):
        message = f"the graph that `{key}` runs may be refused, and then the whole job fails"
        fix = "add `catch: {graph_refused: NODE}`, such as the node that writes it, which then is told why"
        yield Finding("L118", message, unit.at(key, "graph"), fix, True)


def _readers(unit: Unit, key: str, node: Node) -> Iterator[Finding]:
    items = list_of(node.map.over) if isinstance(node, Map) else None
    for found in unreadable(unit.body, key, len(items or ()), {}):
        yield Finding("L144", found.message(key, len(items or ())), unit.at(found.node, *found.place), ADVICE)


def _size(place: Place, value: Any) -> Iterator[Finding]:
    if not isinstance(value, list | dict | str):
        return
    long = next(_long_lists(value, place), None)
    if long is not None:
        message = f"the list has {long[1]:,} items; a graph holds at most {MOST_ITEMS:,}"
        yield Finding("L143", message, long[0], "read it from the input, or by an activity")
        return
    size = len(canonical_json(value).encode("utf-8", "surrogatepass"))
    if size > LARGEST_VALUE:
        message = f"the value has {size:,} bytes as JSON; one value holds at most {LARGEST_VALUE:,}"
        yield Finding("L143", message, place, "keep it in a file or a database, and let an activity read it")


def _long_lists(value: Any, place: Place) -> Iterator[tuple[Place, int]]:
    if isinstance(value, list) and len(value) > MOST_ITEMS:
        yield place, len(value)
    elif isinstance(value, list | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _long_lists(item, (*place, key))
