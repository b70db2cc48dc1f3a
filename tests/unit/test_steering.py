"""What strangers send is checked, answered and told; nothing that was acknowledged is lost (mission D2–D4)."""

from typing import Any

import pytest

from loom_dsl.agent.turn import TurnState
from loom_dsl.machine.commands import ActivityDone, Drain, RunActivity, SignalReceived, TimerFired, TurnEnded
from loom_dsl.machine.decisions.remembered_rules import remember
from loom_dsl.machine.payloads import read_payload
from loom_dsl.machine.records import ApprovalRecord, ChildRecord
from loom_dsl.machine.signals import MAX_PAYLOAD, MAX_SEEN, MAX_WAITING, Control
from loom_dsl.machine.state import MachineState
from loom_dsl.simulation.in_memory import Simulation
from loom_dsl.text.canonical import canonical_json, digest
from tests.support.simulated import JOB, SYSTEM, Agent, call, check_state, decision, drive, echo, of_type, plan_of

CONTROL, DECISION = "loom.control", "loom.decision"


def waiting(**node: Any) -> Simulation:
    """A job in whose turn an approval and an activity are open."""
    nodes = {
        "s": {"next": ["ask", "work"]},
        "ask": {"approval": {"request": "merge?", "choices": ["approve", "reject", "edit"]}, "next": "done", **node},
        "work": {"activity": "echo"},
        "done": {"end": "${result}", "terminate": True},
    }
    state = MachineState(turn=TurnState.initial(JOB))
    return Simulation(plan_of(nodes), state, {"echo": echo, **SYSTEM}, job=JOB)


def the_approval(sim: Simulation) -> str:
    (token,) = [token for token in sim.machine.state.tokens.values() if token.status == "waiting"]
    return token.kept(ApprovalRecord).id


HOSTILE: list[Any] = [
    None,
    True,
    0,
    -1.5,
    "",
    "pause",
    [],
    [1, 2],
    {},
    {"op": None},
    {"op": "stop"},
    {"op": ["pause"]},
    {"op": "PAUSE"},
    {"op": "pause", "id": 5},
    {"op": "pause", "id": "x" * 101},
    {"op": "pause", "id": "~1"},
    {"op": "pause", "by": None},
    {"op": "pause", "by": "x" * 201},
    {"op": "pause", "reason": "x" * 2_001},
    {"op": "pause", "more": 1},
    {"op": "pause", "__class__": "x"},
    {"op": "inject"},
    {"op": "inject", "text": ""},
    {"op": "inject", "text": 5},
    {"op": "inject", "text": ["x"]},
    {"op": "inject", "text": "x" * 20_001},
    {"op": "inject", "text": "x", "when": "later"},
    {"op": "inject", "ref": "x" * 65},
    {"op": "inject", "ref": "x" * 64},
    {"op": "inject", "ref": "ab" * 31},
    {"op": "inject", "ref": "ab" * 32 + "\n"},
    {"approval_id": "ap_x", "choice": "approve"},
    {"": {"": {"": []}}},
]


@pytest.mark.parametrize("payload", HOSTILE, ids=lambda payload: str(payload)[:40])
@pytest.mark.parametrize("answer_to", [None, "u1"])
def test_a_control_that_is_not_one_is_refused_and_told(payload: Any, answer_to: str | None) -> None:
    sim = waiting()
    before = sim.machine.state.to_json()
    sim.signal(CONTROL, payload, answer_to=answer_to)
    after = sim.machine.state.to_json()
    assert {**after, "out": 0, "fl": 0} == {**before, "out": 0, "fl": 0}
    assert sim.outcome.answers == ({"u1": "invalid"} if answer_to else {})
    drive(sim)
    (told,) = of_type(sim.outcome, "warning")
    assert (told["code"], told["signal"], told["verdict"]) == ("signal_refused", CONTROL, "invalid")
    assert len(told["message"]) <= 500


