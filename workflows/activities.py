"""How what the machine commands is run: as remote activities, as local ones, as timers."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from workflows.failures import HEARTBEAT, WORKERS_SECONDS, failed_activity, is_final

with workflow.unsafe.imports_passed_through():
    from loom_dsl.machine.commands import (
        ActivityDone,
        ActivityFailed,
        CancelTimer,
        GoOn,
        Input,
        RunActivity,
        StartTimer,
        TimerFired,
    )
    from loom_dsl.machine.interpreter import Machine
    from loom_dsl.machine.payloads import MAX_ARGUMENT, activity_argument, fingerprint, size_of
    from loom_dsl.machine.tokens.compensation import FUNCTION
    from loom_dsl.machine.tokens.retry import Backoff, judge
    from loom_dsl.text.canonical import digest

# How much a job commands at once: what it sends with one workflow task has a size that the server takes.


MAX_COMMANDED = 2 * 1024 * 1024
"""Bytes of arguments that go out with one workflow task. The server takes messages of 4 MiB; a larger one would be sent
and refused again and again. The rest is for what stretches tell and for what commands have around them. It decides
where timers are in histories."""
PAUSE = 0.001
"""Seconds of a timer, so that the task ends and another begins."""


class Sending:
    """Lets commands go out in the order in which they come, as many as one task can carry.

    What was sent counts until another task was begun for it: that costs a timer for every `MAX_COMMANDED` of a run,
    and needs no guess at when a task ended.

    Args:
        pause: Waits so many seconds, after which another task has begun.
    """

    def __init__(self, pause: Callable[[float], Awaitable[None]] = workflow.sleep) -> None:
        self._pause, self._sent = pause, 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._opener: asyncio.Task[None] | None = None

    async def room(self, size: int) -> None:
        """Wait until a command of so many bytes may go out. One that is larger than a task's share goes alone."""
        if not self._waiting and self._takes(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        if self._opener is None:
            self._opener = asyncio.create_task(self._open())
        await turn

    def _takes(self, size: int) -> bool:
        if self._sent and self._sent + size > MAX_COMMANDED:
            return False
        self._sent += size
        return True

    async def _open(self) -> None:
        """Begin another task, and let out what it can carry, until nothing waits."""
        while self._waiting:
            await self._pause(PAUSE)
            self._sent = 0
            while self._waiting and (self._waiting[0][1].done() or self._takes(self._waiting[0][0])):
                _, turn = self._waiting.popleft()
                if not turn.done():  # one that was cancelled meanwhile waits no more
                    turn.set_result(None)
        self._opener = None


STRETCH = "loom.local"
LOCAL_TIMEOUT = timedelta(milliseconds=500)
"""A local activity holds the workflow task, so it gets this long and then runs as a remote one."""
STRETCH_TIMEOUT = timedelta(seconds=1)
"""A stretch ends itself after half of this."""
UNANSWERED = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=10)
)
"""What the engine does when nobody answered: a worker died or was stopped, or its store is away. It has no end, and
costs no events; what a party answered ends an activity, and the machine counts it."""


@dataclass(frozen=True, slots=True)
class LocalOutcome:
    """What a stretch of local executions tells of one of them."""

    outcome: list[Any]


@dataclass(frozen=True, slots=True)
class LocalBatchOver:
    """A stretch has told everything.

    Attributes:
        begun: The executions that it began with.
    """

    begun: list[str]


Happened = Input | LocalOutcome | LocalBatchOver


