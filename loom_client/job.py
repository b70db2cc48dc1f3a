"""One job, from outside: watch it, steer it, decide, and get its result."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import temporalio.service
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)

from loom_client.edits import check_edit
from loom_client.outcome import JobGone as JobGone
from loom_client.outcome import NoAnswer as NoAnswer
from loom_client.outcome import failure_of, with_whole_answer
from loom_client.signing import SigningKey
from loom_client.user import user_name
from loom_dsl.errors import ConflictError, DecisionRefused, LoomError, NotFoundError
from loom_dsl.events import Event, EventType, decode
from loom_dsl.plan import Plan, PlanText
from loom_dsl.run import ErrorInfo, RunResult
from loom_dsl.signature import subject_of
from loom_store.store import Store

MOVE_SECONDS = 30.0
"""How long moving a job may take: what is in flight ends first."""
POLL_SECONDS = 0.05
LONGEST_POLL = 0.5
CHECK_SECONDS = 5.0
"""How often a watcher asks the server whether a silent job is still open."""
AWAY_SECONDS = 120.0
"""How long a server may be away until nobody waits for it any more; a restart takes seconds."""
FINAL_STATES = ("completed", "failed", "aborted")


class JobHandle:
    """What all jobs have in common: events, steering and decisions.

    Args:
        name: The job's id.
        client: Of the server that it runs on.
        store: The store that knows it.
        answer_seconds: How long to wait for the workflow to confirm before a signal is sent in place of the update.

    Attributes:
        id: The job's id, constant over all of its Temporal runs.
    """

    def __init__(self, name: str, client: Client, store: Store, answer_seconds: float) -> None:
        self.id = name
        self._client, self._store, self._answer_seconds = client, store, answer_seconds

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """The Temporal handle on the job's latest run."""
        return self._client.get_workflow_handle(self.id)

    async def _end(self) -> Any:
        """Wait for the end, and give what the workflow returned.

        Raises:
            WorkflowFailureError: It failed.
            NotFoundError: The server does not know the job.
        """
        away = asked = time.monotonic()
        while True:
            try:
                return await self.handle.result()
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
            NoAnswer: No worker answered in time.
            NotFoundError: The server does not know the job.
        """
        try:
            async with asyncio.timeout(self._answer_seconds):
                answer: dict[str, Any] = await self.handle.query("loom.status")
        except (TimeoutError, WorkflowQueryFailedError):
            raise self._no_answer() from None
        except temporalio.service.RPCError as error:
            if error.status in (*_AWAY, *_NO_POLLER):
                raise self._no_answer() from None
            raise self._not_found(error) from None
        return answer

    def _no_answer(self) -> LoomError:
        return NoAnswer(
            f"no worker answered for job {self.id} within {self._answer_seconds:g} s; "
            f"`loom show {self.id}` says why it waits"
        )

    async def decide(  # noqa: PLR0913 - what a decision says
        self,
        approval: str,
        choice: str,
        *,
        message: str = "",
        edited_arguments: dict[str, Any] | None = None,
        remember: str = "no",
        by: str = "",
        digest: str = "",
        sign: SigningKey | None = None,
        signature: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """Answer an approval.

        Args:
            approval: Its id.
            choice: ``approve``, ``edit``, ``reject``, ``respond``, ``terminate``, or another of the request's choices.
            message: A reason; with ``respond`` what the tool would have given.
            edited_arguments: With ``edit``: the arguments instead. They are held against the tool's schema here, and
                validated and authorized again by the worker.
            remember: With ``approve``: ``job`` or ``rule``.
            by: Who decides.
            digest: Digest of what was looked at; another one than the request's is refused.
            sign: Sign with this key, whose person decides.
            signature: Or the signature that somebody has made elsewhere.

        Returns:
            ``{"verdict": …, "message": …}``; the verdict is ``recorded``, or ``unconfirmed`` when nothing confirmed it.

        Raises:
            DecisionRefused: It is already decided, has expired, somebody else must decide, the choice is not one of the
                request's, or the edited arguments do not fit; `verdict` says which.
            NotFoundError: The job or the approval is not there.
        """
        decision = {"approval_id": approval, "choice": choice, "message": message, "remember": remember, "by": by}
        decision |= {"id": secrets.token_hex(8), **({"digest": digest} if digest else {})}
        payload: dict[str, Any] = {**decision, "at": time.time()}
        if edited_arguments is not None:
            await check_edit(self._store, approval, edited_arguments)
            payload["edited_arguments"] = edited_arguments
        if signature is not None:
            payload["signature"] = dict(signature)
        if sign is not None:
            payload = await self._signed(payload, sign)
        return await self._send("loom.decide", "loom.decision", payload)

    async def _signed(self, payload: dict[str, Any], sign: SigningKey) -> dict[str, Any]:
        """Sign a decision about what the store says is asked."""
        row = await self._store.read(lambda tx: tx.approval(payload["approval_id"]))
        if row is None or row["job"] != self.id:
            raise NotFoundError(f"there is no approval {payload['approval_id']!r} of job {self.id} in this store")
        asked = payload.get("digest") or row["arguments_digest"] or row["details"].get("digest", "")
        tool, requester = subject_of(row)
        return sign.sign({**payload, "digest": asked}, job=self.id, tool=tool, requester=requester)

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
        """Send the agent a message: before its next model call, or ``when="when_idle"`` when it would finish.

        `by` says who sends it; else the system's user does, as with `start`.
        """
        name = await self._store.write(lambda tx: tx.put_blob(text.encode()))
        return await self._control("inject", by=by or user_name()[:200], ref=name, when=when)

    async def migrate(self, plan: Plan, names: Mapping[str, str] | None = None) -> dict[str, str]:
        """Let the job go on under another plan, from where it stands.

        Args:
            plan: The plan.
            names: Old node → new node, for nodes that were renamed.

        Returns:
            ``{"verdict": …, "message": …}``; the verdict is ``recorded``, or ``waiting`` while something is in flight
            that cannot be taken along: the message says what. The job moves when that is done.

        Raises:
            ConflictError: A token has no home there; says which.
            NotFoundError: The server does not know the job, or no worker answers.
        """
        try:
            async with asyncio.timeout(MOVE_SECONDS):
                answer: dict[str, str] = await self.handle.execute_update(
                    "loom.migrate", args=[PlanText(plan.text), dict(names or {})]
                )
        except temporalio.service.RPCError as error:
            raise self._not_found(error) from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise NotFoundError(
                f"no worker answered for job {self.id} within {MOVE_SECONDS:g} s, so it is not known whether it was "
                f"moved; `loom show {self.id}` tells"
            ) from None
        except WorkflowUpdateFailedError as error:
            raise ConflictError(f"job {self.id} was not moved: {error.cause or error}") from None
        if answer["verdict"] not in ("recorded", "waiting"):
            raise ConflictError(f"job {self.id} was not moved: {answer['message']}")
        return answer

    async def _control(self, op: str, **fields: str) -> dict[str, str]:
        payload = {"op": op, "id": secrets.token_hex(8), **{key: value for key, value in fields.items() if value}}
        return await self._send_once("loom.steer", "loom.control", payload)

    async def _send_once(self, update: str, signal: str, payload: dict[str, Any]) -> dict[str, str]:
        """Send what has an id that nobody else knows: received before is then received."""
        answer = await self._send(update, signal, payload)
        if answer["verdict"] == "already_done":
            # The run that took it ended before it could answer, and the server asked the next one.
            return {"verdict": "recorded", "message": "recorded"}
        return answer

    async def _send(self, update: str, signal: str, payload: dict[str, Any]) -> dict[str, str]:
        """Send as an update that is answered; without an answer in time, as a signal that is not."""
        try:
            for _ in range(20):
                async with asyncio.timeout(self._answer_seconds):
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


class Job(JobHandle):
    """A handle on one job of an agent."""

    async def result(self) -> RunResult:
        """Wait for the end.

        Returns:
            How it went: completed, failed or aborted; the answer is whole, also when it is long.

        Raises:
            NotFoundError: The server does not know the job.
            JobGone: It was ended outside Loom.
        """
        try:
            return await self._whole(RunResult.model_validate(await self._end()))
        except WorkflowFailureError as error:
            return await self._failed(error)

    async def _failed(self, error: WorkflowFailureError) -> RunResult:
        cause = failure_of(self.id, error)
        if cause.details:
            return await self._whole(RunResult.model_validate(cause.details[0]))
        info = ErrorInfo(code=cause.type or "failed", message=cause.message)
        return RunResult(session_id="", run_id=self.id, status="failed", error=info)

    async def _whole(self, result: RunResult) -> RunResult:
        return await with_whole_answer(self._store, self.id, result)


_NO_POLLER = (temporalio.service.RPCStatusCode.FAILED_PRECONDITION, temporalio.service.RPCStatusCode.CANCELLED)
"""What the server says to a question when it has had no worker on the queue for a while, and the SDK at our timeout."""
_AWAY = (temporalio.service.RPCStatusCode.UNAVAILABLE, temporalio.service.RPCStatusCode.DEADLINE_EXCEEDED)


def _is_missing(error: temporalio.service.RPCError) -> bool:
    return error.status is temporalio.service.RPCStatusCode.NOT_FOUND


def _judged(answer: dict[str, str]) -> dict[str, str]:
    verdict, message = answer["verdict"], answer.get("message", "")
    if verdict in ("recorded", "already_done"):
        return answer
    if verdict == "unknown":
        raise NotFoundError(message)
    raise DecisionRefused(message or verdict, verdict)
