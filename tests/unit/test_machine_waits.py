"""What tokens wait for: events and times."""

from typing import Any

import pytest

from loom_dsl.agent.turn import TurnState
from loom_dsl.machine.commands import Proceed, SignalReceived, Started, StartTimer, TimerFired, TurnEnded
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.signals import MAX_EVENTS
from loom_dsl.machine.state import TIMING, MachineState
from tests.support.simulated import JOB, of_type, plan_of
from tests.support.tokens import (
    DONE,
    begin,
    event,
    finish,
    plan,
    rest,
    work,
)

NOW = 1_000_000.0

# -- events --------------------------------------------------------------------------------------------------


def listening(spec: Any, **more: Any) -> Any:
    """A step, and then an event."""
    return plan({"first": work("e"), "e": {"event": spec, "next": "z", **more}, "z": {"end": "${nodes.e}"}})


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("data", [None, {}, [], 0, False, "", {"a": [1]}])
def test_an_event_that_is_kept_may_come_before_its_token(data: Any, early: bool, steps: int | None) -> None:
    sim = begin(listening("go"), steps_per_run=steps)
    if not early:
        finish(sim, "first")
    assert event(sim, "go", data) == "recorded"
    assert rest(sim).result == data


def test_an_event_that_is_not_kept_must_find_its_token() -> None:
    sim = begin(listening({"name": "go", "buffer": False}))
    assert event(sim, "go", "early") == "unknown"
    finish(sim, "first")
    assert event(sim, "go", "in time") == "recorded"
    assert rest(sim).result == "in time"


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(("key", "taken"), [(1, True), ("1", False), (2, False), (None, False)])
def test_an_event_with_a_key_goes_to_who_waits_for_that_key(key: Any, taken: bool, buffered: bool) -> None:
    nodes = {
        "first": work("e"),
        "e": {"event": {"name": "go", "key": "${input}"}, "next": "z"},
        "z": {"end": "${nodes.e}"},
    }
    sim = begin(plan(nodes), input=1)
    if not buffered:
        finish(sim, "first")
    event(sim, "go", "data", key=key)
    sim.run()
    assert sim.outcome.over is taken


def test_a_token_that_names_no_key_takes_any() -> None:
    sim = begin(listening("go"))
    event(sim, "go", 1, key="whatever")
    assert rest(sim).result == 1


def test_an_event_is_taken_once_and_by_the_first_token() -> None:
    nodes = {
        "fork": {"next": ["a", "b"]},
        "a": {"event": "go", "next": "z"},
        "b": {"event": "go", "next": "z"},
        "z": {"end": None},
    }
    sim = begin(plan(nodes))
    event(sim, "go", 1)
    assert sim.machine.state.frames[""].outputs == {"a": 1}
    event(sim, "go", 2)
    assert sim.machine.state.frames[""].outputs == {"a": 1, "b": 2}
    assert rest(sim).failure is None


def test_kept_events_are_taken_in_the_order_in_which_they_came() -> None:
    nodes = {
        "first": work("e"),
        "e": {"event": "go", "write": {"seen": "${result}"}, "next": "e", "max_visits": 3, "exhausted": "z"},
        "z": {"end": "${state.seen}"},
    }
    sim = begin(plan(nodes, state={"seen": {"type": "list", "reduce": "append"}}))
    for number in range(3):
        event(sim, "go", number)
    assert rest(sim).result == [0, 1, 2]


def test_the_same_event_twice_counts_once() -> None:
    sim = begin(listening("go"))
    assert [event(sim, "go", 1, id="x"), event(sim, "go", 2, id="x")] == ["recorded", "already_done"]
    assert [e["data"] for e in sim.machine.state.events] == [1]


def test_an_event_that_the_server_sends_again_at_the_end_was_received() -> None:
    sim = begin(listening("go"))
    finish(sim, "first")
    event(sim, "go", 1, id="x")
    assert sim.machine.state.ending is not None
    assert event(sim, "go", 1, id="x") == "already_done"
    assert event(sim, "go", 1, id="y") == "ended"


def test_too_many_events_are_refused_and_none_is_dropped() -> None:
    sim = begin(listening("go"))
    verdicts = [event(sim, "go", number) for number in range(MAX_EVENTS + 1)]
    assert verdicts == ["recorded"] * MAX_EVENTS + ["full"]
    assert rest(sim).result == 0


