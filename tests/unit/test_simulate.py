"""The driver in memory does what the engine does, and says when a test asks for what cannot be."""

import pytest

from loom_dsl.errors import PlanError
from loom_dsl.machine.commands import Failure
from tests.support.simulated import approvals, decision, fail, graph, of_type, plan_of, simulate

ONE = {"a": {"activity": "echo", "with": {"n": 1}, "next": "z"}, "z": {"end": "${result}"}}
TWO = {"s": {"next": ["a", "b"]}, "a": {"activity": "echo"}, "b": {"activity": "echo"}}
ASK = {"a": {"approval": {"request": 1}, "deadline": {"after": "90s", "to": "z"}, "next": "z"},
       "z": {"end": "${result.choice}"}}  # fmt: skip


def test_a_run_gives_result_trace_and_number_of_runs() -> None:
    outcome = simulate(plan_of(ONE)).run()
    assert (outcome.result, outcome.trace, outcome.runs, outcome.over) == ({"n": 1}, [("0/a#1", "done")], 1, True)


def test_a_failure_of_a_handler_is_a_failure_of_the_activity() -> None:
    outcome = simulate(plan_of(ONE), handlers={"echo": fail}).run()
    assert outcome.failure == Failure(code="broken", message="node `a`: it broke")
    assert outcome.trace == [("0/a#1", "broken")]


def test_a_pick_chooses_which_activity_reports_first() -> None:
    sim = simulate(plan_of(TWO))
    sim.step(1)
    sim.run()
    assert [at for at, _ in sim.outcome.trace] == ["0/b#1", "0/a#1"]


def test_time_passes_only_when_nothing_else_can_happen() -> None:
    sim = simulate(plan_of(ASK), start=1000.0)
    while sim.work:
        sim.step()
        assert sim.now == 1000.0
    assert sim.step()
    assert sim.now == 1090.0
    assert sim.run().result == "expired"


def test_a_decision_stops_the_clock() -> None:
    sim = simulate(plan_of(ASK), start=1000.0)
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve"), answer_to="u1")
    assert sim.run().result == "approve"
    assert (sim.now, sim.timers, sim.outcome.answers) == (1000.0, {}, {"u1": "recorded"})


def test_a_job_that_waits_for_a_human_without_a_deadline_stands_still() -> None:
    sim = simulate(plan_of({**ASK, "a": {"approval": {"request": 1}, "next": "z"}}))
    assert not sim.run().over
    assert not sim.step()


def test_nothing_happens_after_the_end() -> None:
    sim = simulate(plan_of(ONE))
    sim.run()
    assert not sim.step()


@pytest.mark.parametrize(("steps", "runs"), [(None, 1), (1, 5), (2, 3), (50, 1)])
def test_the_state_goes_through_json_as_often_as_asked(steps: int | None, runs: int) -> None:
    nodes = {**ONE, "a": {**ONE["a"], "max_visits": 3, "exhausted": "z", "next": "a"}}
    outcome = simulate(plan_of(nodes), steps_per_run=steps).run()
    assert outcome.result == {"n": 1}
    assert outcome.runs == runs


def test_every_event_is_kept_once() -> None:
    nodes = {**ONE, "a": {**ONE["a"], "emit": {"progress": {"x": 1}}}}
    assert of_type(simulate(plan_of(nodes), steps_per_run=1).run(), "progress") == [{"t": "progress", "n": 0, "x": 1}]


def test_a_missing_handler_is_named() -> None:
    with pytest.raises(PlanError, match=r"no handler for other\.thing"):
        simulate(plan_of({"a": {"activity": "other.thing", "next": "z"}, "z": {"end": 1}})).run()


def test_a_graph_that_never_ends_is_told() -> None:
    with pytest.raises(PlanError, match="over 50 steps"):
        simulate(plan_of({"a": {"activity": "echo", "next": "a"}})).run(most=50)


def test_a_graph_of_the_support_starts_at_its_first_node() -> None:
    assert graph({"x": {"end": 1}, "y": {"end": 2}}).start == "x"
