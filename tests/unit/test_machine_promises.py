"""What the engine promises of waits and repetitions, wherever a run ends and whatever is open beside it."""

from collections import Counter
from typing import Any

import pytest

from loom_dsl.machine.commands import RunActivity
from tests.support.simulated import approvals, decision
from tests.support.tokens import DONE, begin, control, event, plan, rest, work

RUNS = pytest.mark.parametrize("steps", [None, 1, 2])


class Counting:
    """An activity that counts how often each execution ran."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, command: RunActivity) -> int:
        self.calls[command.at] += 1
        return 7  # the same every time


@RUNS
def test_every_round_of_a_loop_runs_its_activity_though_nothing_has_changed(steps: int | None) -> None:
    counting = Counting()
    body = {"nodes": {"w": {"activity": "count", "next": "z"}, "z": DONE}}
    nodes = {"l": {"loop": {"do": "body", "while": "index < 20", "max": 20}, "next": "z"}, "z": DONE}
    outcome = rest(begin(plan(nodes, graphs={"body": body}), handlers={"count": counting}, steps_per_run=steps))
    assert outcome.result == 7
    assert counting.calls == {f"l#1[{index}]/w#1": 1 for index in range(20)}


@RUNS
def test_every_visit_of_a_cycle_runs_its_activity_though_nothing_has_changed(steps: int | None) -> None:
    counting = Counting()
    nodes = {"w": {"activity": "count", "max_visits": 9, "exhausted": "z", "next": "w"}, "z": DONE}
    rest(begin(plan(nodes), handlers={"count": counting}, steps_per_run=steps))
    assert counting.calls == {f"w#{visit}": 1 for visit in range(1, 10)}


@RUNS
@pytest.mark.parametrize("window", [1, 3, 50])
def test_an_item_of_a_map_is_neither_lost_nor_done_twice_where_a_run_ends(steps: int | None, window: int) -> None:
    counting = Counting()
    item = {"nodes": {"a": {"activity": "count", "next": "b"}, "b": {"activity": "count", "next": "z"}, "z": DONE}}
    nodes = {"m": {"map": {"over": "range(12)", "do": "item", "window": window}, "next": "z"}, "z": DONE}
    outcome = rest(begin(plan(nodes, graphs={"item": item}), handlers={"count": counting}, steps_per_run=steps))
    assert outcome.result == [7] * 12
    assert counting.calls == {f"m#1[{index}]/{node}#1": 1 for index in range(12) for node in "ab"}


@RUNS
@pytest.mark.parametrize("first", [0, 1])
def test_two_open_approvals_do_not_take_each_others_decisions(steps: int | None, first: int) -> None:
    nodes: dict[str, Any] = {
        "start": work(["one", "two"]),
        "one": {"approval": "Same words?", "next": "j"},
        "two": {"approval": "Same words?", "next": "j"},
        "j": {"join": "all", "next": "z"},
        "z": {"end": {"one": "${nodes.one.choice}", "two": "${nodes.two.choice}"}},
    }
    sim = begin(plan(nodes), steps_per_run=steps)
    sim.run()
    choices = ["approve", "reject"]
    opened = approvals(sim)
    assert [at for at, _ in opened] == ["one#1", "two#1"]
    for index in (first, 1 - first):
        sim.signal("loom.decision", decision(opened[index][1], choices[index]))
        sim.run()
    assert sim.outcome.result == {"one": "approve", "two": "reject"}


@RUNS
def test_two_open_waits_for_events_do_not_take_each_others(steps: int | None) -> None:
    nodes: dict[str, Any] = {
        "start": work(["one", "two", "three"]),
        "one": {"event": "a", "next": "j"},
        "two": {"event": {"name": "b", "key": 1}, "next": "j"},
        "three": {"event": {"name": "b", "key": 2}, "next": "j"},
        "j": {"join": "all", "next": "z"},
        "z": {"end": "${nodes.j}"},
    }
    sim = begin(plan(nodes), steps_per_run=steps)
    event(sim, "b", "for three, early", key=2)
    control(sim, "pause")
    event(sim, "b", "for two", key=1)
    control(sim, "resume")
    sim.run()
    event(sim, "a", "for one")
    assert rest(sim).result == {"one": "for one", "two": "for two", "three": "for three, early"}


@RUNS
def test_the_timer_of_an_approval_that_is_decided_does_not_count_for_the_next_one(steps: int | None) -> None:
    nodes: dict[str, Any] = {
        "one": {"approval": "First?", "deadline": {"after": "1h", "to": "late"}, "next": "two"},
        "two": {"approval": "Second?", "deadline": {"after": "2h", "to": "late"}, "next": "z"},
        "late": {"end": "${run.now}"},
        "z": DONE,
    }
    sim = begin(plan(nodes), steps_per_run=steps)
    began = sim.now
    sim.now += 3_000
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve"))
    assert sim.run().result == began + 3_000 + 7_200
