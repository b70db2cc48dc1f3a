"""Checks of a graph's structure: starts, targets, ends, cycles, choices, recursion."""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from loom_dsl.abridgement import abridge
from loom_dsl.checks_flow import ENDS
from loom_dsl.checks_unit import Checked, Finding, Unit
from loom_dsl.nodes_flow import Approval, Cancel, End, Event, Race
from loom_dsl.nodes_work import Map
from loom_dsl.parts import Node
from loom_dsl.validation import strange_letter

WAITS = (Approval, Event)
"""Nodes that somebody outside moves on, so that a cycle through one does not run away."""


def did_you_mean(name: str, known: Iterable[str], what: str) -> str:
    """Name the nearest of the known names, or all of them (the first ten)."""
    names = list(known)
    foreign = strange_letter(name)
    if foreign:
        return f"the name has {foreign}"
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"did you mean `{near[0]}`?"
    if not names:
        return f"there are no {what}"
    return f"the {what} are {', '.join(names[:10])}" + (", …" if len(names) > 10 else "")


def check_structure(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check the structure of one graph."""
    yield from _starts(unit)
    yield from _targets(unit, checked)
    for key, node in unit.body.nodes.items():
        yield from _ways_out(unit, key, node)
        yield from _choice(unit, key, node)
        if key not in unit.flow.reached and unit.body.start in unit.body.nodes:
            yield Finding("L104", f"nothing leads to `{key}`", unit.at(key), "lead an edge to it or remove it", True)
    yield from _ends(unit)
    yield from _cycles(unit)
    yield from _detached(unit)


def _starts(unit: Unit) -> Iterator[Finding]:
    body = unit.body
    if body.start not in body.nodes:
        fix = did_you_mean(body.start, body.nodes, "nodes")
        yield Finding("L101", f"start is `{body.start}`, which is not a node", (*unit.place, "start"), fix)
    if body.on_abort is not None and body.on_abort not in body.nodes:
        fix = did_you_mean(body.on_abort, body.nodes, "nodes")
        yield Finding("L102", f"there is no node `{body.on_abort}`", (*unit.place, "on_abort"), fix)


def _targets(unit: Unit, checked: Checked) -> Iterator[Finding]:
    nodes = unit.body.nodes
    for way in unit.flow.ways:
        if way.target not in nodes and way.kind != "race":
            message = f"`{way.source}` goes to `{way.target}`, which is not a node"
            yield Finding("L102", message, unit.at(way.source, *way.place), _meant(way.target, nodes))
    for key, node in nodes.items():
        for index, target in enumerate(node.cancel if isinstance(node, Cancel) else ()):
            if target not in nodes:
                message = f"`{key}` cancels `{target}`, which is not a node"
                yield Finding("L102", message, unit.at(key, "cancel", index), did_you_mean(target, nodes, "nodes"))
        if isinstance(node, Map) and node.map.barrier is not None:
            called = checked.find(node.map.do)
            inner = called.body if called is not None else checked.library.get(node.map.do)
            if inner is not None and node.map.barrier.at not in inner.nodes:
                at = node.map.barrier.at
                message = f"the barrier of `{key}` is at `{at}`, which is not a node of `{node.map.do}`"
                fix = did_you_mean(at, inner.nodes, "nodes")
                yield Finding("L102", message, unit.at(key, "map", "barrier", "at"), fix)
    for call in unit.calls():
        if checked.find(call.name) is None and call.name not in checked.library:
            known = [*checked.graph.graphs, checked.graph.name, *checked.library]
            message = f"`{call.key}` runs the graph `{call.name}`, which is not known"
            stem = call.name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
            declare = f"declare the file, `graphs: {{{stem}: {{file: {call.name}}}}}`, and run `{stem}`"
            fix = declare if call.name != stem else did_you_mean(call.name, known, "graphs")
            yield Finding("L102", message, call.place, fix)


def _meant(target: str, nodes: Mapping[str, Node]) -> str:
    """Which node an edge may mean; other languages have ends that are no nodes."""
    if target.strip("_").lower() not in ("end", "exit", "stop", "return", "finish", "succeed", "done"):
        return did_you_mean(target, nodes, "nodes")
    ends = [key for key, node in nodes.items() if isinstance(node, End)]
    return f"did you mean `{ends[0]}`?" if ends else "an end is a node, too: add `done: {end: null}`, and go to `done`"


def _ways_out(unit: Unit, key: str, node: Node) -> Iterator[Finding]:
    if isinstance(node, ENDS) and node.next.targets():
        message = f"`{key}` ends the graph, so its `next` is never taken"
        yield Finding("L105", message, unit.at(key, "next"), "remove it")
    elif isinstance(node, Race) and node.next.targets():
        message = f"the arms of `{key}` go on by themselves, so its `next` is never taken"
        yield Finding("L105", message, unit.at(key, "next"), "give each arm a `next`, and remove this one")
    elif not isinstance(node, (*ENDS, Race, Cancel)) and not node.next.targets():
        yield Finding("L105", f"`{key}` leads nowhere", unit.at(key), "give it a `next`, or make it an `end`", True)


def _choice(unit: Unit, key: str, node: Node) -> Iterator[Finding]:
    edges = node.next.edges()
    if edges and all(edge.when is not None for edge in edges):
        message = f"`{key}` has no way out when no condition holds"
        yield Finding("L109", message, unit.at(key, "next"), "add `{to: NODE}` last")
    for index, edge in enumerate(node.next.first[:-1]):
        if edge.when is None:
            message = f"the edges of `{key}` after this one are never taken"
            yield Finding("L109", message, unit.at(key, "next", "first", index), "put it last")


def _ends(unit: Unit) -> Iterator[Finding]:
    """L106: only bounded cycles or waits are ahead. Dead ends and endless cycles have codes of their own."""
    flow, nodes = unit.flow, unit.body.nodes
    told = {key for part in _runaways(unit) for key in part}
    told |= {way.source for way in flow.ways if way.target not in nodes}
    told |= {key for key, node in nodes.items() if isinstance(node, ENDS) or not flow.out[key]}
    ahead = flow.leading_to(told)
    lost = [key for key in nodes if key in flow.reached and key not in ahead]
    if lost:
        message = f"no end can be reached from {abridge(lost, 1, '`{}`'.format)}"
        yield Finding("L106", message, unit.at(lost[0]), "lead a way out of the cycle to an `end`", True)


def _runaways(unit: Unit) -> list[list[str]]:
    nodes = unit.body.nodes
    return unit.flow.cycles(k for k, n in nodes.items() if n.max_visits is not None or isinstance(n, WAITS))


def _cycles(unit: Unit) -> Iterator[Finding]:
    for part in _runaways(unit):
        if len(part) == 1:
            message = f"`{part[0]}` goes to itself, without a bound"
            fix = "give it `max_visits`, and `exhausted` for after that"
            yield Finding("L108", message, unit.at(part[0]), fix, True)
            continue
        shown = " → ".join([f"`{key}`" for key in part[:6]]) + (" → …" if len(part) > 6 else "")
        fix = f"give one of them `max_visits`, such as `{part[0]}`, and `exhausted` for after that"
        yield Finding("L107", f"the cycle of {shown} has no bound", unit.at(part[0]), fix, True)


def _detached(unit: Unit) -> Iterator[Finding]:
    nodes, flow = unit.body.nodes, unit.flow
    for key, node in nodes.items():
        if isinstance(node, Map) and node.map.detach and key in flow.reached:
            for end in flow.reach((key,)):
                found = nodes[end]
                if isinstance(found, End) and found.terminate:
                    message = f"`{key}` goes on without its items, and `{end}` ends the graph whatever they do"
                    fix = f"let `{end}` not `terminate`, so that the graph waits for them, or do not `detach`"
                    yield Finding("L117", message, unit.at(key, "map", "detach"), fix)
                    break


def check_recursion(checked: Checked) -> Iterator[Finding]:
    """L116: graphs that come to their end only through a run of themselves."""
    ending: set[str] = set()
    while True:
        more = {name for name in checked.units if name not in ending and _can_end(checked, name, ending)}
        if not more:
            break
        ending |= more
    for name, unit in checked.units.items():
        if name in ending or not _can_end(checked, name, set(checked.units)):
            continue  # the second: it does not end for another reason, which has a code of its own
        for call in unit.calls():
            called = checked.find(call.name)
            if call.sure and called is not None and called.name not in ending and _comes_back(checked, called, name):
                message = f"`{call.key}` runs `{call.name}` inside itself, and no way to an end goes past it"
                fix = "lead another way to an `end`, by a condition before this node"
                yield Finding("L116", message, call.place, fix)
                break


def _can_end(checked: Checked, name: str, ending: set[str]) -> bool:
    unit = checked.units[name]
    blocked = set()
    for call in unit.calls():
        called = checked.find(call.name)
        if call.sure and called is not None and called.name not in ending:
            blocked.add(call.key)
    seen: set[str] = set()
    queue = list(unit.flow.entries[:1])
    while queue:
        key = queue.pop()
        if key in seen:
            continue
        seen.add(key)
        if isinstance(unit.body.nodes[key], (*ENDS, Cancel)):
            return True
        kinds = ("catch", "deadline", "exhausted") if key in blocked else None
        queue += [way.target for way in unit.flow.out[key] if kinds is None or way.kind in kinds]
    return False


def _comes_back(checked: Checked, unit: Unit, name: str) -> bool:
    return any(around.name == unit.name for around in checked.around(name))
