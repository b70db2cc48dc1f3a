"""The machine in memory: the driver of simulation and of unit tests, with a virtual clock.

The handlers are functions in place of activities. Time passes only when nothing else can happen: then the
clock jumps to the next deadline.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.errors import LoomError, PlanError
from loom_dsl.graph.admission import admitted
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import (
    ActivityDone,
    ActivityFailed,
    CancelActivity,
    CancelChild,
    CancelTimer,
    ChildEnded,
    Drain,
    Drained,
    Failure,
    Finish,
    GoOn,
    Input,
    Proceed,
    RunActivity,
    SignalReceived,
    StartChild,
    Started,
    StartTimer,
    TimerFired,
    TurnEnded,
    UpdateAnswer,
    Yielded,
)
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.state import MachineState
from loom_dsl.text.canonical import canonical_json

Work = RunActivity | StartChild
Handler = Callable[[Any], Any]
"""Stands in for an activity (by its name), an agent's job (by ``agent:name``) or a written graph's (by ``graph:node``):
takes the command, gives its result or raises a `LoomError`."""


class ChildFailed(LoomError):
    """A child job failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure_code = code


class AnsweredFailure(LoomError):
    """What a handler raises for a failure that the machine is to judge: tried again, waited for, or halted.

    Args:
        code: Its stable code.
        message: What was answered.
        how: `again`, `outage`, `halts`, `retry_after` and `action`, as `ActivityFailed` has them.
    """

    def __init__(self, code: str, message: str = "", **how: Any) -> None:
        super().__init__(message or code)
        self.failure_code, self.how = code, how


