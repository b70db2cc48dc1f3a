"""An event reaches the store once, whatever happens to the activity that carries it."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from loom_dsl.machine.commands import (
    ActivityDone,
    ActivityFailed,
    Drain,
    Drained,
    Failure,
    Finish,
    Input,
    RunActivity,
    Started,
)
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.outbox import MAX_BATCH, MAX_CARRIED, MAX_IN_FLIGHT, URGENT, Outbox
from loom_dsl.machine.state import MachineState
from tests.support.simulated import JOB, plan_of, simulate


def event(number: int, kind: str = "progress") -> dict[str, Any]:
    return {"t": kind, "number": number}


def test_events_travel_together_with_the_number_of_the_first() -> None:
    outbox = Outbox()
    outbox.add(event(0))
    outbox.add(event(1))
    assert outbox.attach("a#1") == [[0, [event(0), event(1)]]]
    outbox.add(event(2))
    assert outbox.attach("b#1") == [[2, [event(2)]]]
    assert outbox.attach("c#1") == []


def test_what_a_failed_activity_carried_travels_again_as_it_was() -> None:
    outbox = Outbox()
    outbox.add(event(0))
    first = outbox.attach("a#1")
    outbox.take_back("a#1")
    outbox.add(event(1))
    assert outbox.attach("b#1") == [*first, [1, [event(1)]]]
    outbox.acknowledge("b#1")
    assert outbox.waiting() == []


def large(number: int, size: int) -> dict[str, Any]:
    return {**event(number), "text": "ä" * (size // 6)}


def test_no_activity_carries_more_than_the_engine_takes_and_the_oldest_goes_first() -> None:
    outbox = Outbox()
    for number in range(40):
        outbox.add(large(number, 100_000))
    carried: list[int] = []
    for at in range(40):
        batches = outbox.attach(f"a#{at}")
        assert len(json.dumps(batches)) <= MAX_CARRIED
        in_flight = {number for numbers in outbox.attached.values() for number in numbers}
        assert sum(len(json.dumps(batch)) for batch in outbox.batches if batch[0] in in_flight) <= MAX_IN_FLIGHT
        if not batches:
            assert outbox.ready() == []
            for name in list(outbox.attached):
                outbox.acknowledge(name)
        carried += [one["number"] for _, events in batches for one in events]
    assert carried == list(range(40))
    assert outbox.waiting() == []


def test_a_batch_that_was_cut_off_keeps_its_number_when_it_travels_again() -> None:
    outbox = Outbox()
    for number in range(6):
        outbox.add(large(number, 100_000))
    first = outbox.attach("a#1")
    outbox.take_back("a#1")
    outbox.add(event(6))
    assert outbox.attach("b#1")[: len(first)] == first
    assert [batch[0] for batch in Outbox.from_json(outbox.to_json()).waiting()] == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "data",
    [
        {"text": "x" * 3_000_000},
        {"request": {"list": [["x" * 1_000] * 1_000] * 10, "ä" * 1_000: {"deep": {"er": {"still": [1]}}}}},
        {f"key{number}": "x" * 1_000 for number in range(10_000)},
    ],
)
def test_an_event_that_nobody_could_carry_is_cut_and_says_so(data: dict[str, Any]) -> None:
    outbox = Outbox()
    outbox.add({**event(0, "approval_requested"), **data})
    outbox.add(event(1))
    ((_, events),) = outbox.attach("a#1")
    assert len(json.dumps(events)) < MAX_BATCH
    assert (events[0]["t"], events[0]["cut"], events[1]) == ("approval_requested", True, event(1))


def test_what_waits_is_stored_before_a_turn_ends_with_too_much_of_it() -> None:
    emits = {"emit": {"progress": {"tool_call_id": "x", "content": "${input}"}}}
    nodes: dict[str, Any] = {"a": {"activity": "echo", "next": "n0"}}
    nodes |= {f"n{index}": {**emits, "next": f"n{index + 1}"} for index in range(300)}
    nodes["n300"] = {"activity": "echo", "next": "z"}
    simulation = simulate(plan_of({**nodes, "z": {"end": 1}}), input="x" * 4_000, steps_per_run=1)
    sizes = []
    while simulation.step():
        if simulation.outcome.runs > len(sizes) + 1:
            sizes.append(len(json.dumps(simulation.machine.state.outbox.to_json())))
    assert simulation.outcome.result == 1
    assert len(sizes) > 0
    assert max(sizes) <= MAX_BATCH + 1_000
    assert len([one for one in simulation.outcome.events if one["t"] == "progress"]) == 300


@pytest.mark.parametrize("kind", sorted(URGENT))
def test_an_urgent_event_presses_until_something_carries_it(kind: str) -> None:
    outbox = Outbox()
    outbox.add(event(0))
    assert not outbox.pressing()
    outbox.add(event(1, kind))
    assert outbox.pressing()
    outbox.attach("a#1")
    assert not outbox.pressing()
    outbox.take_back("a#1")
    assert outbox.pressing()


class Travels(RuleBasedStateMachine):
    """Activities attach, store or not, fail or not, and the outbox goes through JSON when nothing is in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox, self.added, self.count = Outbox(), 0, 0
        self.in_flight: dict[str, list[Any]] = {}
        self.stored: dict[int, list[Any]] = {}

    def store(self, batches: list[Any]) -> None:
        for sequence, events in batches:
            known = self.stored.setdefault(sequence, list(events))
            assert known == events, "a batch changed between two attempts"

    @rule(urgent=st.booleans())
    def add(self, urgent: bool) -> None:
        self.outbox.add(event(self.added, "warning" if urgent else "progress"))
        self.added += 1

    @rule()
    def begin(self) -> None:
        self.count += 1
        at = f"a#{self.count}"
        self.in_flight[at] = self.outbox.attach(at)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), stored=st.booleans(), fails=st.booleans())
    def report(self, data: st.DataObject, stored: bool, fails: bool) -> None:
        at = data.draw(st.sampled_from(sorted(self.in_flight)))
        batches = self.in_flight.pop(at)
        if stored or not fails:
            self.store(batches)
        (self.outbox.take_back if fails else self.outbox.acknowledge)(at)

    @precondition(lambda self: not self.in_flight)
    @rule()
    def continue_as_new(self) -> None:
        self.outbox = Outbox.from_json(json.loads(json.dumps(self.outbox.to_json())))

    @rule(at=st.sampled_from(["x#1", "~flush#1", ""]))
    def stray(self, at: str) -> None:
        self.outbox.acknowledge(at)
        self.outbox.take_back(at)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        kept = [e["number"] for _, events in self.outbox.batches for e in events] + [
            e["number"] for e in self.outbox.open
        ]
        stored = [e["number"] for events in self.stored.values() for e in events]
        assert len(set(stored)) == len(stored)
        assert len(set(kept)) == len(kept)
        assert set(stored) | set(kept) == set(range(self.added))

    def teardown(self) -> None:
        for at in sorted(self.in_flight):
            self.outbox.take_back(at)
        self.store(self.outbox.attach("last#1"))
        assert [e["number"] for _, events in sorted(self.stored.items()) for e in events] == list(range(self.added))


