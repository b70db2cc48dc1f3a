"""The workflow ``loom.graph``: drives the machine on Temporal and continues as new at the end of a turn."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TimeoutError,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from loom_dsl.commands import (
        ActivityDone,
        ActivityFailed,
        Answer,
        CancelActivity,
        CancelTimer,
        Command,
        Drain,
        Drained,
        Failure,
        Finish,
        Input,
        Proceed,
        RunActivity,
        SignalReceived,
        Started,
        StartTimer,
        TimerFired,
        TurnEnded,
    )
    from loom_dsl.errors import LoomError
    from loom_dsl.machine import Machine
    from loom_dsl.machine_state import MachineState
    from loom_dsl.plan import ENGINE, Plan, PlanText
    from loom_dsl.status import status_of
    from loom_dsl.steering import CONTROL, LARGEST_PAYLOAD
    from loom_dsl.wire import read_payload

NAME = "loom.graph"
LOCAL_TIMEOUT = timedelta(milliseconds=500)
"""A local activity holds the workflow task, so it gets this long and then runs as a remote one."""
HEARTBEAT = 5.0
"""Seconds after which a remote activity of a killed worker is given to another, where the plan says nothing."""
FOLD_SECONDS, FOLD_EVENTS = 1.0, 512
FEWEST_EVENTS = 128
"""`adaptive` folds turns into a run until it is as old as the server's floor for continue-as-new and has so many
events that another run is worth its cost; at the latest when it has `FOLD_EVENTS`."""
MOST_EVENTS, MOST_BYTES = 8_000, 8 * 1024 * 1024
"""A run that grows beyond this continues as new in the middle of a turn; the server kills at 51,200 and 50 MiB."""


@workflow.defn(name=NAME, failure_exception_types=[LoomError])
class GraphWorkflow:
    """One job. Its id is constant; every continue-as-new is one Temporal run of it."""

    @workflow.init
    def __init__(self, envelope: dict[str, Any], plan: PlanText) -> None:
        self._queue: list[Input] = []
        self._machine: Machine | None = None
        self._answers: dict[str, dict[str, str]] = {}
        self._slots = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()
        self._leaving = False
        self._finished: Finish | Failure | None = None
        self._done = 0

    @workflow.run
    async def run(self, envelope: dict[str, Any], plan: PlanText) -> Any:
        """Drive the machine until the job ends or this run does."""
        if envelope.get("engine") != ENGINE:
            raise ApplicationError(
                f"the job needs engine {envelope.get('engine')}, this worker has {ENGINE}", type="plan_error"
            )
        self._machine = Machine(
            Plan.load(plan.text), MachineState.from_json(envelope["state"]), workflow.info().workflow_id
        )
        self._steps = envelope.get("steps")
        self._queue.insert(0, Started(now=workflow.time()))
        while self._finished is None:
            while self._queue:
                self._feed(self._queue.pop(0))
            if self._finished is not None:
                break
            if self._leaving and workflow.all_handlers_finished():
                workflow.continue_as_new(args=[{**envelope, "state": self._machine.state.to_json()}, plan])
            await self._wait()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._end(self._finished)

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take every signal, whatever its name and shape; the machine judges it."""
        self._queue.append(self._read(name, args))

    @workflow.update(dynamic=True)
    async def on_update(self, name: str, args: Sequence[RawValue]) -> dict[str, str]:
        """Take a decision or a control and answer what became of it."""
        self._slots += 1
        slot = f"u{self._slots}"
        names = {"loom.decide": "loom.decision", "loom.steer": CONTROL}
        self._queue.append(self._read(names.get(name, name), args, slot))
        await workflow.wait_condition(lambda: slot in self._answers)
        return self._answers.pop(slot)

    @workflow.query(name="loom.status")
    def status(self) -> dict[str, Any]:
        """Where the job stands: state, turn, open approvals, what runs."""
        return status_of(self._machine) if self._machine else {"state": "idle"}

    # -- the loop ----------------------------------------------------------------------------------

    async def _wait(self) -> None:
        try:
            await workflow.wait_condition(
                lambda: bool(self._queue) or (self._leaving and workflow.all_handlers_finished())
            )
        except asyncio.CancelledError:
            # Temporal's own cancel means abort; the job settles what is open before it ends.
            abort = {"op": "abort", "by": "temporal", "reason": "the workflow was cancelled"}
            self._queue.append(SignalReceived(now=workflow.time(), name=CONTROL, payload=abort))

    def _feed(self, happened: Input) -> None:
        assert self._machine is not None
        for command in self._machine.feed(happened):
            self._obey(command)

    def _obey(self, command: Command) -> None:
        match command:
            case RunActivity():
                self._tasks[command.at] = asyncio.create_task(self._activity(command))
            case StartTimer(at=at, when=when):
                self._tasks["timer:" + at] = asyncio.create_task(self._timer(at, when))
            case CancelActivity(at=at):
                self._cancel_activity(at)
            case CancelTimer(at=at):
                self._cancel_timer(at)
            case TurnEnded(policy=policy):
                if self._should_leave(policy):
                    self._leaving = True
                else:
                    self._queue.insert(0, Proceed(now=workflow.time()))
            case Drained():
                self._leaving = True
            case Answer(to=to, verdict=verdict, message=message):
                self._answers[to] = {"verdict": verdict, "message": message}
            case Finish() | Failure():
                self._finished = command

    def _cancel_activity(self, at: str) -> None:
        task = self._tasks.get(at)
        if task is None:
            return
        task.cancel()
        if at not in self._begun:
            # A task that is cancelled before its first step never takes one, so it cannot report.
            del self._tasks[at]
            now = workflow.time()
            self._queue.append(ActivityFailed(now=now, at=at, code="cancelled", message="cancelled", cancelled=True))

    def _cancel_timer(self, at: str) -> None:
        task = self._tasks.pop("timer:" + at, None)
        if task is not None:
            task.cancel()

    def _should_leave(self, policy: str) -> bool:
        info = workflow.info()
        length = info.get_current_history_length()
        if policy == "per_turn" or self._steps or info.is_continue_as_new_suggested():
            return True
        if policy == "history":
            return length >= MOST_EVENTS // 2
        age = workflow.time() - info.start_time.timestamp()
        return length >= FOLD_EVENTS or (age >= FOLD_SECONDS and length >= FEWEST_EVENTS)

    def _drain_if_large(self) -> None:
        assert self._machine is not None
        info = workflow.info()
        large = info.get_current_history_length() > MOST_EVENTS or info.get_current_history_size() > MOST_BYTES
        if not self._machine.draining and (large or (self._steps and self._done >= self._steps)):
            self._queue.append(Drain(now=workflow.time()))

    # -- what runs beside the loop -----------------------------------------------------------------

    async def _timer(self, at: str, when: float) -> None:
        try:
            await workflow.sleep(max(0.0, when - workflow.time()))
        except asyncio.CancelledError:
            return
        finally:
            self._tasks.pop("timer:" + at, None)
        self._queue.append(TimerFired(now=workflow.time(), at=at))

    async def _activity(self, command: RunActivity) -> None:
        at = command.at
        self._begun.add(at)
        happened: Input
        try:
            result = await self._run_carrier(command)
            happened = ActivityDone(now=workflow.time(), at=at, result=result)
        except (FailureError, asyncio.CancelledError) as error:
            code, message = _failure(error)
            cancelled = is_cancelled_exception(error)
            happened = ActivityFailed(now=workflow.time(), at=at, code=code, message=message, cancelled=cancelled)
        finally:
            self._tasks.pop(at, None)
            self._begun.discard(at)
        self._done += 1
        # Before the result, or what the result sets off would run in this run too.
        self._drain_if_large()
        self._queue.append(happened)

    async def _run_carrier(self, command: RunActivity) -> Any:
        """Run an activity. What a worker says that has another store does not count; another one is asked."""
        while True:
            try:
                return await self._attempts(command)
            except FailureError as error:
                if _failure(error)[0] != "wrong_store":
                    raise
            await workflow.sleep(5.0)

    async def _attempts(self, command: RunActivity) -> Any:
        assert self._machine is not None
        turn = self._machine.state.turn
        name = f"{turn.turn_counter if turn else 0}/{command.at}"
        argument: dict[str, Any] = {"at": command.at, "with": command.arguments}
        if turn is not None:
            argument |= {"turn": turn.turn_counter, "session": turn.session_id}
        if command.events:
            argument["events"] = command.events
        if command.carrier == "local":
            try:
                return await workflow.execute_local_activity(
                    command.activity,
                    argument,
                    activity_id=name,
                    start_to_close_timeout=min(LOCAL_TIMEOUT, timedelta(seconds=command.timeout)),
                    retry_policy=RetryPolicy(maximum_attempts=1),
                )
            except (ActivityError, ApplicationError) as error:
                # What a local activity raises comes bare; only a timeout and a cancellation come wrapped.
                if is_cancelled_exception(error) or _is_final(error):
                    raise
        attempts, initial, backoff, longest = command.retry
        return await workflow.execute_activity(
            command.activity,
            argument,
            activity_id=name,
            start_to_close_timeout=timedelta(seconds=command.timeout),
            heartbeat_timeout=timedelta(seconds=command.heartbeat or HEARTBEAT),
            retry_policy=RetryPolicy(
                maximum_attempts=attempts,
                initial_interval=timedelta(seconds=initial),
                backoff_coefficient=backoff,
                maximum_interval=timedelta(seconds=longest),
            ),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    # -- edges -------------------------------------------------------------------------------------

    def _read(self, name: str, args: Sequence[RawValue], slot: str | None = None) -> SignalReceived:
        now = workflow.time()
        if len(args) != 1:
            problem = f"it takes one argument, and {len(args)} came"
            return SignalReceived(now=now, name=name, payload=None, problem=problem, answer_to=slot)
        payload = args[0].payload
        encoding = payload.metadata.get("encoding", b"").decode("ascii", "replace")
        value, problem = read_payload(payload.data, encoding, LARGEST_PAYLOAD)
        return SignalReceived(now=now, name=name, payload=value, problem=problem, answer_to=slot)

    def _end(self, finished: Finish | Failure) -> Any:
        if isinstance(finished, Finish):
            return finished.result
        details = [finished.details] if finished.details is not None else []
        raise ApplicationError(finished.message, *details, type=finished.code, non_retryable=True)


def _failure(error: BaseException) -> tuple[str, str]:
    cause = error.cause if isinstance(error, ActivityError) and error.cause else error
    if isinstance(cause, ApplicationError):
        return cause.type or "activity_failed", cause.message
    if isinstance(cause, TimeoutError):
        return "timeout", f"no result in time ({cause.message})"
    if isinstance(cause, (CancelledError, asyncio.CancelledError)):
        return "cancelled", "cancelled"
    return "activity_failed", str(cause)


def _is_final(error: FailureError) -> bool:
    cause = error.cause or error
    return isinstance(cause, ApplicationError) and cause.non_retryable
