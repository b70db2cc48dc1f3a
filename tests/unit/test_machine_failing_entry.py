"""A node that fails as it is entered leaves nothing behind: nothing in flight, to take back, or written."""

from typing import Any

import pytest

from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import StartChild
from tests.support.simulated import graph, of_type, plan_of, run, simulate

DONE: dict[str, Any] = {"end": "${result}"}


@pytest.mark.parametrize("after", ["${1/0}", "${'soon'}", "${-1}"])
def test_an_activity_whose_deadline_cannot_be_told_is_not_begun(after: str) -> None:
    first = {"activity": "echo", "deadline": {"after": after, "to": "late"}, "catch": {"any": "late"}, "next": "done"}
    outcome = run(plan_of({"first": first, "late": {"activity": "echo", "next": "done"}, "done": DONE}))
    assert [at for at, _ in outcome.trace] == ["0/late#1"]
    assert of_type(outcome, "warning") == []


def test_a_child_job_whose_deadline_cannot_be_told_is_not_begun() -> None:
    first = {"graph": "inner", "child": True, "deadline": {"after": "${1/0}", "to": "done"}, "next": "done"}
    simulation = simulate(plan_of({"first": first, "done": DONE}, inner={"done": DONE}))
    assert not any(isinstance(work, StartChild) for work in simulation.work)
    failure = simulation.run().failure
    assert failure is not None
    assert failure.code == "expression_error"


def test_what_never_began_is_not_taken_back() -> None:
    undo = {"activity": "echo", "with": {"n": 1}}
    nodes = {
        "one": {"activity": "echo", "compensate": undo, "next": "two"},
        "two": {"activity": "echo", "with": {"x": "${1/0}"}, "compensate": undo, "next": "done"},
        "done": DONE,
    }
    failure = run(plan_of(nodes)).failure
    assert failure is not None
    assert [told["node"] for told in failure.details["compensations"]] == ["one#1"]


def test_what_fails_to_be_written_is_not_written_in_part_and_the_first_is_named() -> None:
    names = [f"v{number}" for number in range(12)]
    fields = {name: {"type": "int", "default": 1} for name in names}
    bad = {**dict.fromkeys(names, 2), "v3": "three", "v8": "eight"}
    nodes = {
        "first": {"set": bad, "catch": {"any": "caught"}, "next": "done"},
        "caught": {"end": "${[result.message, state]}"},
        "done": DONE,
    }
    plan = Plan("main", {"main": graph(nodes, state=fields)}, {})
    message, state = run(plan).result
    assert message == "`v3` is of the type int and cannot become 'three'"
    assert state == dict.fromkeys(names, 1)


@pytest.mark.parametrize("until", ["${1e300}", "${9e15}", "9999-12-31T23:59:59-14:00"])
def test_a_timer_that_no_engine_can_carry_is_refused(until: str) -> None:
    failure = run(plan_of({"wait": {"timer": {"until": until}, "next": "done"}, "done": DONE})).failure
    assert failure is not None
    assert "a timer waits ten years at most" in failure.message
