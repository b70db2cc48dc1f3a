"""L148 and L149: a node holds a mutex while a graph runs in which another waits for the same one, or for one that is
held by who waits for the first.
"""

from collections.abc import Iterator
from itertools import combinations_with_replacement

from loom_dsl.checks_unit import Checked, Finding, Unit
from loom_dsl.nodes_work import Subgraph
from loom_dsl.parts import Node

Waits = dict[str, tuple[Unit, str]]
"""By the locks that are waited for: a node that does."""
Orders = dict[tuple[str, str], tuple[Unit, str]]
"""By a lock that is held and one that is waited for meanwhile: a node that waits."""


def check_locks(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check one graph: L148."""
    for key, called in _runs_inside(unit, checked):
        node = unit.body.nodes[key]
        if node.mutex is None or "deadlock" in node.catch:
            continue
        for waiting, inner in _waiting(called, node.mutex, checked):
            graph = inner.name or checked.graph.name
            message = f"`{key}` holds `{node.mutex}` until its graph is done, and `{waiting}` in `{graph}` waits for it"
            yield Finding("L148", message, unit.at(key, "mutex"), "give the mutex to one of the two only")
            break


def _waiting(start: Unit, name: str, checked: Checked) -> Iterator[tuple[str, Unit]]:
    """The nodes that take a mutex where a graph runs, in it or in those that it runs inside itself."""
    seen, queue = {start.name}, [start]
    while queue:
        unit = queue.pop(0)
        for key, node in unit.body.nodes.items():
            # Who catches the code says what is to happen when the lock never comes.
            if node.mutex == name and key in unit.flow.reached and "deadlock" not in node.catch:
                yield key, unit
        for _, called in _runs_inside(unit, checked):
            if called.name not in seen:
                seen.add(called.name)
                queue.append(called)


def _runs_inside(unit: Unit, checked: Checked) -> Iterator[tuple[str, Unit]]:
    """The nodes that run a graph of the document in the same job; a job of its own has locks of its own."""
    for call in unit.calls():
        node, called = unit.body.nodes[call.key], checked.find(call.name)
        apart = isinstance(node, Subgraph) and node.child
        if called is not None and not apart and call.key in unit.flow.reached:
            yield call.key, called


def check_lock_order(checked: Checked) -> Iterator[Finding]:
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


def _together(unit: Unit, checked: Checked) -> Iterator[tuple[tuple[Unit, str], tuple[Unit, str]]]:
    """Nodes that run graphs and at which tokens may be at the same time: in branches, or in items of a map."""
    inside = dict(_runs_inside(unit, checked))
    items = any(call.parallel for call in checked.callers[unit.name])
    for first, second in combinations_with_replacement(inside, 2):
        lock = unit.body.nodes[first].mutex
        if lock is not None and lock == unit.body.nodes[second].mutex:
            continue  # it keeps them apart
        if items or any(split.parallel(first, second) for split in unit.splits):
            yield (unit, first), (unit, second)


class _Locks:
    """Which locks are waited for below a node, and which are held meanwhile. Looked up once for each graph."""

    def __init__(self, checked: Checked) -> None:
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
        lock, called = unit.body.nodes[key].mutex, self._inside[unit.name][key]
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
    return {node.mutex: (unit, key) for key, node in reversed(nodes) if node.mutex is not None}


def _is_ready(node: Node) -> bool:
    """Whether a node says what is to happen when a lock never comes."""
    return "deadlock" in node.catch or (node.deadline is not None and node.deadline.to is not None)
