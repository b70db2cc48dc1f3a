"""From documents to a plan: every check that can be made before anything runs."""

import dataclasses
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NoReturn, cast

from loom_dsl.agent.definition import Agent, load_agent, read_agent
from loom_dsl.documents.document import Document, load_yaml, of_kind
from loom_dsl.documents.validation import model_findings, without_header
from loom_dsl.errors import Diagnostic, DocumentError, ExpressionError, LoomError
from loom_dsl.expr.expression import column_of
from loom_dsl.expr.template import holes
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks import check_graph
from loom_dsl.graph.checks.codes import severity_of
from loom_dsl.graph.checks.partial import check_partly
from loom_dsl.graph.checks.unit import Contracts, Finding, Resolve, shipped_graphs
from loom_dsl.graph.extend import extended
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.hints import misplaced
from loom_dsl.graph.inline import with_graphs_moved
from loom_dsl.graph.library import NAMES, shipped, source_of
from loom_dsl.graph.nodes import AgentNode, Loop, Map, Subgraph
from loom_dsl.graph.plan import Plan

# The agents of a graph's document: written there, or in files of their own.


ReadFile = Callable[[str], str | bytes]
"""Gives the content of a file that a document names; raises OSError or a LoomError."""
_UNREADABLE = "L010"
_KINDS = ("graph",)


def agents_of(
    document: Document, read_file: ReadFile | None, env: Mapping[str, str]
) -> tuple[dict[str, dict[str, Any]], list[Diagnostic]]:
    """Read the agents of a graph's document: their normal forms by name, and all that is wrong with them."""
    found: dict[str, dict[str, Any]] = {}
    findings: list[Diagnostic] = []
    entries = document.data.get("agents")
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        if not isinstance(entry, dict):
            continue  # the schema has told it
        try:
            found[name] = _agent(document, name, entry, read_file, env).to_plan_data()
        except DocumentError as error:
            findings += error.diagnostics
    return found, findings


def _agent(
    document: Document, name: str, entry: Mapping[str, Any], read_file: ReadFile | None, env: Mapping[str, str]
) -> Agent:
    if "file" not in entry:
        named = {} if "name" in entry else {"name": name}
        return read_agent(document.part(("agents", name)), env, named)
    text = read_named(document, "agents", name, entry, read_file, "write the agent's fields into the graph")
    file = entry["file"]
    return load_agent(text, posixpath.join(posixpath.dirname(document.source), file), env)


def read_named(
    document: Document, section: str, name: str, entry: Mapping[str, Any], read_file: ReadFile | None, instead: str
) -> str | bytes:
    """Read the file that an entry ``{file: …}`` of a document's `agents` or `graphs` names.

    Args:
        document: Where the entry stands.
        section: `agents` or `graphs`.
        name: The entry's name there.
        entry: The entry.
        read_file: Gives the content; None where files cannot be read.
        instead: What to do then.

    Raises:
        DocumentError: It names no file, has more beside it, or the file cannot be read.
    """
    what, place, file = section.removesuffix("s"), (section, name, "file"), entry["file"]
    others = [key for key in entry if key != "file"]
    if others:
        message = f"the {what} `{name}` is in a file, so `{others[0]}` does not go here"
        raise _refused(document, "L002", message, (section, name, others[0]), "write it in the file")
    if not isinstance(file, str) or not file:
        raise _refused(document, "L004", f"`file` of the {what} `{name}` should be a file's name", place)
    if read_file is None:
        message = f"the {what} `{name}` is in the file {file}, and files cannot be read here"
        raise _refused(document, _UNREADABLE, message, place, instead)
    try:
        return read_file(file)
    except (OSError, LoomError) as error:
        reason = error.message if isinstance(error, LoomError) else error.strerror or type(error).__name__
        message = f"the file {file} of the {what} `{name}` cannot be read: {reason}"
        raise _refused(document, _UNREADABLE, message, place, "write its path from the graph's directory") from None


def _refused(document: Document, code: str, message: str, place: tuple[str, ...], fix: str = "") -> DocumentError:
    return DocumentError([document.diagnostic(code, message, place, fix=fix)])


# The graphs of a graph's document that are in files of their own: read, checked, and put in their place.


Compile = Callable[[str | bytes, str, ReadFile, Sequence[str]], tuple[Plan | None, list[Diagnostic]]]
"""Compiles a file: its text, its name, what reads the files beside it, and the files that led to it."""
_NOT_APPLIED = ("permissions", "approvals")


