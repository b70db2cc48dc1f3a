"""Checks of what a job may wait for, hold and take back: deadlines, heartbeats, sizes, compensation."""

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.map_results import ADVICE, unreadable
from loom_dsl.graph.checks.slots import list_of, needed, slots_of, whole_number
from loom_dsl.graph.checks.unit import CheckContext, Finding, Unit
from loom_dsl.graph.edges import MAX_THREADS, Node
from loom_dsl.graph.nodes import (
    Activity,
    Approval,
    Branch,
    Cancel,
    End,
    EventNode,
    Fail,
    Join,
    LlmNode,
    Map,
    Race,
    Recurse,
    Set,
    Subgraph,
    Timer,
)
from loom_dsl.text.canonical import canonical_json

LONG = 60.0
"""Seconds that an activity may run without telling that it is alive, before the checks ask for a heartbeat."""
MAX_ITEMS = 1_000
MAX_VALUE = 256 * 1024
"""Bytes: what one value of a node may have as JSON, so that a payload holds it."""
_NOTHING_WAITS = (Branch, Set, End, Fail, Recurse, Cancel, Race)
_NO_EFFECT = (*_NOTHING_WAITS, Join, Timer, Approval, EventNode, LlmNode)


def check_durability(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph: L118, L140, L141, L143 to L147."""
    for key, node in unit.body.nodes.items():
        yield from _deadline(unit, checked, key, node)
        yield from _heartbeat(unit, key, node)
        yield from _held_by_itself(unit, key, node)
        times = whole_number(node.next.times)
        if times is not None and times > MAX_THREADS:
            message = f"`{key}` goes on {times:,} times at once; a split makes at most {MAX_THREADS:,} tokens"
            yield Finding("L142", message, unit.at(key, "next", "times"), "write less, or use a `map`")
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


def _deadline(unit: Unit, checked: CheckContext, key: str, node: Node) -> Iterator[Finding]:
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
    return "a human" if isinstance(node, Approval) else "an event" if isinstance(node, EventNode) else ""


def _timed(unit: Unit, key: str) -> bool:
    """Whether the node is an arm of a race against time."""
    nodes = unit.body.nodes
    for race in nodes.values():
        if isinstance(race, Race) and key in race.race:
            arms = [nodes[arm] for arm in race.race if arm in nodes]
            if any(isinstance(arm, Timer) or (arm.deadline and arm.deadline.to) for arm in arms):
                return True
    return False


def _held_by_itself(unit: Unit, key: str, node: Node) -> Iterator[Finding]:
    """L135: what must have happened before the node can only happen after it. L136: it cancels itself."""
    if isinstance(node, Cancel) and key in node.cancel:
        message = f"`{key}` cancels itself: the token that is there goes on all the same"
        yield Finding("L136", message, unit.at(key, "cancel", node.cancel.index(key)), "remove it from the list")
    if node.only_while is None:
        return
    flow = unit.flow
    before = flow.reach([name for name in flow.entries if name != key], stop=frozenset({key})) - {key}
    for name in needed(node.only_while):
        if name in unit.body.nodes and name not in before and name in flow.reached:
            where = "has its own result" if name == key else f"has a result of `{name}`, to which it leads alone"
            message = f"`{key}` waits until it {where}, so it waits for ever"
            yield Finding("L135", message, unit.at(key, "only_while"), "wait for what another branch does")
            return


def _heartbeat(unit: Unit, key: str, node: Node) -> Iterator[Finding]:
    if isinstance(node, Activity) and node.heartbeat is not None and isinstance(node.timeout, float):
        if node.heartbeat >= node.timeout:
            message = f"the heartbeat of `{key}` may be {node.heartbeat:g} s late, and its time is over by then"
            fix = f"write less than the timeout of {node.timeout:g} s, or leave it out"
            yield Finding("L137", message, unit.at(key, "heartbeat"), fix)
        return
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


def _size(place: DocumentPath, value: Any) -> Iterator[Finding]:
    if not isinstance(value, list | dict | str):
        return
    long = next(_long_lists(value, place), None)
    if long is not None:
        message = f"the list has {long[1]:,} items; a graph holds at most {MAX_ITEMS:,}"
        yield Finding("L143", message, long[0], "read it from the input, or by an activity")
        return
    size = len(canonical_json(value).encode("utf-8", "surrogatepass"))
    if size > MAX_VALUE:
        message = f"the value has {size:,} bytes as JSON; one value holds at most {MAX_VALUE:,}"
        yield Finding("L143", message, place, "keep it in a file or a database, and let an activity read it")


def _long_lists(value: Any, place: DocumentPath) -> Iterator[tuple[DocumentPath, int]]:
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        yield place, len(value)
    elif isinstance(value, list | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _long_lists(item, (*place, key))


# L148 and L149: a node holds a mutex while a graph runs in which another waits for the same one, or for one that is
# held by who waits for the first.


Waits = dict[str, tuple[Unit, str]]
"""By the locks that are waited for: a node that does."""
Orders = dict[tuple[str, str], tuple[Unit, str]]
"""By a lock that is held and one that is waited for meanwhile: a node that waits."""


def lock_of(node: Node) -> str | None:
    """The lock that a node takes; None where it takes none, or where its name is computed and may be any."""
    return None if node.mutex is None or "${" in node.mutex else node.mutex


def check_locks(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph: L148."""
    for key, called in _runs_inside(unit, checked):
        node = unit.body.nodes[key]
        held = lock_of(node)
        if held is None or "deadlock" in node.catch:
            continue
        for waiting, inner in _waiting(called, held, checked):
            graph = inner.name or checked.graph.name
            message = f"`{key}` holds `{held}` until its graph is done, and `{waiting}` in `{graph}` waits for it"
            yield Finding("L148", message, unit.at(key, "mutex"), "give the mutex to one of the two only")
            break


def _waiting(start: Unit, name: str, checked: CheckContext) -> Iterator[tuple[str, Unit]]:
    """The nodes that take a mutex where a graph runs, in it or in those that it runs inside itself."""
    seen, queue = {start.name}, [start]
    while queue:
        unit = queue.pop(0)
        for key, node in unit.body.nodes.items():
            # Who catches the code says what is to happen when the lock never comes.
            if lock_of(node) == name and key in unit.flow.reached and "deadlock" not in node.catch:
                yield key, unit
        for _, called in _runs_inside(unit, checked):
            if called.name not in seen:
                seen.add(called.name)
                queue.append(called)


def _runs_inside(unit: Unit, checked: CheckContext) -> Iterator[tuple[str, Unit]]:
    """The nodes that run a graph of the document in the same job; a job of its own has locks of its own."""
    for call in unit.calls():
        node, called = unit.body.nodes[call.key], checked.find(call.name)
        apart = isinstance(node, Subgraph) and node.child
        if called is not None and not apart and call.key in unit.flow.reached:
            yield call.key, called


def check_lock_order(checked: CheckContext) -> Iterator[Finding]:
    """Check the document: L149, once for each two locks."""
    locks, told = _Locks(checked), set[tuple[str, str]]()
    for unit in checked.units.values():
        for first, second in _together(unit, checked):
            ones, others = locks.orders(*first), locks.orders(*second)
            for held, wanted in ones:
                if (wanted, held) in others and (held, wanted) not in told:
                    told |= {(held, wanted), (wanted, held)}
                    yield _crossed(held, wanted, ones[held, wanted], others[wanted, held])


def _crossed(held: str, wanted: str, one: tuple[Unit, str], other: tuple[Unit, str]) -> Finding:
    message = (
        f"`{one[1]}` waits for `{wanted}` while `{held}` is held, and beside it "
        f"`{other[1]}` may wait for `{held}` while `{wanted}` is held"
    )
    fix = "take the two in the same order everywhere, or hold a third one around both"
    return Finding("L149", message, one[0].at(one[1], "mutex"), fix)


def _together(unit: Unit, checked: CheckContext) -> Iterator[tuple[tuple[Unit, str], tuple[Unit, str]]]:
    """Nodes that run graphs and at which tokens may be at the same time: in branches, or in items of a map."""
    inside = dict(_runs_inside(unit, checked))
    items = any(call.parallel for call in checked.callers[unit.name])
    for first, second in combinations_with_replacement(inside, 2):
        lock = lock_of(unit.body.nodes[first])
        if lock is not None and lock == lock_of(unit.body.nodes[second]):
            continue  # it keeps them apart
        if items or any(split.parallel(first, second) for split in unit.splits):
            yield (unit, first), (unit, second)


class _Locks:
    """Which locks are waited for below a node, and which are held meanwhile. Looked up once for each graph."""

    def __init__(self, checked: CheckContext) -> None:
        self._inside: dict[str, dict[str, Unit]] = {}
        self._waits: dict[str, Waits] = {}
        for unit in checked.units.values():
            ready = {key for key, node in unit.body.nodes.items() if _is_ready(node)}
            calls = dict(_runs_inside(unit, checked))
            self._inside[unit.name] = {key: called for key, called in calls.items() if key not in ready}
        self._own = {unit.name: _own_waits(unit) for unit in checked.units.values()}
        self._orders: dict[str, Orders] = {}

    def orders(self, unit: Unit, key: str) -> Orders:
        """Say what is held while something is waited for, at a node that runs a graph and below it."""
        called = self._inside[unit.name].get(key)
        return {} if called is None else {**self._below(called), **self._at(unit, key)}

    def _at(self, unit: Unit, key: str) -> Orders:
        lock, called = lock_of(unit.body.nodes[key]), self._inside[unit.name][key]
        if lock is None:
            return {}
        return {(lock, name): where for name, where in self._waited(called).items() if name != lock}

    def _below(self, unit: Unit) -> Orders:
        if unit.name not in self._orders:
            found: Orders = {}
            for one in self._closure(unit):
                for key in self._inside[one.name]:
                    found |= self._at(one, key)
            self._orders[unit.name] = found
        return self._orders[unit.name]

    def _waited(self, unit: Unit) -> Waits:
        if unit.name not in self._waits:
            found: Waits = {}
            for one in self._closure(unit):
                found = self._own[one.name] | found
            self._waits[unit.name] = found
        return self._waits[unit.name]

    def _closure(self, unit: Unit) -> list[Unit]:
        """A graph and those that it runs inside itself, the nearest first."""
        found = [unit]
        for one in found:
            found += [other for other in dict.fromkeys(self._inside[one.name].values()) if other not in found]
        return found


def _own_waits(unit: Unit) -> Waits:
    nodes = [(key, node) for key, node in unit.body.nodes.items() if key in unit.flow.reached and not _is_ready(node)]
    return {lock: (unit, key) for key, node in reversed(nodes) if (lock := lock_of(node)) is not None}


def _is_ready(node: Node) -> bool:
    """Whether a node says what is to happen when a lock never comes."""
    return "deadlock" in node.catch or (node.deadline is not None and node.deadline.to is not None)
