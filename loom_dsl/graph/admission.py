"""Holding a compiled graph against the list of what it may do: its nodes, its agents, its depth, its size and cost."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loom_dsl.agent.definition import Agent
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.documents.document import Document, load_document
from loom_dsl.errors import Diagnostic, DocumentError, ExpressionError, PlanError
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.slots import list_of
from loom_dsl.graph.checks.unit import CheckContext, ToolUse, Unit
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.edges import Node
from loom_dsl.graph.extend import KEYS as EXTENDING
from loom_dsl.graph.generated import Allow, GeneratedGraph, refusal, too_large, unwrapped
from loom_dsl.graph.graph import Graph, filled_input
from loom_dsl.graph.inline import with_graphs_moved
from loom_dsl.graph.nodes import Activity, AgentNode, LlmNode, Loop, Map, Subgraph, ToolCallNode
from loom_dsl.graph.plan import Plan
from loom_dsl.observe.events import EventType
from loom_dsl.permissions.combine import narrowed, strengthened, weakenings, widenings
from loom_dsl.permissions.policy import Permissions
from loom_dsl.tools.hook_points import HookPoint

LEADING = frozenset({"branch", "join", "race", "set", "cancel", "end", "fail"})
"""Kinds of nodes that only lead tokens."""
Wrong = tuple[DocumentPath, str]
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
        self._units = CheckContext(plan.graphs[plan.root], {}).units

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
        elif isinstance(node, ToolCallNode) and node.tool not in allow.tools:
            yield ("tool",), f"the tool `{node.tool}` is not allowed; {listed('tools', allow.tools)}"
        elif isinstance(node, AgentNode) and node.agent not in self.agents and node.agent not in allow.agents:
            yield ("agent",), f"the agent `{node.agent}` is not allowed; {listed('agents', allow.agents)}"
        elif isinstance(node, LlmNode) and node.llm.model not in allow.models:
            yield ("llm", "model"), f"the model `{node.llm.model}` is not allowed; {listed('models', allow.models)}"
        elif isinstance(node, Subgraph) and not node.called:
            yield ("graph",), f"`{key}` runs a graph that is written while it runs; a written graph does not"
        elif isinstance(node, Subgraph) and node.child:
            yield ("child",), f"`{key}` starts a job of its own; a written graph does not"

    def _function(self, name: str, place: DocumentPath) -> Iterator[Wrong]:
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

    def _call(self, call: ToolUse) -> Iterator[Wrong]:
        if self._called(call) is None:
            yield call.place, f"the graph `{call.name}` is not its own; a written graph runs those in its `graphs`"

    def _called(self, call: ToolUse) -> Unit | None:
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
        if isinstance(node, LlmNode):
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


# Letting a graph run that was written while its job did: the checks of any document, then the list of what it may do.
#
# In doubt it is refused. Everything that is wrong is told at once, with its place in the text, so that whoever wrote
# it can mend it.


NOT_ALLOWED = "L160"
"""The code of a finding about what a valid graph may not do where it is to run."""
_REFERENCE = re.compile(r"\$\{(secret|env):([^}]*)\}?")


def admit(
    text: str,
    allow: Allow,
    *,
    source: str,
    permissions: Permissions,
    agents: Mapping[str, Mapping[str, Any]],
    approvals: ApprovalPolicy | None = None,
    given: Any = None,
    hooks: Mapping[HookPoint, str] | None = None,
) -> Plan:
    """Compile a graph that something wrote, if it may run.

    Args:
        text: What was written: a document, or prose with the document in a fenced block.
        allow: What the graph may do.
        source: The text's name in messages.
        permissions: The policy of the job; that of the graph and of its agents can only be narrower.
        agents: Normal forms of the job's agents, by name; the graph may run those that `allow` lists.
        approvals: Who answers the job's questions, and what happens meanwhile; in the graph it can only be stricter.
        given: What the graph is started with.
        hooks: The functions that look at calls of the job's tools; they look at those of the graph and its agents.

    Raises:
        GraphRefused: It is not valid, or not allowed; the message lists why.
    """
    document = _document(text, allow, source)
    _refuse(document, _written(document, allow))
    lent = {name: agents[name] for name in allow.agents if name in agents}
    try:
        plan = compile_graph(_single(text, source), source, env={}, agents=lent)
    except DocumentError as error:
        raise refusal(found for found in error.diagnostics if found.severity == "error") from None
    graph, own = plan.graphs[plan.root], document.data.get("agents") or {}
    mine = {name: Agent.from_plan_data(plan.agents[name]) for name in own}
    _refuse(document, Judge(plan, allow, mine).findings())
    asking = approvals or ApprovalPolicy()
    _refuse(document, _policies(graph, mine, permissions))
    _refuse(document, _askings(graph, mine, asking))
    if graph.input:
        try:
            filled_input(plan.root, graph.input, given)
        except ExpressionError as error:
            _refuse(document, [(("input",), f"it is started with something else: {error.message}")])
    pinned = _pinned(plan, mine, permissions, asking, written="permissions" in document.data)
    return _watched(pinned, mine, hooks) if hooks else pinned


def admitted(plan: Plan, asked: Mapping[str, str], given: Any) -> Plan:
    """Compile a graph that a node of a plan is to run, if the node allows it.

    Args:
        plan: The job's plan.
        asked: ``text``, and the ``graph`` and ``node`` where it is to run.
        given: What it is started with.

    Raises:
        GraphRefused: It is not valid, or not allowed.
        PlanError: The node is none that runs a written graph.
    """
    node = plan.node(asked["graph"], asked["node"])
    if not isinstance(node, Subgraph) or not isinstance(node.graph, GeneratedGraph):
        raise PlanError(f"`{asked['node']}` of {asked['graph']} runs no written graph")
    job = Agent.from_plan_data(plan.agent) if plan.agent else plan.graphs[plan.document]
    return admit(
        asked["text"],
        node.graph.allow,
        source=f"{asked['node']}.yaml",
        permissions=job.permissions,
        agents=plan.agents,
        approvals=job.approvals,
        given=given,
        hooks=job.hooks,
    )


def _single(text: str, source: str) -> str:
    found = unwrapped(text)
    if len(found) > 1:
        raise refusal([f"{source}: the text has {len(found)} fenced blocks; put the whole graph into one"])
    return found[0]


def _document(text: str, allow: Allow, source: str) -> Document:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > allow.max_bytes:
        raise too_large(size, allow.max_bytes)
    try:
        return load_document(_single(text, source), source, kinds=("graph",))
    except DocumentError as error:
        raise refusal(error.diagnostics) from None


def _refuse(document: Document, wrong: Iterable[tuple[DocumentPath, str]]) -> None:
    document, _ = with_graphs_moved(document)
    found = dict.fromkeys(document.diagnostic(NOT_ALLOWED, message, place, key=True) for place, message in wrong)
    if found:
        findings: list[Diagnostic] = sorted(found, key=lambda one: (one.line or 0, one.column or 0))
        raise refusal(findings)


def _written(document: Document, allow: Allow) -> Iterator[tuple[DocumentPath, str]]:
    """What can be told from the text alone: it stands on its own feet."""
    for key in EXTENDING:
        if key in document.data:
            yield (key,), f"`{key}` is not allowed: a written graph says all of its nodes itself"
    if str(document.data.get("name", "")).startswith("loom."):
        yield ("name",), "names that begin with `loom.` are those of Loom's own graphs; choose another one"
    for place, found in _references(document.data, ()):
        kind, name = found
        if kind == "env":
            yield place, "`${env:…}` is not allowed: a written graph does not read the worker's environment"
        elif name not in allow.secrets:
            yield place, f"the secret `{name}` is not allowed; {listed('secrets', allow.secrets)}"
    agents = document.data.get("agents")
    for name, entry in agents.items() if isinstance(agents, dict) else ():
        for key in ("file", "turn"):
            if isinstance(entry, dict) and key in entry:
                yield ("agents", name, key), f"`{key}` is not allowed: a written graph does not name files"


def _references(value: Any, place: DocumentPath) -> Iterator[tuple[DocumentPath, tuple[str, str]]]:
    if isinstance(value, str):
        yield from ((place, (found[1], found[2])) for found in _REFERENCE.finditer(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _references(key, (*place, key))
            yield from _references(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, (*place, index))


def _policies(graph: Graph, agents: Mapping[str, Agent], most: Permissions) -> Iterator[tuple[DocumentPath, str]]:
    if graph.approvals.on_expiry == "allow":
        yield ("approvals", "on_expiry"), "what nobody answers is not allowed; write `deny` or `halt`"
    for message in widenings(graph.permissions, most):
        yield ("permissions",), message
    for name, agent in agents.items():
        for message in widenings(agent.permissions, most):
            yield ("agents", name, "permissions"), message


def _askings(graph: Graph, agents: Mapping[str, Agent], most: ApprovalPolicy) -> Iterator[tuple[DocumentPath, str]]:
    for field, message in weakenings(graph.approvals, most):
        yield ("approvals", field), message
    for name, agent in agents.items():
        for field, message in weakenings(agent.approvals, most):
            yield ("agents", name, "approvals", field), message


def _pinned(
    plan: Plan, agents: Mapping[str, Agent], most: Permissions, asking: ApprovalPolicy, *, written: bool
) -> Plan:
    """Write the job's policies into the graph and into the agents that it brings along."""
    graph = plan.graphs[plan.root]
    policy = narrowed(graph.permissions, most, inherit=not written)
    bound = {name: _bound(agent, most, asking).to_plan_data() for name, agent in agents.items()}
    own = {"permissions": policy, "approvals": strengthened(graph.approvals, asking)}
    return Plan(plan.root, {**plan.graphs, plan.root: graph.model_copy(update=own)}, {}, {**plan.agents, **bound})


def _watched(plan: Plan, own: Iterable[str], hooks: Mapping[HookPoint, str]) -> Plan:
    """Let the job's hooks look at the calls of a written graph, and of the agents that it brings along."""
    graph = plan.graphs[plan.root].model_copy(update={"hooks": dict(hooks)})
    agents = {name: {**plan.agents[name], "hooks": dict(hooks)} for name in own}
    return Plan(plan.root, {**plan.graphs, plan.root: graph}, {}, {**plan.agents, **agents})


def _bound(agent: Agent, most: Permissions, asking: ApprovalPolicy) -> Agent:
    permissions = narrowed(agent.permissions, most, inherit=False)
    return agent.model_copy(update={"permissions": permissions, "approvals": strengthened(agent.approvals, asking)})