class Included:
    """A document with its files in place.

    Attributes:
        document: The document; an entry ``{file: …}`` of `graphs` is the graph of that file.
        keys: Names of the graphs that came from files: what is wrong in them is told with the file's own places.
        missing: Names of the graphs whose files cannot be used.
        agents: Normal forms of the agents that the files brought along, by name.
        findings: What is wrong with the files, and with naming them.
    """

    def __init__(
        self, document: Document, read_file: ReadFile | None, compile_file: Compile, chain: Sequence[str]
    ) -> None:
        self.document = document
        self.keys: set[str] = set()
        self.missing: set[str] = set()
        self.agents: dict[str, dict[str, Any]] = {}
        self.findings: list[Diagnostic] = []
        self._read, self._compile, self._chain = read_file, compile_file, (*chain, posixpath.normpath(document.source))
        entries = document.data.get("graphs") if isinstance(document.data, dict) else None
        named = entries if isinstance(entries, dict) else {}
        graphs = {key: entry for key, entry in named.items() if not _is_file(entry)}
        for key, entry in named.items():
            if _is_file(entry):
                self.keys.add(key)
                try:
                    graphs |= self._included(key, entry, graphs)
                except DocumentError as error:
                    self.findings += error.diagnostics
                    self.missing.add(key)
        if len(graphs) != len(named) or self.keys:
            self.document = dataclasses.replace(document, data={**document.data, "graphs": graphs})

    def _included(self, key: str, entry: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
        """Give the graph of a file, and the graphs that it brings along."""
        plan = self._plan(key, entry)
        own = plan.root
        dumped: dict[str, Any] = plan.graphs[own].dump()
        head = {name: value for name, value in dumped.items() if name not in ("loom", "kind", "name")}
        inner = head.pop("graphs", {})
        head.pop("version", None)
        for name in _NOT_APPLIED:
            if name in head:
                self._refuse("L011", f"the file of the graph `{key}` has `{name}`, which hold for the graph that is "
                             "started", (key, "file"), f"write `{name}` into this document")  # fmt: skip
        for name, agent in plan.agents.items():
            if self.agents.setdefault(name, dict(agent)) != agent or name in self.document.data.get("agents", {}):
                self._refuse("L011", f"the file of the graph `{key}` has an agent `{name}`, and so has something "
                             "else here", (key, "file"), "rename one of them")  # fmt: skip
        bodies = {name: _renamed(body, own, key) for name, body in {key: head, **inner}.items()}
        self.keys |= set(bodies)
        for name in inner:
            if name in taken or name in self.document.data["graphs"]:
                self._refuse("L011", f"the file of the graph `{key}` has a graph `{name}`, and so has something else "
                             "here", (key, "file"), "rename one of them")  # fmt: skip
        return bodies

    def _plan(self, key: str, entry: Mapping[str, Any]) -> Plan:
        text = read_named(self.document, "graphs", key, entry, self._read, "write the graph into this document")
        read, file = cast(ReadFile, self._read), entry["file"]
        folder = posixpath.dirname(file)
        place = posixpath.normpath(posixpath.join(posixpath.dirname(self.document.source), file))
        if place in self._chain:
            way = " → ".join(posixpath.basename(name) for name in (*self._chain[self._chain.index(place) :], place))
            message = f"the files of graphs lead back to where they began: {way}"
            self._refuse("L011", message, (key, "file"), "let a graph that runs itself name itself")
        plan, told = self._compile(text, place, lambda name: read(posixpath.join(folder, name)), self._chain)
        if plan is None or any(finding.severity == "error" for finding in told):
            raise DocumentError(told)
        self.findings += told
        return plan

    def _refuse(self, code: str, message: str, place: tuple[str, ...], fix: str = "") -> NoReturn:
        raise DocumentError([self.document.diagnostic(code, message, ("graphs", *place), fix=fix)])


def _is_file(entry: object) -> bool:
    return isinstance(entry, dict) and "file" in entry and "nodes" not in entry


def _renamed(body: Mapping[str, Any], own: str, key: str) -> dict[str, Any]:
    """Let nodes that run the file's graph by its name run it by the name that it has here."""
    nodes = {}
    for node_key, node in body["nodes"].items():
        node = dict(node)
        if node.get("graph") == own:
            node["graph"] = key
        for kind in ("map", "loop"):
            if kind in node and node[kind].get("do") == own:
                node[kind] = {**node[kind], "do": key}
        nodes[node_key] = node
    return {**body, "nodes": nodes}


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

    Returns:
        The plan: the graph with everything that it runs, under one content hash.

    Raises:
        DocumentError: The document is not a graph, or a check fails; it carries every finding, warnings too.
    """
    document = load_yaml(text, source)
    return compile_document(document, read_file=read_file, env=env, resolve=resolve, agents=agents, warned=warned)


def compile_document(
    document: Document,
    *,
    read_file: ReadFile | None = None,
    env: Mapping[str, str] | None = None,
    resolve: Resolve | None = None,
    agents: Mapping[str, Mapping[str, Any]] | None = None,
    warned: Callable[[Diagnostic], None] | None = None,
) -> Plan:
    """Compile a graph's document that was read already; `compile_graph` says what the arguments are.

    Raises:
        DocumentError: The document is not a graph, or a check fails; it carries every finding, warnings too.
    """
    plan, findings = _compiled(document, read_file, env or {}, resolve, agents or {})
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

    Args:
        text: The document's content.
        source: Its name in messages.
        read_file: Gives the content of a file that the document names, such as an agent's, by the name there.
        env: The environment's variables, for ``${env:NAME}`` in agents.
        resolve: Says what is wrong with the name of a tool, a model or an activity; None: nothing.
        contracts: Gives what a tool or an activity takes and gives, as JSON schemas; None: it is not known.

    Returns:
        The findings; empty: nothing is wrong. `compile_graph` refuses the document exactly if one of them is an error.
    """
    try:
        document = load_yaml(text, source)
    except DocumentError as error:
        return error.diagnostics
    return check_document(document, read_file=read_file, env=env, resolve=resolve, contracts=contracts)


def check_document(
    document: Document,
    *,
    read_file: ReadFile | None = None,
    env: Mapping[str, str] | None = None,
    resolve: Resolve | None = None,
    contracts: Contracts | None = None,
) -> list[Diagnostic]:
    """Give everything that is wrong with a graph's document that was read already, as `check_text` does."""
    try:
        return _compiled(document, read_file, env or {}, resolve, {}, contracts)[1]
    except DocumentError as error:
        return error.diagnostics


def _compiled(
    document: Document,
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
            document = load_yaml(text, source)
            return _compiled(document, read_file, env, resolve, {}, contracts, chain)
        except DocumentError as error:
            return None, error.diagnostics

    document = extended(of_kind(document, _KINDS), lambda name: shipped(name).dump(), NAMES)
    document, inline = with_graphs_moved(document)
    included = Included(document, read_file, compile_file, chain)
    document = included.document
    library = {name: shipped(name) for name in NAMES}
    # What is wrong with its file is told; that there is no such graph would be no news.
    library |= {name: Graph.model_construct(name=name, start="", nodes={}) for name in included.missing}
    agents, findings = agents_of(document, read_file, env)
    findings += [*inline, *_kept_name(document)]
    agents |= included.agents
    graph, wrong = model_findings(document, Graph, without_header(document.data, Graph), hint=misplaced)
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


def _kept_name(document: Document) -> list[Diagnostic]:
    """L103: a graph with the name of one that Loom ships would run in its place, below itself too."""
    name = document.data.get("name")
    if not isinstance(name, str) or not name.startswith("loom."):
        return []
    if name in NAMES and document.data == load_yaml(source_of(name), name).data:
        return []
    message = f"`{name}` is a name for graphs of Loom's own: they all begin with `loom.`"
    return [document.diagnostic("L103", message, ("name",), fix="give the graph another name")]


def _in_file(place: DocumentPath, keys: Set[str]) -> bool:
    return len(place) > 1 and place[0] == "graphs" and place[1] in keys


def _placed(document: Document, finding: Finding) -> Diagnostic:
    place = _written(document, finding.place)
    offset = None if finding.key else _offset(document.at(place), finding)
    found = document.diagnostic(finding.code, finding.message, place, fix=finding.fix, key=finding.key, offset=offset)
    return replace(found, severity=severity_of(finding.code))


def _offset(text: object, finding: Finding) -> int | None:
    """Where in a text the expression stands that a finding is about; None where that is not about one in it."""
    if not isinstance(text, str):
        return None
    try:
        found = list(holes(text)) if "${" in text else [(0, text)]
    except ExpressionError:
        return None
    for start, source in found:
        if finding.about and (column := column_of(source, finding.about)) is not None:
            return start + column - 1
    quoted = ((start, source.strip()) for start, source in found if start)
    return next((start for start, source in quoted if source and f"`{source}`" in finding.message), None)


def _written(document: Document, place: DocumentPath) -> DocumentPath:
    """Where the document has what the normal form has at a place: short forms leave steps out."""
    found: DocumentPath = ()
    value = document.data
    for part in place:
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value, found = value[part], (*found, part)
        elif part == "next" and isinstance(value, dict) and "approved" in value and len(place) > len(found) + 2:
            way = "approved" if place[len(found) + 2] == 0 else "rejected"
            return (*found, way) if way in value else found
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
