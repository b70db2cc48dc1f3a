"""Holding a compiled graph against the list of what it may do: its nodes, its agents, its depth, its size and cost."""

from collections.abc import Iterable, Iterator, Mapping

from loom_dsl.agent import Agent
from loom_dsl.checks_reading import list_of
from loom_dsl.checks_unit import Call, Checked, Place, Unit
from loom_dsl.events import EventType
from loom_dsl.nodes_work import Activity, AgentNode, Llm, Loop, Map, Subgraph, Tool
from loom_dsl.parts import Node
from loom_dsl.plan import Plan
from loom_dsl.written import Allow

LEADING = frozenset({"branch", "join", "race", "set", "cancel", "end", "fail"})
"""Kinds of nodes that only lead tokens."""
Wrong = tuple[Place, str]
_NO_HOOKS = "a written graph names no functions that look at calls; those of the job that runs it do"


def listed(what: str, names: Iterable[str]) -> str:
    """Say what is allowed."""
    known = ", ".join(names)
    return f"allowed {what}: {known}" if known else f"no {what} are allowed"


class Judge:
    """Says what a graph does that is not allowed.

    Attributes:
        plan: The graph, compiled.
        allow: What it may do.
        agents: The agents that it brings along; all others are the job's.
    """

    def __init__(self, plan: Plan, allow: Allow, agents: Mapping[str, Agent]) -> None:
        self.plan, self.allow, self.agents = plan, allow, agents
        self._units = Checked(plan.graphs[plan.root], {}).units

    def findings(self) -> Iterator[Wrong]:
        """Give everything that is not allowed, with its place."""
        count = sum(len(unit.body.nodes) for unit in self._units.values())
        if count > self.allow.max_nodes:
            yield ("nodes",), f"the graph has {count} nodes; it may have {self.allow.max_nodes}"
        for unit in self._units.values():
            for key, node in unit.body.nodes.items():
                yield from ((unit.at(key, *place), message) for place, message in self._node(key, node))
            for call in unit.calls():
                yield from self._call(call)
        if self.plan.graphs[self.plan.root].hooks:
            yield ("hooks",), _NO_HOOKS
        depth = self._depth()
        if depth is None:
            yield ("graphs",), "a written graph does not run itself, nor a graph inside which it stands"
        elif depth > self.allow.max_depth:
            yield ("graphs",), f"its graphs stand {depth} deep inside one another; {self.allow.max_depth} may"
        for name, agent in self.agents.items():
            yield from ((("agents", name, *place), message) for place, message in self._agent(name, agent))
        if self.allow.max_cost_usd is not None:
            yield from self._cost(self.allow.max_cost_usd)

    # -- nodes -------------------------------------------------------------------------------------

    def _node(self, key: str, node: Node) -> Iterator[Wrong]:
        if node.kind not in LEADING and node.kind not in self.allow.kinds:
            known = sorted({*self.allow.kinds, *LEADING})
            yield (), f"`{key}` is of the kind `{node.kind}`; {listed('kinds', known)}"
        yield from self._named(key, node)
        if node.compensate is not None:
            yield from self._function(node.compensate.activity, ("compensate", "activity"))
        if node.state is not None:
            yield ("state",), f"`{key}` sets the run's state, which is not for a written graph"
        for kind in node.emit:
            if kind in set(EventType):
                yield ("emit", kind), f"`{key}` tells `{kind}`, which only Loom tells; choose another name"

    def _named(self, key: str, node: Node) -> Iterator[Wrong]:
        allow = self.allow
        if isinstance(node, Activity):
            yield from self._function(node.activity, ("activity",))
            for name, usual in (("carrier", "remote"), ("events", "carry"), ("inbox", None)):
                if getattr(node, name) != usual:
                    yield (name,), f"`{key}` says `{name}`, which is for Loom's own activities; leave it out"
        elif isinstance(node, Tool) and node.tool not in allow.tools:
            yield ("tool",), f"the tool `{node.tool}` is not allowed; {listed('tools', allow.tools)}"
        elif isinstance(node, AgentNode) and node.agent not in self.agents and node.agent not in allow.agents:
            yield ("agent",), f"the agent `{node.agent}` is not allowed; {listed('agents', allow.agents)}"
        elif isinstance(node, Llm) and node.llm.model not in allow.models:
            yield ("llm", "model"), f"the model `{node.llm.model}` is not allowed; {listed('models', allow.models)}"
        elif isinstance(node, Subgraph) and not node.called:
            yield ("graph",), f"`{key}` runs a graph that is written while it runs; a written graph does not"
        elif isinstance(node, Subgraph) and node.child:
            yield ("child",), f"`{key}` starts a job of its own; a written graph does not"

    def _function(self, name: str, place: Place) -> Iterator[Wrong]:
        module, colon, _ = name.partition(":")
        if not colon or not {name, module} & set(self.allow.functions):
            yield place, f"the activity `{name}` is not allowed; {listed('functions', self.allow.functions)}"

    def _agent(self, name: str, agent: Agent) -> Iterator[Wrong]:
        allow = self.allow
        if "agent" not in allow.kinds:
            yield (), f"the graph brings the agent `{name}` along, and may not run agents"
        if agent.model not in allow.models:
            yield ("model",), f"the model `{agent.model}` is not allowed; {listed('models', allow.models)}"
        for index, tool in enumerate(agent.tools):
            if tool not in allow.tools:
                yield ("tools", index), f"the tool `{tool}` is not allowed; {listed('tools', allow.tools)}"
        if agent.hooks:
            yield ("hooks",), _NO_HOOKS
        if agent.approvals.on_expiry == "allow":
            yield ("approvals", "on_expiry"), "what nobody answers is not allowed; write `deny`, `halt` or `escalate`"

    # -- graphs inside it --------------------------------------------------------------------------

    def _call(self, call: Call) -> Iterator[Wrong]:
        if self._called(call) is None:
            yield call.place, f"the graph `{call.name}` is not its own; a written graph runs those in its `graphs`"

    def _called(self, call: Call) -> Unit | None:
        graph = self.plan.graphs[self.plan.root]
        if call.name in graph.graphs:
            return self._units[call.name]
        return self._units[""] if call.name == graph.name else None

    def _depth(self) -> int | None:
        """How deep its graphs stand inside one another; None where one stands inside itself."""
        inner = {
            name: {u.name for call in unit.calls() if (u := self._called(call))} for name, unit in self._units.items()
        }
        level, depth = {""}, 0
        while below := {called for name in level for called in inner[name]}:
            level, depth = below, depth + 1
            if depth > len(inner):
                return None
        return depth

    # -- money -------------------------------------------------------------------------------------

    def _cost(self, most: float) -> Iterator[Wrong]:
        """Add up what agents may cost at most. What has no bound that is written down is refused."""
        total, bounded = 0.0, True
        runs: dict[str, int | None] = {"": 1}
        for unit in self._units.values():
            for key, node in unit.body.nodes.items():
                wrong = self._unbounded(unit, key, node, runs)
                if wrong is not None:
                    bounded = False
                    yield unit.at(key), wrong
                elif isinstance(node, AgentNode):
                    total += (self._runs(unit.name, runs) or 0) * (node.max_visits or 0) * (self._limit(node) or 0.0)
        if bounded and total > most:
            told = f"its agents may cost {total:g} dollars together; they may cost {most:g}"
            yield ("nodes",), f"{told}: lower their `limits.max_cost_usd`, or the `max_visits` of their nodes"

    def _unbounded(self, unit: Unit, key: str, node: Node, runs: dict[str, int | None]) -> str | None:
        if isinstance(node, Llm):
            return f"`{key}` calls a model without a limit of cost; let an agent with `limits.max_cost_usd` do it"
        if not isinstance(node, AgentNode):
            return None
        if self._runs(unit.name, runs) is None:
            why = f"`{key}` runs an agent inside `{unit.name}`, however often that runs"
            return f"{why}; give each node that runs it `max_visits`, and a map a list that is written out"
        if self._limit(node) is None:
            return f"`{key}` runs the agent `{node.agent}`; give that one `limits: {{max_cost_usd: …}}`"
        return None if node.max_visits else f"`{key}` runs an agent; give the node `max_visits`, which bounds its cost"

    def _runs(self, name: str, runs: dict[str, int | None]) -> int | None:
        """How often a graph runs at most, kept in `runs`; None where nothing that is written down bounds it."""
        if name not in runs:
            runs[name] = None  # what runs itself has no bound
            found: int | None = 0
            for unit in self._units.values():
                for call in unit.calls():
                    called = self._called(call)
                    if called is not None and called.name == name and found is not None:
                        outer, each = self._runs(unit.name, runs), _times(unit.body.nodes[call.key])
                        found = None if outer is None or each is None else found + outer * each
            runs[name] = found
        return runs[name]

    def _limit(self, node: AgentNode) -> float | None:
        found = self.plan.agents.get(node.agent, {}).get("limits", {}).get("max_cost_usd")
        return float(found) if found is not None else None


def _times(node: Node) -> int | None:
    """How often a node runs its graph in one run of the graph that it is in; None where that is not written down."""
    if node.max_visits is None:
        return None
    if isinstance(node, Loop):
        return node.max_visits * node.loop.max
    if not isinstance(node, Map):
        return node.max_visits
    items = list_of(node.map.over) if node.map.open is None else None
    return None if items is None else node.max_visits * len(items)
