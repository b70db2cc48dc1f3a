"""L148: a node holds a mutex while a graph runs in which another node waits for the same one."""

from collections.abc import Iterator

from loom_dsl.checks_unit import Checked, Finding, Unit
from loom_dsl.nodes_work import Subgraph


def check_locks(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check one graph."""
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
