"""Where a job stands, laid over the picture of its plan."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.authoring.outline import counted_visits
from loom_dsl.graph.plan import Plan, runs
from loom_dsl.machine.status import JobStatus

_PART = re.compile(r"([^/#\[\]]+)(?:#\d+)?(?:\[\d+\])?")


@dataclass(frozen=True, slots=True)
class Overlay:
    """Counts by graph and node.

    Attributes:
        visits: How often the node was entered, in the frames that there are.
        tokens: How many tokens are at the node, by what they do there: ``running``, ``waiting`` for a decision, or
            ``here``. Of a job that has ended, where it ``failed``.
    """

    visits: dict[str, dict[str, int]] = field(default_factory=dict)
    tokens: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    def words(self, graph: str, node: str) -> list[str]:
        """Say what is known about a node, such as ``["3 visits", "1 running"]``."""
        count = self.visits.get(graph, {}).get(node, 0)
        found = [counted_visits(count)] if count else []
        return found + [f"{count} {word}" for word, count in self.tokens.get(graph, {}).get(node, {}).items()]

    def holds(self, graph: str, node: str) -> bool:
        """Whether a token is at the node."""
        return bool(self.tokens.get(graph, {}).get(node))


def overlay_of(plan: Plan, status: JobStatus) -> Overlay:
    """Count what a job's status has by node; places that the plan does not have are left out."""
    overlay = Overlay()
    for key, visits in status.visits.items():
        graph = key if key in plan.bodies else graph_at(plan, key)
        nodes = plan.bodies[graph].nodes if graph is not None else {}
        for node, count in visits.items():
            if graph is not None and node in nodes:
                counts = overlay.visits.setdefault(graph, {})
                counts[node] = counts.get(node, 0) + count
    running = set(status.running)
    asked = {approval.node for approval in status.approvals}
    for at in status.tokens:
        graph, node = _place(plan, at)
        if graph is not None:
            word = "running" if at in running else "waiting" if at in asked else "here"
            words = overlay.tokens.setdefault(graph, {}).setdefault(node, {})
            words[word] = words.get(word, 0) + 1
    return overlay


def overlay_of_events(plan: Plan, events: Iterable[Mapping[str, Any]]) -> Overlay:
    """Find out from a graph's events, in the store's form, which way it went: visits, and where it failed."""
    overlay = Overlay()
    for event in events:
        match event.get("t"):
            case "node_start" | "approval_requested":
                _count(plan, overlay.visits, str(event.get("node", "")))
            case "node_end" if event.get("outcome") == "failed" and not event.get("to"):
                graph, node = _place(plan, str(event.get("node", "")))
                if graph is not None:
                    words = overlay.tokens.setdefault(graph, {}).setdefault(node, {})
                    words["failed"] = words.get("failed", 0) + 1
            case "state" if isinstance(event.get("visits"), dict):
                # The root's are known to the last one; it tells also of what was over in the same moment.
                overlay.visits[plan.root] = {
                    node: count for node, count in event["visits"].items() if node in plan.bodies[plan.root].nodes
                }
    return overlay


def _count(plan: Plan, visits: dict[str, dict[str, int]], at: str) -> None:
    graph, node = _place(plan, at)
    if graph is not None:
        counts = visits.setdefault(graph, {})
        counts[node] = counts.get(node, 0) + 1


def _place(plan: Plan, at: str) -> tuple[str | None, str]:
    """Name the graph and the node of an execution; None where the plan has no such place."""
    above, _, last = at.rpartition("/")
    graph, found = graph_at(plan, above), _PART.fullmatch(last)
    if graph is None or found is None or found[1] not in plan.bodies[graph].nodes:
        return None, ""
    return graph, found[1]


def graph_at(plan: Plan, frame: str) -> str | None:
    """Name the graph of a frame, such as ``calls#1[0]/again#2[0]``; the root's key is empty."""
    graph: str | None = plan.root
    for part in frame.split("/") if frame else ():
        found = _PART.fullmatch(part)
        node = plan.bodies[graph].nodes.get(found[1]) if graph is not None and found else None
        graph = runs(plan, graph, node) if graph is not None and node is not None else None
    return graph
