"""Steps that kill their worker are found out, and what they call of the user's runs in a process of its own.

An attempt notes in the store that it begins and that it has ended; who comes after a process that is gone finds its
notes. A remote attempt notes it at once, a local one right before it calls users' code: both cost no wait for the disk.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError

from activities.lifecycle.deaths import (
    Course,
    DeathRules,
    StepHistory,
    course_of,
    death_told,
    judge,
    renewed,
    runs_singly,
)
from activities.lifecycle.process_identity import is_gone, this_process
from loom_dsl.errors import MissingTools, StepDied, StepKillsWorker, StoreError
from loom_store.queries.steps import Step, WorkerSeen
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.isolation.processes import ChildProcesses, Died
from loom_tools.masking import redact
from loom_tools.user_code import GUARD, Code

SINGLY_SECONDS = 30.0
"""For how long a suspect of Loom's own waits for another one; a model may answer for minutes."""
PAUSE_SECONDS = 1.0
"""Before a step is run again whose process died."""
STRETCH = "loom.local"
"""Runs many steps, each of which notes itself."""
USERS = frozenset(
    {
        "loom.tool.discover",
        "loom.tool.validate",
        "loom.tool.authorize",
        "loom.tool.check_cancel",
        "loom.tool.execute",
        "loom.tool.format",
        "loom.function.call",
        "loom.effects.undo",
    }
)
"""Activities of which the dangerous part is users' code, or a process of Loom's tools, and runs apart. The others have
to wait for each other when they are suspects."""
MAX_MESSAGE = 3_000
"""Characters of what a step that died is told by."""
LATER_SECONDS = 0.1
"""For how long the end of a step may wait for the beginning of another one, to be written with it."""
Result = TypeVar("Result")
Note = Callable[[Transaction], object]
Given = Mapping[str, Any]
Fate = Literal["alive", "gone", "unclear"]


