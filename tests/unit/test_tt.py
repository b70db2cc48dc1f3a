"""A turn as a graph: how turns end, what observers are told, and that nobody can disturb it (mission A3–A7, B1)."""

from collections import Counter
from typing import Any

import pytest

from loom_dsl.agent.states import RunState
from loom_dsl.agent.turn import TurnState, turn_id
from loom_dsl.machine.commands import Drain, RunActivity, Started
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.state import MachineState
from loom_dsl.observe.events import decode
from loom_dsl.simulation.in_memory import Outcome
from tests.support.simulated import (
    JOB,
    Agent,
    Broken,
    agent_plan,
    approvals,
    by_branch,
    call,
    chance,
    check_states,
    decision,
    fail,
    of_type,
    types,
)

READ, ASK, WRITE = call(0, "read"), call(1, "write_ask"), call(2, "write")
NEVER = {"expires": "never", "on_expiry": "deny"}
REFERENCE = [[READ, ASK, call(2, "write"), call(3, "read_ask")], [call(4, "deny_it"), call(5, "read_broken")], []]
"""Two turns with calls of every kind, and the answer."""


def finished(agent: Agent, choice: str = "approve", **how: Any) -> Outcome:
    outcome = agent.run(lambda at: choice, **how)
    assert outcome.over
    check_states(outcome)
    return outcome


def counts(outcome: Outcome) -> dict[str, int]:
    told = Counter(types(outcome))
    return {
        kind: told[kind]
        for kind in ("iteration_start", "max_iterations_reached", "execution_cancelled", "recursion", "agent_finish")
        if told[kind]
    }


# -- how a job ends ----------------------------------------------------------------------------------------------------


def test_an_answer_without_tools_is_one_turn() -> None:
    agent = Agent([[]])
    outcome = finished(agent)
    assert counts(outcome) == {"iteration_start": 1, "agent_finish": 1}
    assert outcome.result == {"status": "completed"}
    assert agent.model_calls == 1
    assert {event["n"] for event in outcome.events} == {0}
    (end,) = of_type(outcome, "agent_finish")
    assert (end["content"], end["turn_counter"], end["total_llm_calls"]) == ({"$blob": "blob"}, 0, 1)


def test_one_tool_call_is_two_turns_and_one_recursion() -> None:
    agent = Agent([[READ], []])
    outcome = finished(agent)
    assert counts(outcome) == {"iteration_start": 2, "recursion": 1, "agent_finish": 1}
    assert agent.model_calls == 2
    (recursion,) = of_type(outcome, "recursion")
    read = decode(JOB, 1, recursion)
    assert read.data == {"from_turn": turn_id(JOB, 0), "to_turn": turn_id(JOB, 1), "depth": 1}
    assert [event["iteration"] for event in of_type(outcome, "iteration_start")] == [0, 1]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_limit_of_turns_is_the_number_of_model_calls(limit: int) -> None:
    agent = Agent([[READ]] * 10, max_iterations=limit)
    outcome = finished(agent)
    assert agent.model_calls == limit
    assert counts(outcome) == {"iteration_start": limit + 1, "max_iterations_reached": 1} | (
        {"recursion": limit} if limit else {}
    )
    (reached,) = of_type(outcome, "max_iterations_reached")
    assert (reached["turn_counter"], reached["max_iterations"]) == (limit, limit)
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.details) == ("max_iterations", {"status": "failed"})
    assert outcome.events[-1]["t"] in ("state", "phase_end")
    assert of_type(outcome, "state")[-1]["state"] == "failed"