@pytest.mark.parametrize(
    "payload",
    [
        *HOSTILE[:10],
        {"op": "pause"},
        {"approval_id": "ID"},
        {"approval_id": None, "choice": "approve"},
        {"approval_id": "ID", "choice": ""},
        {"approval_id": "ID", "choice": "escalate"},
        {"approval_id": "ID", "choice": "expired"},
        {"approval_id": "ID", "choice": "x" * 41},
        {"approval_id": "ID", "choice": "edit"},
        {"approval_id": "ID", "choice": "edit", "edited_arguments": None},
        {"approval_id": "ID", "choice": "edit", "edited_arguments": [1]},
        {"approval_id": "ID", "choice": "edit", "edited_arguments": "{}"},
        {"approval_id": "ID", "choice": "approve", "remember": "always"},
        {"approval_id": "ID", "choice": "approve", "remember": True},
        {"approval_id": "ID", "choice": "approve", "message": "x" * 10_001},
        {"approval_id": "ID", "choice": "approve", "at": {"x": 1}},
        {"approval_id": "ID", "choice": "approve", "token": "x"},
        {"approval_id": ["ID"], "choice": "approve"},
    ],
    ids=lambda payload: str(payload)[:60],
)
def test_a_decision_that_is_not_one_is_refused_and_the_approval_stays_open(payload: Any) -> None:
    sim = waiting()
    name = the_approval(sim)
    if isinstance(payload, dict) and payload.get("approval_id") == "ID":
        payload = {**payload, "approval_id": name}
    sim.signal(DECISION, payload, answer_to="u1")
    assert sim.outcome.answers == {"u1": "invalid"}
    assert the_approval(sim) == name
    drive(sim)
    assert [event["verdict"] for event in of_type(sim.outcome, "warning")] == ["invalid"]
    sim.signal(DECISION, decision(name, "approve"), answer_to="u2")
    drive(sim)
    assert sim.outcome.answers["u2"] == "recorded"
    assert sim.outcome.over


@pytest.mark.parametrize("name", ["loom.decide", "loom.event", "", "x" * 500, "__temporal", "loom.control "])
def test_a_signal_of_another_name_is_refused(name: str) -> None:
    sim = waiting()
    sim.signal(name, {"op": "abort"}, answer_to="u1")
    drive(sim)
    assert sim.outcome.answers == {"u1": "invalid"}
    assert of_type(sim.outcome, "warning")[0]["signal"] == name[:100]
    assert sim.machine.state.abort is None


def test_a_payload_that_could_not_be_read_is_refused_with_its_problem() -> None:
    sim = waiting()
    sim.signal(CONTROL, None, problem="the payload is not JSON in UTF-8", answer_to="u1")
    drive(sim)
    assert sim.outcome.answers == {"u1": "invalid"}
    assert of_type(sim.outcome, "warning")[0]["message"] == "the payload is not JSON in UTF-8"


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    sim = waiting()
    sim.signal(CONTROL, {"op": "inject", "text": ["my password"]})
    drive(sim)
    assert "password" not in str(sim.outcome.events)


def test_what_is_nested_as_deep_as_it_can_be_is_refused_or_kept_but_never_breaks() -> None:
    sim, depth = waiting(), 900
    payload = ('{"a":' * depth + "1" + "}" * depth).encode()
    value, problem = read_payload(payload, "json/plain", MAX_PAYLOAD)
    given = {"approval_id": the_approval(sim), "choice": "edit", "edited_arguments": value}
    sim.signal(DECISION, given, problem=problem, answer_to="u1")
    check_state(sim.machine.state)
    assert sim.outcome.answers["u1"] in ("invalid", "recorded")


# -- once, and only once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["pause", "resume", "abort", "inject"])
def test_a_control_with_the_same_id_counts_once(op: str) -> None:
    sim = waiting()
    for slot in ("u1", "u2"):
        sim.signal(CONTROL, {"op": op, "id": "same", "text": "x" if op == "inject" else ""}, answer_to=slot)
    assert sim.outcome.answers == {"u1": "recorded", "u2": "already_done"}
    drive(sim)
    assert len(of_type(sim.outcome, "control")) == 1


