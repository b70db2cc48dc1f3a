"""What the checks look at: one graph of a document, where it stands there, and what runs it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.flow import ControlFlow, Split, splits_of
from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import Body, Graph
from loom_dsl.graph.library import NAMES
from loom_dsl.graph.nodes import Activity, AgentNode, Loop, Map, Recurse, Subgraph, ToolCallNode
from loom_dsl.graph.state import StateField

Resolve = Callable[[str, str], str | None]
"""Says what is wrong with a name, or None: ``resolve("tool", "glob")``, also "model" and "activity"."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What a function or a tool takes and gives, as JSON schemas.

    Attributes:
        arguments: Of the object of its arguments; None when that is not known.
        result: Of what it gives; None when that is not known.
        raises: Codes of the errors that its module knows, by the names of their classes; a class without one has an
            empty code. None when the module was not looked at.
        secrets: The tool's arguments that take secrets by reference; None when that is not known.
    """

    arguments: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    raises: Mapping[str, str] | None = None
    secrets: frozenset[str] | None = None


Contracts = Callable[[str, str], Contract | None]
"""Gives the contract of a function or a tool: ``contracts("activity", "steps:clean")``; None when it is not known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    Attributes:
        code: Stable code, such as ``L104``.
        message: What is wrong.
        place: Path in the normal form of the document.
        fix: What to do about it.
        key: Whether the finding is about the key at the place, not about its value.
        about: What of an expression, or of what is written, it is about, as the path that names it: ``("state", "x")``,
            ``("nodes", "look")``, ``("result",)``; empty where a finding is about nothing of the kind.
    """

    code: str
    message: str
    place: DocumentPath
    fix: str = ""
    key: bool = False
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A node that runs a graph.

    Attributes:
        unit: Name of the graph that the node is in.
        key: The node's id.
        name: Name of the graph that it runs, as the node says it.
        place: Where it says so.
        given: The node's mapping for the graph's `input`; None hands the input on, text is a mapping that is computed.
        many: Whether the graph has `item` and `index`.
        sure: Whether the graph runs at least once, and the node is done only when it has ended.
        parallel: Whether it may run several times at once.
    """

    unit: str
    key: str
    name: str
    place: DocumentPath
    given: Mapping[str, Any] | str | None
    many: bool
    sure: bool
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class Unit:
    """One graph of a document: the document's own (name ``""``) or one of its `graphs`."""

    name: str
    body: Body
    place: DocumentPath = ()

    @cached_property
    def flow(self) -> ControlFlow:
        """Its nodes and edges."""
        return ControlFlow(self.body)

    @cached_property
    def splits(self) -> list[Split]:
        """Its nodes after which several tokens are under way."""
        return splits_of(self.flow)

    def at(self, key: str, *rest: str | int) -> DocumentPath:
        """The place of a node, or of something in it."""
        return (*self.place, "nodes", key, *rest)

    def calls(self) -> Iterator[ToolUse]:
        """Every node that runs a graph."""
        for key, node in self.body.nodes.items():
            if isinstance(node, Map):
                spec, place = node.map, self.at(key, "map", "do")
                yield ToolUse(self.name, key, spec.do, place, spec.with_, True, False, spec.window > 1)
            elif isinstance(node, Loop):
                place, sure = self.at(key, "loop", "do"), node.loop.until is not None
                yield ToolUse(self.name, key, node.loop.do, place, node.loop.with_, True, sure)
            elif isinstance(node, Subgraph) and node.called:
                yield ToolUse(self.name, key, node.called, self.at(key, "graph"), node.with_, False, True)


