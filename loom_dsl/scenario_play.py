"""One case of a scenario, played in memory: work takes its time, and all clocks are one that jumps.

At one moment, work that is done comes first, then what comes from outside, then deadlines: a decision at the very
moment of its deadline counts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.admit import admitted
from loom_dsl.commands import ActivityDone, ActivityFailed, CancelChild, ChildEnded, RunActivity, StartChild, TimerFired
from loom_dsl.coverage import CountingMachine, Coverage
from loom_dsl.errors import GraphRefused
from loom_dsl.library import TOOL_NODE
from loom_dsl.machine_signed import PLACE as VERIFYING
from loom_dsl.machine_state import MachineState
from loom_dsl.plan import Plan
from loom_dsl.scenario_cast import EXECUTE, FORMAT, STAGES, Answer, Cast, stage_result
from loom_dsl.scenario_names import work_name
from loom_dsl.signature import VERIFIED
from loom_dsl.simulate import Simulation, Work

WORK, OUTSIDE, TIMERS = 0, 1, 2
Soonest = tuple[float, int, int, Callable[[], None]]
"""When something happens, its rank among what happens at that moment, its number, and what makes it happen."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of what went on.

    Attributes:
        time: Seconds since the start.
        at: The execution, or empty.
        what: ``done``, a code, or some words.
    """

    time: float
    at: str
    what: str


@dataclass(slots=True)
class Stage:
    """What all jobs of a case share.

    Attributes:
        trace: Each execution of work and how it ended, in the order of the ends.
        log: That, and decisions, events and deadlines.
    """

    cast: Cast
    start: float
    coverage: Coverage = field(default_factory=Coverage)
    trace: list[tuple[str, str]] = field(default_factory=list)
    log: list[Happening] = field(default_factory=list)
    now: float = 0.0
    count: int = 0

    def note(self, at: str, what: str) -> None:
        """Write a line into the log."""
        self.log.append(Happening(round(self.now - self.start, 3), at, what))


class Play(Simulation):
    """A job of a case, and the jobs of graphs below it.

    Attributes:
        prefix: What stands before the names of its executions: where it is in the job above.
        inner: The jobs below it, by the execution that started them.
    """

    def __init__(
        self,
        plan: Plan,
        state: MachineState,
        stage: Stage,
        *,
        job: str = "job",
        prefix: str = "",
        steps_per_run: int | None = None,
    ) -> None:
        self.stage, self.prefix = stage, prefix
        self.inner: dict[str, Play] = {}
        self._due: dict[str, tuple[float, int]] = {}
        self._answers: dict[str, Answer] = {}
        self._tools: dict[str, Answer] = {}
        super().__init__(plan, state, {}, job=job, steps_per_run=steps_per_run, start=stage.now)

    def plays(self) -> "Iterator[Play]":
        """This job and all below it."""
        yield self
        for play in self.inner.values():
            yield from play.plays()

    def soonest(self, pick: int = 0) -> Soonest | None:
        """What happens next in this job and those below it, if anything does."""
        if self.outcome.over:
            return None
        found: list[Soonest] = []
        if self.work:
            first = min(self._due[work.at][0] for work in self.work)
            ready = sorted((work for work in self.work if self._due[work.at][0] <= first), key=self._number)
            work = ready[pick % len(ready)]
            found.append((first, WORK, self._number(work), lambda: self._work_is_done(work)))
        for at, play in self.inner.items():
            if play.outcome.over:
                found.append((play.now, WORK, 0, lambda at=at: self._job_is_over(at)))  # type: ignore[misc]
            elif (below := play.soonest(pick)) is not None:
                found.append(below)
        if self.timers:
            at = min(self.timers, key=lambda name: (self.timers[name], name))
            found.append((self.timers[at], TIMERS, 0, lambda at=at: self._time_is_over(at)))  # type: ignore[misc]
        return min(found, key=lambda one: one[:3]) if found else None

    def step(self, pick: int = 0) -> bool:
        """Do what happens next. False when nothing does."""
        found = self.soonest(pick)
        if found is None:
            return False
        self.stage.now = max(self.stage.now, found[0])
        found[3]()
        return True

    def signal(self, name: str, payload: Any, *, answer_to: str | None = None, problem: str = "") -> None:
        """Send a signal now."""
        self.now = self.stage.now
        super().signal(name, payload, answer_to=answer_to, problem=problem)

    def tool_above(self, at: str) -> str | None:
        """The tool's node in whose pipeline an execution is, if it is in one."""
        frame = self.machine.state.frames.get(at.rpartition("/")[0])
        return frame.parent if frame is not None and frame.parent and frame.graph == TOOL_NODE else None

    # -- what happens ------------------------------------------------------------------------------

    def _work_is_done(self, work: Work) -> None:
        self.now = self.stage.now
        self.work.remove(work)
        self._run(work)

    def _job_is_over(self, at: str) -> None:
        self.now = self.stage.now
        outcome = self.inner.pop(at).outcome
        if outcome.failure is not None:
            ended = ChildEnded(now=self.now, at=at, code=outcome.failure.code, message=outcome.failure.message)
        elif isinstance(outcome.result, dict) and outcome.result.get("status") == "aborted":
            ended = ChildEnded(now=self.now, at=at, code="aborted", message="the job below this one was aborted")
        else:
            ended = ChildEnded(now=self.now, at=at, result=outcome.result)
        self._trace(at, ended.code or "done")
        self._feed(ended)

    def _time_is_over(self, at: str) -> None:
        self.now = self.stage.now
        del self.timers[at]
        self.stage.note(self.prefix + at, "time is over")
        self._feed(TimerFired(now=self.now, at=at))

    # -- what `Simulation` leaves to its children ----------------------------------------------------

    def _machine(self, state: MachineState) -> CountingMachine:
        return CountingMachine(self.plan, state, self.job, self.stage.coverage, self.prefix)

    def _obey(self, command: Any) -> None:
        match command:
            case StartChild() if not command.agent and not self._is_mocked(command):
                self._play_below(command)
            case CancelChild(at=at) if at in self.inner:
                order = {
                    "op": "abort",
                    "by": "parent",
                    "reason": f"the job {self.job} took it away",
                    "id": f"parent/{at}",
                }
                self.inner[at].signal("loom.control", order)
            case RunActivity(at=at) if at.startswith(VERIFYING):
                self._inputs.append(ActivityDone(now=self.now, at=at, result={"verdict": VERIFIED}))
            case RunActivity() | StartChild():
                self.stage.count += 1
                self._due[command.at] = (self.now + self._begin(command), self.stage.count)
                super()._obey(command)
            case _:
                super()._obey(command)

    def _play_below(self, command: StartChild) -> None:
        """Play the job of a graph; one that was written is admitted first."""
        given = command.arguments
        try:
            written = command.written
            plan = self.plan.child("", command.graph) if written is None else admitted(self.plan, written, given)
        except GraphRefused as error:
            self._trace(command.at, error.code)
            return self._inputs.append(ChildEnded(now=self.now, at=command.at, code=error.code, message=error.message))
        below, state = f"{self.prefix}{command.at}[0]/", MachineState(input=given)
        self.inner[command.at] = Play(plan, state, self.stage, job=command.child, prefix=below)
        return None

    def _is_mocked(self, command: StartChild) -> bool:
        return self.stage.cast.mocks(self.prefix + command.at, work_name(command))

    def _begin(self, command: Work) -> float:
        """Find out what work will come to; the seconds that it takes."""
        if isinstance(command, RunActivity) and command.activity.startswith(STAGES):
            owner = self.tool_above(command.at)
            if command.activity == EXECUTE and owner is not None:
                given = command.arguments
                self._tools[owner] = self.stage.cast.tool(self.prefix + owner, given["call"], given["arguments"])
                return self._tools[owner].after
            return 0.0
        if command.at.startswith("~") and not command.at.startswith("~undo/"):
            return 0.0
        self._answers[command.at] = self.stage.cast.answer(self.prefix + command.at, command)
        return self._answers[command.at].after

    def _number(self, work: Work) -> int:
        return self._due[work.at][1]

    def _activity(self, command: RunActivity) -> ActivityDone | ActivityFailed:
        owner = self.tool_above(command.at) if command.activity.startswith(STAGES) else None
        if owner is not None:
            return self._stage(command, owner)
        if command.at.startswith("~late/"):
            return ActivityDone(now=self.now, at=command.at, result={"sent": self.now})
        answer = self._answers.pop(command.at, Answer())
        if command.at.startswith("~undo/"):
            self.stage.note(self.prefix + command.at.removeprefix("~undo/"), f"taken back: {answer.code or 'done'}")
        if answer.code:
            return ActivityFailed(now=self.now, at=command.at, code=answer.code, message=answer.message)
        return ActivityDone(now=self.now, at=command.at, result=answer.result)

    def _stage(self, command: RunActivity, owner: str) -> ActivityDone | ActivityFailed:
        answer = self._tools.get(owner, Answer())
        if command.activity == EXECUTE and answer.code:
            return ActivityFailed(now=self.now, at=command.at, code=answer.code, message=answer.message)
        asks = self.stage.cast.asks(self.prefix + owner)
        result = stage_result(command.activity, command.arguments, answer, asks)
        if command.activity == FORMAT:
            self.stage.trace.append((self.prefix + owner, "done" if result["ok"] else result["code"]))
            self.stage.note(*self.stage.trace[-1])
        return ActivityDone(now=self.now, at=command.at, result=result)

    def _child(self, command: StartChild) -> ChildEnded:
        answer = self._answers.pop(command.at)
        return ChildEnded(now=self.now, at=command.at, result=answer.result, code=answer.code, message=answer.message)

    def _trace(self, at: str, verdict: str) -> None:
        if self.tool_above(at) is None:
            self.stage.trace.append((self.prefix + at, verdict))
            self.stage.note(*self.stage.trace[-1])