def test_ids_are_remembered_over_turns_and_runs_up_to_a_number() -> None:
    agent = Agent([[call(0)], []], steps_per_run=1)
    for number in range(MAX_SEEN + 1):
        agent.sim.signal(CONTROL, {"op": "resume", "id": f"i{number}"})
    agent.run()
    assert agent.sim.machine.state.seen == [f"i{number}" for number in range(1, MAX_SEEN + 1)]


def test_messages_without_an_id_are_all_kept_apart() -> None:
    agent = Agent([[]])
    for _ in range(3):
        agent.sim.signal(CONTROL, {"op": "inject", "text": "x"})
    agent.sim.signal(CONTROL, {"op": "inject", "text": "x", "id": "m1"})
    agent.run()
    assert len(set(agent.injected)) == 4
    assert "m1" in agent.injected


def test_a_decision_counts_once_and_the_second_one_is_told_so() -> None:
    sim = waiting()
    name = the_approval(sim)
    sim.signal(DECISION, decision(name, "reject"), answer_to="u1")
    sim.machine.state.ending = None
    sim.signal(DECISION, decision(name, "approve"), answer_to="u2")
    assert sim.outcome.answers == {"u1": "recorded", "u2": "already_decided"}


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_full_inbox_refuses_and_keeps_what_it_has() -> None:
    agent = Agent([[call(0)], []])
    for number in range(MAX_WAITING + 5):
        agent.sim.signal(CONTROL, {"op": "inject", "text": "x", "id": f"i{number}"}, answer_to=f"u{number}")
    verdicts = [agent.sim.outcome.answers[f"u{number}"] for number in range(MAX_WAITING + 5)]
    assert verdicts == ["recorded"] * MAX_WAITING + ["full"] * 5
    while not agent.injected:
        agent.sim.step()
    agent.sim.signal(CONTROL, {"op": "inject", "text": "x", "id": f"i{MAX_WAITING}"}, answer_to="again")
    assert agent.sim.outcome.answers["again"] in ("recorded", "full")
    agent.run()
    assert agent.injected[:MAX_WAITING] == [f"i{number}" for number in range(MAX_WAITING)]
    assert len(agent.injected) == len(set(agent.injected))


def test_waiting_messages_stay_small_enough_for_continue_as_new() -> None:
    agent = Agent([[call(0)], []])
    for number in range(MAX_WAITING):
        agent.sim.signal(CONTROL, {"op": "inject", "text": "€" * 20_000, "id": f"i{number}"})
    assert len(canonical_json(agent.sim.machine.state.to_json()["box"]).encode()) < 4 * MAX_PAYLOAD
    agent.run()
    assert "i0" in agent.injected


# -- pause, abort and the end ------------------------------------------------------------------------------------------


def test_a_pause_does_not_stop_an_abort_and_an_abort_ends_a_pause() -> None:
    agent = Agent([[call(0)], []])
    agent.sim.signal(CONTROL, {"op": "pause"}, answer_to="u1")
    agent.sim.signal(CONTROL, {"op": "abort"}, answer_to="u2")
    agent.sim.signal(CONTROL, {"op": "pause"}, answer_to="u3")
    assert agent.run().result == {"status": "aborted"}
    assert agent.sim.outcome.answers == {"u1": "recorded", "u2": "recorded", "u3": "ended"}


def test_the_first_abort_is_the_one_that_counts() -> None:
    sim = waiting()
    sim.signal(CONTROL, {"op": "abort", "by": "ada", "reason": "one"})
    sim.signal(CONTROL, {"op": "abort", "by": "bob", "reason": "two"}, answer_to="u1")
    assert sim.outcome.answers == {"u1": "recorded"}
    drive(sim)
    assert sim.outcome.result == {"status": "aborted", "reason": "one"}


def test_what_comes_when_the_job_is_ending_is_refused() -> None:
    sim = waiting()
    name = the_approval(sim)
    sim.signal(DECISION, decision(name, "approve"))
    for slot, signal, payload in (
        ("u1", CONTROL, {"op": "inject", "text": "x"}),
        ("u2", DECISION, decision(name, "x")),
    ):
        sim.signal(signal, payload, answer_to=slot)
    assert sim.outcome.answers == {"u1": "ended", "u2": "ended"}
    drive(sim)
    assert [event["verdict"] for event in of_type(sim.outcome, "warning")] == ["ended", "ended"]