TestTravels = Travels.TestCase
TestTravels.settings = settings(stateful_step_count=30)

NODES = {
    "s": {"emit": {"progress": {"n": 0}}, "next": "m"},
    "m": {"map": {"over": "[1, 2, 3]", "do": "inner"}, "emit": {"warning": {"n": 1}}, "catch": {"any": "caught"},
          "next": "caught"},
    "caught": {"emit": {"progress": {"n": 2}}, "activity": "x", "catch": {"any": "done"}, "next": "done"},
    "done": {"emit": {"state": {"n": 3}}, "end": None},
}  # fmt: skip
INNER = {
    "a": {"emit": {"warning": {"item": "${item}"}}, "activity": "x", "next": "b"},
    "b": {"emit": {"progress": {"item": "${item}"}}, "activity": "x", "next": "z"},
    "z": {"end": 1},
}


class Worked:
    """A machine with activities that report as a script says; counts what it tells and what reaches the store."""

    def __init__(self) -> None:
        self.plan = plan_of(NODES, inner=INNER)
        self.stored: dict[int, list[Any]] = {}
        self.emitted = Counter[str]()
        self.work: list[RunActivity] = []
        self.over = False
        self.start(MachineState())

    def start(self, state: MachineState) -> None:
        self.machine = Machine(self.plan, state, JOB)
        tell = self.machine.emit

        def emit(kind: str, /, **data: Any) -> None:
            self.emitted[kind] += 1
            tell(kind, **data)

        self.machine.emit = emit  # type: ignore[method-assign]
        self.feed(Started(now=1.0))

    def feed(self, happened: Input) -> None:
        for command in self.machine.feed(happened):
            if isinstance(command, RunActivity):
                self.work.append(command)
            self.over = self.over or isinstance(command, Finish | Failure)

    def report(self, pick: int, fails: bool, had_stored: bool) -> None:
        command = self.work.pop(pick % len(self.work))
        if had_stored or not fails:
            for sequence, events in command.events:
                assert self.stored.setdefault(sequence, list(events)) == events
        if fails:
            self.feed(ActivityFailed(now=1.0, at=command.at, code="broken", message=""))
        else:
            self.feed(ActivityDone(now=1.0, at=command.at, result=None))

    def continue_as_new(self) -> None:
        self.feed(Drain(now=1.0))
        while self.work:
            self.report(0, False, True)
        if not self.over:
            self.start(MachineState.from_json(json.loads(json.dumps(self.machine.state.to_json()))))


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans(), st.booleans(), st.booleans()), max_size=40))
def test_a_machine_whose_activities_fail_and_are_cancelled_tells_every_event_once(script: list[Any]) -> None:
    """A step: which activity reports, whether it fails, whether it had stored its events, whether a new run follows."""
    worked = Worked()
    for pick, fails, had_stored, drains in script:
        if worked.work:
            worked.report(pick, fails, had_stored)
        if drains and not worked.over:
            worked.continue_as_new()
    while worked.work:
        worked.report(0, False, True)
    assert worked.over
    told = [kept["t"] for _, events in sorted(worked.stored.items()) for kept in events]
    assert Counter(told) == worked.emitted
    assert worked.machine.state.outbox.waiting() == []


