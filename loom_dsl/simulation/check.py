"""Whether a scenario fits a graph: every name that it says is there, before anything is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loom_dsl.documents.document import Document
from loom_dsl.errors import Diagnostic, UserError
from loom_dsl.expr.template import may_be
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.edges import Node
from loom_dsl.graph.graph import checked_input
from loom_dsl.graph.nodes import Approval, ToolCallNode
from loom_dsl.graph.plan import Plan
from loom_dsl.simulation.names import event_names, node_names, nodes_named, runs_something, work_names, written_below
from loom_dsl.simulation.scenario import Expected, Given, LoadedScenario, ScenarioCase
from loom_dsl.text.wording import suggest

TOOL_CHOICES = ("approve", "edit", "reject")


def check_scenario(loaded: LoadedScenario, plan: Plan) -> list[Diagnostic]:
    """Give everything in a scenario that the graph does not have, in the order of the document."""
    scenario, names = loaded.scenario, _Names(loaded.document, plan)
    found = [*_graph_named(loaded, plan), *names.given(scenario, ())]
    for index, case in enumerate(scenario.cases):
        found += names.given(case, ("cases", index))
    for index, whole in enumerate(scenario.whole_cases()):
        own = scenario.cases and scenario.cases[index].input
        found += names.input(whole, ("cases", index) if own else ())
    return sorted(dict.fromkeys(found), key=lambda one: (one.line or 0, one.column or 0))


def _graph_named(loaded: LoadedScenario, plan: Plan) -> Iterator[Diagnostic]:
    named = loaded.scenario.graph
    if named is not None and loaded.scenario.graph_file() is None and named != plan.root:
        message = f"the scenario is for the graph `{named}`, and this one is `{plan.root}`"
        yield loaded.document.diagnostic("L004", message, ("graph",), fix="give its graph, or leave `graph` out")


@dataclass(frozen=True)
class _Names:
    document: Document
    plan: Plan

    def given(self, given: Given, at: DocumentPath) -> Iterator[Diagnostic]:
        """What one run says, or all runs."""
        for name in given.results:
            yield from self._work(name, (*at, "results", name))
        for name, decisions in given.decisions.items():
            yield from self._decisions(name, [one.choice for one in decisions], (*at, "decisions", name))
        for index, event in enumerate(given.events):
            place = (*at, "events", index)
            known = event_names(self.plan)
            if not any(may_be(name, event.name) for name in known):
                what = f"nothing in the graph waits for the event `{event.name}`"
                yield self._finding(what, event.name, known, (*place, "name"), key=False)
            yield from self._when(event.when, place)
        for index, steered in enumerate(given.steering):
            yield from self._when(steered.when, (*at, "steering", index))
        yield from self._expected(given.expect, (*at, "expect"))

    def input(self, case: ScenarioCase, at: DocumentPath) -> Iterator[Diagnostic]:
        """Whether the graph can be started with what a run gives it."""
        body = self.plan.bodies[self.plan.root]
        if not body.input and not case.input:
            return
        try:
            checked_input(self.plan.root, body, case.input)
        except UserError as error:
            yield self.document.diagnostic("L004", error.message, (*at, "input"))

    def _work(self, name: str, place: DocumentPath) -> Iterator[Diagnostic]:
        nodes, known = nodes_named(self.plan, name), work_names(self.plan)
        if name in known or any(map(runs_something, nodes)) or written_below(self.plan, name):
            return
        if nodes:
            kind = nodes[0].kind
            hint = "say in `decisions` what is decided" if kind == "approval" else "its result follows from the graph"
            message = f"`{name}` is of the kind `{kind}`, and does no work"
            yield self.document.diagnostic("L004", message, place, fix=hint, key=True)
            return
        yield self._finding(f"the graph has no node and runs nothing called `{name}`", name, known, place)

    def _decisions(self, name: str, choices: Sequence[str | None], place: DocumentPath) -> Iterator[Diagnostic]:
        asking = [node for node in nodes_named(self.plan, name) if isinstance(node, Approval | ToolCallNode)]
        if not asking:
            if written_below(self.plan, name):
                return
            if nodes_named(self.plan, name):
                message = f"`{name}` asks nobody: only approvals and tools do"
                yield self.document.diagnostic("L004", message, place, key=True)
            else:
                yield self._finding(f"the graph has no node `{name}`", name, (), place)
            return
        for index, choice in enumerate(choices):
            allowed = sorted({one for node in asking for one in _choices(node)})
            if choice is not None and choice not in allowed:
                message = f"`{choice}` is no choice of `{name}`"
                fix = suggest(choice, allowed) or f"its choices are {', '.join(allowed)}"
                yield self.document.diagnostic("L004", message, self._inside(place, index, "choice"), fix=fix)

    def _expected(self, expect: Expected, at: DocumentPath) -> Iterator[Diagnostic]:
        for field in ("visits", "arguments"):
            for name in getattr(expect, field):
                yield from self._node(name, (*at, field, name), key=True)
        for index, name in enumerate(expect.waits or ()):
            yield from self._node(name, (*at, "waits", index))
        for branch, entries in expect.trace.items():
            for index, entry in enumerate(entries):
                full = entry.partition(":")[0]
                name = full if branch == "main" or "/" in full else f"{branch}/{full}"
                yield from self._node(name, self._inside((*at, "trace"), branch, index))

    def _when(self, name: str | None, place: DocumentPath) -> Iterator[Diagnostic]:
        if name is not None:
            yield from self._node(name, (*place, "when"))

    def _node(self, name: str, place: DocumentPath, *, key: bool = False) -> Iterator[Diagnostic]:
        if not nodes_named(self.plan, name) and not written_below(self.plan, name):
            yield self._finding(f"the graph has no node `{name}`", name, (), place, key=key)

    def _finding(
        self, message: str, name: str, known: Sequence[str], place: DocumentPath, *, key: bool = True
    ) -> Diagnostic:
        names = [*known, *(node_names(self.plan) if key or not known else ())]
        plain = name.rpartition("/")[2].partition("#")[0]
        fix = suggest(name, names) or suggest(plain, names)
        if not fix and names:
            fix = f"it has {', '.join(names[:12])}{' and more' if len(names) > 12 else ''}"
        return self.document.diagnostic("L004", message, place, fix=fix, key=key)

    def _inside(self, place: DocumentPath, *rest: str | int) -> DocumentPath:
        """The part of a path that the document has: short forms leave some of it out."""
        for part in rest:
            try:
                value = self.document.at((*place, part))
            except KeyError:
                continue
            place = (*place, part) if value is not None else place
        return place


def _choices(node: Node) -> Sequence[str]:
    return node.approval.choices if isinstance(node, Approval) else TOOL_CHOICES
