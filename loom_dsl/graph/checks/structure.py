"""Checks of a graph's structure: starts, targets, ends, cycles, choices, recursion."""

import builtins
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from loom_dsl import errors
from loom_dsl.errors import FunctionFailed
from loom_dsl.graph.checks.flow import ENDS
from loom_dsl.graph.checks.unit import CheckContext, Finding, Unit
from loom_dsl.graph.edges import Node
from loom_dsl.graph.nodes import (
    Activity,
    AgentNode,
    Approval,
    Cancel,
    End,
    EventNode,
    Fail,
    Loop,
    Map,
    Race,
    Subgraph,
    ToolCallNode,
)
from loom_dsl.text.abridgement import abridge
from loom_dsl.text.wording import strange_letter

WAITS = (Approval, EventNode)
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


def check_structure(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check the structure of one graph."""
    yield from _starts(unit)
    yield from _targets(unit, checked)
    for key, node in unit.body.nodes.items():
        yield from _ways_out(unit, key, node)
        yield from _choice(unit, key, node)
    for key in _unreached(unit):
        yield Finding("L104", f"nothing leads to `{key}`", unit.at(key), "lead an edge to it or remove it", True)
    yield from _ends(unit)
    yield from _cycles(unit)
    yield from _detached(unit)


def _unreached(unit: Unit) -> list[str]:
    """The nodes that no token comes to, without those that only such a node leads to, or what is told otherwise does.

    A `next` that is never taken, and a target that is nearly the node's name, are findings of their own.
    """
    nodes, flow = unit.body.nodes, unit.flow
    if unit.body.start not in nodes:
        return []
    never = [to for node in nodes.values() if isinstance(node, (*ENDS, Race)) for to in node.next.targets()]
    meant = {near for way in flow.ways if way.target not in nodes for near in _near(way.target, nodes)}
    known = flow.reached | flow.reach(name for name in (*never, *meant) if name in nodes)
    left = [key for key in nodes if key not in known]
    first = [key for key in left if not any(way.source in left and way.source != key for way in flow.into[key])]
    covered, found = flow.reach(first), list(first)
    for key in left:
        if key not in covered:
            found.append(key)
            covered |= flow.reach((key,))
    return [key for key in left if key in found]


def _near(name: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(name, list(known), 1)


def _starts(unit: Unit) -> Iterator[Finding]:
    body = unit.body
    if body.nodes and body.start not in body.nodes:
        fix = did_you_mean(body.start, body.nodes, "nodes")
        yield Finding("L101", f"start is `{body.start}`, which is not a node", (*unit.place, "start"), fix)
    if body.on_abort is not None and body.on_abort not in body.nodes:
        fix = did_you_mean(body.on_abort, body.nodes, "nodes")
        yield Finding("L102", f"there is no node `{body.on_abort}`", (*unit.place, "on_abort"), fix)


def _targets(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
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
        if checked.find(call.name) is None and call.name not in checked.library and "${" not in call.name:
            known = [*checked.graph.graphs, checked.graph.name, *checked.library]
            message = f"`{call.key}` runs the graph `{call.name}`, which is not known"
            stem = call.name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
            declare = f"declare the file, `graphs: {{{stem}: {{file: {call.name}}}}}`, and run `{stem}`"
            fix = declare if call.name != stem else did_you_mean(call.name, known, "graphs")
            yield Finding("L102", message, call.place, fix)


def _meant(target: str, nodes: Mapping[str, Node]) -> str:
    """Which node an edge may mean; other languages have ends that are no nodes."""
    if "${" in target:
        return "a target is not computed; write a choice: `next: [{if: CONDITION, to: a}, {to: b}]`"
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


def check_recursion(checked: CheckContext) -> Iterator[Finding]:
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


def _can_end(checked: CheckContext, name: str, ending: set[str]) -> bool:
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


def _comes_back(checked: CheckContext, unit: Unit, name: str) -> bool:
    return any(around.name == unit.name for around in checked.around(name))


# The codes that a node may fail with besides those that functions, tools and `fail` nodes give themselves.


ENGINE_CODES: Mapping[str, str] = {
    "max_visits": "The node was entered more often than its `max_visits`, and it has no `exhausted`.",
    "max_rounds": "The loop would need more rounds than its `max`.",
    "join_deadlock": "The join waits for a token that cannot come.",
    "deadlock": "The token waits for an `only_while` or a `mutex`, and nothing is left that could let it in.",
    "approval_expired": "Nobody answered in time, and no `deadline` says where to go.",
    "cancelled": "What the node did was cancelled.",
    "activity_failed": "The activity failed, and nothing says how.",
    "arguments_too_large": "The arguments are larger than what the engine carries to an activity.",
    "internal": "Something failed in a way that Loom does not know; the worker's log has the traceback.",
    "not_run": "The activity, or the job below this one, could not be started.",
    "child_lost": "The job below this one was terminated, or the server does not know it any more.",
    "endless_loop": "The job below this one entered a million nodes with nothing from outside.",
    "invalid_input": "What the job below this one was given is not what its graph's `input` declares.",
    "state_too_large": "What the job below this one holds is more than a run can hand on.",
    "failed": "The job below this one, or the graph inside this one, came to a `fail` without a code.",
    "max_iterations": "The agent reached the limit `max_iterations`.",
    "max_tool_calls": "The agent reached the limit `max_tool_calls`.",
    "max_tool_rounds": "The agent reached the limit `max_tool_rounds`.",
    "max_cost": "The agent reached the limit `max_cost`.",
    "max_run_duration": "The agent reached the limit `max_run_duration`.",
}
"""Codes that come from the engine and from no class of `errors`, with what each means."""

CLASSES: Mapping[str, str] = {
    name: found.code
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, errors.LoomError)
}
"""The codes of Loom's own errors, by the names of their classes."""

CODES: frozenset[str] = frozenset({*ENGINE_CODES, *CLASSES.values()})
"""Every code that Loom itself gives."""


# L119: a `catch` names a code that no error can have.


ANY = "any"
_CODE = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_GRAPHS = (Map, Loop, Subgraph)
_CALLS = (Activity, ToolCallNode, AgentNode, *_GRAPHS)
"""Nodes below which code of users runs, whose errors may have codes of their own."""
_EVERY = frozenset({"*", "all", "default", "else", "error", "States.ALL", "Exception", "BaseException"})
"""How other languages say "any error"."""
_NEAR, _VERY_NEAR = 0.85, 0.92
"""How like a known code another must be to be taken for it, where codes of users are known and where they are not."""


def check_catches(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph."""
    if checked.shipped:
        return
    codes: _Codes | None = None
    for key, node in unit.body.nodes.items():
        for name in node.catch if not _anything(node) else ():
            codes = codes or _codes_of(checked)
            if name != ANY and codes.wrong(name, node):
                message = f"`{key}` catches `{name}`, and no error has that code"
                yield Finding("L119", message, unit.at(key, "catch", name), codes.advice(name, node), True)


def _anything(node: Node) -> bool:
    """Whether the node may fail with a code that nobody knows: that of a `fail` in a graph not yet written."""
    return isinstance(node, Subgraph) and not node.called


@dataclass(frozen=True)
class _Codes:
    """What is known of the codes in a document.

    Attributes:
        failing: Those of its `fail` nodes.
        computed: Whether one of these is computed, so that it may be anything.
        raised: Codes of the classes of users' errors, empty where a class has none, by its name.
        asked: Whether users' modules were looked at.
    """

    failing: frozenset[str]
    computed: bool
    raised: Mapping[str, str]
    asked: bool

    def wrong(self, name: str, node: Node) -> bool:
        if name in self.known(node) or (self.computed and isinstance(node, _GRAPHS)):
            return False
        if not isinstance(node, _CALLS) or not _CODE.fullmatch(name):
            return True
        return bool(self.near(name, node, _NEAR if self.asked else _VERY_NEAR))

    def known(self, node: Node) -> set[str]:
        own = {code for code in self.raised.values() if code} if isinstance(node, _CALLS) else set()
        return {*CODES, ANY, *own, *(self.failing if isinstance(node, _GRAPHS) else ())}

    def near(self, name: str, node: Node, cutoff: float) -> str:
        plain = {_plain(code): code for code in sorted(self.known(node))}
        found = difflib.get_close_matches(_plain(name), plain, 1, cutoff)
        return plain[found[0]] if found else ""

    def advice(self, name: str, node: Node) -> str:
        if name in _EVERY:
            return f"write `{ANY}`, which stands for every error"
        if name == "deadline":
            return "a time that is over has an edge of its own: `deadline: {after: 4h, to: NODE}`"
        code = self.raised.get(name) or CLASSES.get(name)
        if code:
            return f"write `{code}`, which is the code of `{name}`"
        plain = FunctionFailed.code
        if name in self.raised:
            return f'give the class an attribute, such as `code = "{_snake(name)}"`, or catch `{plain}`'
        if _is_exception(name):
            return f"an exception without an attribute `code` has the code `{plain}`; catch that, or `{ANY}`"
        near = self.near(name, node, 0.75)
        if near:
            return f"did you mean `{near}`?"
        own = f"`{plain}`, " if isinstance(node, _CALLS) else ""
        return f"codes are small letters, digits, `_`, `-` and `.`; such as {own}`timeout`, or `{ANY}` for all"


def _codes_of(checked: CheckContext) -> _Codes:
    nodes = [node for unit in checked.units.values() for node in unit.body.nodes.values()]
    fails = [node.fail.code for node in nodes if isinstance(node, Fail)]
    raised: dict[str, str] = {}
    asked = False
    for node in nodes:
        contract = checked.contract(node)
        if contract is not None and contract.raises is not None:
            raised |= contract.raises
            asked = True
    literal = {str(code) for code in fails if "${" not in str(code)}
    return _Codes(frozenset(literal), len(literal) < len(set(map(str, fails))), raised, asked)


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return (isinstance(found, type) and issubclass(found, BaseException)) or name.endswith(("Error", "Exception"))


def _plain(name: str) -> str:
    """A code as its letters and digits alone, so that `FunctionFailed` is like `function_failed`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
