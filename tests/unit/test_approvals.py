"""An approval has a name of its own, asks once, and ends once (mission D2, D3)."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from loom_dsl.approvals.decision import CHOICES, Decision, approval_id, problem_of
from loom_dsl.machine.signals import Control
from loom_dsl.machine.status import status_of
from loom_dsl.simulation.in_memory import Simulation
from tests.support.simulated import Agent, approvals, call, decision, of_type, plan_of, simulate

NEVER = {"expires": "never", "on_expiry": "deny"}


def test_a_name_differs_by_job_turn_place_and_request_and_by_nothing_else() -> None:
    names = [
        approval_id("job", 0, "ask#1", {"a": 1, "b": 2}),
        approval_id("job", 1, "ask#1", {"a": 1, "b": 2}),
        approval_id("job2", 0, "ask#1", {"a": 1, "b": 2}),
        approval_id("job", 0, "ask#2", {"a": 1, "b": 2}),
        approval_id("job", 0, "ask#1", {"a": 1, "b": 3}),
    ]
    assert len(set(names)) == len(names)
    assert approval_id("job", 0, "ask#1", {"b": 2, "a": 1}) == names[0]
    assert all(re.fullmatch(r"ap_[0-9a-f]{24}", name) for name in names)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ({"choice": "approve"}, "approval_id: this field is missing"),
        ({"approval_id": "a", "choice": 1}, "choice: Input should be a valid string"),
        ({"approval_id": "a", "choice": "approve", "secret": "hunter2"}, "secret: there is no such field"),
        ({"approval_id": "a", "choice": "edit", "edited_arguments": ["hunter2"]},
         "edited_arguments: Input should be a valid dictionary"),
        ("hunter2", "Input should be a valid dictionary or instance of Decision"),
    ],
)  # fmt: skip
def test_a_problem_is_told_in_one_line_without_what_was_sent(payload: Any, problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Decision.model_validate(payload)
    assert problem_of(caught.value) == problem


def test_a_decision_and_a_control_are_plain_values_of_their_fields() -> None:
    full = {"approval_id": "a", "choice": "edit", "message": "m", "edited_arguments": {"a": [1, None]},
            "remember": "job", "by": "ada", "at": 5, "id": "x", "digest": "0" * 64, "signature": None}  # fmt: skip
    assert Decision.model_validate(full).model_dump() == full
    assert Control.model_validate({"op": "pause"}).model_dump()["when"] == "asap"


def asked_twice() -> Simulation:
    return Agent([[call(0, "read_ask"), call(1, "read_ask")], [call(2, "read_ask")], []], approvals=NEVER).sim


def settle(sim: Simulation) -> None:
    while sim.work:
        sim.step()


def test_every_call_of_a_turn_has_its_own_approval_and_they_are_answered_in_any_order() -> None:
    sim = asked_twice()
    settle(sim)
    (first, a), (second, b) = approvals(sim)
    assert (first, second) == ("calls#1[0]/ask#1", "calls#1[1]/ask#1")
    sim.signal("loom.decision", decision(b, "reject"))
    settle(sim)
    assert [name for _, name in approvals(sim)] == [a]
    sim.signal("loom.decision", decision(a, "approve"))
    settle(sim)
    assert len(approvals(sim)) == 1
    choices = {event["approval_id"]: event["choice"] for event in of_type(sim.outcome, "approval_decided")}
    assert choices == {b: "reject", a: "approve"}


def test_a_decision_for_an_approval_of_an_earlier_turn_is_refused() -> None:
    sim = asked_twice()
    settle(sim)
    names = [name for _, name in approvals(sim)]
    for name in names:
        sim.signal("loom.decision", decision(name, "approve"))
    settle(sim)
    ((_, later),) = approvals(sim)
    assert later not in names
    sim.signal("loom.decision", decision(names[0], "reject"), answer_to="old")
    sim.signal("loom.decision", decision(names[0], "approve"), answer_to="the same")
    sim.signal("loom.decision", decision(later, "approve"), answer_to="new")
    settle(sim)
    assert sim.outcome.answers == {"old": "unknown", "the same": "already_done", "new": "recorded"}
    assert sim.outcome.result == {"status": "completed"}


def test_a_request_is_announced_once_and_told_with_all_that_an_approver_needs() -> None:
    announced = []
    agent = Agent([[call(0, "write_ask")], []], handlers={"loom.approval.announce": announced.append})
    settle(agent.sim)
    (told,) = of_type(agent.sim.outcome, "approval_requested")
    ((at, name),) = approvals(agent.sim)
    assert (told["approval_id"], told["tool"], told["node"], told["choices"]) == (name, "write_ask", at, list(CHOICES))
    assert told["expires_at"] == agent.sim.now + 86_400
    assert [command.arguments for command in announced] == [{"approval_id": name, "request": told["request"]}]


def test_an_announcement_that_fails_leaves_the_approval_open_and_loses_no_event() -> None:
    from tests.support.simulated import fail

    agent = Agent([[call(0, "write_ask")], []], handlers={"loom.approval.announce": fail})
    settle(agent.sim)
    ((_, name),) = approvals(agent.sim)
    assert len(of_type(agent.sim.outcome, "approval_requested")) == 1
    agent.sim.signal("loom.decision", decision(name, "approve"))
    assert agent.run().result == {"status": "completed"}


def test_an_edit_is_checked_again_and_asks_no_second_time() -> None:
    agent = Agent([[call(0, "write_ask")], []])
    settle(agent.sim)
    agent.sim.signal("loom.decision", decision(approvals(agent.sim)[0][1], "edit"))
    outcome = agent.run()
    stages = [at.rpartition("/")[2] for at, _ in outcome.trace if "calls#1[0]" in at]
    assert stages == ["discover#1", "validate#1", "authorize#1", "validate#2", "authorize#2", "check_cancel#1",
                      "execute#1", "format#1"]  # fmt: skip
    assert len(of_type(outcome, "approval_requested")) == 1


def test_an_edit_that_does_not_validate_becomes_a_tool_result() -> None:
    seen: list[Any] = []

    def validate(command: Any) -> Any:
        seen.append(command.arguments["edited"])
        return {"ok": command.arguments["edited"] is None, "arguments": "given", "code": "validation_error"}

    agent = Agent([[call(0, "write_ask")], []], handlers={"loom.tool.validate": validate})
    settle(agent.sim)
    agent.sim.signal("loom.decision", decision(approvals(agent.sim)[0][1], "edit"))
    assert agent.run().result == {"status": "completed"}
    assert (seen, agent.executed) == ([None, {"edited": True}], [])


@pytest.mark.parametrize("steps_per_run", [None, 1])
def test_status_shows_what_is_open_also_after_continue_as_new(steps_per_run: int | None) -> None:
    agent = Agent([[call(0, "write_ask"), call(1, "read")], []], steps_per_run=steps_per_run)
    settle(agent.sim)
    status = status_of(agent.sim.machine)
    (open_,) = status["approvals"]
    assert (open_["node"], open_["request"]["tool"]) == ("calls#1[0]/ask#1", "write_ask")
    assert open_["expires_at"] == open_["since"] + 86_400
    assert (status["state"], status["running"], status["paused"], status["waiting_messages"]) == (
        "awaiting_human", [], None, 0,
    )  # fmt: skip
    assert status["plan"] == agent.sim.plan.hash


@pytest.mark.parametrize("request_", [None, 5, "merge?", [1], {}, {"tool": 5}])
def test_a_request_can_be_any_value(request_: Any) -> None:
    nodes = {"a": {"approval": {"request": request_}, "next": "z"}, "z": {"end": "${result.choice}"}}
    sim = simulate(plan_of(nodes))
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve"))
    assert sim.run().result == "approve"