class Carriers:
    """Runs commands and puts what became of them into the queue of the workflow's loop."""

    def __init__(self, machine: Machine, queue: list[Any]) -> None:
        self._machine, self._queue, self.sending = machine, queue, Sending()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()
        self._local: dict[str, RunActivity] = {}
        """Local commands that have not reported: those of the stretch under way, and those for the next one."""
        self._stretch: set[str] = set()
        self._slow: set[str] = set()
        self._unwanted: set[str] = set()
        self._stretches = 0
        self._spent: dict[str, int] = {}
        """Tries that a function has had, by execution, where the end of a first, local one is not known."""
        self._known_by = {"run": digest(f"{workflow.info().first_execution_run_id}/{machine.plan.hash}".encode())[:16]}
        """What workers remember things of this job by, through all its runs: another job of its name, or another plan
        after `loom.migrate`, has another one."""

    def run(self, command: RunActivity) -> None:
        """Run an activity. Local ones wait for `begin`, which runs those together that are there."""
        if command.is_last and _is_counted(command):
            command = dataclasses.replace(command, carrier="remote")
        if command.carrier == "local" and not command.at.startswith("~"):
            self._local[command.at] = command
        else:
            self._start(command)

    def begin(self) -> None:
        """Begin a stretch of the local executions that wait; while there is one, others go on their own."""
        waiting = [command for at, command in self._local.items() if at not in self._stretch]
        if not waiting:
            return
        if self._stretch:
            for command in waiting:
                self._start(self._local.pop(command.at))
            return
        self._stretch = {command.at for command in waiting}
        self._stretches += 1
        turn = self._machine.state.turn
        argument = {
            "state": self._machine.state.to_json(),
            "attached": self._machine.state.outbox.attached,
            "busy": bool(self._machine.side_work),
            "begin": [[command.activity, activity_argument(command, turn)] for command in waiting],
            **self._known_by,
        }
        name = f"{turn.turn_counter if turn else 0}/~local#{self._stretches}"
        self._tasks[name] = asyncio.create_task(self._run_stretch(name, argument, [c.at for c in waiting]))

    def believed(self, told: LocalOutcome) -> ActivityDone | ActivityFailed | None:
        """Give what a stretch tells of an execution, if the machine has commanded just that."""
        name, mark, verdict, *rest = told.outcome
        at = name.partition("/")[2]
        command = self._local.get(at)
        if command is None or fingerprint(activity_argument(command, self._machine.state.turn)) != mark:
            return None
        if verdict == "slow":
            self._slow.add(at)
            return None
        del self._local[at]
        if verdict == "done":
            return ActivityDone(now=workflow.time(), at=at, result=rest[0])
        return ActivityFailed(now=workflow.time(), at=at, code=rest[0], message=rest[1])

    def end_stretch(self, over: LocalBatchOver) -> None:
        """Run what a stretch had begun and could not tell the end of on its own; what was slow, remotely."""
        self._stretch = set()
        unfinished = {*over.begun, *self._slow}
        for at in [at for at in self._local if at in unfinished]:
            command = self._local.pop(at)
            if at in self._unwanted:
                self._report_cancelled(at)
            elif _is_counted(command):
                self._spent[at] = 2
                self._start(dataclasses.replace(command, carrier="remote"))
            else:
                self._start(dataclasses.replace(command, carrier="remote") if at in self._slow else command)
        self._slow, self._unwanted = set(), set()

    def cancel(self, at: str) -> None:
        """Cancel an execution; it still reports. A stretch is not cancelled: it ends soon, and reports then."""
        if at in self._stretch:
            self._unwanted.add(at)
            return
        if self._local.pop(at, None) is not None:
            return self._report_cancelled(at)
        task = self._tasks.get(at)
        if task is None:
            return
        task.cancel()
        if at not in self._begun:
            # A task that is cancelled before its first step never takes one, so it cannot report.
            del self._tasks[at]
            self._report_cancelled(at)

    def set_timer(self, command: StartTimer | CancelTimer) -> None:
        """Fire at a time, or not any more."""
        name = "timer:" + command.at
        earlier = self._tasks.pop(name, None)
        if earlier is not None:
            earlier.cancel()
        if isinstance(command, StartTimer):
            self._tasks[name] = asyncio.create_task(self._timer(command.at, command.when))

    def yield_once(self) -> None:
        """Let the workflow task end; go on in the next one."""
        self._tasks["yield"] = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        await workflow.sleep(0.001)
        self._queue.append(GoOn(now=workflow.time()))

    def _report_cancelled(self, at: str) -> None:
        now = workflow.time()
        self._queue.append(ActivityFailed(now=now, at=at, code="cancelled", message="cancelled", cancelled=True))

    def _start(self, command: RunActivity) -> None:
        self._tasks[command.at] = asyncio.create_task(self._activity(command))

    async def _timer(self, at: str, when: float) -> None:
        try:
            await workflow.sleep(max(0.0, when - workflow.time()))
        except asyncio.CancelledError:
            return
        self._tasks.pop("timer:" + at, None)
        self._queue.append(TimerFired(now=workflow.time(), at=at))

    async def _run_stretch(self, name: str, argument: dict[str, Any], begun: list[str]) -> None:
        told: list[list[Any]] = []
        try:
            told = await workflow.execute_local_activity(
                STRETCH,
                argument,
                activity_id=name,
                start_to_close_timeout=STRETCH_TIMEOUT,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except FailureError:
            pass  # whatever it was, each execution on its own will tell it
        finally:
            self._tasks.pop(name, None)
        self._queue += [*map(LocalOutcome, told), LocalBatchOver(begun)]

    async def _activity(self, command: RunActivity) -> None:
        at = command.at
        self._begun.add(at)
        happened: Input
        try:
            result = await self.result_of(command)
            happened = ActivityDone(now=workflow.time(), at=at, result=result)
        except (FailureError, asyncio.CancelledError) as error:
            happened = failed_activity(at, error, now=workflow.time(), tries=self._spent.pop(at, 1))
        except Exception as error:
            # Whatever it is: nobody sees it in a task, and a job that is told nothing waits for ever.
            why = f"{command.activity} could not be run: {error}"
            happened = ActivityFailed(now=workflow.time(), at=at, code="not_run", message=why)
        finally:
            self._tasks.pop(at, None)
            self._begun.discard(at)
            self._spent.pop(at, None)
        self._queue.append(happened)

    async def result_of(self, command: RunActivity) -> Any:
        """Run an activity. One that belongs to no node is tried again here, when that is what was answered."""
        while True:
            try:
                return await self._attempts(command)
            except FailureError as error:
                if command.at in self._machine.issued:
                    raise
                failed = failed_activity(command.at, error, now=workflow.time())
                verdict = judge(failed, command.retry, now=workflow.time(), tries=command.tries, caught=True)
                if not isinstance(verdict, Backoff):
                    raise
            command = dataclasses.replace(command, before=failed.attempt, tries=verdict.tries)
            await workflow.sleep(verdict.seconds)

    async def _attempts(self, command: RunActivity) -> Any:
        turn = self._machine.state.turn
        name = f"{turn.turn_counter if turn else 0}/{command.at}"
        argument = {**activity_argument(command, turn), **self._known_by}
        size = size_of(command.arguments)
        if size > MAX_ARGUMENT:
            why = f"{command.activity} would be given {size} bytes, and the engine carries {MAX_ARGUMENT}"
            raise ApplicationError(f"{why}; give it a path, or a part", type="arguments_too_large", non_retryable=True)
        if command.carrier == "local":
            try:
                return await workflow.execute_local_activity(
                    command.activity,
                    argument,
                    activity_id=name,
                    start_to_close_timeout=min(LOCAL_TIMEOUT, timedelta(seconds=command.timeout)),
                    retry_policy=RetryPolicy(maximum_attempts=1),
                )
            except FailureError as error:
                # What a local activity raises comes bare. A timeout and a cancellation come wrapped when they happen,
                # and bare, too, when the run is replayed.
                if is_cancelled_exception(error) or is_final(error):
                    raise
                if _is_counted(command):
                    self._spent[command.at] = 2
        await self.sending.room(size + size_of(command.events))
        return await workflow.execute_activity(
            command.activity,
            argument,
            activity_id=name,
            start_to_close_timeout=timedelta(seconds=command.timeout + WORKERS_SECONDS),
            heartbeat_timeout=timedelta(seconds=command.heartbeat or HEARTBEAT),
            retry_policy=UNANSWERED,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


def _is_counted(command: RunActivity) -> bool:
    """Whether running it locally is an attempt. Loom's own local activities only look, and may run as often as helps;
    a user's function may do something, and with one attempt alone it is remote: no other carrier keeps to that."""
    return command.activity == FUNCTION and command.carrier == "local"