class Steps:
    """The steps of one worker.

    Args:
        store: Where they are noted.
        secrets: Names and values that no message has.
        rules: What deaths mean.
    """

    def __init__(self, store: Store, secrets: Mapping[str, str], rules: DeathRules) -> None:
        self.store, self.secrets, self.rules = store, secrets, rules
        self.process = this_process()
        self.children = ChildProcesses()
        self.singly = asyncio.Lock()
        self._ended: list[Note] = []

    async def attempt(self, given: Any, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run an activity as an attempt at its step. When users' code of it kills its process, it is run again.

        Args:
            given: The activity's argument.
            work: Runs it.

        Raises:
            StepKillsWorker: Each process that runs it dies.
        """
        info = activity.info()
        if not isinstance(given, dict) or "at" not in given or info.activity_type == STRETCH:
            return await work()
        job, kind = info.workflow_id or "", info.activity_type
        if info.is_local:
            return await self.local(job, given, work)
        while True:
            attempt = StepAttempt(self, job, given, kind)
            try:
                return await attempt.run(work)
            except StepKillsWorker:
                raise
            except StepDied as error:
                activity.logger.warning("%s", error.message)
            await asyncio.sleep(PAUSE_SECONDS)

    async def local(self, job: str, given: Given, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run a local activity, or one execution of a stretch of them, as an attempt at its step.

        Raises:
            StepDied: It must run as a remote activity.
        """
        return await StepAttempt(self, job, given, kind="").run(work)

    async def written(self, work: Callable[[Transaction], Result]) -> Result:
        """Write something down, with what waits, and give what it gives."""
        ended = self._take_ended()

        def write(tx: Transaction) -> Result:
            ended(tx)
            return work(tx)

        return await asyncio.wrap_future(self.store.note(write))

    def later(self, work: Note) -> None:
        """Write something down for which nobody waits, with the next step that begins, or soon.

        What is lost with the process only makes the next attempts more careful.
        """
        if not self._ended:
            asyncio.get_running_loop().call_later(LATER_SECONDS, self._settle)
        self._ended.append(work)

    async def close(self) -> None:
        """Write down what waits, and wait until the processes with users' code are gone."""
        self._settle()
        await self.children.close()

    def _settle(self) -> None:
        if self._ended:
            with contextlib.suppress(StoreError):
                self.store.note(self._take_ended())

    def _take_ended(self) -> Note:
        """Give all that waits as one note, and let it wait no more."""
        ended, self._ended = self._ended, []
        return lambda tx: [each(tx) for each in ended]


@dataclass(slots=True)
class StepAttempt:
    """One attempt at a step: what `GUARD` holds while it runs.

    Attributes:
        steps: Of the worker.
        job: The job's id.
        given: The activity's argument.
        kind: Name of the activity; empty: it runs locally, so it begins only when it calls users' code.
    """

    steps: Steps
    job: str
    given: Given
    kind: str
    _noted: Step | None = None
    _course: Course = "together"
    _beginning: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def key(self) -> str:
        """Names the step over all jobs."""
        return f"{self.job}/{self.given.get('turn', 0)}/{self.given['at']}"

    @property
    def is_apart(self) -> bool:
        """Whether users' code runs in a process of its own."""
        return self._course != "together"

    async def run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run the activity.

        Raises:
            StepDied: A process of its users' code died; it is to be run again.
            StepKillsWorker: Each one does.
        """
        answered = False
        token = GUARD.set(self)
        try:
            async with self._in_turn():
                result = await work()
            answered = True
            return result
        except BaseException as error:
            answered = _is_answer(error)
            raise
        finally:
            GUARD.reset(token)
            self._end(answered)

    async def begin(self) -> None:
        """Note that the step begins, if it is not noted.

        Raises:
            StepDied: It is a local one, and must run as a remote activity.
            StepKillsWorker: It is not to run before a person has looked at it.
        """
        async with self._beginning:
            if self._noted is None:
                await self._begin()
        if not self.kind and self.is_apart:
            raise StepDied("a worker died while this step ran, so it runs as a remote activity now")

    async def call_apart(
        self, code: Code, keywords: Mapping[str, Any], seconds: float | None, *, is_async: bool
    ) -> Any:
        """Call users' code in a process of its own. When the worker dies meanwhile, it is not this step's fault."""
        await self.steps.written(partial(self._park, process=None))
        try:
            return await self.steps.children.call(code, keywords, seconds, is_async=is_async)
        except Died as died:
            text = redact(f"{code.name} ended its process: {died}", self.steps.secrets)[:MAX_MESSAGE]
            raise await self.steps.written(partial(self._count, what=text)) from None
        finally:
            self.steps.later(partial(self._park, process=self.steps.process))

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        """Begin a remote attempt. A suspect of Loom's own waits until no other one runs; healthy steps never do."""
        if not self.kind:
            yield
            return
        await self.begin()
        noted = self._noted
        history = StepHistory(noted.deaths, noted.suspected) if noted else StepHistory()
        if self.kind in USERS or not runs_singly(history, self.steps.rules):
            yield
            return
        await self.steps.written(partial(self._park, process=None))
        alone, alone_held = self.steps.singly, False
        with contextlib.suppress(TimeoutError):  # then it goes on beside the other: it is a suspect, no more
            await asyncio.wait_for(alone.acquire(), SINGLY_SECONDS)
            alone_held = True
        try:
            await self.steps.written(partial(self._park, process=self.steps.process))
            yield
        finally:
            if alone_held:
                alone.release()

    async def _begin(self) -> None:
        step, history = await self.steps.written(self._noted_begin)
        self._noted, self._course = step, course_of(history, self.steps.rules)
        if self._course != "halted" or not self.kind:
            return
        message = f"{step.deaths} workers died while they had only this step"
        raise await self.steps.written(partial(self._halted, deaths=step.deaths, what=message))

    def _noted_begin(self, tx: Transaction) -> tuple[Step, StepHistory]:
        before, unclear = tx.step(self.job, self.key), False
        if before is not None and before.process not in (None, self.steps.process):
            fate = self._fate(before, tx.worker_seen(before.process), tx.now())
            if fate == "gone":
                self._bury(tx, before.process)
            unclear = fate == "unclear"
        begun = tx.begin_step(self.job, self.key, self.steps.process)
        return begun, StepHistory(begun.deaths, begun.suspected, unclear)

    def _fate(self, before: Step, seen: WorkerSeen | None, now: float) -> Fate:
        """What became of the process that was at the step before this one."""
        if seen is not None and seen.stopped_at is not None:
            return "alive"  # it stopped in good order: nobody died
        known = is_gone(before.process or "")
        if known is not None:
            return "gone" if known else "alive"
        last = max(before.begun_at, seen.seen_at if seen else 0) / 1000
        return "gone" if now - last > self.steps.rules.silent else "unclear"

    def _bury(self, tx: Transaction, process: str) -> None:
        """Judge a process that is gone, once for all steps that it had."""
        had, seen, rules = tx.steps_of(process), tx.worker_seen(process), self.steps.rules
        last = max([step.begun_at for step in had] + ([seen.seen_at] if seen else []), default=0)
        age = None if seen is None else (last - seen.started_at) / 1000
        others = len(had) - 1
        judgement = judge(others, age, rules)
        for step in had:
            counted = judgement == "counted"
            now = replace(
                step,
                process=None,
                deaths=step.deaths + counted,
                suspected=step.suspected + (not counted),
            )
            tx.mark_step(now)
            self._tell(tx, now, death_told(judgement, others, age, now.deaths, rules))

    def _count(self, tx: Transaction, what: str) -> StepDied:
        """Count the death of a process that had nothing but users' code of this step."""
        noted = self._latest(tx)
        now = replace(noted, process=None, deaths=noted.deaths + 1)
        if now.deaths >= self.steps.rules.most:
            return self._halted(tx, now.deaths, what)
        self._mark(tx, now)
        self._tell(tx, now, f"{what} ({now.deaths} of {self.steps.rules.most})")
        return StepDied(what)

    def _halted(self, tx: Transaction, deaths: int, what: str) -> StepKillsWorker:
        """Have a person look. When the job is resumed, deaths are counted anew, but the step is run apart at once."""
        noted = self._latest(tx)
        left = renewed(StepHistory(deaths, noted.suspected))
        now = self._mark(tx, replace(noted, process=None, deaths=left.deaths, suspected=left.suspected))
        error = StepKillsWorker(f"this step killed {deaths} processes; the last time {what}")
        self._tell(tx, replace(now, deaths=deaths), error.message)
        return error

    def _latest(self, tx: Transaction) -> Step:
        """Give this step as the store has it, or as it was noted if it is not there any more."""
        found = tx.step(self.job, self.key) or self._noted
        assert found is not None
        return found

    def _mark(self, tx: Transaction, step: Step) -> Step:
        tx.mark_step(step)
        self._noted = step
        return step

    def _tell(self, tx: Transaction, step: Step, message: str) -> None:
        turn, _, at = step.key.removeprefix(f"{step.job}/").partition("/")
        event = {
            "t": "warning",
            "n": int(turn),
            "code": "step_suspected",
            "message": message,
            "node": at,
            "deaths": step.deaths,
            "suspected": step.suspected,
        }
        tx.append_events(step.job, f"{turn}/{at}/died/{step.begun_at}", [event])

    def _park(self, tx: Transaction, process: str | None) -> None:
        """Say whose fault it would be for this step if the worker died now."""
        found = tx.step(self.job, self.key)
        if found is not None and self._noted is not None and found.begun_at == self._noted.begun_at:
            tx.mark_step(replace(found, process=process))

    def _end(self, answered: bool) -> None:
        noted = self._noted
        if noted is not None:
            self.steps.later(lambda tx: tx.end_step(noted, answered=answered))


def _is_answer(error: BaseException) -> bool:
    """Whether a step failed by itself, and was not broken off by what is none of its business."""
    if isinstance(error, asyncio.CancelledError | CancelledError | StoreError | MissingTools | StepDied):
        return False
    return not (isinstance(error, ApplicationError) and error.type == "worker_stopped")
