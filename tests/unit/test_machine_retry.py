"""What follows from an answered failure: tries are counted, outages are waited for, and a person is asked in time."""

from typing import Any

import pytest

from loom_dsl.fields import MAX_OUTAGE
from loom_dsl.machine.commands import ActivityFailed, RunActivity
from loom_dsl.machine.migration import moved
from loom_dsl.machine.state import MachineState
from loom_dsl.machine.status import status_of
from loom_dsl.machine.tokens.retry import (
    MAX_PAUSE,
    MAX_RETRY_AFTER,
    SPREAD,
    Backoff,
    Halt,
    Verdict,
    growing_pause,
    judge,
)
from loom_dsl.simulation.in_memory import AnsweredFailure, Simulation
from tests.support.simulated import of_type
from tests.support.tokens import begin, name, plan, rest, work

RETRY = (3, 1.0, 2.0, 60.0)
NOW = 1_000_000.0
DAY = 86_400.0
HOUR = 3_600.0

AGAIN = {"again": True}
AWAY = {"outage": True, "again": True}
REFUSED = {"halts": True}


def failed(**how: Any) -> ActivityFailed:
    """An answered failure."""
    return ActivityFailed(now=NOW, at="a#1", code="broken", message="it broke", **how)


@pytest.mark.parametrize(
    ("tries", "factor", "expected"),
    [(1, 2.0, 2.0), (4, 2.0, 16.0), (6, 2.0, 60.0), (5_000, 2.0, 60.0), (200, 1e300, 60.0), (5_000, 1, 2.0)],
)
def test_a_pause_grows_to_its_longest_and_no_number_of_tries_is_too_large(
    tries: int, factor: float, expected: float
) -> None:
    assert growing_pause(tries, 2.0, factor, 60.0) == expected


def test_a_node_may_grow_its_pauses_as_fast_as_it_likes() -> None:
    assert judge(failed(**AGAIN), (1_000, 1.0, 100.0, 60.0), now=NOW, tries=500) == Backoff(60.0, None, 501)


@pytest.mark.parametrize(
    ("how", "known", "expected"),
    [
        ({}, {}, None),
        ({"cancelled": True, **AWAY}, {}, None),
        (AGAIN, {}, Backoff(1.0, None, 1)),
        (AGAIN, {"tries": 1}, Backoff(2.0, None, 2)),
        (AGAIN, {"tries": 2}, None),
        ({**AGAIN, "tries": 2}, {"tries": 1}, None),
        ({**AGAIN, "retry_after": 30.0}, {}, Backoff(30.0, None, 1)),
        ({**AGAIN, "retry_after": 90.0}, {}, Backoff(60.0, None, 1)),
        ({**AGAIN, "retry_after": -1.0}, {}, Backoff(0.0, None, 1)),
        ({**AWAY, "retry_after": 1e12}, {"max_outage": None}, Backoff(MAX_RETRY_AFTER, NOW, 0)),
        ({**AWAY, "retry_after": 21_600.0}, {"caught": True}, Backoff(60.0, None, 1)),
        # An outage counts time, and no tries.
        (AWAY, {}, Backoff(1.0, NOW, 0)),
        (AWAY, {"tries": 2}, Backoff(1.0, NOW, 2)),
        (AWAY, {"outages": 3, "outage_since": NOW - 7}, Backoff(8.0, NOW - 7, 0)),
        (AWAY, {"outages": 400, "outage_since": NOW - 7_000}, Backoff(MAX_PAUSE, NOW - 7_000, 0)),
        ({**AWAY, "retry_after": 1_200.0}, {}, Backoff(1_200.0, NOW, 0)),
        ({**AWAY, "retry_after": 0.1}, {"outages": 2}, Backoff(0.1, NOW, 0)),
        ({**AWAY, "retry_after": 0.1}, {"outages": 3}, Backoff(8.0, NOW, 0)),
        ({**AWAY, "retry_after": 2 * DAY}, {}, Backoff(DAY, NOW, 0)),
        ({**AWAY, "retry_after": 2 * DAY}, {"max_outage": None}, Backoff(2 * DAY, NOW, 0)),
        (AWAY, {"outages": 400, "outage_since": NOW - DAY + 30}, Backoff(30.0, NOW - DAY + 30, 0)),
        (AWAY, {"outages": 400, "outage_since": NOW - DAY}, Halt()),
        (
            AWAY,
            {"outages": 99, "outage_since": NOW - 9 * DAY, "max_outage": None},
            Backoff(MAX_PAUSE, NOW - 9 * DAY, 0),
        ),
        (AWAY, {"max_outage": 0.0}, Halt()),
        (REFUSED, {}, Halt()),
        # The graph has a way of its own: it is taken after the tries that the node has.
        (AWAY, {"caught": True}, Backoff(1.0, None, 1)),
        (AWAY, {"caught": True, "tries": 2}, None),
        (REFUSED, {"caught": True}, None),
    ],
)  # fmt: skip
def test_what_follows_from_an_answer(how: dict[str, Any], known: dict[str, Any], expected: Verdict) -> None:
    assert judge(failed(**how), RETRY, now=NOW, **known) == expected