@pytest.mark.parametrize(
    ("limits", "code", "model_calls"),
    [
        # Refused is what goes too far, so that the model may still answer after the last call that it has.
        ({"max_tool_calls": 4}, "max_tool_calls", 3),
        ({"max_tool_calls": 3}, "max_tool_calls", 2),
        ({"max_tool_calls": 0}, "max_tool_calls", 1),
        ({"max_tool_rounds": 3}, "max_tool_rounds", 4),
        ({"max_cost_usd": 0.0025}, "max_cost", 3),
        ({"max_run_duration": "0s"}, "max_run_duration", 0),
        ({"max_tool_calls": 4, "max_tool_rounds": 1}, "max_tool_rounds", 2),
    ],
)
def test_every_limit_ends_the_job_by_its_name(limits: dict[str, Any], code: str, model_calls: int) -> None:
    agent = Agent([[READ, call(1)]] * 10, **limits)
    outcome = finished(agent)
    assert outcome.failure is not None
    assert outcome.failure.code == code
    assert agent.model_calls == model_calls


def test_a_job_that_is_aborted_beforehand_calls_no_model() -> None:
    state = MachineState(turn=TurnState.initial(JOB, max_iterations=5), abort={"by": "ada", "reason": "no need"})
    agent = Agent([[READ]], state=state)
    outcome = finished(agent)
    assert agent.model_calls == 0
    assert counts(outcome) == {"execution_cancelled": 1}
    assert [event["reason"] for event in of_type(outcome, "aborted")] == ["no need"]
    assert outcome.result == {"status": "aborted"}


@pytest.mark.parametrize(
    ("activity", "code"),
    [("loom.model.call", "broken"), ("loom.context.assemble", "broken"), ("loom.turn.feedback", "broken")],
)
def test_what_breaks_for_good_is_settled_and_ends_as_failed(activity: str, code: str) -> None:
    settled: list[RunActivity] = []

    def conclude(command: RunActivity) -> Any:
        settled.append(command)
        return {"status": "failed", "result": {"status": "failed"}, "content": "", "error": dict(command.arguments)}

    agent = Agent([[READ], []], handlers={activity: fail, "loom.job.result": conclude})
    outcome = finished(agent)
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.details) == (code, {"status": "failed"})
    assert [command.arguments["status"] for command in settled] == ["failed"]
    assert [event["error"] for event in of_type(outcome, "error")] == [code]


@pytest.mark.parametrize("answer", ["completed", "failed"])
def test_a_result_that_cannot_be_made_still_ends_the_job(answer: str) -> None:
    broken = {"loom.job.result": fail} | ({"loom.model.call": fail} if answer == "failed" else {})
    outcome = finished(Agent([[]], handlers=broken))
    assert outcome.failure is not None
    assert outcome.failure.code == "broken"
    assert of_type(outcome, "state")[-1]["state"] == "failed"


# -- what happens to a call --------------------------------------------------------------------------------------------


class Watched(Agent):
    """Also keeps what the tool messages were made of, and what the feedback step was given."""

    def __init__(self, *args: Any, **how: Any) -> None:
        self.formatted: list[dict[str, Any]] = []
        self.fed: list[Any] = []
        super().__init__(*args, **how)

    def _handlers(self) -> dict[str, Any]:
        known = super()._handlers()
        form, feed = known["loom.tool.format"], known["loom.turn.feedback"]

        def formatted(command: RunActivity) -> Any:
            made = form(command)
            self.formatted.append({**made, "asked": command.arguments["asked"]})
            return made

        def fed(command: RunActivity) -> Any:
            self.fed.append(command.arguments)
            return feed(command)

        return {**known, "loom.tool.format": formatted, "loom.turn.feedback": fed}


@pytest.mark.parametrize(
    ("choice", "ran", "outcome"),
    [
        ("approve", True, {"ok": True, "arguments": "given"}),
        ("edit", True, {"ok": True, "arguments": {"edited": True}}),
        ("reject", False, {"choice": "reject", "by": "ada", "message": ""}),
    ],
)
def test_a_decision_is_what_happens_to_the_call(choice: str, ran: bool, outcome: Any) -> None:
    agent = Watched([[ASK], []])
    finished(agent, choice)
    assert agent.executed == (["c1"] if ran else [])
    assert [made["outcome"] for made in agent.formatted] == [outcome]


