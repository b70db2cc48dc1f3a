"""Graphs, agents and people for tests of the machine in memory."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

from loom_dsl.agent.states import TRANSITIONS, RunState
from loom_dsl.agent.turn import TurnState
from loom_dsl.errors import LoomError
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import WAITING, MachineState
from loom_dsl.simulation.in_memory import Handler, Outcome, Simulation
from loom_dsl.text.canonical import canonical_json

JOB = "job"
Decide = Callable[[str], str]
"""From where an approval stands to the choice, or ``expire``."""


class Broken(LoomError):
    """What an activity does fails."""

    code = "broken"


def graph(nodes: Mapping[str, Any], name: str = "main", start: str = "", **head: Any) -> Graph:
    """A graph of these nodes; it starts at the first."""
    document = {"loom": 1, "kind": "graph", "name": name, "start": start or next(iter(nodes)), "nodes": dict(nodes)}
    return Graph.model_validate({**document, **head})


def plan_of(nodes: Mapping[str, Any], **others: Any) -> Plan:
    """A plan whose root is `main`; other graphs by name, `on_abort` as a name."""
    head = {"on_abort": others.pop("on_abort")} if "on_abort" in others else {}
    graphs = {name: graph(inner, name) for name, inner in others.items()}
    return Plan("main", {"main": graph(nodes, **head), **graphs}, {})


def echo(command: RunActivity) -> Any:
    """Give the arguments back."""
    return command.arguments


def fail(command: RunActivity) -> Any:
    """Fail with the code of the arguments."""
    raise Broken("it broke")


def simulate(plan: Plan, *, input: Any = None, handlers: Mapping[str, Handler] | None = None, **how: Any) -> Simulation:
    """A plan without turns, whose activities are `echo`, `fail` and those given."""
    known = {"echo": echo, "fail": fail, **SYSTEM, **(handlers or {})}
    return Simulation(plan, MachineState(input=input), known, job=JOB, **how)


def run(plan: Plan, **how: Any) -> Outcome:
    """Run a plan without turns to its end."""
    return simulate(plan, **how).run()


SYSTEM: dict[str, Handler] = {
    "loom.events.flush": lambda command: None,
    "loom.approval.announce": lambda command: None,
}

AGENT: dict[str, Any] = {
    "name": "tester",
    "recurse": "per_turn",
    "limits": {
        "max_iterations": 5,
        "max_tool_calls": None,
        "max_tool_rounds": None,
        "max_cost_usd": None,
        "max_run_duration": "2h",
        "max_concurrency": 10,
    },
    "approvals": {"expires": "24h", "on_expiry": "deny"},
}


def agent_plan(**changes: Any) -> Plan:
    """The plan of one agent; `changes` are limits, approvals or recurse."""
    agent = {**AGENT, **{key: changes.pop(key) for key in ("approvals", "recurse") if key in changes}}
    agent["limits"] = {**AGENT["limits"], **changes}
    return Plan("loom.tt", {name: shipped(name) for name in NAMES}, agent)


def call(number: int, name: str = "read", **traits: Any) -> dict[str, Any]:
    """A tool call as the model activity gives it. `ask` in its name asks a human."""
    safe = name.startswith("read")
    return {"id": f"c{number}", "name": name, "safe": safe, "key": None, "quick": False, "timeout": 120, **traits}


class Agent:
    """An agent in memory: what its model says turn by turn, and what its tools do.

    Attributes:
        sim: The simulation.
        injected: Ids of messages that reached the model's input.
        executed: Ids of the calls that ran, in order.
    """

    def __init__(
        self, turns: Sequence[Sequence[dict[str, Any]]], *, handlers: Mapping[str, Handler] | None = None, **how: Any
    ) -> None:
        self.turns, self.injected, self.executed = turns, list[str](), list[str]()
        self.model_calls = 0
        plan = how.pop("plan", None) or agent_plan(**{key: how.pop(key) for key in list(how) if key in _AGENT_KEYS})
        limit = plan.agent["limits"]["max_iterations"]
        state = how.pop("state", None) or MachineState(turn=TurnState.initial(JOB, max_iterations=limit))
        self.sim = Simulation(plan, state, {**self._handlers(), **SYSTEM, **(handlers or {})}, job=JOB, **how)

    def _handlers(self) -> dict[str, Handler]:
        return {
            "loom.context.assemble": self._assemble,
            "loom.model.call": self._model,
            "loom.tool.discover": lambda command: {"ok": True},
            "loom.tool.validate": lambda command: {"ok": True, "arguments": command.arguments["edited"] or "given"},
            "loom.tool.authorize": self._authorize,
            "loom.tool.check_cancel": lambda command: {"ok": True},
            "loom.tool.execute": self._execute,
            "loom.tool.format": lambda command: {
                "id": command.arguments["call"]["id"],
                "outcome": command.arguments["outcome"],
            },
            "loom.turn.feedback": lambda command: {"entries": command.arguments["entries"] + 1},
            "loom.job.result": self._conclude,
            "loom.signal.time": lambda command: {"sent": None},
        }

    def _assemble(self, command: RunActivity) -> Any:
        self.injected += [message["id"] for message in command.arguments["inject"]]
        return {"entries": command.arguments["entries"], "context": {}}

    def _model(self, command: RunActivity) -> Any:
        turn = self.sim.machine.state.turn
        assert turn is not None
        self.model_calls += 1
        calls = self.turns[turn.turn_counter] if turn.turn_counter < len(self.turns) else []
        usage = {"prompt_tokens": 10, "completion_tokens": 1}
        return {"entries": turn.entries + 1, "usage": usage, "cost": 1000, "calls": list(calls)}

    def _authorize(self, command: RunActivity) -> Any:
        wanted = command.arguments["call"]
        if wanted["name"].startswith("deny"):
            return {"decision": "deny", "code": "permission_denied"}
        rule = f"{wanted['name']}(*)"
        asks = "ask" in wanted["name"] and not command.arguments["approved"]
        if asks and rule not in command.arguments["remembered"]:
            policy = {"expires": None, "on_expiry": "deny", **self.sim.machine.plan.agent_names["approvals"]}
            request = {"tool": wanted["name"], "call_id": wanted["id"], "rules": [rule]}
            return {"decision": "ask", "request": request, "policy": policy}
        return {"decision": "allow"}

    def _execute(self, command: RunActivity) -> Any:
        self.executed.append(command.arguments["call"]["id"])
        if command.arguments["call"]["name"].endswith("broken"):
            raise Broken("the tool broke")
        return {"ok": True, "arguments": command.arguments["arguments"]}

    def _conclude(self, command: RunActivity) -> Any:
        given = command.arguments
        error = {"code": given.get("code"), "message": given.get("message", "")}
        return {"status": given["status"], "result": {"status": given["status"]}, "content": "blob", "error": error}

    def run(self, decide: Decide | None = None, pick: Callable[[], int] = lambda: 0) -> Outcome:
        """Run to the end; approvals are decided when nothing else can happen, or wait for ever without `decide`."""
        drive(self.sim, decide, pick)
        return self.sim.outcome


_AGENT_KEYS = {*AGENT["limits"], "approvals", "recurse"}


def approvals(sim: Simulation) -> list[tuple[str, str]]:
    """Where the open approvals stand, and their ids."""
    tokens = sim.machine.state.in_order()
    return [(token.at, token.kept(ApprovalRecord).id) for token in tokens if token.status == WAITING]


def drive(sim: Simulation, decide: Decide | None = None, pick: Callable[[], int] = lambda: 0) -> None:
    """Go on until the job is over. Checks after every step that the state survives JSON."""
    for _ in range(20_000):
        check_state(sim.machine.state)
        undecided = [(at, name) for at, name in approvals(sim) if decide is not None and decide(at) != "expire"]
        if undecided and not sim.work and not sim.outcome.over:
            at, name = undecided[pick() % len(undecided)]
            assert decide is not None
            sim.signal("loom.decision", decision(name, decide(at)))
        elif not sim.step(pick()):
            return
    raise AssertionError("the simulation does not end")


def decision(name: str, choice: str, **more: Any) -> dict[str, Any]:
    """The payload of a decision."""
    edited = {"edited_arguments": {"edited": True}} if choice == "edit" else {}
    return {"approval_id": name, "choice": choice, "by": "ada", **edited, **more}


def check_state(state: MachineState) -> None:
    """The state is JSON, and reading it gives the same state."""
    written = canonical_json(state.to_json())
    assert canonical_json(MachineState.from_json(json.loads(written)).to_json()) == written


def types(outcome: Outcome) -> list[str]:
    """The types of everything that observers were told."""
    return [event["t"] for event in outcome.events]


def of_type(outcome: Outcome, kind: str) -> list[dict[str, Any]]:
    """The events of a type."""
    return [event for event in outcome.events if event["t"] == kind]


def check_states(outcome: Outcome) -> None:
    """Every change of the run's state is one that the table has, and follows the one before."""
    now = RunState.IDLE
    for event in of_type(outcome, "state"):
        assert event["from"] == now
        new = RunState(event["state"])
        assert new in TRANSITIONS[now], f"{now} to {new}"
        now = new


def by_branch(outcome: Outcome) -> dict[str, list[tuple[str, str]]]:
    """The trace of each branch: a map's item, or the graph itself, turn by turn."""
    branches: dict[str, list[tuple[str, str]]] = {}
    for at, verdict in outcome.trace:
        frame, _, node = at.rpartition("/")
        branches.setdefault(frame, []).append((node, verdict))
    return branches


def chance(seed: int) -> Callable[[], int]:
    """Picks that look random and are the same for a seed."""
    source = random.Random(seed)
    return lambda: source.randrange(1_000)


def drawn(text: str, of: int) -> int:
    """A number below `of` that a text always has."""
    return crc32(text.encode()) % of