def test_the_default_is_a_day() -> None:
    assert MAX_OUTAGE == DAY


# -- in a graph --------------------------------------------------------------------------------------------------

EACH_STEP = pytest.mark.parametrize("steps", [None, 1])


class Party:
    """Answers each try with the next failure of a list, and then with its node's name."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self.answers = [*answers]
        self.commands: list[RunActivity] = []
        self.times: list[float] = []
        self.sim: Simulation | None = None

    def __call__(self, command: RunActivity) -> str:
        """Answer."""
        self.commands.append(command)
        if self.sim is not None:
            self.times.append(self.sim.now)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise AnsweredFailure("model_unavailable", "nothing listens there", **answer)
        return name(command)


def asked(party: Party, steps: int | None = None, **node: Any) -> Simulation:
    """A graph with one activity that asks a party."""
    nodes = {"a": {"activity": "party", "with": {"n": 7}, "next": "z", **node}, "z": {"end": "${nodes.a}"}}
    sim = begin(plan({**nodes, "other": {"end": "other"}}), handlers={"party": party}, steps_per_run=steps)
    party.sim = sim
    return sim


@EACH_STEP
def test_answers_that_count_are_tried_as_often_as_the_node_says(steps: int | None) -> None:
    party = Party(AGAIN, AGAIN)
    sim = asked(party, steps)
    assert rest(sim).result == "a"
    assert [(c.before, c.tries) for c in party.commands] == [(0, 0), (1, 1), (2, 2)]
    assert all(command.arguments == {"n": 7} for command in party.commands)
    waits = of_type(sim.outcome, "waiting")
    assert [(event["node"], event["cause"], event["tries"]) for event in waits] == [
        ("a#1", "model_unavailable", 1),
        ("a#1", "model_unavailable", 2),
    ]
    assert [event["next_at"] - event["since"] for event in waits] == [1.0, 3.0]
    assert [event["node"] for event in of_type(sim.outcome, "resumed")] == ["a#1"]
    assert [event["attempt"] for event in of_type(sim.outcome, "node_retry")] == [2, 3]


@EACH_STEP
def test_a_node_fails_with_what_was_answered_last(steps: int | None) -> None:
    outcome = rest(asked(Party(AGAIN, AGAIN, AGAIN), steps))
    assert outcome.failure is not None
    assert outcome.failure.code == "model_unavailable"


@EACH_STEP
def test_an_outage_of_hours_is_waited_for_with_growing_pauses(steps: int | None) -> None:
    party = Party(*[AWAY] * 80)
    sim = asked(party, steps)
    assert rest(sim).result == "a"
    pauses = [later - earlier for earlier, later in zip(party.times, party.times[1:], strict=False)]
    assert pauses[:5] == pytest.approx([1, 2, 4, 8, 16])
    assert all(MAX_PAUSE * (1 - SPREAD) <= pause <= MAX_PAUSE for pause in pauses[10:])
    assert len(set(pauses[10:])) > 5
    assert sim.now - party.times[0] > 5 * HOUR


@EACH_STEP
def test_what_is_away_for_too_long_halts_the_step_and_a_person_resumes_it(steps: int | None) -> None:
    party = Party(*[AWAY] * 12)
    sim = asked(party, steps, max_outage="10m")
    sim.run()
    assert not sim.outcome.over
    assert sim.timers == {}
    assert party.times[-1] - party.times[0] == pytest.approx(600)
    (halted,) = status_of(sim.machine)["halted"]
    assert (halted["at"], halted["cause"], halted["message"]) == ("a#1", "model_unavailable", "nothing listens there")
    assert halted["action"]
    (told,) = of_type(sim.outcome, "halted")
    assert {key: told[key] for key in halted if key != "at"} == {key: halted[key] for key in halted if key != "at"}
    assert told["node"] == halted["at"]
    party.answers = [AWAY]
    sim.signal("loom.control", {"op": "resume", "by": "ops"})
    assert rest(sim).result == "a"
    resumed = of_type(sim.outcome, "resumed")[0]
    assert (resumed["node"], resumed["cause"], resumed["by"]) == ("a#1", "model_unavailable", "ops")


@EACH_STEP
def test_a_resume_ends_a_pause_at_once(steps: int | None) -> None:
    party = Party(*[AWAY] * 9)
    sim = asked(party, steps)
    for _ in range(40):
        if len(party.times) == 9:
            break
        sim.step()
    assert [step["cause"] for step in status_of(sim.machine)["backing_off"]] == ["model_unavailable"]
    before = sim.now
    sim.signal("loom.control", {"op": "resume", "by": "ops"})
    assert rest(sim).result == "a"
    assert sim.now == before


@pytest.mark.parametrize(("cause", "resumed"), [("model_unavailable", True), ("approval_expired", False)])
def test_a_resume_with_a_cause_resumes_only_what_waits_for_that(cause: str, resumed: bool) -> None:
    sim = asked(Party(REFUSED))
    sim.run()
    sim.signal("loom.control", {"op": "resume", "by": "ops", "cause": cause})
    sim.run()
    assert sim.outcome.over is resumed


@pytest.mark.parametrize("answer", [AWAY, REFUSED])
@pytest.mark.parametrize("code", ["any", "model_unavailable"])
def test_a_way_of_the_graph_comes_before_waiting_for_a_person(answer: dict[str, Any], code: str) -> None:
    sim = asked(Party(*[answer] * 3), catch={code: "other"}, retry={"attempts": 3})
    assert rest(sim).result == "other"
    assert of_type(sim.outcome, "halted") == []


def test_a_node_that_says_how_long_it_waits_waits_before_it_takes_the_way_for_any_failure() -> None:
    sim = asked(Party(*[AWAY] * 5), catch={"any": "other"}, max_outage="1h")
    assert rest(sim).result == "a"
    sim = asked(Party(*[AWAY] * 5), catch={"any": "other", "model_unavailable": "other"}, max_outage="1h")
    assert rest(sim).result == "other"


@EACH_STEP
@pytest.mark.parametrize("answer", [AWAY, REFUSED])
def test_the_deadline_of_a_step_that_waits_runs_on(answer: dict[str, Any], steps: int | None) -> None:
    party = Party(*[answer] * 30)
    sim = asked(party, steps, deadline={"after": "2m", "to": "other"})
    start = sim.now
    assert rest(sim).result == "other"
    assert sim.now - start == pytest.approx(120, abs=0.1)


@EACH_STEP
def test_other_branches_go_on_while_a_step_is_halted(steps: int | None) -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": {"activity": "party", "next": "both"},
        "b": work("c"),
        "c": work("both"),
        "both": {"join": "all", "next": "z"},
        "z": {"end": "${[nodes.a, nodes.c]}"},
    }
    party = Party(REFUSED)
    sim = begin(plan(nodes), handlers={"party": party}, steps_per_run=steps)
    sim.run()
    assert [at.rpartition("/")[2] for at, verdict in sim.outcome.trace if verdict == "done"] == ["b#1", "c#1"]
    sim.signal("loom.control", {"op": "resume"})
    assert rest(sim).result == ["a", "c"]


@EACH_STEP
def test_a_paused_job_tries_nothing_again_before_it_is_resumed(steps: int | None) -> None:
    party = Party(AGAIN)
    sim = asked(party, steps)
    sim.step()
    sim.signal("loom.control", {"op": "pause", "by": "ops"})
    sim.run()
    assert len(party.commands) == 1
    assert not sim.outcome.over
    sim.signal("loom.control", {"op": "resume", "by": "ops"})
    assert rest(sim).result == "a"


@EACH_STEP
def test_an_abort_ends_a_step_that_waits(steps: int | None) -> None:
    sim = asked(Party(*[AWAY] * 100), steps)
    for _ in range(6):
        sim.step()
    sim.signal("loom.control", {"op": "abort", "by": "ops"})
    outcome = rest(sim)
    assert outcome.result["status"] == "aborted"
    assert sim.timers == {}


def test_a_machine_knows_again_from_its_state_what_it_waits_for() -> None:
    party = Party(*[AWAY] * 4)
    sim = asked(party)
    sim.step()
    raw = sim.machine.state.to_json()
    again = Simulation(sim.plan, MachineState.from_json(raw), {**sim.handlers}, job=sim.job, start=sim.now)
    assert status_of(again.machine)["backing_off"] == status_of(sim.machine)["backing_off"]
    assert again.run().result == "a"


def test_a_wait_that_a_party_asked_for_is_not_cut_short() -> None:
    party = Party({**AWAY, "retry_after": 600.0}, {**AWAY, "retry_after": 600.0})
    assert rest(asked(party)).result == "a"
    assert party.times[1] - party.times[0] == pytest.approx(600)
    assert party.times[2] - party.times[1] == pytest.approx(600)


@EACH_STEP
def test_large_arguments_are_found_out_again_and_do_not_travel_with_the_job(steps: int | None) -> None:
    party = Party(*[AWAY] * 3)
    sim = asked(party, steps, **{"with": {"n": "x" * 3_000, "m": "y" * 3_000}})
    sim.step()
    assert len(str(sim.machine.state.to_json())) < 2_000
    assert rest(sim).result == "a"
    assert {len(command.arguments["n"]) for command in party.commands} == {3_000}
    assert [command.before for command in party.commands] == [0, 1, 2, 3]


@pytest.mark.parametrize("answer", [AWAY, REFUSED])
@pytest.mark.parametrize("code", ["any", "model_unavailable"])
def test_a_way_of_a_graph_around_the_step_counts_too(answer: dict[str, Any], code: str) -> None:
    inner = {"nodes": {"a": {"activity": "party", "next": "z"}, "z": {"end": "${nodes.a}"}}}
    nodes = {"n": {"graph": "inner", "next": "z", "catch": {code: "other"}}, "z": {"end": "${nodes.n}"}}
    party = Party(*[answer] * 3)
    sim = begin(plan({**nodes, "other": {"end": "other"}}, graphs={"inner": inner}), handlers={"party": party})
    assert rest(sim).result == "other"
    assert of_type(sim.outcome, "halted") == []


def test_what_settles_an_abort_is_not_held_up_by_a_halt() -> None:
    nodes = {"w": {"event": "go", "next": "z"}, "z": {"end": None}, "settle": {"activity": "party", "next": "z"}}
    sim = begin(plan(nodes, on_abort="settle"), handlers={"party": Party(REFUSED)})
    sim.run()
    sim.signal("loom.control", {"op": "abort", "by": "ops"})
    assert rest(sim).failure is not None


def test_a_halted_step_with_a_deadline_says_that_it_may_go_on_by_itself() -> None:
    sim = asked(Party(REFUSED), deadline={"after": "10m", "to": "other"})
    while sim.work:
        sim.step()
    (wait,) = status_of(sim.machine)["waits"]
    assert (wait["at"], wait["until"]) == ("a#1", sim.now + 600)


def test_a_migrated_step_is_given_what_the_new_plan_says() -> None:
    party = Party(REFUSED)
    sim = asked(party)
    sim.run()
    nodes = {"a": {"activity": "party", "with": {"n": 8}, "next": "z"}, "z": {"end": "${nodes.a}"}, "other": {"end": 1}}
    mended = plan(nodes)
    state, problems = moved(sim.machine.state, sim.plan, mended, {})
    assert problems == []
    again = Simulation(mended, MachineState.from_json(state.to_json()), {**sim.handlers}, job=sim.job, start=sim.now)
    again.signal("loom.control", {"op": "resume", "by": "ops"})
    assert again.run().result == "a"
    assert [command.arguments for command in party.commands] == [{"n": 7}, {"n": 8}]
