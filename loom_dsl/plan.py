"""A plan: compiled graphs under one content hash, pinned for a job's whole life."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loom_dsl.canonical import canonical_json, digest
from loom_dsl.duration import parse_duration
from loom_dsl.errors import PlanError
from loom_dsl.expr import Expression, compile_expression
from loom_dsl.graph import Graph, Node
from loom_dsl.template import Template, compile_template

ENGINE = 1
"""Version of the interpreter. A changed interpreter keeps the old one for the jobs that began under it."""


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan on its way to a workflow. On the wire it is its hash; the store holds the text."""

    text: str


class Plan:
    """Graphs by name, the one where a job starts, and the agent whose turn they are.

    Attributes:
        root: Name of the graph where the job starts.
        graphs: All graphs, by name.
        agent: The agent's definition in normal form, or an empty mapping for a graph without one.
        agent_names: The agent as expressions read it: durations in seconds, null for never.
        text: The plan as canonical JSON.
        hash: SHA-256 of the text: the plan's name.
    """

    def __init__(self, root: str, graphs: Mapping[str, Graph], agent: Mapping[str, Any]) -> None:
        self.root = root
        self.graphs = dict(graphs)
        self.agent = dict(agent)
        dumped = {name: graph.dump() for name, graph in sorted(self.graphs.items())}
        self.text = canonical_json({"engine": ENGINE, "root": root, "graphs": dumped, "agent": self.agent})
        self.hash = digest(self.text)
        self.agent_names = _in_seconds(self.agent)
        self._templates: dict[tuple[str, str, str], Template] = {}

    @classmethod
    def load(cls, text: str) -> "Plan":
        """Read a plan's text. Plans are kept by content, so that a run does not parse what the one before did.

        Raises:
            PlanError: The text is not a plan of this engine.
        """
        return _load(text)

    def node(self, graph: str, key: str) -> Node:
        """The node with this id."""
        node: Node = self.graphs[graph].nodes[key]
        return node

    def template(self, graph: str, key: str, slot: str, value: Any) -> Template:
        """The compiled mapping in one slot of a node."""
        place = (graph, key, slot)
        if place not in self._templates:
            self._templates[place] = compile_template(value)
        return self._templates[place]


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
        plan = Plan(raw["root"], graphs, raw["agent"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PlanError("the text is not a plan") from None
    if plan.text != text:
        raise PlanError("the plan's text is not in normal form, so its hash would not name it")
    return plan


@lru_cache(maxsize=4096)
def condition(source: str) -> Expression:
    """A compiled condition, kept by its text."""
    return compile_expression(source)