# -- between two runs --------------------------------------------------------------------------------------------------


def at_boundary() -> Simulation:
    """A machine whose turn has ended and whose driver has not gone on yet."""
    nodes = {"a": {"activity": "echo", "next": "b"}, "b": {"recurse": {}}}
    sim = Simulation(plan_of(nodes), MachineState(turn=TurnState.initial(JOB)), {"echo": echo, **SYSTEM}, job=JOB)
    (work,) = sim.work
    commands = sim.machine.feed(ActivityDone(now=sim.now, at=work.at, result=None))
    assert isinstance(commands[-1], TurnEnded)
    sim.work.clear()
    return sim


def draining() -> Simulation:
    sim = waiting()
    sim._feed(Drain(now=sim.now))
    assert sim.work
    return sim


@pytest.mark.parametrize("between", [at_boundary, draining])
def test_between_two_runs_an_update_is_told_to_come_again_and_a_signal_is_kept(between: Any) -> None:
    sim = between()
    sim.signal(CONTROL, {"op": "inject", "text": "x", "id": "u"}, answer_to="u1")
    assert sim.outcome.answers == {"u1": "retry"}
    assert sim.machine.state.inbox == []
    sim.signal(CONTROL, {"op": "inject", "text": "x", "id": "s"})
    sim.signal(CONTROL, {"op": "pause", "by": "ada"})
    raw = sim.machine.state.to_json()
    again = MachineState.from_json(raw)
    assert [message["id"] for message in again.inbox] == ["s"]
    assert again.paused is not None


def test_an_abort_between_two_turns_is_carried_out_by_the_next_run() -> None:
    sim = at_boundary()
    sim.signal(CONTROL, {"op": "abort", "reason": "now"})
    assert sim.work == []
    next_run = Simulation(sim.plan, MachineState.from_json(sim.machine.state.to_json()), {**SYSTEM}, job=JOB)
    assert next_run.run().result == {"status": "aborted", "reason": "now"}
    assert next_run.outcome.trace == []


def test_a_decision_while_draining_lets_its_branch_go_on_in_the_next_run() -> None:
    sim = draining()
    sim.signal(DECISION, decision(the_approval(sim), "approve"))
    drive(sim)
    assert sim.outcome.runs == 2
    assert sim.outcome.result["choice"] == "approve"


# -- late decisions ----------------------------------------------------------------------------------------------------

DEADLINE = {"deadline": {"after": "1m", "to": "done"}}


class Late:
    """A job whose approval's deadline is past while its timer has not fired, as after a worker was down."""

    def __init__(self, **node: Any) -> None:
        self.sim = waiting(**{**DEADLINE, **node})
        drive_work(self.sim)
        self.name = the_approval(self.sim)
        self.deadline = self.sim.now + 60
        self.sim.now = self.deadline + 30

    def send(self, choice: str = "approve", answer_to: str | None = None) -> None:
        self.sim.signal(DECISION, decision(self.name, choice), answer_to=answer_to)

    def lookups(self) -> list[RunActivity]:
        return [work for work in self.sim.work if work.activity == "loom.signal.time"]

    def found(self, result: Any) -> None:
        (lookup,) = self.lookups()
        self.sim.work.remove(lookup)
        self.sim._feed(ActivityDone(now=self.sim.now, at=lookup.at, result=result))
        drive_work(self.sim)

    def choice(self) -> str | None:
        drive_work(self.sim)
        return self.sim.outcome.result["choice"] if self.sim.outcome.over else None


def drive_work(sim: Simulation) -> None:
    while others := [index for index, work in enumerate(sim.work) if work.activity != "loom.signal.time"]:
        sim.step(others[0])


def test_a_late_decision_is_looked_up_by_its_digest() -> None:
    late = Late()
    late.send()
    (lookup,) = late.lookups()
    assert lookup.arguments == {"signal": DECISION, "digest": digest(canonical_json(decision(late.name, "approve")))}