@pytest.mark.parametrize(("policy", "ran"), [("deny", []), ("allow", ["c1"])])
def test_an_approval_that_expires_does_what_the_agent_says(policy: str, ran: list[str]) -> None:
    agent = Watched([[ASK], []], approvals={"expires": "24h", "on_expiry": policy})
    start = agent.sim.now
    outcome = finished(agent, "expire")
    assert agent.executed == ran
    assert agent.sim.now == start + 86_400
    assert outcome.result == {"status": "completed"}
    if policy == "deny":
        assert agent.formatted[0]["outcome"]["choice"] == "expired"


def test_an_approval_that_never_expires_waits() -> None:
    agent = Agent([[ASK], []], approvals=NEVER)
    outcome = agent.run()
    assert not outcome.over
    assert agent.sim.machine.state.run_state == RunState.AWAITING_HUMAN
    assert agent.sim.timers == {}


@pytest.mark.parametrize("stage", ["discover", "validate", "authorize", "check_cancel", "execute"])
def test_a_stage_that_fails_becomes_a_tool_result(stage: str) -> None:
    agent = Watched([[WRITE], []], handlers={f"loom.tool.{stage}": fail})
    assert finished(agent).result == {"status": "completed"}
    assert agent.formatted[0]["outcome"] == {"ok": False, "code": "broken", "message": "it broke"}


def test_the_results_reach_feedback_in_the_order_of_the_calls() -> None:
    for seed in range(8):
        agent = Watched(REFERENCE)
        finished(agent, pick=chance(seed))
        assert [[made["id"] for made in fed["results"]] for fed in agent.fed] == [
            ["c0", "c1", "c2", "c3"],
            ["c4", "c5"],
        ]


def test_the_stages_of_a_call_come_in_their_order() -> None:
    agent = Agent([[ASK], []])
    trace = by_branch(finished(agent))["0/calls#1[0]"]
    assert [node for node, _ in trace] == [
        "discover#1", "validate#1", "authorize#1", "check_cancel#1", "execute#1", "format#1",
    ]  # fmt: skip


def test_no_tool_starts_before_the_answer_that_asks_for_it() -> None:
    names = [at for at, _ in finished(Agent([[READ], []])).trace]
    assert names.index("0/model#1") < names.index("0/calls#1[0]/discover#1") < names.index("0/feedback#1")
    assert names.index("0/feedback#1") < names.index("1/assemble#1")


def test_what_is_remembered_is_not_asked_again() -> None:
    agent = Agent([[ASK], [call(2, "write_ask")], []], approvals=NEVER)
    agent.run()
    agent.sim.signal("loom.decision", decision(approvals(agent.sim)[0][1], "approve", remember="job"))
    outcome = agent.run()
    assert outcome.result == {"status": "completed"}
    assert len(of_type(outcome, "approval_requested")) == 1
    assert agent.executed == ["c1", "c2"]


# -- what observers are told -------------------------------------------------------------------------------------------


def test_the_phases_of_a_turn_come_in_order_and_each_is_ended() -> None:
    outcome = finished(Agent([[READ], []]))
    phases = [(event["n"], event["t"].removeprefix("phase_"), event["name"])
              for event in outcome.events if event["t"].startswith("phase_")]  # fmt: skip
    first = ["recursion_control", "context_assembly", "model", "tools", "feedback", "recurse"]
    expected = [(0, way, name) for name in first for way in ("start", "end")]
    expected += [(1, way, name) for name in first[:3] for way in ("start", "end")]
    assert phases == expected


def test_the_states_of_a_run_are_those_of_the_table() -> None:
    outcome = finished(Agent([[ASK], []]))
    assert [event["state"] for event in of_type(outcome, "state")] == [
        "preparing", "model_running", "tool_running", "awaiting_human", "tool_running", "model_running", "completed",
    ]  # fmt: skip


def test_a_call_that_runs_outranks_one_that_waits() -> None:
    agent = Agent([[ASK, READ, WRITE], []])
    seen = set()
    while not agent.sim.outcome.over:
        busy = any(not work.at.startswith("~") for work in agent.sim.work)
        seen.add((busy, agent.sim.machine.state.run_state == "awaiting_human"))
        advance(agent)
    assert (False, True) in seen
    assert (True, True) not in seen


