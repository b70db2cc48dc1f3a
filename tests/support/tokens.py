"""Graphs whose activities a test finishes one by one, in the order that it wants."""

from collections.abc import Mapping
from typing import Any

from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import ActivityDone, ActivityFailed, CancelActivity, RunActivity, TimerFired
from loom_dsl.simulation.in_memory import Handler, Outcome, Simulation
from tests.support.simulated import check_state, graph, simulate

DONE: dict[str, Any] = {"end": "${result}"}


def plan(nodes: Mapping[str, Any], **head: Any) -> Plan:
    """A plan of one document: `graphs`, `state`, `input` and the like as it has them."""
    return Plan("main", {"main": graph(nodes, **head)}, {})


def work(then: Any = None, **more: Any) -> dict[str, Any]:
    """An activity that gives its name; `then` is its `next`."""
    return {"activity": "name", **({} if then is None else {"next": then}), **more}


ITEM = {"nodes": {"w": work("z"), "z": {"end": "${[item, result]}"}}}
"""A graph for a map: an activity that gives the item with its own name."""
WAIT = {"nodes": {"w": {"event": "go", "next": "z"}, "z": DONE}}
INNER = {"nodes": {"w": work("e"), "e": {"event": "inner", "next": "z"}, "z": DONE}}


def one(node: dict[str, Any], graphs: dict[str, Any], **head: Any) -> Plan:
    """A graph with one node that runs others, and an activity after it."""
    nodes = {"n": {"next": "after", **node}, "after": work("z"), "z": {"end": "${nodes.n}"}}
    return plan({**nodes, "caught": {"end": "${result.code}"}}, graphs=graphs, **head)


def name(command: RunActivity) -> str:
    """Give the node's name."""
    return command.at.rpartition("/")[2].partition("#")[0]


def begin(given: Plan, *, input: Any = None, handlers: Mapping[str, Handler] | None = None, **how: Any) -> Simulation:
    """Start a plan; nothing has run yet."""
    return simulate(given, input=input, handlers={"name": name, **(handlers or {})}, **how)


def running(sim: Simulation) -> list[str]:
    """What is in flight, without what belongs to no token."""
    return [given.at for given in sim.work if not given.at.startswith("~")]


def finish(sim: Simulation, *names: str) -> Simulation:
    """Finish activities, one after the other; each by what its name ends with or begins with."""
    for wanted in names:
        check_state(sim.machine.state)
        while not _places(sim, wanted) and any(given.at.startswith("~") for given in sim.work):
            sim.step([given.at.startswith("~") for given in sim.work].index(True))
        found = _places(sim, wanted)
        assert found, f"{wanted} does not run; what runs: {running(sim)}"
        sim.step(found[0])
    return sim


def _places(sim: Simulation, wanted: str) -> list[int]:
    full = [index for index, given in enumerate(sim.work) if given.at == wanted]
    short = [given.at.rpartition("/")[2].partition("#")[0] for given in sim.work]
    return full or [index for index, called in enumerate(short) if called == wanted]


def rest(sim: Simulation) -> Outcome:
    """Run everything else to the end."""
    outcome = sim.run()
    assert outcome.over, f"it stands still: {sorted(sim.machine.state.tokens)}"
    return outcome


def ended(sim: Simulation) -> list[str]:
    """What has run to its end, in order."""
    return [at.partition("/")[2] for at, _ in sim.outcome.trace]


def event(sim: Simulation, called: str, data: Any = None, **more: Any) -> str:
    """Send an event, and give the verdict. Between two runs it is sent as a signal, which has none."""
    slot = f"event {len(sim.outcome.answers)}"
    sim.signal("loom.event", {"name": called, "data": data, **more}, answer_to=slot)
    if sim.outcome.answers[slot] == "retry":
        sim.signal("loom.event", {"name": called, "data": data, **more})
        return "recorded"
    return sim.outcome.answers[slot]


def control(sim: Simulation, op: str, **more: Any) -> None:
    """Pause, resume or abort."""
    sim.signal("loom.control", {"op": op, **more})


def pass_time(sim: Simulation) -> None:
    """Jump to the next deadline, whatever runs."""
    at = min(sim.timers, key=lambda timer: (sim.timers[timer], timer))
    sim.now = sim.timers.pop(at)
    sim._feed(TimerFired(now=sim.now, at=at))


class Slow(Simulation):
    """Activities that are cancelled report only when the test says so."""

    def __init__(self, given: Plan, **how: Any) -> None:
        twin = begin(given)
        self.cancelled: list[str] = []
        super().__init__(given, twin.machine.state.from_json({}), twin.handlers, job="job", **how)

    def _obey(self, command: Any) -> None:
        if isinstance(command, CancelActivity):
            self.cancelled.append(command.at)
        else:
            super()._obey(command)

    def report(self, at: str, *, done: bool = False) -> None:
        """A cancelled activity ends: cancelled, or done all the same."""
        self.work = [given for given in self.work if given.at != at]
        self.cancelled.remove(at)
        failed = ActivityFailed(now=self.now, at=at, code="cancelled", message="cancelled", cancelled=True)
        self._feed(ActivityDone(now=self.now, at=at, result="late") if done else failed)