def test_no_event_travels_with_a_look_at_the_time() -> None:
    sim = waiting(deadline={"after": 60, "to": "done"})
    while others := [index for index, work in enumerate(sim.work) if work.activity != "echo"]:
        sim.step(others[0])
    sim.machine.emit("phase_start", name="nobody waits for this one")
    sim.now += 61
    sim.signal(DECISION, decision(the_approval(sim), "approve"))
    (lookup,) = [work for work in sim.work if work.activity == "loom.signal.time"]
    assert lookup.events == []
    assert "nobody waits for this one" in canonical_json(sim.machine.state.outbox.to_json())


@pytest.mark.parametrize("fired", [False, True])
@pytest.mark.parametrize(
    ("offset", "choice"), [(-1, "approve"), (0, "approve"), (0.001, "expired"), (30, "expired"), (None, "expired")]
)
def test_a_decision_counts_when_it_was_sent_in_time(fired: bool, offset: float | None, choice: str) -> None:
    late = Late()
    late.send()
    if fired:
        fire(late)
    late.found({"sent": None if offset is None else late.deadline + offset})
    if not late.sim.outcome.over:
        fire(late)
    assert late.choice() == choice
    refused = [event["verdict"] for event in of_type(late.sim.outcome, "warning")]
    assert refused == ([] if choice == "approve" else ["expired"])
    assert len(of_type(late.sim.outcome, "approval_decided")) == 1


def fire(late: Late) -> None:
    late.sim.timers.pop("ask#1", None)
    late.sim._feed(TimerFired(now=late.sim.now, at="ask#1"))


@pytest.mark.parametrize("answer", [None, [], "soon", 5, {}, {"sent": "soon"}, {"sent": None}, {"sent": [1]}])
def test_an_answer_about_the_time_that_makes_no_sense_counts_as_late(answer: Any) -> None:
    late = Late()
    late.send()
    late.found(answer)
    fire(late)
    assert late.choice() == "expired"


def test_a_second_decision_does_not_disturb_the_one_that_is_looked_up() -> None:
    late = Late()
    late.send("approve")
    late.send("reject")
    late.found({"sent": late.deadline - 1})
    assert late.choice() == "approve"


def test_a_late_update_is_refused_at_once() -> None:
    late = Late()
    late.send(answer_to="u1")
    assert late.sim.outcome.answers == {"u1": "expired"}
    assert late.lookups() == []


def test_a_graph_can_accept_late_decisions() -> None:
    late = Late(approval={"request": 1, "late": "accept"})
    late.send()
    assert late.choice() == "approve"


def test_an_abort_while_the_time_is_looked_up_ends_the_job_once_it_is_known() -> None:
    late = Late()
    late.send()
    late.sim.signal(CONTROL, {"op": "abort", "reason": "enough"})
    drive_work(late.sim)
    assert not late.sim.outcome.over
    late.found({"sent": late.deadline - 1})
    drive_work(late.sim)
    assert late.sim.outcome.result == {"status": "aborted", "reason": "enough"}
    assert [event["choice"] for event in of_type(late.sim.outcome, "approval_decided")] == ["cancelled"]


def test_a_drain_waits_for_the_time_that_is_looked_up() -> None:
    late = Late()
    late.send()
    late.sim._feed(Drain(now=late.sim.now))
    assert late.sim.outcome.runs == 1
    late.found({"sent": late.deadline - 1})
    assert late.sim.outcome.runs == 2
    assert late.choice() == "approve"


def test_an_approval_that_expires_while_the_job_is_paused_goes_on_after_the_resume() -> None:
    sim = waiting(**DEADLINE)
    drive_work(sim)
    sim.signal(CONTROL, {"op": "pause"})
    while sim.timers:
        sim.step()
    drive_work(sim)
    assert not sim.outcome.over
    sim.signal(CONTROL, {"op": "resume"})
    drive(sim)
    assert sim.outcome.result["choice"] == "expired"


