"""A job's time is over while its turn is under way: the turn ends there, with the limit's code."""

from typing import Any

import pytest

from loom_dsl.machine.commands import StartTimer
from tests.support.simulated import Agent, approvals, call, check_states, decision, of_type
from tests.support.tokens import control, pass_time

TIME = "~time"


def started_timers(agent: Agent) -> list[float]:
    """Note every timer of the limit that the machine starts from now on."""
    found: list[float] = []
    obey = agent.sim._obey

    def noting(command: Any) -> None:
        if isinstance(command, StartTimer) and command.at == TIME:
            found.append(command.when)
        obey(command)

    agent.sim._obey = noting  # type: ignore[method-assign]
    return found


def until(agent: Agent, activity: str) -> None:
    """Go on until an activity is in flight."""
    while not any(getattr(work, "activity", "") == activity for work in agent.sim.work):
        assert agent.sim.step()


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize("activity", ["loom.context.assemble", "loom.model.call", "loom.tool.execute"])
def test_what_is_in_flight_is_cancelled_and_the_job_fails_by_the_limits_name(activity: str, steps: int | None) -> None:
    agent = Agent([[call(1), call(2)]] * 3, max_run_duration="1m", steps_per_run=steps)
    until(agent, activity)
    assert agent.sim.timers[TIME] == agent.sim.now + 60
    pass_time(agent.sim)
    outcome = agent.run()
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.details) == ("max_run_duration", {"status": "failed"})
    assert of_type(outcome, "state")[-1]["state"] == "failed"
    assert of_type(outcome, "warning") == []
    assert agent.executed == []
    check_states(outcome)


def test_time_in_which_the_job_waits_for_a_human_or_is_paused_does_not_count() -> None:
    agent = Agent([[call(1, "read_ask")]], max_run_duration="1m")
    until(agent, "loom.model.call")
    agent.sim.now += 20  # the model takes its time
    agent.sim.step()
    while agent.sim.work:
        agent.sim.step()
    assert TIME not in agent.sim.timers
    agent.sim.now += 1_000
    agent.sim.signal("loom.decision", decision(approvals(agent.sim)[0][1], "approve"))
    assert agent.sim.timers[TIME] == pytest.approx(agent.sim.now + 40)
    control(agent.sim, "pause")
    assert TIME not in agent.sim.timers
    agent.sim.now += 1_000
    control(agent.sim, "resume")
    assert agent.sim.timers[TIME] == pytest.approx(agent.sim.now + 40)
    outcome = agent.run()
    assert (outcome.failure, agent.executed) == (None, ["c1"])


@pytest.mark.parametrize(("steps", "timers"), [(None, 1), (50, 4)])
def test_a_run_starts_one_timer_however_many_turns_it_has(steps: int | None, timers: int) -> None:
    agent = Agent([[call(1)]] * 3, max_run_duration="1m", steps_per_run=steps)
    found = started_timers(agent)
    outcome = agent.run()
    assert outcome.failure is None
    assert len(found) + 1 == timers  # the first one was started with the job


def test_without_a_limit_no_timer_is_started() -> None:
    agent = Agent([[call(1)]], max_run_duration=None)
    assert agent.sim.timers == {}
    assert agent.run().failure is None


def test_a_turn_that_says_nothing_of_an_abort_fails_all_the_same() -> None:
    agent = Agent([[call(1)]], max_run_duration="1m")
    graph = agent.sim.plan.graphs["loom.tt"].model_copy(update={"on_abort": None})
    other = type(agent.sim.plan)("loom.tt", {**agent.sim.plan.graphs, "loom.tt": graph}, agent.sim.plan.agent)
    agent = Agent([[call(1)]], plan=other)
    until(agent, "loom.model.call")
    pass_time(agent.sim)
    failure = agent.run().failure
    assert failure is not None
    assert failure.code == "max_run_duration"
