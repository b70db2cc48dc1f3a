"""One job, from outside: watch it, steer it, decide, and get its result."""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from pydantic import JsonValue, ValidationError
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError, TerminatedError
from temporalio.service import RPCError

from loom_client.edited_arguments import check_edit
from loom_client.effects import EffectRecord, effects_of
from loom_client.records import Receipt
from loom_client.server.errors import is_missing, is_unanswered, refusal
from loom_client.server.reconcile import is_running, why_refused
from loom_client.server.reconnect import SENT_SECONDS, lasting
from loom_client.signing import SigningKey
from loom_client.user import user_name
from loom_dsl.agent.run import MAX_ANSWER, ErrorInfo, GraphResult, RunResult, result_of_failure, result_of_finish
from loom_dsl.approvals.decision import problem_of
from loom_dsl.approvals.signature import subject_of
from loom_dsl.errors import ConflictError, DecisionRefused, LoomError, NotFoundError, StoreError
from loom_dsl.graph.plan import Plan, PlanText
from loom_dsl.machine.signals import Control
from loom_dsl.machine.status import JobStatus
from loom_dsl.observe.events import Event, EventType, decode
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_store.transcript import rendered

# How a job ended, as the server tells it, and what the store adds to it.


class JobGone(LoomError):
    """The job was ended outside Loom: it was terminated on the server, or its run is not there any more."""

    code = "job_gone"


class NoAnswer(LoomError):
    """No worker answered for the job."""

    code = "no_answer"


def failure_of(job: str, error: WorkflowFailureError) -> ApplicationError:
    """Give what a job failed with.

    Raises:
        JobGone: It did not fail, but was ended outside Loom.
    """
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return cause
    what = "was terminated on the server" if isinstance(cause, TerminatedError) else f"ended: {cause}"
    raise JobGone(f"job {job} {what}") from None


async def with_whole_answer(store: Store, job: str, result: RunResult) -> RunResult:
    """Put a long answer back, which the workflow's own result only begins."""
    if len(result.answer) <= MAX_ANSWER:
        return result
    answer = await store.read(lambda tx: _last_answer(tx, result.session_id, job))
    return result.model_copy(update={"answer": answer or result.answer})


async def with_final_message(store: Store, job: str, result: RunResult) -> RunResult:
    """Add the last message of the agent, which the workflow's own result leaves to the conversation."""
    message = await store.read(lambda tx: _last_message(tx, result.session_id, job))
    return result.model_copy(update={"final_message": message}) if message else result


def _last_answer(tx: Transaction, session: str, job: str) -> str:
    texts = (tx.get_blob(entry.content_digest).decode() for entry in _said(tx, session, job) if entry.content_digest)
    return next(filter(None, texts), "")


def _last_message(tx: Transaction, session: str, job: str) -> dict[str, JsonValue] | None:
    for entry in _said(tx, session, job):
        content = tx.get_blob(entry.content_digest).decode("utf-8", "replace") if entry.content_digest else None
        message: dict[str, JsonValue] = json.loads(rendered(entry.head, content)[0])
        return message
    return None


def _said(tx: Transaction, session: str, job: str) -> Iterator[Entry]:
    """What the agent said in a job, the latest first."""
    entries = tx.read_entries(session) if tx.session_exists(session) else []
    return (entry for entry in reversed(entries) if entry.job == job and entry.head.get("role") == "assistant")


# Watching one job from outside: its events, where it stands, its end. Nothing here changes the job.


POLL_SECONDS = 0.05
MAX_POLL = 0.5
CHECK_SECONDS = 5.0
"""How often a watcher asks the server whether a silent job is still open."""
LOOK_SECONDS = 3.0
"""How long it waits for the server's answer to that."""
FINAL_STATES = ("completed", "failed", "aborted")


