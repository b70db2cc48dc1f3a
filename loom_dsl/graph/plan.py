"""A plan: compiled graphs under one content hash, pinned for a job's whole life."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.errors import PlanError
from loom_dsl.expr.expression import Expression, compile_expression
from loom_dsl.expr.template import Template, compile_template
from loom_dsl.fields import parse_duration
from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import Body, Graph
from loom_dsl.graph.nodes import Loop, Map, Race, Subgraph, ToolCallNode
from loom_dsl.permissions.policy import Permissions
from loom_dsl.text.canonical import canonical_json, digest, written_json

ENGINE = 3
"""Version of the interpreter. A changed interpreter keeps the old one for the jobs that began under it."""
CHUNK, PART = "~", ".part"
MAX_CHUNKS_AT_ONCE = 5


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan on its way to a workflow. On the wire it is its hash; the store holds the text."""

    text: str


class Plan:
    """Graphs by name, the one where a job starts, and the agent whose turn they are.

    Attributes:
        root: Name of the graph where the job starts.
        graphs: All documents' graphs, by name.
        bodies: All graphs, those inside a document too, by ``name`` or ``document/name``.
        agent: The agent's definition in normal form, or an empty mapping for a graph without one.
        agents: Definitions of the agents that the graphs' agent nodes run, by name.
        agent_names: The agent as expressions read it: durations in seconds, null for never.
        text: The plan as JSON in one form. What a graph names, such as its nodes, comes in the order written: work
            starts in it, so it is a part of what a job is pinned to.
        hash: SHA-256 of the text: the plan's name.
    """

    def __init__(
        self,
        root: str,
        graphs: Mapping[str, Graph],
        agent: Mapping[str, Any],
        agents: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.root = root
        self.graphs = dict(graphs)
        self.agent = dict(agent)
        self.agents = {name: dict(given) for name, given in (agents or {}).items()}
        self.bodies: dict[str, Body] = _Bodies(self._chunk_body, self.graphs)
        for name, graph in self.graphs.items():
            self.bodies |= {f"{name}/{inner}": body for inner, body in graph.graphs.items()}
        if CHUNK in root:
            self.bodies[root] = self.bodies[root]
        dumped = {name: graph.dump() for name, graph in sorted(self.graphs.items())}
        data = {"engine": ENGINE, "root": root, "graphs": dumped, "agent": _sorted(self.agent)}
        self.text = written_json({**data, "agents": _sorted(self.agents)} if self.agents else data)
        self.hash = digest(self.text)
        self.agent_names = _in_seconds(self.agent)
        self._templates: dict[tuple[str, str, str], Template] = {}
        self._sources: dict[tuple[str, str], tuple[str, ...]] = {}
        self._ranks: dict[str, dict[str, int]] = {}
        self._before: dict[tuple[str, str], frozenset[str]] = {}

    @classmethod
    def load(cls, text: str) -> "Plan":
        """Read a plan's text. Plans are kept by content, so that a run does not parse what the one before did.

        Args:
            text: The `text` of a plan.

        Returns:
            The plan, which all that read the same text share.

        Raises:
            PlanError: The text is not a plan of this engine.
        """
        return _load(text)

    @property
    def document(self) -> str:
        """Name of the document that the root is in."""
        return self.root.partition("/")[0].partition(CHUNK)[0]

    def node(self, graph: str, key: str) -> Node:
        """Give the node with this id.

        Args:
            graph: Name of its graph, as `bodies` has it.
            key: The node's id.

        Returns:
            The node, as the schema has it.

        Raises:
            KeyError: There is no such graph, or no such node in it.
        """
        node: Node = self.bodies[graph].nodes[key]
        return node

    def find(self, graph: str, name: str) -> str:
        """Name the graph that a node of `graph` calls `name`: one of its own document, that itself, or a shipped one.

        Args:
            graph: Name of the node's graph, as `bodies` has it.
            name: What the node calls the other one.

        Returns:
            The other one's name, as `bodies` has it.

        Raises:
            PlanError: There is none.
        """
        document = graph.partition("/")[0]
        for found in (f"{document}/{name}", name):
            if found in self.bodies:
                return found
        raise PlanError(f"the plan has no graph {name!r}")

    def child(self, agent: str, graph: str = "") -> "Plan":
        """Give the plan of a job of one of its agents, or of one of its graphs. It cannot exceed this one's policy.

        Args:
            agent: The agent's name among `agents`; not looked at where a graph is given.
            graph: The graph's name, as `bodies` has it.

        Returns:
            The plan, with this one's permissions around its own.

        Raises:
            KeyError: There is no such agent or graph.
        """
        if graph:
            name = graph.partition("/")[0].partition(CHUNK)[0]
            inner = self.graphs[name].permissions
            bound = inner if name == self.document else inner.below(self._policy(), self._approvals())
            changed = {} if bound is inner else {name: self.graphs[name].model_copy(update={"permissions": bound})}
            return Plan(graph, {**self.graphs, **changed}, {}, self.agents)
        given = self.agents[agent]
        inner = Permissions.model_validate(given["permissions"])
        bound = inner.below(self._policy(), self._approvals())
        if bound is not inner:
            given = {**given, "permissions": bound.model_dump(mode="json")}
        return Plan("loom.tt", {name: self.graphs[name] for name in ("loom.tt", "loom.tool_call")}, given)

    def _policy(self) -> Permissions:
        """The permissions of a job of this plan."""
        if self.agent:
            return Permissions.model_validate(self.agent["permissions"])
        return self.graphs[self.document].permissions

    def _approvals(self) -> ApprovalPolicy:
        """What a job of this plan says about its questions."""
        if self.agent:
            return ApprovalPolicy.model_validate(self.agent.get("approvals", {}))
        return self.graphs[self.document].approvals

    def chunk(self, graph: str, key: str) -> str:
        """Name the graph that runs some of the items of a map node, given as its item, in a child job.

        Such graphs are no part of the plan's text: `bodies` gives one to whoever asks for its name, so that a worker
        that has just read the plan finds those that a job is in.

        Args:
            graph: Name of the map node's graph, as `bodies` has it.
            key: The map node's id.

        Returns:
            The name.
        """
        return f"{graph}{CHUNK}{key}"

    def _chunk_body(self, name: str) -> Body | None:
        """Give the graph of a name that `chunk` gave, or that of its child job; None for another name."""
        graph, _, key = name.removesuffix(PART).rpartition(CHUNK)
        node = self.bodies[graph].nodes.get(key) if graph in self.bodies else None
        spec = getattr(node, "map", None)
        if spec is None:
            return None
        if name.endswith(PART):
            each = {"over": "input.items", "do": self.find(graph, spec.do), "with": "${input.given}"}
            each |= {"window": max(1, spec.window // MAX_CHUNKS_AT_ONCE), "first": "${input.first}"}
            if spec.with_ is not None:
                each["with"] = "${input.given[index - input.first]}"
            work: dict[str, Any] = {"each": {"map": each, "next": "done"}}
        else:
            work = {"part": {"graph": name + PART, "child": True, "with": "${item}", "next": "done"}}
        return Body.model_validate({"nodes": {**work, "done": {"end": "${result}"}}})

    def rank(self, graph: str, key: str) -> int:
        """Give the place of a node in the order in which work starts: that of the document.

        Nodes that start together, by a split, a choice of several or a race, come in the order in which that names
        them.

        Args:
            graph: Name of the graph, as `bodies` has it.
            key: The node's id.

        Returns:
            Its place, from 0; behind all others where the graph has no such node any more.
        """
        if graph not in self._ranks:
            self._ranks[graph] = {name: place for place, name in enumerate(_as_written(self.bodies[graph].nodes))}
        return self._ranks[graph].get(key, len(self._ranks[graph]))

    def sources(self, graph: str, key: str) -> tuple[str, ...]:
        """Give the nodes with an edge to this one.

        Args:
            graph: Name of the graph, as `bodies` has it.
            key: The node's id.

        Returns:
            Their ids, in the order of the graph.
        """
        place = (graph, key)
        if place not in self._sources:
            nodes = self.bodies[graph].nodes
            self._sources[place] = tuple(name for name, node in nodes.items() if key in node.targets())
        return self._sources[place]

    def before(self, graph: str, key: str) -> frozenset[str]:
        """Give the nodes from which a token can come to this one.

        Args:
            graph: Name of the graph, as `bodies` has it.
            key: The node's id.

        Returns:
            Their ids; with this one's, where a way leads back to it.
        """
        place = (graph, key)
        if place not in self._before:
            found: set[str] = set()
            queue = [key]
            while queue:
                for name in self.sources(graph, queue.pop()):
                    if name not in found:
                        found.add(name)
                        queue.append(name)
            self._before[place] = frozenset(found)
        return self._before[place]

    def template(self, graph: str, key: str, slot: str, value: Any) -> Template:
        """Compile the mapping in one slot of a node, once.

        Args:
            graph: Name of the graph, as `bodies` has it.
            key: The node's id.
            slot: Names the place in the node, such as ``with``: under one name there is always the same value.
            value: The mapping: JSON with ``${…}`` in its texts.

        Returns:
            The mapping, ready to be filled.

        Raises:
            ExpressionError: An expression does not compile.
        """
        place = (graph, key, slot)
        if place not in self._templates:
            self._templates[place] = compile_template(value)
        return self._templates[place]


class _Bodies(dict[str, Body]):
    """Graphs by name. Those that follow from others are made when they are asked for, and are not listed.

    A plan is shared by all jobs of a worker, so what one of them asked for must not show to another.
    """

    def __init__(self, make: Callable[[str], Body | None], graphs: Mapping[str, Body]) -> None:
        super().__init__(graphs)
        self._make = make
        self._made: dict[str, Body] = {}

    def __missing__(self, name: str) -> Body:
        if name not in self._made:
            body = self._make(name) if CHUNK in name else None
            if body is None:
                raise KeyError(name)
            self._made[name] = body
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        try:
            return super().__contains__(name) or (isinstance(name, str) and self[name] is not None)
        except KeyError:
            return False


def _as_written(nodes: Mapping[str, Node]) -> list[str]:
    """The ids of nodes in the order of the document; those that one list names keep their places among the others."""
    order = list(nodes)
    for node in nodes.values():
        for named in (
            node.next.all,
            tuple(edge.to for edge in node.next.each),
            node.race if isinstance(node, Race) else (),
        ):
            together = [name for name in dict.fromkeys(named) if name in nodes]
            places = sorted(order.index(name) for name in together)
            for place, name in zip(places, together, strict=True):
                order[place] = name
    return order


def _sorted(agents: Mapping[str, Any]) -> Any:
    """Agents in the form under which they have one digest: nothing of theirs starts in an order of its own."""
    return json.loads(canonical_json(agents))


_DURATIONS = {("limits", "max_run_duration"), ("approvals", "expires")}


def _in_seconds(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Durations are text in the normal form; an expression compares numbers."""
    names = {key: dict(value) if isinstance(value, dict) else value for key, value in agent.items()}
    for group, field in _DURATIONS:
        value = names.get(group, {}).get(field)
        if isinstance(value, str):
            names[group][field] = None if value == "never" else parse_duration(value)
    return names


@lru_cache(maxsize=64)
def _load(text: str) -> Plan:
    try:
        raw = json.loads(text)
        engine = raw["engine"]
        if engine != ENGINE:
            raise PlanError(f"the plan is for engine {engine}; this worker has engine {ENGINE}")
        graphs = {name: Graph.model_validate(graph) for name, graph in raw["graphs"].items()}
        plan = Plan(raw["root"], graphs, raw["agent"], raw.get("agents"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PlanError("the text is not a plan") from None
    if plan.text != text:
        raise PlanError("the plan's text is not in normal form, so its hash would not name it")
    return plan


@lru_cache(maxsize=4096)
def condition(source: str) -> Expression:
    """A compiled condition, kept by its text."""
    return compile_expression(source)


RUN: Mapping[str, str] = {
    "id": "the job's id",
    "now": "the time, in seconds since the epoch",
    "aborted": "whether somebody has aborted the job",
    "abort_reason": "the reason that was given, or an empty text",
    "abort_code": "the code that was given, or an empty text",
    "remembered": "the decisions that hold for the rest of the job",
    "waiting": "how many messages wait to be taken",
    "active_seconds": "how long an agent's turns have taken, without the waits; 0 in other graphs",
    "correlation_id": "the id under which an agent's job was asked for; the job's id in other graphs",
}
"""What `run` holds: names and meanings."""


TOOL_GRAPH = "loom.tool_node"
"""The graph that every tool node runs."""


def runs(plan: Plan, graph: str, node: Node) -> str | None:
    """Name the graph of the plan that a node of `graph` runs, if it runs one."""
    name = _name_of_graph(node)
    try:
        return plan.find(graph, name) if name is not None else None
    except PlanError:
        return None


def _name_of_graph(node: Node) -> str | None:
    match node:
        case Map():
            return node.map.do
        case Loop():
            return node.loop.do
        case Subgraph():
            return node.called or None
        case ToolCallNode():
            return TOOL_GRAPH
        case _:
            return None
