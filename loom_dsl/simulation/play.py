"""One case of a scenario, played in memory: work takes its time, and all clocks are one that jumps.

At one moment, work that is done comes first, then what comes from outside, then deadlines: a decision at the very
moment of its deadline counts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.approvals.signature import VERIFIED, stand_in
from loom_dsl.errors import GraphRefused
from loom_dsl.graph.admission import admitted
from loom_dsl.graph.library import TOOL_NODE
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import (
    ActivityDone,
    ActivityFailed,
    CancelChild,
    ChildEnded,
    RunActivity,
    StartChild,
    TimerFired,
)
from loom_dsl.machine.decisions.queue import find_question
from loom_dsl.machine.kinds.approvals import digest_of, must_be_signed
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import WAITING, MachineState
from loom_dsl.machine.tokens.ending import VERIFICATIONS
from loom_dsl.simulation.coverage import CountingMachine, Coverage
from loom_dsl.simulation.in_memory import Simulation, Work
from loom_dsl.simulation.mocks import EXECUTE, FORMAT, STAGES, Cast, MockAnswer, stage_result
from loom_dsl.simulation.names import aliases, work_name
from loom_dsl.simulation.scenario import MockedDecision, ScenarioCase, SentEvent, Steered

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
class CaseContext:
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
        stage: CaseContext,
        *,
        job: str = "job",
        prefix: str = "",
        steps_per_run: int | None = None,
    ) -> None:
        self.stage, self.prefix = stage, prefix
        self.inner: dict[str, Play] = {}
        self._due: dict[str, tuple[float, int]] = {}
        self._answers: dict[str, MockAnswer] = {}
        self._tools: dict[str, MockAnswer] = {}
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
            case RunActivity(at=at) if at.startswith(VERIFICATIONS):
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
        answer = self._answers.pop(command.at, MockAnswer())
        if command.at.startswith("~undo/"):
            self.stage.note(self.prefix + command.at.removeprefix("~undo/"), f"taken back: {answer.code or 'done'}")
        if answer.code:
            return ActivityFailed(now=self.now, at=command.at, code=answer.code, message=answer.message)
        return ActivityDone(now=self.now, at=command.at, result=answer.result)

    def _stage(self, command: RunActivity, owner: str) -> ActivityDone | ActivityFailed:
        answer = self._tools.get(owner, MockAnswer())
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


# What comes to the jobs of a case from outside, and when: decisions, events, steering.


DELIVERED = frozenset({"recorded", "unconfirmed"})


@dataclass(slots=True)
class _Planned:
    """Something that is to come, once its time is known."""

    what: SentEvent | Steered
    number: int
    time: float | None = None


@dataclass(slots=True)
class Outside:
    """Everything that is yet to come.

    Attributes:
        problems: What did not have the effect that it was to have.
    """

    case: ScenarioCase
    stage: CaseContext
    root: Play
    problems: list[str] = field(default_factory=list)
    _planned: list[_Planned] = field(default_factory=list)
    _decisions: list[tuple[float, int, Play, str, str, MockedDecision]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _count: int = 0

    def __post_init__(self) -> None:
        every: list[SentEvent | Steered] = [*self.case.events, *self.case.steering]
        for number, what in enumerate(every):
            time = self.stage.start + what.after if what.when is None else None
            self._planned.append(_Planned(what, number, time))

    def soonest(self) -> Soonest | None:
        """What comes next, if anything is on its way."""
        self._look()
        found: list[Soonest] = [
            (plan.time, OUTSIDE, plan.number, lambda plan=plan: self._send(plan))  # type: ignore[misc]
            for plan in self._planned
            if plan.time is not None
        ]
        found += [
            (entry[0], OUTSIDE, entry[1], lambda entry=entry: self._decide(*entry))  # type: ignore[misc]
            for entry in self._decisions
        ]
        return min(found, key=lambda one: one[:3]) if found else None

    def left(self) -> list[str]:
        """What has not come when a case is over."""
        never = [plan.what for plan in self._planned if plan.time is None]
        return [
            *self.problems,
            *(f"{_name(what)}: `{what.when}` was not entered, so it was not sent" for what in never),
        ]

    def _look(self) -> None:
        """Find out about times that depend on what the jobs do."""
        for plan in self._planned:
            if plan.time is None and plan.what.when in self.stage.coverage.first:
                plan.time = self.stage.coverage.first[plan.what.when] + plan.what.after
        if not self.case.decisions:
            return
        for play in self.root.plays():
            for token in play.machine.state.in_order():
                if token.status == WAITING and (asked := token.kept(ApprovalRecord)).id not in self._seen:
                    self._seen.add(asked.id)
                    at = play.prefix + (play.tool_above(token.at) or token.at)
                    decision = self.stage.cast.decision(at)
                    if decision is not None and decision.choice is not None:
                        self._count += 1
                        time = asked.since + decision.after
                        number = len(self._planned) + self._count
                        self._decisions.append((time, number, play, at, asked.id, decision))

    def _decide(self, time: float, number: int, play: Play, at: str, name: str, decision: MockedDecision) -> None:
        self._decisions = [entry for entry in self._decisions if entry[1] != number]
        payload: dict[str, Any] = {"approval_id": name, "choice": decision.choice, "by": decision.by}
        payload["message"] = decision.message
        if decision.edited_arguments is not None:
            payload["edited_arguments"] = decision.edited_arguments
        token = find_question(play.machine, name)
        if token is not None and must_be_signed(play.machine, token):
            payload |= {
                "digest": digest_of(token.kept(ApprovalRecord).request),
                "signature": stand_in(play.job, f"{name}/{number}"),
            }
        self.stage.note(at, f"{decision.choice} by {decision.by}")
        self._deliver(play, "loom.decision", payload, f"the decision of `{at}`")

    def _send(self, plan: _Planned) -> None:
        self._planned.remove(plan)
        what, number = plan.what, f"scenario-{plan.number}"
        self.stage.note("", _name(what))
        if isinstance(what, SentEvent):
            payload: dict[str, Any] = {"name": what.name, "key": what.key, "data": what.data, "id": number}
            self._deliver(self._where(what.when), "loom.event", payload, _name(what))
        else:
            payload = {"op": what.op, "reason": what.reason, "by": "scenario", "id": number}
            self._deliver(self.root, "loom.control", payload, _name(what))

    def _where(self, when: str | None) -> Play:
        """The job that an event is for: that of the node which it waited for, if that is still there."""
        for play in self.root.plays():
            names = (aliases(play.prefix + token.at) for token in play.machine.state.tokens.values())
            if when is not None and any(when in known for known in names):
                return play
        return self.root

    def _deliver(self, play: Play, signal: str, payload: dict[str, Any], name: str) -> None:
        if play.outcome.over:
            self.problems.append(f"{name}: the job had ended")
            return
        self._count += 1
        slot = f"outside-{self._count}"
        play.signal(signal, payload, answer_to=slot)
        verdict = play.outcome.answers[slot]
        if verdict == "retry":  # between two runs only a signal is kept
            play.signal(signal, payload)
        elif verdict not in DELIVERED:
            self.problems.append(f"{name}: {verdict.replace('_', ' ')}")


def _name(what: SentEvent | Steered) -> str:
    return f"event {what.name}" if isinstance(what, SentEvent) else what.op