def test_a_job_ends_only_after_its_last_events_are_stored() -> None:
    machine = Machine(plan_of({"a": {"emit": {"progress": {}}, "end": 1}}), MachineState(), JOB)
    commands = machine.feed(Started(now=1.0))
    for number in range(1, 4):
        (flush,) = commands
        assert isinstance(flush, RunActivity)
        assert flush.at == f"~flush#{number}"
        commands = machine.feed(ActivityFailed(now=1.0, at=flush.at, code="store_locked", message=""))
    (flush,) = commands
    assert isinstance(flush, RunActivity)
    assert machine.feed(ActivityDone(now=1.0, at=flush.at, result=None)) == [Finish(result=1)]


def test_an_activity_that_only_looks_carries_nothing() -> None:
    nodes = {"a": {"emit": {"progress": {}}, "activity": "x", "events": "leave", "next": "b"},
             "b": {"activity": "x", "next": "c"}, "c": {"end": 1}}  # fmt: skip
    machine = Machine(plan_of(nodes), MachineState(), JOB)
    (first,) = machine.feed(Started(now=1.0))
    (second,) = machine.feed(ActivityDone(now=1.0, at="a#1", result=None))
    assert isinstance(first, RunActivity)
    assert isinstance(second, RunActivity)
    assert (first.events, len(second.events)) == ([], 1)


def test_nothing_is_flushed_between_two_runs() -> None:
    nodes = {"a": {"activity": "x", "next": "b"}, "b": {"emit": {"warning": {}}, "activity": "x"}}
    machine = Machine(plan_of(nodes), MachineState(), JOB)
    machine.feed(Started(now=1.0))
    machine.emit("warning", code="x")
    assert machine.feed(Drain(now=1.0)) == []
    assert machine.feed(ActivityDone(now=1.0, at="a#1", result=None)) == [Drained()]
    assert [event["t"] for event in machine.state.to_json()["out"]["e"]] == ["warning", "node_end"]
