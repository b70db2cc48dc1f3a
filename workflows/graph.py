"""The workflow ``loom.graph``: drives the machine on Temporal and continues as new at the end of a turn."""

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from workflows.activities import Carriers, Happened, LocalBatchOver, LocalOutcome
from workflows.children import ChildJobs, report
from workflows.failures import WrongEngine
from workflows.migration import PATIENCE, MigrationRequest, Moving
from workflows.schedule import begin
from workflows.signals import read_move, read_signal

with workflow.unsafe.imports_passed_through():
    from loom_dsl.errors import LoomError
    from loom_dsl.graph.plan import ENGINE, Plan, PlanText
    from loom_dsl.machine.commands import (
        ActivityDone,
        ActivityFailed,
        CancelActivity,
        CancelChild,
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
        StartChild,
        Started,
        StartTimer,
        TooLarge,
        TurnEnded,
        UpdateAnswer,
        Yielded,
    )
    from loom_dsl.machine.interpreter import Machine
    from loom_dsl.machine.payloads import MAX_MACHINE_STATE, size_of
    from loom_dsl.machine.signals import CONTROL
    from loom_dsl.machine.state import MachineState
    from loom_dsl.machine.status import status_of

NAME, MIGRATE = "loom.graph", "loom.migrate"
FOLD_SECONDS, FOLD_EVENTS = 1.0, 512
FEWEST_EVENTS = 128
"""`adaptive` folds turns into a run until it is as old as the server's floor for continue-as-new and has so many
events that another run is worth its cost; at the latest when it has `FOLD_EVENTS`."""
MAX_EVENTS, MAX_BYTES = 8_000, 8 * 1024 * 1024
"""A run that grows beyond this continues as new in the middle of a turn; the server kills at 51,200 and 50 MiB."""

PIN_RETRY = (1_000, 1.0, 2.0, 60.0)
"""Practically without an end: a job that cannot write down its plan does nothing that could fail."""


