"""Graphs written in Python: the same graphs, with the content hash of the same YAML.

    g = GraphBuilder("release", input={"version": "str"})
    made = g.activity("make", "my.make", version=g.input.version).to("agree")
    agree = g.approval("agree", f"Ship {made.out.version}?").after("24h", "late")
    agree.when(R.choice == "approve", "done").otherwise("late")
    g.end("done", version=made.out.version)
    g.fail("late", "nobody agreed")
    graph = g.build()

The first node is where the graph starts. Edges name nodes by their ids, or by what added them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from loom_dsl.agent.definition import Agent
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.documents.document import Document
from loom_dsl.documents.validation import model_findings
from loom_dsl.errors import Diagnostic, DocumentError, UserError
from loom_dsl.graph.builder.body import BodyBuilder
from loom_dsl.graph.builder.expressions import (
    Expr,
    R,
    agent,
    event,
    index,
    input,
    item,
    limits,
    nodes,
    run,
    state,
    to_json,
    turn,
)
from loom_dsl.graph.builder.handles import RetryOptions, refuse
from loom_dsl.graph.checks.unit import Resolve
from loom_dsl.graph.compiler import ReadFile, compile_graph
from loom_dsl.graph.dump import to_yaml
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.hints import misplaced
from loom_dsl.graph.inline import with_graphs_moved
from loom_dsl.graph.plan import Plan
from loom_dsl.permissions.policy import Permissions

__all__ = [
    "BodyBuilder", "Expr", "GraphBuilder", "R", "agent", "event", "index", "input", "item", "limits", "nodes", "run",
    "state", "turn",
]  # fmt: skip

TypeName = Literal["any", "str", "int", "float", "bool", "list", "dict"]


class InputOptions(TypedDict, total=False):
    """A value that a graph is started with."""

    type: TypeName
    default: Any
    optional: bool
    doc: str


class StateOptions(TypedDict, total=False):
    """A variable of a graph."""

    type: TypeName
    reduce: Literal["replace", "append", "extend", "add", "merge", "min", "max"]
    default: Any
    doc: str


class DefaultOptions(TypedDict, total=False):
    """What activities have that do not say it themselves."""

    timeout: str | float
    heartbeat: str | float
    retry: RetryOptions


Inputs: TypeAlias = Mapping[str, TypeName | InputOptions]
States: TypeAlias = Mapping[str, TypeName | StateOptions]


class BodyOptions(TypedDict, total=False):
    """What every graph may say of itself."""

    doc: str
    input: Inputs
    state: States


class GraphOptions(BodyOptions, total=False):
    """What a document may say of itself."""

    version: str
    permissions: Permissions | Mapping[str, Sequence[str] | str | bool]
    approvals: ApprovalPolicy | Mapping[str, str]
    hooks: Mapping[str, str]
    agents: Mapping[str, Agent | Mapping[str, Any]]
    defaults: DefaultOptions


class GraphBuilder(BodyBuilder):
    """A graph, as a document would have it, with the graphs that its nodes run.

    Args:
        name: The graph's name.
        options: `doc`, `version`, `input`, `state`, `permissions`, `approvals`, `hooks`, `agents` by name, and
            `defaults` of its activities.
    """

    def __init__(self, name: str, /, **options: Unpack[GraphOptions]) -> None:
        given: dict[str, Any] = {**options}
        agents = {key: _plain(value) for key, value in given.pop("agents", {}).items()}
        given |= {key: _plain(given[key]) for key in ("permissions", "approvals") if key in given}
        super().__init__(name, agents, given)
        self._graphs: dict[str, BodyBuilder] = {}

    def graph(self, name: str, /, **options: Unpack[BodyOptions]) -> BodyBuilder:
        """Add a graph that maps, loops and subgraphs of this document run.

        Args:
            name: Its name, by which nodes can name it too.
            options: `doc`, `input` and `state`.

        Returns:
            The graph, to add its nodes to.

        Raises:
            DocumentError: The document has a graph of this name.
        """
        if name in self._graphs:
            refuse(f"there is another graph `{name}` in this document", self.name)
        self._graphs[name] = BodyBuilder(name, self._agents, {**options})
        return self._graphs[name]

    def build(self) -> Graph:
        """Give the graph, checked against the schema. `compile` makes the other checks.

        Raises:
            DocumentError: A node, or what the graph says of itself, is not what it should be; all findings at once.
        """
        document = {"name": self.name, **self._document()}
        if self._agents:
            document["agents"] = self._agents
        if self._graphs:
            document["graphs"] = {name: body._document() for name, body in self._graphs.items()}
        try:
            data = to_json(document)
        except UserError as error:
            refuse(error.message, self.name)
        written, wrong = with_graphs_moved(Document(data, self.name, {}, {}))
        graph, findings = model_findings(written, Graph, written.data, hint=misplaced)
        if graph is None or wrong:
            raise DocumentError(_without_place([*wrong, *findings]))
        return graph

    def compile(
        self,
        *,
        read_file: ReadFile | None = None,
        env: Mapping[str, str] | None = None,
        resolve: Resolve | None = None,
    ) -> Plan:
        """Give the plan, with every check that a document's plan has passed.

        Args:
            read_file: Gives the content of a file that the graph names, such as an agent's, by the name there.
            env: The environment's variables, for ``${env:NAME}`` in agents.
            resolve: Says what is wrong with the name of a tool, a model or an activity; None: nothing.

        Returns:
            The plan that the same graph in YAML has, under the same hash.

        Raises:
            DocumentError: A check fails; carries every finding, without lines, for there is no text.
        """
        try:
            return compile_graph(to_yaml(self.build()), self.name, read_file=read_file, env=env, resolve=resolve)
        except DocumentError as error:
            raise DocumentError(_without_place(error.diagnostics)) from None


def _without_place(findings: Sequence[Diagnostic]) -> list[Diagnostic]:
    # Lines would be those of a text that nobody has written; the messages name the nodes.
    return [replace(finding, line=None, column=None) for finding in findings]


def _plain(value: Any) -> Any:
    models = (Agent, Permissions, ApprovalPolicy)
    return value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, models) else value