def test_time_counts_only_while_the_job_is_active() -> None:
    agent = Agent([[ASK], []], approvals=NEVER)
    agent.run()
    agent.sim.now += 500
    agent.sim.signal("loom.control", {"op": "pause"})
    agent.sim.signal("loom.decision", decision(approvals(agent.sim)[0][1], "approve"))
    agent.sim.now += 300
    agent.sim.signal("loom.control", {"op": "resume"})
    agent.sim.now += 7
    agent.run()
    turn = agent.sim.machine.state.turn
    assert turn is not None
    assert turn.active_ms == 7_000


def test_the_state_between_turns_is_small() -> None:
    agent = Agent([[call(n, "read") for n in range(30)]] * 3)
    agent.run()
    raw = agent.sim.machine.state.to_json()
    assert len(str(raw)) < 2_000


# -- disturbances at every step ----------------------------------------------------------------------------------------


def length_of(agent: Agent) -> int:
    steps = 0
    while not agent.sim.outcome.over:
        advance(agent)
        steps += 1
    return steps


def advance(agent: Agent) -> None:
    """One step; who waits is approved when nothing else can happen."""
    waiting = approvals(agent.sim)
    if waiting and not agent.sim.work:
        agent.sim.signal("loom.decision", decision(waiting[0][1], "approve"))
    else:
        agent.sim.step()


STEPS = range(length_of(Agent(REFERENCE)))


def at_step(step: int, **how: Any) -> Agent:
    agent = Agent(REFERENCE, **how)
    for _ in range(step):
        advance(agent)
    return agent


@pytest.mark.parametrize("steps_per_run", [None, 1])
@pytest.mark.parametrize("step", STEPS)
def test_an_abort_at_any_step_ends_as_aborted(step: int, steps_per_run: int | None) -> None:
    agent = at_step(step, steps_per_run=steps_per_run)
    ending = agent.sim.machine.state.ending is not None
    before = agent.model_calls
    agent.sim.signal("loom.control", {"op": "abort", "by": "ada", "reason": "enough", "id": "a1"})
    outcome = finished(agent)
    if ending:
        assert [event["verdict"] for event in of_type(outcome, "warning")] == ["ended"]
        assert outcome.result == {"status": "completed"}
        return
    assert outcome.result == {"status": "aborted"}
    assert agent.model_calls == before
    assert counts(outcome)["execution_cancelled"] == 1
    assert [event["reason"] for event in of_type(outcome, "aborted")] == ["enough"]
    assert of_type(outcome, "state")[-1]["state"] == "aborted"
    asked = {event["approval_id"] for event in of_type(outcome, "approval_requested")}
    assert {event["approval_id"] for event in of_type(outcome, "approval_decided")} == asked


@pytest.mark.parametrize("steps_per_run", [None, 1])
@pytest.mark.parametrize("step", STEPS)
def test_a_pause_at_any_step_stops_and_a_resume_goes_on_as_if_nothing_had_been(
    step: int, steps_per_run: int | None
) -> None:
    expected = by_branch(finished(Agent(REFERENCE)))
    agent = at_step(step, steps_per_run=steps_per_run)
    agent.sim.signal("loom.control", {"op": "pause", "by": "ada"})
    while agent.sim.work:
        agent.sim.step()
    if not agent.sim.outcome.over:
        stopped = len(agent.sim.outcome.trace)
        agent.sim.signal("loom.decision", {"approval_id": "ap_none", "choice": "approve"})
        while agent.sim.work:
            agent.sim.step()
        assert len(agent.sim.outcome.trace) == stopped
        agent.sim.signal("loom.control", {"op": "resume"})
    assert by_branch(finished(agent)) == expected