@workflow.defn(name=NAME, failure_exception_types=[LoomError])
class GraphWorkflow:
    """One job. Its id is constant; every continue-as-new is one Temporal run of it."""

    @workflow.init
    def __init__(self, envelope: dict[str, Any], plan: PlanText) -> None:
        self._queue: list[Happened | MigrationRequest] = []
        self._machine: Machine | None = None
        self._answers: dict[str, dict[str, str]] = {}
        self._slots = 0
        self._leaving = False
        self._finished: Finish | Failure | None = None
        self._over = False
        self._done = 0
        self._told: list[Any] = []
        self._moving = Moving(self._answers)

    @workflow.run
    async def run(self, envelope: dict[str, Any], plan: PlanText) -> Any:
        """Drive the machine until the job ends or this run does."""
        if envelope.get("engine") != ENGINE:
            raise WrongEngine(f"the job needs engine {envelope.get('engine')}, and this worker has {ENGINE}")
        if "order" in envelope:
            envelope["state"] = await begin(envelope.pop("order"), self._abort_by_temporal)
        state = MachineState.from_json(envelope["state"])
        self._machine = Machine(Plan.load(plan.text), state, workflow.info().workflow_id)
        self._steps = envelope.get("steps")
        self._carriers = Carriers(self._machine, self._queue)
        self._children = ChildJobs(self._machine, self._queue, self._carriers, envelope)
        once = {name: envelope.pop(name) for name in ("pin", "told") if name in envelope}
        if "pin" in once:
            await self._pin()
        # What the last stretch of the run before found out of this one's turn.
        told = [LocalOutcome(outcome) for outcome in once.get("told", [])]
        self._queue[:0] = [Started(now=workflow.time()), *told]
        while self._finished is None:
            while self._queue:
                self._take(self._queue.pop(0))
            if self._finished is not None:
                break
            self._carriers.begin()
            self._children.forget()
            if self._leaving:
                self._moving.settle(self._machine)
                if self._may_leave():
                    self._leave(envelope, plan)
                    continue
            await self._wait()
        self._over = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        if "parent" in envelope:
            await report(envelope["parent"], self._finished)
        return self._end(self._finished)

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take every signal, whatever its name and shape; the machine judges it."""
        self._queue.append(read_signal(name, args))

    @workflow.update(dynamic=True)
    async def on_update(self, name: str, args: Sequence[RawValue]) -> dict[str, str]:
        """Take a decision or a control, or move the job to another plan, and answer what became of it."""
        self._slots += 1
        slot = f"u{self._slots}"
        if name == MIGRATE:
            return await self._migrated(slot, args)
        names = {"loom.decide": "loom.decision", "loom.steer": CONTROL}
        self._queue.append(read_signal(names.get(name, name), args, slot))
        return await self._answer(slot)

    async def _migrated(self, slot: str, args: Sequence[RawValue]) -> dict[str, str]:
        """Wait until the job can go to another plan with its next run; say whether it does, or what it waits for."""
        move, problem = read_move(args)
        if move is None:
            return {"verdict": "invalid", "message": problem}
        self._queue.append(MigrationRequest(slot, move))
        try:
            await workflow.wait_condition(lambda: slot in self._answers or self._over, timeout=PATIENCE)
        except TimeoutError:
            return self._moving.waits(self._machine)
        return await self._answer(slot)

    async def _answer(self, slot: str) -> dict[str, str]:
        """Wait for what the loop answers; when the job has ended, it takes nothing more."""
        await workflow.wait_condition(lambda: slot in self._answers or self._over)
        return self._answers.pop(slot, {"verdict": "ended", "message": "the job has ended"})

    async def _pin(self) -> None:
        """Write down which plan the job runs now, before another of its activities reads that."""
        assert self._machine is not None
        arguments = {"plan": self._machine.plan.hash}
        pin = RunActivity(at="~pin", activity="loom.job.pin", arguments=arguments, retry=PIN_RETRY)
        while True:
            try:
                await self._carriers.result_of(pin)
                return
            except (FailureError, asyncio.CancelledError) as error:
                if not is_cancelled_exception(error):
                    raise
                self._abort_by_temporal()

    def _leave(self, envelope: dict[str, Any], plan: PlanText) -> None:
        """Continue as new. A job whose state is too large for that ends in this run."""
        following = self._following(envelope, plan)
        size = size_of(following[0]["state"])
        if size > MAX_MACHINE_STATE:
            self._leaving = False
            return self._feed(TooLarge(now=workflow.time(), size=size, most=MAX_MACHINE_STATE))
        if size + size_of(following[0].get("told")) > MAX_MACHINE_STATE:
            following[0].pop("told", None)  # it is found out again
        workflow.continue_as_new(args=list(following))

    def _following(self, envelope: dict[str, Any], plan: PlanText) -> tuple[dict[str, Any], PlanText]:
        """What the next run is started with."""
        assert self._machine is not None
        moved = self._moving.following(self._machine)
        if moved is not None:
            return {**envelope, "state": moved[0], "pin": True}, moved[1]
        told = {"told": self._told} if self._told and self._machine.at_boundary else {}
        return {**envelope, "state": self._machine.state.to_json(), **told}, plan

    @workflow.query(name="loom.status")
    def status(self) -> dict[str, Any]:
        """Where the job stands: state, turn, open approvals, what runs."""
        return status_of(self._machine) if self._machine else {"state": "idle"}

    # -- the loop ----------------------------------------------------------------------------------

    def _may_leave(self) -> bool:
        # What began since the run was drained, such as telling of an escalation, ends in it: no other run knows of it.
        at_work = self._children.under_way or (self._machine is not None and self._machine.in_flight())
        return self._leaving and workflow.all_handlers_finished() and not at_work

    async def _wait(self) -> None:
        try:
            await workflow.wait_condition(lambda: bool(self._queue) or self._may_leave())
        except asyncio.CancelledError:
            self._abort_by_temporal()

    def _abort_by_temporal(self) -> None:
        """Temporal's own cancel means abort; the job settles what is open before it ends."""
        abort = {"op": "abort", "by": "temporal", "reason": "the workflow was cancelled"}
        self._queue.append(SignalReceived(now=workflow.time(), name=CONTROL, payload=abort))

    def _move(self, asked: MigrationRequest) -> None:
        assert self._machine is not None
        drain = self._moving.begin(self._machine, asked)
        if drain is not None:
            self._feed(drain)

    def _take(self, happened: Happened | MigrationRequest) -> None:
        match happened:
            case MigrationRequest():
                self._move(happened)
            case LocalBatchOver():
                self._carriers.end_stretch(happened)
            case LocalOutcome() if self._leaving:
                self._told.append(happened.outcome)
            case LocalOutcome():
                told = self._carriers.believed(happened)
                if told is not None:
                    self._happened(told)
            case SignalReceived(name="loom.child"):
                self._happened(self._children.vouched(happened))
            case _:
                self._happened(happened)

    def _happened(self, happened: Input) -> None:
        self._done += isinstance(happened, ActivityDone | ActivityFailed)
        # Before it is taken, or what it sets off would run in this run too. Timers, signals and child jobs make a
        # history long just as activities do.
        if self._is_large():
            self._feed(Drain(now=workflow.time()))
        self._feed(happened)

    def _feed(self, happened: Input) -> None:
        assert self._machine is not None
        for command in self._machine.feed(happened):
            self._obey(command)

    def _obey(self, command: Command) -> None:
        match command:
            case RunActivity():
                self._carriers.run(command)
            case StartTimer() | CancelTimer():
                self._carriers.set_timer(command)
            case CancelActivity(at=at):
                self._carriers.cancel(at)
            case StartChild() | CancelChild():
                self._children.obey(command)
            case TurnEnded(policy=policy):
                if self._should_leave(policy):
                    self._leaving = True
                else:
                    self._queue.insert(0, Proceed(now=workflow.time()))
            case Drained() | Yielded():
                self._pause(command)
            case UpdateAnswer(to=to, verdict=verdict, message=message):
                self._answers[to] = {"verdict": verdict, "message": message}
            case Finish() | Failure():
                self._finished = command

    def _pause(self, command: Drained | Yielded) -> None:
        if isinstance(command, Drained):
            self._leaving = True
        else:
            self._carriers.yield_once()

    def _should_leave(self, policy: str) -> bool:
        info = workflow.info()
        length = info.get_current_history_length()
        if policy == "per_turn" or self._steps or info.is_continue_as_new_suggested():
            return True
        if policy == "history":
            return length >= MAX_EVENTS // 2
        age = workflow.time() - info.start_time.timestamp()
        return length >= FOLD_EVENTS or (age >= FOLD_SECONDS and length >= FEWEST_EVENTS)

    def _is_large(self) -> bool:
        assert self._machine is not None
        info = workflow.info()
        large = info.get_current_history_length() > MAX_EVENTS or info.get_current_history_size() > MAX_BYTES
        return not self._machine.draining and bool(large or (self._steps and self._done >= self._steps))

    # -- edges -------------------------------------------------------------------------------------

    def _end(self, finished: Finish | Failure) -> Any:
        if isinstance(finished, Finish):
            return finished.result
        details = [finished.details] if finished.details is not None else []
        raise ApplicationError(finished.message, *details, type=finished.code, non_retryable=True)