def test_a_decision_that_was_taken_in_time_wins_over_its_timer() -> None:
    sim = waiting(**DEADLINE)
    sim.signal(CONTROL, {"op": "pause"})
    sim.signal(DECISION, decision(the_approval(sim), "reject"))
    assert sim.timers == {}
    sim.now += 100
    sim.signal(CONTROL, {"op": "resume"})
    drive(sim)
    assert sim.outcome.result["choice"] == "reject"


# -- remembering -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", ["merge?", None, 5, [], {}, {"rules": None}, {"rules": "x"}, {"rules": []}])
def test_a_request_without_rules_cannot_be_remembered_and_that_is_told(request_: Any) -> None:
    sim = waiting(approval={"request": request_})
    sim.signal(DECISION, decision(the_approval(sim), "approve", remember="job"), answer_to="u1")
    drive(sim)
    assert sim.outcome.answers == {"u1": "recorded"}
    assert [event["code"] for event in of_type(sim.outcome, "warning")] == ["not_remembered"]


@pytest.mark.parametrize(
    ("choice", "more", "verdict", "expected"),
    [
        ("approve", {}, "recorded", ("write_ask(*)",)),
        ("reject", {}, "invalid", ()),
        ("edit", {"edited_arguments": {"path": "b.md"}}, "invalid", ()),  # the rule is of what was asked, not of that
    ],
)
def test_rules_are_remembered_only_of_what_was_approved_as_it_was_asked(
    choice: str, more: dict[str, Any], verdict: str, expected: tuple[str, ...]
) -> None:
    agent = Agent([[call(0, "write_ask")], []])
    while agent.sim.work:
        agent.sim.step()
    said = decision(the_approval(agent.sim), choice, remember="job", **more)
    agent.sim.signal(DECISION, said, answer_to="u1")
    assert agent.sim.outcome.answers == {"u1": verdict}
    turn = agent.sim.machine.state.turn
    assert turn is not None
    assert turn.remembered == expected


def test_a_question_of_a_users_graph_cannot_say_what_is_remembered() -> None:
    """Its request may be computed from what was read outside, and who answers it is asked about something else."""
    sim = waiting(approval={"request": {"summary": "merge?", "rules": ["*"]}})
    sim.signal(DECISION, decision(the_approval(sim), "approve", remember="job"))
    drive(sim)
    turn = sim.machine.state.turn
    assert turn is not None
    assert turn.remembered == ()
    assert [event["code"] for event in of_type(sim.outcome, "warning")] == ["not_remembered"]


def test_rules_that_would_not_fit_into_the_turn_are_told() -> None:
    sim = waiting()
    remember(sim.machine, ["x" * 20_000])
    drive(sim)
    assert [event["code"] for event in of_type(sim.outcome, "warning")] == ["not_remembered"]


def test_an_id_of_a_control_is_free_but_for_looms_own() -> None:
    assert Control.model_validate({"op": "pause", "id": "a~b/ü"}).id == "a~b/ü"


def test_every_signal_gets_through_whatever_its_payload_in_any_state() -> None:
    """Nothing that is sent may stop a job: a machine that raises would hang in its workflow task."""
    for make in (waiting, at_boundary, draining):
        sim = make()
        for name in (CONTROL, DECISION, "other"):
            for payload in HOSTILE:
                sim.machine.feed(SignalReceived(now=sim.now, name=name, payload=payload, answer_to="u"))
        check_state(sim.machine.state)


def test_a_report_that_is_sent_as_an_update_is_answered() -> None:
    """An update without an answer would keep its job from ever ending."""
    plan = plan_of(
        {"below": {"graph": "one", "child": True, "next": "done"}, "done": {"end": None}}, one={"e": {"end": 1}}
    )
    sim = Simulation(plan, MachineState(), SYSTEM, job=JOB)
    child = sim.machine.state.tokens["below#1"].kept(ChildRecord).child
    sim.signal("loom.child", {"at": "below#1", "child": child}, answer_to="u1")
    sim.signal("loom.child", {"at": "below#1", "child": child}, answer_to="u2")
    assert sim.outcome.answers.keys() == {"u1", "u2"}
