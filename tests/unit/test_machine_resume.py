"""A job goes on where another one failed: what was finished is not done again, and it comes to the same."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_dsl.commands import RunActivity, Started
from loom_dsl.errors import LoomError
from loom_dsl.machine_kept import MOST_KEPT, TAKEN_BACK
from loom_dsl.machine_state import MachineState
from loom_dsl.plan import Plan
from loom_dsl.resume import NOTHING_LEFT, Resumed, failed_nodes, resumed
from loom_dsl.simulate import Outcome, Simulation
from tests.support.patterns import SCENARIOS, InMemory, call
from tests.support.simulated import JOB, SYSTEM, Broken, check_state, check_states, echo, of_type
from tests.support.tokens import DONE, name, plan, work
from tests.unit.test_machine_random import BLOCKS, Block, Builder

HOUR = 3600.0


class Stubborn(Simulation):
    """Activities that cannot be cancelled: they report what they did."""

    def _cancel(self, at: str) -> None:
        if not any(isinstance(given, RunActivity) and given.at == at for given in self.work):
            super()._cancel(at)


@dataclass
class Line:
    """Jobs that go on, each where the one before it failed.

    Attributes:
        plan: What they run; may be changed between two.
        fails: Says of an activity whether it fails this time.
        jobs: The simulations of the jobs.
        kept: What the store has of the one that failed last.
    """

    plan: Plan
    fails: Callable[[RunActivity], bool]
    kind: type[Simulation] = Simulation
    steps: int | None = None
    jobs: list[Simulation] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)

    def begin(self, given: Any = None) -> Simulation:
        """Begin the first job."""
        return self._job(MachineState(input=given))

    def resume(self, new: Plan | None = None, names: dict[str, str] | None = None) -> Resumed:
        """Look how another job would go on."""
        last = self.jobs[-1]
        found = resumed(
            self.kept, self.plan, new or self.plan, names or {}, job=f"j{len(self.jobs)}", now=last.now + HOUR
        )
        if not found.problems:
            check_state(found.state)
        return found

    def go_on(self, new: Plan | None = None, names: dict[str, str] | None = None) -> Simulation:
        """Begin another job where the last one failed."""
        found = self.resume(new, names)
        assert found.problems == []
        self.plan, self.kept = new or self.plan, {}
        return self._job(MachineState.from_json(json.loads(json.dumps(found.state.to_json()))))

    def _job(self, state: MachineState) -> Simulation:
        start = self.jobs[-1].now + HOUR if self.jobs else 1_700_000_000.0
        known = {
            "name": self._work(name),
            "echo": self._work(echo),
            "one": self._work(lambda command: 1),
            "fail": lambda command: self._broken(),
            "undo": lambda command: None,
            "loom.events.flush": self._flush,
            "loom.approval.announce": lambda command: None,
        }
        sim = self.kind(self.plan, state, known, job=f"j{len(self.jobs)}", steps_per_run=self.steps, start=start)
        self.jobs.append(sim)
        return sim

    def _work(self, gives: Callable[[RunActivity], Any]) -> Callable[[RunActivity], Any]:
        def do(command: RunActivity) -> Any:
            return self._broken() if self.fails(command) else gives(command)

        return do

    def _broken(self) -> Any:
        raise Broken("it broke")

    def _flush(self, command: RunActivity) -> None:
        self.kept = command.arguments.get("failed_at", self.kept)

    def done(self) -> list[str]:
        """What has run to its end in all of the jobs together."""
        return sorted(at.partition("/")[2] for sim in self.jobs for at, verdict in sim.outcome.trace if verdict == "done")


def once(*names: str) -> Callable[[RunActivity], bool]:
    """Fail each of these executions the first time."""
    left = set(names)

    def fails(command: RunActivity) -> bool:
        found = command.at in left
        left.discard(command.at)
        return found

    return fails


def drive(sim: Simulation, pick: Callable[[], int]) -> Outcome:
    for _ in range(5_000):
        check_state(sim.machine.state)
        if not sim.step(pick()):
            assert sim.outcome.over, f"it stands still: {sorted(sim.machine.state.tokens)}"
            return sim.outcome
    raise AssertionError("it does not end")


# -- laws --------------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(BLOCKS, st.integers(0, 10_000), st.sampled_from([None, None, 1, 2]), st.booleans(), st.integers(1, 3))
def test_a_graph_that_fails_and_goes_on_comes_to_the_same_and_does_nothing_twice(
    block: Block, seed: int, steps: int | None, stubborn: bool, failures: int
) -> None:
    made = Builder().build(("row", [("work",), block, ("work",)]))
    expected = Line(made, lambda command: False)
    drive(expected.begin({"way": 1}), lambda: 0)
    source, left = random.Random(seed), [failures]

    def fails(command: RunActivity) -> bool:
        failed = left[0] > 0 and source.random() < 0.3
        left[0] -= failed
        return failed

    line = Line(made, fails, Stubborn if stubborn else Simulation, steps)
    outcome = drive(line.begin({"way": 1}), lambda: source.randrange(100))
    while outcome.failure is not None:
        if outcome.failure.details:
            assert line.resume().problems == [TAKEN_BACK]
            return
        outcome = drive(line.go_on(), lambda: source.randrange(100))
        assert of_type(outcome, "warning") == []
    assert line.done() == expected.done()
    total, wanted = (one.jobs[-1].machine.state.frames[""].own["state"]["total"] for one in (line, expected))
    assert total == wanted


class Interrupted(InMemory):
    """A pattern one of whose activities fails once; another job goes on then, and is sent the rest."""

    def __init__(self, name: str, failing: int) -> None:
        self.failing, self.went_on, self.kept = failing, 0, dict[str, Any]()
        super().__init__(name, SCENARIOS[name], None)
        self.handlers = {**SYSTEM, "loom.function.call": self._call, "loom.events.flush": self._flush}

    def step(self, pick: int = 0) -> bool:
        """Go on in another job when this one has failed."""
        moved = super().step(pick)
        if self.outcome.failure is not None:
            found = resumed(self.kept, self.plan, self.plan, {}, job=JOB, now=self.now)
            assert found.problems == []
            check_states(self.outcome)
            self.went_on, self.work, self.timers = self.went_on + 1, [], {}
            self.outcome = Outcome(trace=[(at, v) for at, v in self.outcome.trace if v == "done"])
            self._sequences.clear()
            self.machine = self._machine(MachineState.from_json(json.loads(json.dumps(found.state.to_json()))))
            self._feed(Started(now=self.now))
        return moved

    def _call(self, command: RunActivity) -> Any:
        self.failing -= 1
        if self.failing == 0:
            raise Broken("it broke")
        return call(command)

    def _flush(self, command: RunActivity) -> None:
        self.kept = command.arguments.get("failed_at", self.kept)


@pytest.mark.parametrize(
    ("name", "failing"),
    [(name, 1 + i) for name, scenario in SCENARIOS.items() for i in range(len(scenario.trace.split()))],
)
def test_a_pattern_one_of_whose_activities_failed_goes_on_to_the_same(name: str, failing: int) -> None:
    scenario = SCENARIOS[name]
    sim = Interrupted(name, failing)
    sim.play()
    assert sim.went_on == 1
    assert sim.outcome.over, f"it stands still: {sorted(sim.machine.state.tokens)}"
    assert sim.outcome.result == scenario.result
    assert sim.trace() == sorted(scenario.trace.split())
    check_states(sim.outcome)