@pytest.mark.parametrize("when", ["asap", "when_idle"])
@pytest.mark.parametrize("steps_per_run", [None, 1])
@pytest.mark.parametrize("step", STEPS)
def test_a_message_at_any_step_reaches_the_model_once_or_is_told_to_be_late(
    step: int, steps_per_run: int | None, when: str
) -> None:
    agent = at_step(step, steps_per_run=steps_per_run)
    ending = agent.sim.machine.state.ending is not None
    for _ in range(2):
        agent.sim.signal("loom.control", {"op": "inject", "text": "hear me", "id": "i1", "when": when})
    outcome = finished(agent)
    if ending:
        assert agent.injected == []
        assert [event["verdict"] for event in of_type(outcome, "warning")] == ["ended", "ended"]
    else:
        assert agent.injected == ["i1"]
    assert outcome.result == {"status": "completed"}


def test_a_message_for_an_idle_agent_waits_until_the_agent_would_finish() -> None:
    def hears_in_turn(when: str) -> int:
        agent = Agent([[READ], [READ], []])
        agent.sim.signal("loom.control", {"op": "inject", "text": "hear me", "id": "i1", "when": when})
        while not agent.injected:
            advance(agent)
        turn = agent.sim.machine.state.turn
        assert turn is not None
        return turn.turn_counter

    assert hears_in_turn("asap") == 1
    assert hears_in_turn("when_idle") == 3


def test_a_message_that_a_broken_step_took_is_not_lost() -> None:
    tries: list[list[str]] = []

    def assemble(command: RunActivity) -> Any:
        tries.append([message["id"] for message in command.arguments["inject"]])
        raise Broken("the store is away")

    agent = Agent([[]], handlers={"loom.context.assemble": assemble})
    agent.sim.signal("loom.control", {"op": "inject", "text": "hear me", "id": "i1"})
    agent.sim.signal("loom.control", {"op": "inject", "ref": "ab" * 32, "id": "i2", "when": "when_idle"})
    outcome = finished(agent)
    (warning,) = of_type(outcome, "warning")
    assert (warning["code"], warning["ids"]) == ("not_delivered", ["i1", "i2"])


def test_a_message_that_comes_at_the_limit_is_told_to_be_undelivered() -> None:
    agent = Agent([[READ]] * 3, max_iterations=1)
    while agent.model_calls == 0:
        advance(agent)
    agent.sim.signal("loom.control", {"op": "inject", "text": "hear me", "id": "i1"})
    outcome = finished(agent)
    assert [event["code"] for event in of_type(outcome, "warning")] == ["not_delivered"]


@pytest.mark.parametrize("steps_per_run", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(6))
def test_neither_continue_as_new_nor_the_order_of_results_shows(steps_per_run: int, seed: int) -> None:
    def came_to(agent: Agent, **how: Any) -> Any:
        outcome = finished(agent, **how)
        turn = agent.sim.machine.state.turn
        assert turn is not None
        told = Counter(event["t"] for event in outcome.events if event["t"] not in ("state",))
        return outcome.result, by_branch(outcome), turn.to_dict(), told, sorted(agent.executed)

    expected = came_to(Agent(REFERENCE))
    assert came_to(Agent(REFERENCE, steps_per_run=steps_per_run), pick=chance(seed)) == expected


@pytest.mark.parametrize("step", STEPS)
def test_a_drain_at_any_step_leaves_nothing_in_flight_and_loses_nothing(step: int) -> None:
    expected = by_branch(finished(Agent(REFERENCE)))
    agent = at_step(step)
    if not agent.sim.outcome.over:
        agent.sim._feed(Drain(now=agent.sim.now))
    assert by_branch(finished(agent)) == expected


def test_the_first_turn_starts_as_soon_as_the_machine_does() -> None:
    machine = Machine(agent_plan(), MachineState(turn=TurnState.initial(JOB, max_iterations=5)), JOB)
    command, _ = machine.feed(Started(now=1.0))  # the other one is the timer of the time limit
    assert isinstance(command, RunActivity)
    assert (command.at, command.activity) == ("assemble#1", "loom.context.assemble")
