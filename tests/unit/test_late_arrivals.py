"""No decision keeps a question open whose time is over, and no event takes an id of Loom's own."""

import pytest

from loom_dsl.machine.commands import ActivityDone, CancelTimer, SignalReceived, StartTimer, TimerFired
from loom_dsl.machine.decisions.stages import MAX_CHECKED
from loom_dsl.simulation.in_memory import Simulation
from tests.support.asked import KEYS, asked, decided, refusals, settle, signed, unsigned
from tests.support.simulated import approvals, of_type

HOUR = 3600.0

# -- time --------------------------------------------------------------------------------------------------------


def late(sim: Simulation) -> Simulation:
    """The deadline is past, and nobody has seen it yet."""
    sim.now += HOUR + 1
    return sim


@pytest.mark.parametrize("slot", [None, "u"])
def test_no_decision_sets_the_timer_of_a_question_anew_whose_time_is_over(slot: str | None) -> None:
    sim = late(asked({"expires": "1h", "remind": "10m"}))
    for number in range(3):
        payload = unsigned(sim, "ann", id=str(number))
        commands = sim.machine.feed(SignalReceived(now=sim.now, name="loom.decision", payload=payload, answer_to=slot))
        assert [command for command in commands if isinstance(command, StartTimer | CancelTimer)] == []


def fire(sim: Simulation) -> None:
    sim.timers.pop("ask#1", None)
    sim._feed(TimerFired(now=sim.now, at="ask#1"))


def looked_up(sim: Simulation, sent: float | None) -> None:
    """The one look at the time that is under way ends."""
    (work,) = [work for work in sim.work if work.activity == "loom.signal.time"]  # type: ignore[union-attr]
    sim.work.remove(work)
    sim._feed(ActivityDone(now=sim.now, at=work.at, result={"sent": sent}))


@pytest.mark.parametrize("in_time", [0, 1, 3])
def test_signals_that_keep_coming_cannot_keep_a_question_open_whose_timer_has_fired(in_time: int) -> None:
    sim = asked({"expires": "1h", "quorum": 9})
    due = sim.now + HOUR
    late(sim)
    for number in range(3):
        sim.signal("loom.decision", unsigned(sim, f"p{number}"))
    fire(sim)
    for number in range(3):  # whatever comes in between
        assert approvals(sim)
        sim.signal("loom.decision", unsigned(sim, f"q{number}"))
        sim.signal("loom.decision", unsigned(sim, f"r{number}"), answer_to=f"u{number}")
        looked_up(sim, due - 1 if number < in_time else due + 1)
    settle(sim)
    assert [choice for choice, _ in decided(sim)] == ["expired"]
    assert len(of_type(sim.outcome, "approval_changed")) == in_time
    assert set(sim.outcome.answers.values()) == {"expired"}
    assert refusals(sim) == ["expired"] * (9 - in_time)


def test_signals_that_came_before_the_timer_are_all_looked_up_and_then_it_expires() -> None:
    sim = late(asked({"expires": "1h"}))
    for number in range(MAX_CHECKED + 1):
        sim.signal("loom.decision", unsigned(sim, f"p{number}"))
    fire(sim)
    for _ in range(MAX_CHECKED):
        sim.signal("loom.decision", unsigned(sim, "late", id=str(len(sim.outcome.events))))
        looked_up(sim, None)
    settle(sim)
    assert [choice for choice, _ in decided(sim)] == ["expired"]
    assert refusals(sim).count("full") == 1


def test_a_decision_that_came_in_time_still_wins_when_it_is_known_after_the_timer() -> None:
    sim = asked({"expires": "1h"})
    due = sim.now + HOUR
    late(sim)
    payload = unsigned(sim, "ann")
    sim.signal("loom.decision", payload)
    fire(sim)
    sim.signal("loom.decision", unsigned(sim, "bob", "reject"), answer_to="late")
    sim.signal("loom.decision", payload, answer_to="again")
    looked_up(sim, due - 1)
    settle(sim)
    assert decided(sim) == [("approve", "ann")]
    assert sim.outcome.answers == {"late": "expired", "again": "recorded"}


# -- ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["~", "~1", "~signed/key_0/nonce"])
def test_an_event_with_an_id_of_looms_own_is_refused_and_takes_no_nonce(name: str) -> None:
    sim = asked()
    payload = signed(sim, "ann")
    name = name.replace("key_0/nonce", f"{KEYS['ann'].name}/{payload['signature']['nonce']}")
    sim.signal("loom.event", {"name": "go", "id": name}, answer_to="event")
    sim.signal("loom.event", {"name": "go", "id": name})
    sim.signal("loom.decision", payload, answer_to="decision")
    settle(sim)
    assert sim.outcome.answers == {"event": "invalid", "decision": "recorded"}
    assert refusals(sim) == ["invalid", "invalid"]
    assert "cannot start with `~`" in of_type(sim.outcome, "warning")[0]["message"]
    sim.signal("loom.event", {"name": "go", "id": "1~"}, answer_to="other")
    settle(sim)
    assert sim.outcome.over
