"""Letting a graph run that was written while its job did: the checks of any document, then the list of what it may do.

In doubt it is refused. Everything that is wrong is told at once, with its place in the text, so that whoever wrote it
can mend it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loom_dsl.admit_graph import Judge, listed
from loom_dsl.agent import Agent
from loom_dsl.approval_policy import Approvals
from loom_dsl.compile import compile_graph
from loom_dsl.diagnostic import Diagnostic
from loom_dsl.document import Document, load_document
from loom_dsl.errors import DocumentError, ExpressionError, PlanError
from loom_dsl.extend import KEYS as EXTENDING
from loom_dsl.graph import Graph
from loom_dsl.hook_points import HookPoint
from loom_dsl.machine_frames import declared
from loom_dsl.narrow import narrowed, widenings
from loom_dsl.narrow_approvals import strengthened, weakenings
from loom_dsl.nodes_work import Subgraph
from loom_dsl.permission_lists import Permissions
from loom_dsl.plan import Plan
from loom_dsl.written import Allow, Written, refusal, too_large, unwrapped

NOT_ALLOWED = "L160"
"""The code of a finding about what a valid graph may not do where it is to run."""
_REFERENCE = re.compile(r"\$\{(secret|env):([^}]*)\}?")
Place = tuple[str | int, ...]


def admit(
    text: str,
    allow: Allow,
    *,
    source: str,
    permissions: Permissions,
    agents: Mapping[str, Mapping[str, Any]],
    approvals: Approvals | None = None,
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
    asking = approvals or Approvals()
    _refuse(document, _policies(graph, mine, permissions))
    _refuse(document, _askings(graph, mine, asking))
    if graph.input:
        try:
            declared(plan.root, graph.input, given)
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
    if not isinstance(node, Subgraph) or not isinstance(node.graph, Written):
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


def _refuse(document: Document, wrong: Iterable[tuple[Place, str]]) -> None:
    found = dict.fromkeys(document.diagnostic(NOT_ALLOWED, message, place, key=True) for place, message in wrong)
    if found:
        findings: list[Diagnostic] = sorted(found, key=lambda one: (one.line or 0, one.column or 0))
        raise refusal(findings)


def _written(document: Document, allow: Allow) -> Iterator[tuple[Place, str]]:
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


def _references(value: Any, place: Place) -> Iterator[tuple[Place, tuple[str, str]]]:
    if isinstance(value, str):
        yield from ((place, (found[1], found[2])) for found in _REFERENCE.finditer(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _references(key, (*place, key))
            yield from _references(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, (*place, index))


def _policies(graph: Graph, agents: Mapping[str, Agent], most: Permissions) -> Iterator[tuple[Place, str]]:
    if graph.approvals.on_expiry == "allow":
        yield ("approvals", "on_expiry"), "what nobody answers is not allowed; write `deny` or `halt`"
    for message in widenings(graph.permissions, most):
        yield ("permissions",), message
    for name, agent in agents.items():
        for message in widenings(agent.permissions, most):
            yield ("agents", name, "permissions"), message


def _askings(graph: Graph, agents: Mapping[str, Agent], most: Approvals) -> Iterator[tuple[Place, str]]:
    for field, message in weakenings(graph.approvals, most):
        yield ("approvals", field), message
    for name, agent in agents.items():
        for field, message in weakenings(agent.approvals, most):
            yield ("agents", name, "approvals", field), message


def _pinned(plan: Plan, agents: Mapping[str, Agent], most: Permissions, asking: Approvals, *, written: bool) -> Plan:
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


def _bound(agent: Agent, most: Permissions, asking: Approvals) -> Agent:
    permissions = narrowed(agent.permissions, most, inherit=False)
    return agent.model_copy(update={"permissions": permissions, "approvals": strengthened(agent.approvals, asking)})