def test_an_event_that_no_node_takes_is_refused_and_told() -> None:
    sim = begin(listening("go"))
    assert event(sim, "gone") == "unknown"
    sim.run()
    assert "'gone'" in of_type(sim.outcome, "warning")[0]["message"]


def test_an_event_in_a_graph_inside_is_taken_there() -> None:
    inner = {"nodes": {"e": {"event": {"name": "go", "key": "${item}"}, "next": "z"}, "z": DONE}}
    nodes = {"m": {"map": {"over": "['a', 'b']", "do": "inner"}, "next": "z"}, "z": DONE}
    sim = begin(plan(nodes, graphs={"inner": inner}))
    for key in "ba":
        event(sim, "go", key * 2, key=key)
    assert rest(sim).result == ["aa", "bb"]


# -- time ------------------------------------------------------------------------------------------------------

TIMES: list[tuple[dict[str, Any], float]] = [
    ({"timer": "90s"}, 90),
    ({"timer": {"after": "${input}"}}, 30),
    ({"timer": {"after": "${str(input) + 's'}"}}, 30),
    ({"timer": {"until": "${run.now + 5}"}}, 5),
    ({"timer": {"until": "2023-11-14T22:13:30Z"}}, 10),
    ({"timer": {"until": "2023-11-14T22:13:30"}}, 10),
    ({"timer": {"until": "2023-11-14T23:13:30+01:00"}}, 10),
    ({"timer": {"until": 0}}, 0),
]


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize(("node", "seconds"), TIMES)
def test_a_timer_waits_for_its_time(node: dict[str, Any], seconds: float, steps: int | None) -> None:
    nodes = {"first": work("t"), "t": {**node, "next": "last"}, "last": work("z"), "z": DONE}
    sim = begin(plan(nodes), input=30, steps_per_run=steps)
    assert rest(sim).result == "last"
    assert sim.now == 1_700_000_000.0 + seconds


@pytest.mark.parametrize(
    "spec",
    [{"after": "${input}"}, {"until": "${input}"}],
)
@pytest.mark.parametrize("value", [None, "soon", True, [1], -1, 1e12])
def test_a_time_that_is_none_fails_the_timer(spec: dict[str, Any], value: Any) -> None:
    if "until" in spec and value in (-1, 1e12) and value is not True:
        return
    nodes = {"t": {"timer": spec, "catch": {"expression_error": "c"}, "next": "z"}, "z": DONE}
    sim = begin(plan({**nodes, "c": {"end": "caught"}}), input=value)
    assert rest(sim).result == "caught"


def test_a_timer_of_the_turn_before_does_not_end_what_has_its_name_in_the_next_turn() -> None:
    """It may fire in the moment in which the turn ends; the workflow then takes both, one after the other."""
    nodes = {
        "wait": {"race": ["pause", "news"]},
        "pause": {"timer": {"after": "60s"}, "next": "again"},
        "news": {"event": "go", "next": "again"},
        "again": {"recurse": {}},
    }
    machine = Machine(plan_of(nodes), MachineState(turn=TurnState.initial(JOB)), JOB)
    machine.feed(Started(now=NOW))
    due = NOW + 60
    news = SignalReceived(now=due, name="loom.event", payload={"name": "go"})
    assert any(isinstance(command, TurnEnded) for command in machine.feed(news))
    assert StartTimer(at="pause#1", when=due + 60) in machine.feed(Proceed(now=due))
    late = machine.feed(TimerFired(now=due, at="pause#1"))
    assert machine.state.tokens["pause#1"].status == TIMING
    assert StartTimer(at="pause#1", when=due + 60) in late
    machine.feed(TimerFired(now=due + 60, at="pause#1"))
    assert list(machine.state.tokens) == ["again#1"]


@pytest.mark.parametrize("early", [0.0, 0.04, 30.0])
def test_a_timer_ends_what_is_due_and_is_set_anew_for_what_is_not(early: float) -> None:
    nodes = {"e": {"event": "go", "deadline": {"after": "60s", "to": "late"}, "next": "z"}, "z": {"end": 1},
             "late": {"end": 2}}  # fmt: skip
    machine = Machine(plan_of(nodes), MachineState(), JOB)
    machine.feed(Started(now=NOW))
    machine.feed(TimerFired(now=NOW + 60 - early, at="e#1"))
    assert ("e#1" in machine.state.tokens) is (early > 1)