@dataclass(frozen=True, eq=False)
class CheckContext:
    """A document under check.

    Attributes:
        graph: The document.
        library: Graphs that it may run besides its own, by name.
        resolve: Says what is wrong with the name of a tool, a model or an activity; None when that is not known.
        contracts: Gives what functions and tools take and give; None when that is not known.
        whole: Whether all of the document could be read; else some of its nodes only stand for others.
        kinds: The types of results that were looked at, for `types`.
        looking: The results whose types are being looked at, the outermost first.
        written: What each graph writes of those around it, for `data`.
    """

    graph: Graph
    library: Mapping[str, Graph]
    resolve: Resolve | None = None
    contracts: Contracts | None = None
    whole: bool = True
    units: dict[str, Unit] = field(default_factory=dict)
    kinds: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)
    looking: list[tuple[str, ...]] = field(default_factory=list)
    written: dict[str, dict[str, DocumentPath]] = field(default_factory=dict)
    _around: dict[str, list[Unit]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.units[""] = Unit("", self.graph)
        for name, body in self.graph.graphs.items():
            self.units[name] = Unit(name, body, ("graphs", name))

    @cached_property
    def shipped(self) -> bool:
        """Whether the document is one of Loom's own, which other graphs give what they read."""
        return self.graph.name in NAMES

    @cached_property
    def turns(self) -> bool:
        """Whether the job has turns."""
        return self.shipped or any(isinstance(node, Recurse) for node in self.graph.nodes.values())

    def contract(self, node: Node) -> Contract | None:
        """What is known of the function or the tool that a node calls."""
        if self.contracts is None:
            return None
        if isinstance(node, Activity):
            return self.contracts("activity", node.activity)
        return self.contracts("tool", node.tool) if isinstance(node, ToolCallNode) else None

    def find(self, name: str) -> Unit | None:
        """The graph of this document that a node calls by this name."""
        if name in self.graph.graphs:
            return self.units[name]
        return self.units[""] if name == self.graph.name else None

    @cached_property
    def calls(self) -> list[ToolUse]:
        """Every node of the document that runs a graph."""
        return [call for unit in self.units.values() for call in unit.calls()]

    @cached_property
    def callers(self) -> dict[str, list[ToolUse]]:
        """The nodes that run each graph of the document, by its name."""
        found: dict[str, list[ToolUse]] = {name: [] for name in self.units}
        for call in self.calls:
            unit = self.find(call.name)
            if unit is not None:
                found[unit.name].append(call)
        return found

    @cached_property
    def used(self) -> frozenset[str]:
        """Names of the document's graphs that a job may come to."""
        return frozenset(_closure("", {n: [u.name for u in self._called(n)] for n in self.units}))

    @cached_property
    def with_items(self) -> frozenset[str]:
        """Names of the graphs in which `item` and `index` have values."""
        inner = {name: [u.name for u in self._called(name)] for name in self.units}
        starts = [unit.name for call in self.calls if call.many and (unit := self.find(call.name))]
        return frozenset(found for start in starts for found in _closure(start, inner))

    def around(self, name: str) -> list[Unit]:
        """A graph and all that may stand around it, the nearest first."""
        if name not in self._around:
            names = _closure(name, self._outer)
            self._around[name] = [self.units[n] for n in (names if len(names) > 1 or not name else [name, ""])]
        return self._around[name]

    @cached_property
    def _outer(self) -> dict[str, list[str]]:
        return {n: list(dict.fromkeys(call.unit for call in calls)) for n, calls in self.callers.items()}

    def variables(self, name: str) -> dict[str, StateField]:
        """The state fields that a node of this graph can write: its own, and those of graphs around it."""
        found: dict[str, StateField] = {}
        for unit in self.around(name):
            found = {**unit.body.state, **found}
        return found

    def state_names(self, name: str) -> set[str]:
        """The names of `state` in this graph: its own fields, or those of the nearest graph around it with any."""
        found: set[str] = set()
        seen, queue = {name}, [name]
        while queue:
            unit = self.units[queue.pop()]
            if unit.body.state:
                found |= set(unit.body.state)
                continue
            outer = [call.unit for call in self.callers[unit.name]] or [""]
            queue += [other for other in outer if other not in seen]
            seen |= set(outer)
        return found

    def _called(self, name: str) -> list[Unit]:
        return [unit for call in self.units[name].calls() if (unit := self.find(call.name)) is not None]


def _closure(start: str, edges: Mapping[str, list[str]]) -> list[str]:
    found, queue = [start], [start]
    while queue:
        for name in edges[queue.pop(0)]:
            if name not in found:
                found.append(name)
                queue.append(name)
    return found


def shipped_graphs(nodes: Mapping[str, Node]) -> set[str]:
    """The shipped graphs that nodes run by what they are, not by name."""
    found: set[str] = set()
    for node in nodes.values():
        if isinstance(node, ToolCallNode):
            found.add("loom.tool_node")
        if isinstance(node, AgentNode):
            found |= {"loom.tt", "loom.tool_call"}
    return found
