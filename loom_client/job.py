"""One job, from outside: watch it, steer it, decide, and get its result."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import temporalio.service
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError, TerminatedError

from loom_dsl.errors import ConflictError, LoomError, NotFoundError
from loom_dsl.events import Event, EventType, decode
from loom_dsl.run import MOST_ANSWER, ErrorInfo, RunResult
from loom_store.store import Store
from loom_store.transaction import Transaction

ANSWER_SECONDS = 5.0
"""How long to wait for the workflow to confirm before a signal is sent in place of the update."""
POLL_SECONDS = 0.05
LONGEST_POLL = 0.5
CHECK_SECONDS = 5.0
"""How often a watcher asks the server whether a silent job is still open."""
AWAY_SECONDS = 120.0
"""How long a server may be away until nobody waits for it any more; a restart takes seconds."""
FINAL_STATES = ("completed", "failed", "aborted")


class JobGone(LoomError):
    """The job was ended outside Loom: it was terminated on the server, or its run is not there any more."""

    code = "job_gone"


class Job:
    """A handle on one job.

    Attributes:
        id: The job's id, constant over all of its Temporal runs.
    """

    def __init__(self, name: str, client: Client, store: Store) -> None:
        self.id = name
        self._client, self._store = client, store

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """The Temporal handle on the job's latest run."""
        return self._client.get_workflow_handle(self.id)

    async def result(self) -> RunResult:
        """Wait for the end.

        Returns:
            How it went: completed, failed or aborted; the answer is whole, also when it is long.

        Raises:
            NotFoundError: The server does not know the job.
            JobGone: It was ended outside Loom.
        """
        away = asked = time.monotonic()
        while True:
            try:
                return await self._whole(RunResult.model_validate(await self.handle.result()))
            except WorkflowFailureError as error:
                return await self._failed(error)
            except temporalio.service.RPCError as error:
                now = time.monotonic()
                if now - asked > CHECK_SECONDS * 3:  # it answered in between: the client itself tries for ten seconds
                    away = now
                if error.status not in _AWAY or now - away > AWAY_SECONDS:
                    raise self._not_found(error) from None
                await asyncio.sleep(LONGEST_POLL)
                asked = time.monotonic()

    async def events(self, after: int = 0, *, follow: bool = True) -> AsyncIterator[Event]:
        """Give the job's events from an offset on, and go on until the job has ended.

        Reads the store, so any number of watchers costs the job nothing, and a job that has ended can be read again.
        """
        wait, checked, offset = POLL_SECONDS, time.monotonic(), after
        while True:
            batch = await self._read_events(offset)
            for offset, raw in batch:
                event = decode(self.id, offset, raw)
                yield event
                if event.type == EventType.STATE and event.data.get("state") in FINAL_STATES:
                    follow = False
            if batch:
                wait = POLL_SECONDS
                continue
            if not follow:
                return
            if time.monotonic() - checked > CHECK_SECONDS:
                checked, follow = time.monotonic(), await self._is_open()
                continue
            await asyncio.sleep(wait)
            wait = min(wait * 1.5, LONGEST_POLL)

    async def _read_events(self, after: int) -> list[tuple[int, dict[str, Any]]]:
        return await self._store.read(lambda tx: tx.read_events(self.id, after=after, limit=500, expand=True))

    async def status(self) -> dict[str, Any]:
        """Ask the workflow where it stands.

        Raises:
            NotFoundError: The server does not know the job.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer: dict[str, Any] = await self.handle.query("loom.status")
        except temporalio.service.RPCError as error:
            raise self._not_found(error) from None
        return answer

    async def decide(
        self,
        approval: str,
        choice: str,
        *,
        message: str = "",
        edited_arguments: dict[str, Any] | None = None,
        remember: str = "no",
        by: str = "",
    ) -> dict[str, str]:
        """Answer an approval.

        Returns:
            ``{"verdict": …, "message": …}``; the verdict is ``recorded``, or ``unconfirmed`` when nothing confirmed it.

        Raises:
            ConflictError: It is already decided, has expired, or the choice is not one of the request's.
            NotFoundError: The job or the approval is not there.
        """
        decision = {"approval_id": approval, "choice": choice, "message": message, "remember": remember, "by": by}
        decision["id"] = secrets.token_hex(8)
        payload: dict[str, Any] = {**decision, "at": time.time()}
        if edited_arguments is not None:
            payload["edited_arguments"] = edited_arguments
        return await self._send("loom.decide", "loom.decision", payload)

    async def pause(self, by: str = "", reason: str = "") -> dict[str, str]:
        """Stop at the next safe point; a model call in flight finishes, deadlines run on."""
        return await self._control("pause", by=by, reason=reason)

    async def resume(self, by: str = "") -> dict[str, str]:
        """Go on after a pause."""
        return await self._control("resume", by=by)

    async def abort(self, by: str = "", reason: str = "") -> dict[str, str]:
        """End the job. What runs is cancelled, what is open in the conversation is settled."""
        await self._store.write(lambda tx: tx.request_abort(self.id, reason, by))
        try:
            return await self._control("abort", by=by, reason=reason)
        except LoomError:
            # Nobody was told, so the mark must not refuse the job's tools while the job runs on.
            await self._store.write(lambda tx: tx.withdraw_abort(self.id))
            raise

    async def inject(self, text: str, *, when: str = "asap", by: str = "") -> dict[str, str]:
        """Send the agent a message: before its next model call, or ``when="when_idle"`` when it would finish."""
        name = await self._store.write(lambda tx: tx.put_blob(text.encode()))
        return await self._control("inject", by=by, ref=name, when=when)

    async def _control(self, op: str, **fields: str) -> dict[str, str]:
        payload = {"op": op, "id": secrets.token_hex(8), **{key: value for key, value in fields.items() if value}}
        return await self._send("loom.steer", "loom.control", payload)

    async def _send(self, update: str, signal: str, payload: dict[str, Any]) -> dict[str, str]:
        """Send as an update that is answered; without an answer in time, as a signal that is not."""
        try:
            for _ in range(20):
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer: dict[str, str] = await self.handle.execute_update(update, payload)
                if answer["verdict"] != "retry":
                    return _judged(answer)
                await asyncio.sleep(0.1)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            # The SDK says the same for our own timeout and for a cancelled caller, who must not send anything more.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
        except (TimeoutError, temporalio.service.RPCError, WorkflowUpdateFailedError) as error:
            if isinstance(error, temporalio.service.RPCError) and _is_missing(error):
                raise self._not_found(error) from None
        try:
            await self.handle.signal(signal, payload)
        except temporalio.service.RPCError as error:
            raise self._not_found(error) from None
        return {"verdict": "unconfirmed", "message": "sent, unconfirmed: no worker answered yet"}

    async def _failed(self, error: WorkflowFailureError) -> RunResult:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return await self._whole(RunResult.model_validate(cause.details[0]))
        if isinstance(cause, ApplicationError):
            info = ErrorInfo(code=cause.type or "failed", message=cause.message)
            return RunResult(session_id="", run_id=self.id, status="failed", error=info)
        what = "was terminated on the server" if isinstance(cause, TerminatedError) else f"ended: {cause}"
        raise JobGone(f"job {self.id} {what}") from None

    async def _whole(self, result: RunResult) -> RunResult:
        return await with_whole_answer(self._store, self.id, result)

    async def _is_open(self) -> bool:
        for _ in range(3):  # a server that starts again may not know it for a moment
            try:
                described = await self.handle.describe()
                break
            except temporalio.service.RPCError as error:
                if not _is_missing(error):
                    return True
                await asyncio.sleep(1)
        else:
            return False
        return described.status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)

    def _not_found(self, error: temporalio.service.RPCError) -> LoomError:
        if not _is_missing(error):
            return LoomError(f"the server did not take it: {error.message}")
        if "completed" in error.message:
            return ConflictError(f"job {self.id} has already ended")
        return NotFoundError(f"the server does not know a running job {self.id}")


async def with_whole_answer(store: Store, job: str, result: RunResult) -> RunResult:
    """Put a long answer back, which the workflow's own result only begins."""
    if len(result.answer) <= MOST_ANSWER:
        return result
    answer = await store.read(lambda tx: _last_answer(tx, result.session_id, job))
    return result.model_copy(update={"answer": answer or result.answer})


def _last_answer(tx: Transaction, session: str, job: str) -> str:
    for entry in reversed(tx.read_entries(session)):
        if entry.job == job and entry.content_digest and entry.head.get("role") == "assistant":
            return tx.get_blob(entry.content_digest).decode()
    return ""


_AWAY = (temporalio.service.RPCStatusCode.UNAVAILABLE, temporalio.service.RPCStatusCode.DEADLINE_EXCEEDED)


def _is_missing(error: temporalio.service.RPCError) -> bool:
    return error.status is temporalio.service.RPCStatusCode.NOT_FOUND


def _judged(answer: dict[str, str]) -> dict[str, str]:
    verdict, message = answer["verdict"], answer.get("message", "")
    if verdict in ("recorded", "already_done"):
        return answer
    if verdict == "unknown":
        raise NotFoundError(message)
    raise ConflictError(message or verdict)
