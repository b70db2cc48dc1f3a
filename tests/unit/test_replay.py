"""Debug replay from records that are written by hand."""

from collections import Counter
from typing import Any

import pytest

from loom_dsl.agent.definition import Agent, Limits
from loom_dsl.agent.turn import TurnState
from loom_dsl.graph.compiler import compile_agent
from loom_dsl.graph.plan import Plan
from loom_dsl.simulation.recording import Record, RecordedQuestion, TurnRecord, told_lines
from loom_dsl.simulation.replay import replay
from tests.support.simulated import graph

PLAN = compile_agent(Agent(name="a", model="m", tools=["glob"]))


def answer(*names: str) -> dict[str, Any]:
    traits = {"safe": True, "key": None, "quick": False, "timeout": 60.0}
    calls = [{"id": f"c{index}", "name": name, "e": 1, "i": index, **traits} for index, name in enumerate(names)]
    return {"entries": 2, "calls": calls, "usage": {"prompt_tokens": 1, "completion_tokens": 1}, "cost": 0}


def done(call: str, code: str = "") -> dict[str, Any]:
    return {"id": call, "status": "error" if code else "success", "code": code, "content": ""}


def record(*turns: TurnRecord, status: str = "completed", **more: Any) -> Record:
    return Record(job="j", first=TurnState.initial("j"), turns=dict(enumerate(turns)), status=status, **more)


def test_a_signed_decision_is_given_again_without_its_signature() -> None:
    request = {"tool": "glob", "call_id": "c0", "signed": True, "risk": "high"}
    decision = {"choice": "approve", "by": "ann", "keys": ["k"]}
    asked = TurnRecord(
        answer=answer("glob"),
        results={"c0": done("c0")},
        questions={"c0": RecordedQuestion(request=request, decision=decision)},
    )
    replayed = replay(record(asked, TurnRecord(answer=answer())), PLAN)
    assert replayed.status == "completed"
    assert replayed.turns[0].steps[1:] == ["the model calls glob", "glob asks", "glob: approve by ann", "glob: success"]


def test_a_call_that_was_denied_is_not_run() -> None:
    denied = TurnRecord(answer=answer("glob"), results={"c0": done("c0", "permission_denied")})
    replayed = replay(record(denied, TurnRecord(answer=answer())), PLAN)
    assert replayed.turns[0].steps[-1] == "glob: permission_denied"


def test_a_record_that_ends_before_the_machine_does_differs_unless_the_job_goes_on() -> None:
    for status, differs in (("completed", True), ("failed", True), ("running", False)):
        replayed = replay(record(TurnRecord(answer=answer("glob")), status=status), PLAN)
        assert (replayed.status, replayed.differs) == ("stopped", differs)
        assert replayed.stopped == "the record has not got the result of glob"


def test_a_question_that_nobody_decided_is_where_a_job_that_goes_on_stands() -> None:
    asked = TurnRecord(
        answer=answer("glob"), questions={"c0": RecordedQuestion(request={"tool": "glob", "call_id": "c0"})}
    )
    replayed = replay(record(asked, status="running"), PLAN)
    assert (replayed.status, replayed.differs) == ("stopped", False)
    assert replayed.stopped == "the record has not got a decision"


def test_an_answer_that_came_when_the_job_was_ending_is_no_difference() -> None:
    events = [
        *({"t": "phase_start", "name": name} for name in ("recursion_control", "context_assembly", "model")),
        {"t": "iteration_start"},
        *({"t": "state", "state": state} for state in ("preparing", "model_running", "aborted")),
        *({"t": kind} for kind in ("execution_cancelled", "aborted")),
    ]
    late = TurnRecord(answer=answer("glob"), events=events)
    ended = record(late, status="aborted", code="aborted")
    replayed = replay(ended, PLAN)
    assert (replayed.turns[0].missing, replayed.turns[0].added) == ([], [])
    assert (replayed.status, replayed.stopped, replayed.differs) == ("aborted", "", False)


def test_another_agents_number_of_turns_ends_it_there() -> None:
    two = record(
        TurnRecord(answer=answer("glob"), results={"c0": done("c0")}), TurnRecord(answer=answer()), TurnRecord()
    )
    short = compile_agent(Agent(name="a", model="m", tools=["glob"], limits=Limits(max_iterations=1)))
    replayed = replay(two.under(short), short)
    assert (replayed.status, replayed.code, replayed.differs) == ("failed", "max_iterations", True)
    assert replay(two.under(PLAN), PLAN).status == "completed"


def test_a_turn_that_the_model_has_not_answered_does_not_tell_what_it_was_given() -> None:
    replayed = replay(record(TurnRecord(asked=True), status="running"), PLAN)
    assert [turn.steps for turn in replayed.turns] == [[]]
    assert (replayed.stopped, replayed.differs) == ("the record has not got the model's answer", False)


def test_what_no_record_has_stops_it_and_is_no_difference() -> None:
    nodes = {"own": {"activity": "turns:judge", "next": "done"}, "done": {"end": "${{'status': 'completed'}}"}}
    plan = Plan("mine", {"mine": graph(nodes, "mine")}, PLAN.agent)
    replayed = replay(record(TurnRecord(answer=answer())), plan)
    assert (replayed.status, replayed.differs) == ("stopped", False)
    assert "is in no record" in replayed.stopped


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([{"t": "iteration_start", "iteration": 3}], {"iteration_start": 1}),
        ([{"t": "tool_calls_start", "tool_count": 2, "tool_names": ["a", "b"]}], {"tool_calls_start a, b": 1}),
        ([{"t": "state", "state": "tool_running"}] * 3, {"state tool_running": 1}),
        ([{"t": "state", "state": "awaiting_human"}], {}),
        ([{"t": "recursion"}] * 2, {"recursion": 2}),
        ([{"t": "llm_start"}, {"t": "control", "op": "pause"}, {"type": "llm_delta"}], {}),
        ([{"t": "approval_decided", "choice": "approve", "by": "ann"}], {"approval_decided approve ann": 1}),
    ],
)
def test_what_the_machine_told_is_compared_without_times_and_order(
    events: list[dict[str, Any]], lines: dict[str, int]
) -> None:
    assert told_lines(events) == Counter(lines)