class WatchedJob:
    """A job that is looked at: its events, where it stands, its end.

    Args:
        name: The job's id.
        client: Of the server that it runs on.
        store: The store that knows it.
        answer_seconds: How long to wait for the workflow to answer.

    Attributes:
        id: The job's id, constant over all of its Temporal runs.
    """

    def __init__(self, name: str, client: Client, store: Store, answer_seconds: float) -> None:
        self.id = name
        self._client, self._store, self._answer_seconds = client, store, answer_seconds

    @property
    def handle(self) -> WorkflowHandle[object, object]:
        """The Temporal handle on the job's latest run."""
        return self._client.get_workflow_handle(self.id)

    async def events(self, after: int = 0, *, follow: bool = True) -> AsyncIterator[Event]:
        """Give the job's events from an offset on, and go on until the job has ended.

        Reads the store, so any number of watchers costs the job nothing, and a job that has ended can be read again.

        Args:
            after: Offset of the last event that is known already; 0: from the first on.
            follow: Whether to wait for events to come. Otherwise those that there are.

        Yields:
            The events, in the order of their offsets, each once.
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
            wait = min(wait * 1.5, MAX_POLL)

    async def status(self) -> JobStatus:
        """Ask the workflow where it stands.

        Returns:
            Its state, what it asks, what runs and what waits.

        Raises:
            NoAnswer: No worker answered in time.
            NotFoundError: The server does not know the job.
        """
        try:
            async with asyncio.timeout(self._answer_seconds):
                return JobStatus.model_validate(await lasting(self._client, lambda: self.handle.query("loom.status")))
        except (TimeoutError, WorkflowQueryFailedError):
            raise self._no_answer() from None
        except RPCError as error:
            raise (self._no_answer() if is_unanswered(error) else refusal(self.id, error)) from None

    async def effects(self) -> list[EffectRecord]:
        """Give what the job's tools did to the world, and what became of it.

        Returns:
            The effects in the order in which they were written down; none for a job that the store does not know.
        """
        return await self._store.read(lambda tx: effects_of(tx, self.id))

    async def _end(self) -> object:
        """Wait for the end, however often the server is away, and give what the workflow returned.

        Raises:
            WorkflowFailureError: It failed.
            NotFoundError: The server does not know the job.
        """
        try:
            return await lasting(self._client, self.handle.result)
        except RPCError as error:
            raise refusal(self.id, error) from None

    async def _read_events(self, after: int) -> list[tuple[int, dict[str, Any]]]:
        return await self._store.read(
            lambda tx: tx.read_events(self.id, after=after, limit=500, expand=True, timed=True)
        )

    async def _is_open(self) -> bool:
        for _ in range(3):  # a server that starts again may not know it for a moment
            try:
                async with asyncio.timeout(LOOK_SECONDS):  # what the store has by then is not kept back for longer
                    return is_running(await self.handle.describe())
            except TimeoutError:
                return True
            except RPCError as error:
                if not is_missing(error):
                    return True
                await asyncio.sleep(1)
        return False

    def _no_answer(self) -> NoAnswer:
        return NoAnswer(
            f"no worker answered for job {self.id} within {self._answer_seconds:g} s; "
            f"`loom show {self.id}` says why it waits"
        )


MOVE_SECONDS = 30.0
"""How long moving a job may take: what is in flight ends first."""
RECORDED = Receipt(verdict="recorded", message="recorded")
UNCONFIRMED = Receipt(verdict="unconfirmed", message="sent, unconfirmed: no worker answered yet")


class JobHandle(WatchedJob):
    """What all jobs have in common: they are watched, steered and decided about.

    What steers a job is sent as an update, which the workflow confirms; when it does not within `answer_seconds`, as a
    signal.
    """

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
    ) -> Receipt:
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
            Whether it was ``recorded``, or is ``unconfirmed`` because nothing confirmed it.

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

    async def pause(self, by: str = "", reason: str = "") -> Receipt:
        """Stop at the next safe point; a model call in flight finishes, deadlines run on.

        Args:
            by: Who says so, in at most 200 characters.
            reason: Why, in at most 2,000 characters.

        Returns:
            Whether it was ``recorded``, or is ``unconfirmed`` because nothing confirmed it.

        Raises:
            DecisionRefused: The job is ending or has just ended, or a text is too long.
            ConflictError: The job has ended.
            NotFoundError: The server does not know the job.
        """
        return await self._control("pause", by=by, reason=reason)

    async def resume(self, by: str = "", *, cause: str = "") -> Receipt:
        """Go on after a pause, with the steps that are halted, and at once with those that wait for an outage's end.

        Args:
            by: Who says so, in at most 200 characters.
            cause: Only the steps go on that stopped for it, such as ``auth``, and a pause stays; empty: everything.

        Returns:
            Whether it was ``recorded``, or is ``unconfirmed`` because nothing confirmed it.

        Raises:
            DecisionRefused: The job is ending or has just ended, or a text is too long.
            ConflictError: The job has ended.
            NotFoundError: The server does not know the job.
        """
        return await self._control("resume", by=by, cause=cause)

    async def abort(self, by: str = "", reason: str = "") -> Receipt:
        """End the job. What runs is cancelled, what is open in the conversation is settled.

        The order is the server's as soon as it is sent, whatever becomes of whoever waits here for its confirmation.

        Args:
            by: Who says so, in at most 200 characters.
            reason: Why, in at most 2,000 characters.

        Returns:
            Whether it was ``recorded``, or is ``unconfirmed`` because nothing confirmed it.

        Raises:
            DecisionRefused: The job is ending already, or a text is too long.
            ConflictError: The job has ended.
            NotFoundError: The server does not know the job.
        """
        order = _order("abort", by=by, reason=reason)
        await self._signal("loom.control", order)
        # After the order: a mark without one would refuse the job's tools while the job runs on. It only makes the
        # order quicker, so a store that fails does not make it undone.
        with contextlib.suppress(StoreError):
            await self._store.write(lambda tx: tx.request_abort(self.id, reason, by))
        try:
            answer = await self._ask("loom.steer", order)
        except DecisionRefused:
            raise  # it was ending already
        except (ConflictError, NotFoundError):
            return RECORDED  # it took the order and has ended
        return _once(answer or UNCONFIRMED)

    async def inject(self, text: str, *, when: str = "asap", by: str = "") -> Receipt:
        """Send the agent a message.

        Args:
            text: The message.
            when: ``asap``: before its next model call; ``when_idle``: when it would finish.
            by: Who sends it; the system's user when empty, as with `Loom.start`.

        Returns:
            Whether it was ``recorded``, or is ``unconfirmed`` because nothing confirmed it.

        Raises:
            DecisionRefused: The job does not take it, or `when` is neither.
            ConflictError: The job has ended.
            NotFoundError: The server does not know the job.
        """
        name = await self._store.write(lambda tx: tx.put_blob(text.encode()))
        return await self._control("inject", by=by or user_name()[:200], ref=name, when=when)

    async def migrate(self, plan: Plan, names: Mapping[str, str] | None = None) -> Receipt:
        """Let the job go on under another plan, from where it stands.

        Args:
            plan: The plan.
            names: Old node → new node, for nodes that were renamed.

        Returns:
            Whether it was ``recorded``, or is ``waiting`` for something in flight that cannot be taken along: the
            message says what. The job moves when that is done.

        Raises:
            ConflictError: A token has no home there; says which.
            NotFoundError: The server does not know the job, or no worker answers.
        """
        # What sends it remembers which plans it has put into the store; that of an old job may have been pruned since.
        await self._store.write(lambda tx: tx.put_blob(plan.text.encode()))
        try:
            async with asyncio.timeout(MOVE_SECONDS):
                answer: dict[str, str] = await self.handle.execute_update(
                    "loom.migrate", args=[PlanText(plan.text), dict(names or {})]
                )
        except RPCError as error:
            raise await self._refused(error) from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise NotFoundError(
                f"no worker answered for job {self.id} within {MOVE_SECONDS:g} s, so it is not known whether it was "
                f"moved; `loom show {self.id}` tells"
            ) from None
        except WorkflowUpdateFailedError as error:
            raise ConflictError(f"job {self.id} was not moved: {error.cause or error}") from None
        if answer["verdict"] not in ("recorded", "waiting"):
            raise ConflictError(f"job {self.id} was not moved: {answer['message']}")
        return Receipt.model_validate(answer)

    async def _control(self, op: str, **fields: str) -> Receipt:
        return await self._send_once("loom.steer", "loom.control", _order(op, **fields))

    async def _send_once(self, update: str, signal: str, payload: dict[str, Any]) -> Receipt:
        """Send what has an id that nobody else knows: received before is then received."""
        return _once(await self._send(update, signal, payload))

    async def _send(self, update: str, signal: str, payload: dict[str, Any]) -> Receipt:
        """Send as an update that is answered; without an answer in time, as a signal that is not."""
        answer = await self._ask(update, payload)
        if answer is None:
            await self._signal(signal, payload)
        return answer or UNCONFIRMED

    async def _ask(self, update: str, payload: dict[str, Any]) -> Receipt | None:
        """Send as an update, and give the answer; None when there was none in time."""
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
        except (TimeoutError, RPCError, WorkflowUpdateFailedError) as error:
            if isinstance(error, RPCError) and is_missing(error):
                refused = await why_refused(self._client, self._store, self.id, error)
                if refused is not None:
                    raise refused from None
        return None

    async def _signal(self, signal: str, payload: dict[str, Any]) -> None:
        try:  # what is sent has an id, so that a second try of ours counts once
            await lasting(self._client, lambda: self.handle.signal(signal, payload), SENT_SECONDS)
        except RPCError as error:
            raise await self._refused(error) from None

    async def _refused(self, error: RPCError) -> LoomError:
        found = await why_refused(self._client, self._store, self.id, error)
        return found or ConflictError(f"job {self.id} began while this was sent, so it did not get it; send it again")


class Job(JobHandle):
    """A handle on one job of an agent."""

    async def result(self) -> RunResult:
        """Wait for the end.

        Returns:
            How it went: completed, failed or aborted; the answer is whole, also when it is long, and the agent's last
            message is with it.

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
        whole = await with_whole_answer(self._store, self.id, result)
        return await with_final_message(self._store, self.id, whole)