@dataclass(slots=True)
class Outcome:
    """How a simulated job went.

    Attributes:
        result: What it ended with, or None.
        failure: Why it failed, or None.
        trace: Each execution and how it ended, in the order it ended: ``(turn/at, "done" or a code)``.
        events: Everything that observers were told.
        answers: Verdicts of updates, by slot.
        runs: How many times the state went through JSON.
        undo: How a job above this one would take back what it did.
    """

    result: Any = None
    failure: Failure | None = None
    trace: list[tuple[str, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    runs: int = 1
    undo: list[dict[str, Any]] = field(default_factory=list)
    over: bool = False


class Simulation:
    """Runs a plan in memory.

    Attributes:
        steps_per_run: Continue as new after so many activities; None means only at the end of a turn.
    """

    def __init__(
        self,
        plan: Plan,
        state: MachineState,
        handlers: Mapping[str, Handler],
        *,
        job: str = "job",
        steps_per_run: int | None = None,
        start: float = 1_700_000_000.0,
    ) -> None:
        self.plan, self.job, self.handlers, self.now = plan, job, handlers, start
        self.steps_per_run = steps_per_run
        self.machine = self._machine(state)
        self.outcome = Outcome()
        self.timers: dict[str, float] = {}
        self.work: list[Work] = []
        self._steps = 0
        self._sequences: set[int] = set()
        self._inputs: list[Input] = []
        self._feeding = False
        self._feed(Started(now=start))

    def signal(self, name: str, payload: Any, *, answer_to: str | None = None, problem: str = "") -> None:
        """Send a signal (or an update, when a slot waits for its answer)."""
        signal = SignalReceived(now=self.now, name=name, payload=payload, answer_to=answer_to, problem=problem)
        self._feed(signal)

    def step(self, pick: int = 0) -> bool:
        """Run one waiting activity, or let time pass to the next deadline. False when nothing can happen."""
        if self.outcome.over:
            return False
        if self.work:
            self._run(self.work.pop(pick % len(self.work)))
        elif self.timers:
            at = min(self.timers, key=lambda name: (self.timers[name], name))
            self.now = max(self.now, self.timers.pop(at))
            self._feed(TimerFired(now=self.now, at=at))
        else:
            return False
        return True

    def run(self, most: int = 100_000) -> Outcome:
        """Go on until the job ends or waits for a human without a deadline.

        Raises:
            PlanError: It takes more than `most` steps.
        """
        for _ in range(most):
            if not self.step():
                return self.outcome
        raise PlanError(f"the simulation took over {most} steps")

    def _machine(self, state: MachineState) -> Machine:
        return Machine(self.plan, state, self.job)

    def _run(self, command: Work) -> None:
        if isinstance(command, StartChild):
            return self._run_child(command)
        self._store(command.events)
        happened = self._activity(command)
        if not command.at.startswith("~"):
            self._trace(command.at, happened.code if isinstance(happened, ActivityFailed) else "done")
        self._steps += 1
        if self.steps_per_run and self._steps >= self.steps_per_run:
            # Before the result is taken, so that what follows from it is already the next run's.
            self._feed(Drain(now=self.now))
        return self._feed(happened)

    def _activity(self, command: RunActivity) -> ActivityDone | ActivityFailed:
        handler = self._handler(command.activity)
        try:
            return ActivityDone(now=self.now, at=command.at, result=handler(command))
        except AnsweredFailure as error:
            how = {"attempt": command.before + 1, **error.how}
            return ActivityFailed(now=self.now, at=command.at, code=error.failure_code, message=error.message, **how)
        except LoomError as error:
            return ActivityFailed(now=self.now, at=command.at, code=error.code, message=error.message)

    def _run_child(self, command: StartChild) -> None:
        ended = self._child(command)
        self._trace(command.at, ended.code or "done")
        self._feed(ended)

    def _child(self, command: StartChild) -> ChildEnded:
        try:
            if not command.agent:
                result, undo = self._graph_job(command)
                return ChildEnded(now=self.now, at=command.at, result=result, undo=undo)
            return ChildEnded(now=self.now, at=command.at, result=self._handler(f"agent:{command.agent}")(command))
        except ChildFailed as failed:
            return ChildEnded(now=self.now, at=command.at, code=failed.failure_code, message=failed.message)
        except LoomError as error:
            return ChildEnded(now=self.now, at=command.at, code=error.code, message=error.message)

    def _graph_job(self, command: StartChild) -> tuple[Any, list[dict[str, Any]]]:
        """Run a child job of a graph to its end, in no time. One that was written is admitted first, or mocked."""
        written = command.written
        mock = self.handlers.get(f"graph:{written['node']}") if written is not None else None
        if mock is not None:
            return mock(command), []
        named = written is None
        plan = self.plan.child("", command.graph) if named else admitted(self.plan, written or {}, command.arguments)
        inner = Simulation(
            plan, MachineState(input=command.arguments), self.handlers, job=command.child, start=self.now
        )
        outcome = inner.run()
        if outcome.failure is not None:
            raise ChildFailed(outcome.failure.code, outcome.failure.message)
        if not outcome.over:
            raise PlanError(f"the job {command.child} of a graph waits, and a simulation runs such jobs to their end")
        return outcome.result, outcome.undo

    def _handler(self, name: str) -> Handler:
        if name not in self.handlers:
            raise PlanError(f"the simulation has no handler for {name}")
        return self.handlers[name]

    def _trace(self, at: str, verdict: str) -> None:
        turn = self.machine.state.turn.turn_counter if self.machine.state.turn else 0
        self.outcome.trace.append((f"{turn}/{at}", verdict))

    def _store(self, batches: list[Any]) -> None:
        for sequence, events in batches:
            if sequence not in self._sequences:
                self._sequences.add(sequence)
                self.outcome.events += events

    def _feed(self, *happened: Input) -> None:
        """Take inputs one after the other: what follows from a command waits until all of them are obeyed."""
        self._inputs += happened
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._inputs:
                for command in self.machine.feed(self._inputs.pop(0)):
                    self._obey(command)
        finally:
            self._feeding = False

    def _obey(self, command: Any) -> None:
        match command:
            case RunActivity() | StartChild():
                self.work.append(command)
            case CancelActivity(at=at) | CancelChild(at=at):
                self._cancel(at)
            case StartTimer(at=at, when=when):
                self.timers[at] = when
            case CancelTimer(at=at):
                self.timers.pop(at, None)
            case TurnEnded():
                self._continue_as_new() if self.steps_per_run else self._inputs.insert(0, Proceed(now=self.now))
            case Drained() | Yielded():
                self._continue_as_new() if isinstance(command, Drained) else self._inputs.append(GoOn(now=self.now))
            case UpdateAnswer(to=to, verdict=verdict):
                self.outcome.answers[to] = verdict
            case Finish(result=result, undo=undo):
                self.outcome.result, self.outcome.undo, self.outcome.over = result, undo, True
            case Failure():
                self.outcome.failure, self.outcome.over = command, True

    def _cancel(self, at: str) -> None:
        for work in [work for work in self.work if work.at == at]:
            self.work.remove(work)
            now = self.now
            if isinstance(work, StartChild):
                self._inputs.append(ChildEnded(now=now, at=at, code="aborted", message="aborted"))
            else:
                failed = ActivityFailed(now=now, at=at, code="cancelled", message="cancelled", cancelled=True)
                self._inputs.append(failed)

    def _continue_as_new(self) -> None:
        """Go through JSON, as a workflow does between two runs.

        Raises:
            PlanError: Something is in flight, and its result would be lost.
        """
        in_flight = [work.at for work in self.work if isinstance(work, RunActivity)]
        if in_flight:
            raise PlanError(f"the machine wants to continue as new while {in_flight[0]} is in flight")
        raw = json.loads(canonical_json(self.machine.state.to_json()))
        self.machine = self._machine(MachineState.from_json(raw))
        self.outcome.runs += 1
        self._steps = 0
        self.timers.clear()
        self._inputs.insert(0, Started(now=self.now))
