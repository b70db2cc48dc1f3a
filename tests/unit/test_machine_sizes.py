"""What is too large for the engine ends a job with a code, and what it did is taken back all the same."""

from typing import Any

import pytest
from temporalio.converter import DefaultPayloadConverter

from loom_dsl.machine.commands import Failure, Finish, RunActivity, Started, TooLarge
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.payloads import MAX_RESULT, size_of
from loom_dsl.machine.state import MachineState
from tests.support.simulated import plan_of, run, simulate


@pytest.mark.parametrize(("text", "size"), [("abc", 5), ("äö", 14), ("\ud800", 8), ('"', 4), ("🙂", 14)])
def test_a_size_is_that_of_the_bytes_on_the_wire(text: str, size: int) -> None:
    assert size_of(text) == size == len(DefaultPayloadConverter().to_payloads([text])[0].data)


@pytest.mark.parametrize(("more", "code"), [(-2, None), (-1, "result_too_large")])
def test_a_result_has_as_many_bytes_as_the_engine_carries(more: int, code: str | None) -> None:
    outcome = run(plan_of({"done": {"end": "${input}"}}), input="x" * (MAX_RESULT + more))
    assert (outcome.failure.code if outcome.failure else None) == code


def test_a_failure_keeps_its_code_when_its_details_are_too_large() -> None:
    given = {"code": "broken", "message": "${input}", "details": "${[input, input]}"}
    failure = run(plan_of({"done": {"fail": given}}), input="x" * 900_000).failure
    assert failure is not None
    assert (failure.code, len(failure.message), failure.details) == ("broken", 10_000, None)


@pytest.mark.parametrize("boundary", [False, True])
def test_a_state_that_cannot_be_carried_on_ends_the_job_in_its_run_and_takes_back_what_was_done(boundary: bool) -> None:
    undo = {"activity": "undo"}
    nodes: dict[str, Any] = {
        "one": {"activity": "echo", "compensate": undo, "next": "two"},
        "two": {"activity": "echo", "compensate": undo, "next": "wait"},
        "wait": {"event": "go", "next": "done"},
        "done": {"end": None},
    }
    undone: list[str] = []
    simulation = simulate(plan_of(nodes), handlers={"undo": lambda command: undone.append(command.at)})
    simulation.run()
    machine = simulation.machine
    machine.draining, machine.at_boundary = not boundary, boundary
    simulation._feed(TooLarge(now=simulation.now, size=2_000_000, most=1_000_000))
    failure = simulation.run().failure
    assert failure is not None
    assert failure.code == "state_too_large"
    assert "2000000 bytes" in failure.message
    assert undone == ["~undo/two#1", "~undo/one#1"]


def test_a_job_that_is_ending_already_ends_as_it_would_have() -> None:
    machine = Machine(plan_of({"done": {"end": 1}}), MachineState(), "job")
    commands = machine.feed(Started(now=1.0))
    (flush,) = [command for command in commands if isinstance(command, RunActivity)]
    machine.feed(TooLarge(now=1.0, size=2, most=1))
    assert machine.state.ending == ["finish", 1]
    assert flush.activity == "loom.events.flush"
    assert not any(isinstance(command, Failure | Finish) for command in machine.commands)