def _order(op: str, **fields: str) -> dict[str, str]:
    """Write an order with an id of its own, as the signal ``loom.control`` carries it."""
    order = {"op": op, "id": secrets.token_hex(8), **{key: value for key, value in fields.items() if value}}
    try:
        Control.model_validate(order)
    except ValidationError as error:
        raise DecisionRefused(problem_of(error), "invalid") from None
    return order


def _once(answer: Receipt) -> Receipt:
    """Read the answer to what was sent under an id that nobody else knows: received before is then received.

    The run that took it may have ended before it could answer, so that the server asked the next one.
    """
    return RECORDED if answer.verdict == "already_done" else answer


def _judged(answer: Mapping[str, str]) -> Receipt:
    verdict, message = answer["verdict"], answer.get("message", "")
    if verdict in ("recorded", "already_done"):
        return Receipt.model_validate(answer)
    if verdict == "unknown":
        raise NotFoundError(message)
    raise DecisionRefused(message or verdict, verdict)


# One job of a graph, from outside: what a job of an agent has, events from outside, and a result of its own.


class GraphJob(JobHandle):
    """A handle on one job of a graph."""

    async def result(self) -> GraphResult:
        """Wait for the end.

        Returns:
            How it went: completed, failed or aborted, with the result that the graph's end gives.

        Raises:
            NotFoundError: The server does not know the job.
            JobGone: It was ended outside Loom.
        """
        row = await self._store.read(lambda tx: tx.job(self.id))
        if row is not None and row["ended_at"] and row["result"]:
            return GraphResult.model_validate(row["result"])
        try:
            value = await self._end()
        except WorkflowFailureError as error:
            cause = failure_of(self.id, error)
            details = cause.details[0] if cause.details else None
            return result_of_failure(self.id, cause.type or "", cause.message, details)
        row = await self._store.read(lambda tx: tx.job(self.id))
        return result_of_finish(self.id, value, aborted=row is not None and row["status"] == "aborted")

    async def event(self, name: str, data: JsonValue = None, *, key: JsonValue = None, by: str = "") -> Receipt:
        """Send an event to whichever node waits for it, now or later.

        Args:
            name: The event's name, as the node has it.
            data: What the node gives as its result; JSON.
            key: For a node that waits for an event with this key.
            by: Who sends it.

        Returns:
            Whether it was ``recorded``, or is ``unconfirmed`` because nothing confirmed it.

        Raises:
            NotFoundError: There is no such job, or none of its nodes waits for this event.
            ConflictError: The job has ended, or too many events wait in it.
        """
        payload = {"name": name, "key": key, "data": data, "by": by, "id": secrets.token_hex(8)}
        return await self._send_once("loom.event", "loom.event", payload)


def is_graph(tx: Transaction, row: Mapping[str, Any]) -> bool:
    """Whether a job is one of a graph, and not of an agent."""
    return not json.loads(tx.get_blob(row["plan"]))["agent"]


async def is_graph_job(store: Store, row: Mapping[str, Any]) -> bool:
    """Whether a job is one of a graph, and not of an agent."""
    return await store.read(lambda tx: is_graph(tx, row))
