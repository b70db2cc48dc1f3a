"""From documents to a plan: every check that can be made before anything runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from loom_dsl.agent import Agent
from loom_dsl.checks import check_graph
from loom_dsl.checks_codes import severity_of
from loom_dsl.checks_partial import check_partly
from loom_dsl.checks_unit import Contracts, Finding, Place, Resolve, shipped_graphs
from loom_dsl.diagnostic import Diagnostic
from loom_dsl.document import Document, load_document, without_header
from loom_dsl.errors import DocumentError
from loom_dsl.extend import extended
from loom_dsl.graph import Graph
from loom_dsl.graph_agents import ReadFile, agents_of
from loom_dsl.graph_files import Included
from loom_dsl.library import NAMES, shipped
from loom_dsl.nodes_work import AgentNode, Loop, Map, Subgraph
from loom_dsl.plan import Plan
from loom_dsl.validation import model_findings


def compile_agent(agent: Agent, turn: Plan | None = None) -> Plan:
    """Give the plan of a job of one agent: the tail recursion with this agent in it.

    Args:
        agent: The agent.
        turn: The plan of the graph of its turns; ``loom.tt`` when absent.
    """
    if turn is not None:
        return Plan(turn.root, turn.graphs, agent.to_plan_data(), turn.agents)
    used = _used((shipped("loom.tt"),), {name: shipped(name) for name in NAMES})
    return Plan("loom.tt", {"loom.tt": shipped("loom.tt"), **used}, agent.to_plan_data())


def compile_graph(
    text: str | bytes,
    source: str,
    *,
    read_file: ReadFile | None = None,
    env: Mapping[str, str] | None = None,
    resolve: Resolve | None = None,
    agents: Mapping[str, Mapping[str, Any]] | None = None,
    warned: Callable[[Diagnostic], None] | None = None,
) -> Plan:
    """Compile a graph document.

    Args:
        text: The document's content.
        source: Its name in messages.
        read_file: Gives the content of a file that the document names, such as an agent's, by the name there.
        env: The environment's variables, for ``${env:NAME}`` in agents.
        resolve: Says what is wrong with the name of a tool, a model or an activity; see `checks.check_graph`.
        agents: Normal forms of agents that its nodes may run besides its own, by name.
        warned: Takes each warning of a document that compiles.

    Raises:
        DocumentError: The document is not a graph, or a check fails; it carries every finding, warnings too.
    """
    plan, findings = _compiled(text, source, read_file, env or {}, resolve, agents or {})
    if plan is None or any(finding.severity == "error" for finding in findings):
        raise DocumentError(findings)
    if warned is not None:
        for finding in findings:
            warned(finding)
    return plan


def check_text(
    text: str | bytes,
    source: str,
    *,
    read_file: ReadFile | None = None,
    env: Mapping[str, str] | None = None,
    resolve: Resolve | None = None,
    contracts: Contracts | None = None,
) -> list[Diagnostic]:
    """Give everything that is wrong with a graph document, errors and warnings, in the order of the document.

    The arguments are those of `compile_graph`, which refuses a document exactly if one of these is an error; and
    `contracts`, which gives what a tool or an activity takes and gives.
    """
    try:
        return _compiled(text, source, read_file, env or {}, resolve, {}, contracts)[1]
    except DocumentError as error:
        return error.diagnostics


def _compiled(
    text: str | bytes,
    source: str,
    read_file: ReadFile | None,
    env: Mapping[str, str],
    resolve: Resolve | None,
    given: Mapping[str, Mapping[str, Any]],
    contracts: Contracts | None = None,
    chain: Sequence[str] = (),
) -> tuple[Plan | None, list[Diagnostic]]:
    def compile_file(
        text: str | bytes, source: str, read_file: ReadFile, chain: Sequence[str]
    ) -> tuple[Plan | None, list[Diagnostic]]:
        try:
            return _compiled(text, source, read_file, env, resolve, {}, contracts, chain)
        except DocumentError as error:
            return None, error.diagnostics

    document = extended(load_document(text, source, kinds=("graph",)), lambda name: shipped(name).dump(), NAMES)
    included = Included(document, read_file, compile_file, chain)
    document = included.document
    library = {name: shipped(name) for name in NAMES}
    # What is wrong with its file is told; that there is no such graph would be no news.
    library |= {name: Graph.model_construct(name=name, start="", nodes={}) for name in included.missing}
    agents, findings = agents_of(document, read_file, env)
    agents |= included.agents
    graph, wrong = model_findings(document, Graph, without_header(document.data, Graph))
    findings += wrong
    if graph is not None:
        lent = {name: given[name] for name in _agents_run(graph) if name in given and name not in graph.agents}
        agents |= {name: dict(agent) for name, agent in lent.items()}
        graph = graph.model_copy(update={"agents": {**graph.agents, **lent}})
    told = (
        check_partly(document.data, library, resolve, contracts)
        if graph is None
        else check_graph(graph, library, resolve, contracts)
    )
    findings += [_placed(document, finding) for finding in told if not _in_file(finding.place, included.keys)]
    findings = sorted(dict.fromkeys(findings), key=lambda found: (found.line or 0, found.column or 0, found.code))
    findings += included.findings
    if graph is None:
        return None, findings
    # The plan has the agents once, in their normal form.
    own = graph.model_copy(update={"agents": {}})
    return Plan(graph.name, {**_used((graph,), library), graph.name: own}, {}, agents), findings


def _in_file(place: Place, keys: Set[str]) -> bool:
    return len(place) > 1 and place[0] == "graphs" and place[1] in keys


def _placed(document: Document, finding: Finding) -> Diagnostic:
    place = _written(document, finding.place)
    found = document.diagnostic(finding.code, finding.message, place, fix=finding.fix, key=finding.key)
    return replace(found, severity=severity_of(finding.code))


def _written(document: Document, place: Place) -> Place:
    """Where the document has what the normal form has at a place: short forms leave steps out."""
    found: Place = ()
    value = document.data
    for part in place:
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value, found = value[part], (*found, part)
        elif part not in ("first", "each", "all"):
            break
    return found


def _used(graphs: Iterable[Graph], library: Mapping[str, Graph]) -> dict[str, Graph]:
    """The shipped graphs that these run, and those that they run in turn."""
    found: dict[str, Graph] = {}
    queue = list(graphs)
    while queue:
        graph = queue.pop()
        for body in (graph, *graph.graphs.values()):
            # Its own graphs come first, and its own name means itself.
            named = {_runs(node) for node in body.nodes.values()} - {*graph.graphs, graph.name}
            for name in sorted((named | shipped_graphs(body.nodes)) & set(library)):
                if name not in found:
                    found[name] = library[name]
                    queue.append(library[name])
    return found


def _agents_run(graph: Graph) -> list[str]:
    bodies = (graph, *graph.graphs.values())
    return sorted({node.agent for body in bodies for node in body.nodes.values() if isinstance(node, AgentNode)})


def _runs(node: object) -> str:
    if isinstance(node, Map):
        return node.map.do
    if isinstance(node, Loop):
        return node.loop.do
    return node.called if isinstance(node, Subgraph) else ""
