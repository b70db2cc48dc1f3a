"""Child jobs: started below this one, they outlive its runs and report by a signal."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError, is_cancelled_exception

from workflows.activities import Carriers
from workflows.failures import failure_of

with workflow.unsafe.imports_passed_through():
    from loom_dsl.errors import JobExists
    from loom_dsl.graph.plan import ENGINE, PlanText
    from loom_dsl.machine.commands import (
        CancelChild,
        ChildEnded,
        Failure,
        Finish,
        RunActivity,
        SignalReceived,
        StartChild,
    )
    from loom_dsl.machine.interpreter import Machine
    from loom_dsl.machine.payloads import size_of
    from loom_dsl.machine.records import ChildRecord
    from loom_dsl.machine.signals import CHILD as REPORT
    from loom_dsl.machine.signals import CONTROL
    from loom_dsl.machine.state import CHILD, MachineState
    from loom_dsl.text.canonical import digest

ATTEMPTS = (20, 1.0, 2.0, 60.0)
TAKEN_AWAY = {"code": "aborted", "message": "it was taken away before it had started"}
FIRST_LOOK, MAX_LOOK = timedelta(minutes=1), timedelta(hours=1)
"""A child job reports when it ends. One that was terminated cannot, so it is looked after: soon, then less often."""


class ChildJobs:
    """Starts, looks after and aborts the child jobs of one job."""

    def __init__(self, machine: Machine, queue: list[Any], carriers: Carriers, envelope: dict[str, Any]) -> None:
        self._machine, self._queue, self._carriers, self._envelope = machine, queue, carriers, envelope
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()
        self._unwanted: set[str] = set()
        """Children that were taken away before they were started."""
        self._started: set[str] = set()
        self._starting: set[str] = set()
        self.under_way: set[str] = set()
        """Children that are being started or aborted. A run does not end before: the next one would not do it."""
        for token in machine.state.in_order():
            if token.status == CHILD:  # an earlier run started it
                self._started.add(token.at)
                child = token.kept(ChildRecord).child
                self._tasks[token.at] = asyncio.create_task(self._look_after(token.at, child))

    def obey(self, command: StartChild | CancelChild) -> None:
        """Start a child job, or tell it to abort."""
        if isinstance(command, StartChild):
            self.under_way.add(command.at)
            self._tasks[command.at] = asyncio.create_task(self._start(command))
        elif command.at in self._started:
            self.under_way.add(command.at)
            self._tasks["abort:" + command.at] = asyncio.create_task(self._abort(command))
        elif command.at not in self._begun:
            # A task that is cancelled before its first step never takes one, so it cannot report.
            self.under_way.discard(command.at)
            self._tasks.pop(command.at).cancel()
            self._ended(command.at, **TAKEN_AWAY)
        else:
            self._unwanted.add(command.at)
            self._tasks[command.at].cancel()

    def vouched(self, signal: SignalReceived) -> SignalReceived:
        """Give a report as the machine takes it. Only a child knows the word that this job gave it at its start.

        A signal says nothing of who sent it, so a report without the word is refused: a forged one would decide the
        node's result, and what is run to take it back.
        """
        payload = signal.payload
        if signal.problem or not isinstance(payload, dict):
            return signal
        told = {name: value for name, value in payload.items() if name != "word"}
        if payload.get("word") == self._word(str(told.get("at")), str(told.get("child"))):
            return replace(signal, payload=told)
        return replace(signal, payload=None, problem="the report is not from a job that this one started")

    def _word(self, at: str, child: str) -> str:
        """Give the word by which a child proves that a report is its own."""
        if "key" not in self._envelope:
            self._envelope["key"] = workflow.uuid4().hex
        return digest(f"{self._envelope['key']}/{at}/{child}")[:32]

    def forget(self) -> None:
        """Look no longer after children that have reported."""
        for at in [at for at in self._tasks if not at.startswith("abort:")]:
            token = self._machine.state.tokens.get(at)
            if token is None or token.status != CHILD:
                self._tasks.pop(at).cancel()

    def _ended(self, at: str, **how: Any) -> None:
        self._queue.append(ChildEnded(now=workflow.time(), at=at, **how))

    async def _start(self, command: StartChild) -> None:
        self._begun.add(command.at)
        try:
            state, plan = await self._prepared(command)
            await self._carriers.sending.room(size_of(state) + len(plan.text))
            if command.at in self._unwanted:
                return await self._discard(command, **TAKEN_AWAY)
            self._started.add(command.at)
            self._starting.add(command.at)
            await self._start_workflow(command, state, plan)
        except WorkflowAlreadyStartedError:
            # An attempt before this one started it, or it is of another job that had this one's id.
            if (why := await self._not_ours(command)) is not None:
                self._started.discard(command.at)
                return await self._discard(command, **why)
        except (asyncio.CancelledError, Exception) as error:
            if command.at in self._unwanted:
                return await self._discard(command, **TAKEN_AWAY)
            if isinstance(error, asyncio.CancelledError):
                return None
            code, message = "not_run", f"the child job could not be started: {error}"
            if isinstance(error, FailureError):
                code, message = failure_of(error)
            # Whatever it is: nobody sees it in a task, and a job that is told nothing waits for ever.
            return await self._discard(command, code=code, message=message)
        finally:
            self._starting.discard(command.at)
            if "abort:" + command.at not in self._tasks:
                self.under_way.discard(command.at)
        return await self._look_after(command.at, command.child)

    async def _not_ours(self, command: StartChild) -> dict[str, str] | None:
        """Say why what runs under a child's id is not this job's, if it is not. What the store knew was looked at."""
        given = {"child": command.child, "word": self._word(command.at, command.child)}
        look = RunActivity(at=f"~own/{command.at}", activity="loom.child.look", arguments=given, retry=ATTEMPTS)
        with suppress(FailureError):  # nobody can tell, so it is looked after as before
            found = await self._carriers.result_of(look)
            if found.get("code") == JobExists.code:
                return {"code": found["code"], "message": found["message"]}
        return None

    async def _start_workflow(self, command: StartChild, state: dict[str, Any], plan: PlanText) -> None:
        word = self._word(command.at, command.child)
        parent = {"job": workflow.info().workflow_id, "at": command.at, "word": word}
        envelope: dict[str, Any] = {"engine": ENGINE, "state": state, "parent": parent}
        if not command.agent:
            envelope["key"] = self._word("~key", command.child)
        await workflow.start_child_workflow(
            workflow.info().workflow_type,
            args=[envelope, plan],
            id=command.child,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )

    async def _discard(self, command: StartChild, *, code: str, message: str) -> None:
        """A child that never began must not stand in lists as running."""
        given = {"child": command.child, "status": "aborted" if command.at in self._unwanted else "failed"}
        at = f"~discard/{command.at}"
        discard = RunActivity(at=at, activity="loom.child.discard", arguments=given, retry=ATTEMPTS)
        with suppress(FailureError):  # the list is wrong then; the job itself goes on
            await self._carriers.result_of(discard)
        self._ended(command.at, code=code, message=message)

    async def _prepared(self, command: StartChild) -> tuple[dict[str, Any], PlanText]:
        """Have the child written down; give the state in which it starts, and its plan."""
        if command.written is not None:
            given = {"child": command.child, **command.written, "with": command.arguments}
            admit = RunActivity(at=command.at, activity="loom.graph.admit", arguments=given, retry=ATTEMPTS)
            state = MachineState(input=command.arguments, starter=self._machine.state.starter)
            return state.to_json(), await self._carriers.result_of(admit)
        given = {"child": command.child, "agent": command.agent, "graph": command.graph, "with": command.arguments}
        prepare = RunActivity(at=command.at, activity="loom.child.prepare", arguments=given, retry=ATTEMPTS)
        prepared = await self._carriers.result_of(prepare)
        # Whose job it is counts below it, too: four eyes are not blind to what a job asks through another one.
        starter = {"by": self._machine.state.starter} if self._machine.state.starter else {}
        return {**prepared["state"], **starter}, PlanText(self._machine.plan.child(command.agent, command.graph).text)

    async def _look_after(self, at: str, child: str) -> None:
        pause = FIRST_LOOK
        try:
            while True:
                await workflow.sleep(pause)
                pause = min(pause * 2, MAX_LOOK)
                if await self._look(at, child):
                    return
        except asyncio.CancelledError:
            return

    async def _look(self, at: str, child: str, name: str = "child") -> bool:
        """Ask how a child is, and tell how it ended. False while it is under way, and where nobody can tell."""
        look = RunActivity(at=f"~{name}/{at}", activity="loom.child.look", arguments={"child": child})
        try:
            found = await self._carriers.result_of(look)
        except FailureError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from None
            return False
        if not found["open"]:
            self._ended(at, **{key: found[key] for key in ("result", "code", "message") if key in found})
        return not found["open"]

    async def _abort(self, command: CancelChild) -> None:
        order = {
            "op": "abort",
            "by": "parent",
            "reason": f"the job {workflow.info().workflow_id} took it away",
            "id": f"parent/{digest(command.at)}",
        }
        try:
            # An order that comes before its job is lost, and the job would run on with nobody to wait for it.
            await workflow.wait_condition(lambda: command.at not in self._starting)
            if command.at not in self._started:
                return  # what has its id is another's
            await workflow.get_external_workflow_handle(command.child).signal(CONTROL, order)
        except FailureError:
            self.under_way.discard(command.at)
            await self._look(command.at, command.child, "abort")  # it has ended; without an answer it is looked after
        finally:
            self.under_way.discard(command.at)
            self._tasks.pop("abort:" + command.at, None)


async def report(parent: dict[str, str], finished: Finish | Failure) -> None:
    """Tell the job above this one how it went. One that is gone does not want to know."""
    told: dict[str, Any] = {"at": parent["at"], "child": workflow.info().workflow_id, "word": parent.get("word", "")}
    if isinstance(finished, Failure):
        told |= {"code": finished.code, "message": finished.message}
    elif isinstance(finished.result, dict) and finished.result.get("status") == "aborted":
        told |= {"code": "aborted", "message": "the job below this one was aborted"}
    else:
        told["result"] = finished.result
        if finished.undo:
            told["undo"] = finished.undo
    try:
        await workflow.get_external_workflow_handle(parent["job"]).signal(REPORT, told)
    except FailureError:
        workflow.logger.info("the parent job %s is gone", parent["job"])
