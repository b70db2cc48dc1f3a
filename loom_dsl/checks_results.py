"""L122: an expression reads the result of a node that may not have run when it is looked at."""

from collections.abc import Iterator
from functools import reduce
from operator import and_, or_

from loom_dsl.checks_expressions import WITHOUT_RESULT, expressions_of
from loom_dsl.checks_flow import Flow, Way
from loom_dsl.checks_slots import slots_of
from loom_dsl.checks_unit import Finding, Unit
from loom_dsl.nodes_flow import Approval, Join


def check_results(unit: Unit) -> Iterator[Finding]:
    """Check one graph."""
    bits = {key: 1 << index for index, key in enumerate(unit.body.nodes)}
    known = {key for key, node in unit.body.nodes.items() if not isinstance(node, WITHOUT_RESULT)}
    sure = _sure(unit.flow, bits)
    for key, node in unit.body.nodes.items():
        if key not in unit.flow.reached:
            continue
        for slot in slots_of(node):
            here = sure[key] | bits[key] if slot.after else sure[key]
            for place, reading in expressions_of(slot):
                for reference in reading.references:
                    root, name = reference.path[0], reference.path[1] if len(reference.path) > 1 else ""
                    if root == "nodes" and name in known and not reference.soft and not bits[name] & here:
                        message = f"`{name}` may not have run when `{key}` reads its result"
                        fix = f"lead every way here through `{name}`, or read it with `get(nodes, '{name}')`"
                        yield Finding("L122", message, unit.at(key, *place), fix)


def _sure(flow: Flow, bits: dict[str, int]) -> dict[str, int]:
    """The nodes that have a result whenever a token comes to a node, as bits, by node."""
    everything = (1 << len(bits)) - 1
    sure = dict.fromkeys(bits, everything)
    queue = [key for key in bits if key in flow.reached]
    waiting = set(queue)
    while queue:
        key = queue.pop(0)
        waiting.discard(key)
        now = _arriving(flow, key, sure, bits)
        if now == sure[key]:
            continue
        sure[key] = now
        for way in flow.out[key]:
            if way.target not in waiting:
                waiting.add(way.target)
                queue.append(way.target)
    return sure


def _arriving(flow: Flow, key: str, sure: dict[str, int], bits: dict[str, int]) -> int:
    over: dict[str, int] = {}
    for way in flow.into[key]:
        if way.source in flow.reached:
            found = _carried(flow, way, sure, bits)
            over[way.source] = over[way.source] & found if way.source in over else found
    if key in flow.entries:
        return 0
    node = flow.body.nodes[key]
    if isinstance(node, Join) and (node.join.mode, node.join.need, node.join.threads) == ("all", None, None):
        return reduce(or_, over.values(), 0)
    return reduce(and_, over.values(), (1 << len(bits)) - 1)


def _carried(flow: Flow, way: Way, sure: dict[str, int], bits: dict[str, int]) -> int:
    """What is sure over an edge: the node that it leaves has a result only where it was done."""
    if way.kind in ("first", "each", "all"):
        return sure[way.source] | bits[way.source]
    # Nobody's answer in time is a result of an approval, too.
    if way.kind == "deadline" and isinstance(flow.body.nodes[way.source], Approval):
        return sure[way.source] | bits[way.source]
    return sure[way.source]
