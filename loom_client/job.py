"""One job, from outside: watch it, steer it, decide, and get its result."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from loom_client.edits import check_edit
from loom_client.lasting import SENT_SECONDS, lasting
from loom_client.lost import why_refused
from loom_client.outcome import JobGone as JobGone
from loom_client.outcome import NoAnswer as NoAnswer
from loom_client.outcome import failure_of, with_final_message, with_whole_answer
from loom_client.server_errors import is_missing
from loom_client.signing import SigningKey
from loom_client.user import user_name
from loom_client.watching import WatchedJob
from loom_dsl.approval import Control, problem_of
from loom_dsl.errors import ConflictError, DecisionRefused, LoomError, NotFoundError, StoreError
from loom_dsl.plan import Plan, PlanText
from loom_dsl.run import ErrorInfo, RunResult
from loom_dsl.signature import subject_of

MOVE_SECONDS = 30.0
"""How long moving a job may take: what is in flight ends first."""
RECORDED = {"verdict": "recorded", "message": "recorded"}
UNCONFIRMED = {"verdict": "unconfirmed", "message": "sent, unconfirmed: no worker answered yet"}


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

    async def resume(self, by: str = "", *, cause: str = "") -> dict[str, str]:
        """Go on after a pause, with the steps that are halted, and at once with those that wait for an outage's end.

        With `cause` only the steps go on that stopped for it, such as ``auth``.
        """
        return await self._control("resume", by=by, cause=cause)

    async def abort(self, by: str = "", reason: str = "") -> dict[str, str]:
        """End the job. What runs is cancelled, what is open in the conversation is settled.

        The order is the server's as soon as it is sent, whatever becomes of whoever waits here for its confirmation.
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
            return dict(RECORDED)  # it took the order and has ended
        return _once(answer or dict(UNCONFIRMED))

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
        return answer

    async def _control(self, op: str, **fields: str) -> dict[str, str]:
        return await self._send_once("loom.steer", "loom.control", _order(op, **fields))

    async def _send_once(self, update: str, signal: str, payload: dict[str, Any]) -> dict[str, str]:
        """Send what has an id that nobody else knows: received before is then received."""
        return _once(await self._send(update, signal, payload))

    async def _send(self, update: str, signal: str, payload: dict[str, Any]) -> dict[str, str]:
        """Send as an update that is answered; without an answer in time, as a signal that is not."""
        answer = await self._ask(update, payload)
        if answer is None:
            await self._signal(signal, payload)
        return answer or dict(UNCONFIRMED)

    async def _ask(self, update: str, payload: dict[str, Any]) -> dict[str, str] | None:
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


def _once(answer: dict[str, str]) -> dict[str, str]:
    """Read the answer to what was sent under an id that nobody else knows: received before is then received.

    The run that took it may have ended before it could answer, so that the server asked the next one.
    """
    return dict(RECORDED) if answer["verdict"] == "already_done" else answer


def _judged(answer: dict[str, str]) -> dict[str, str]:
    verdict, message = answer["verdict"], answer.get("message", "")
    if verdict in ("recorded", "already_done"):
        return answer
    if verdict == "unknown":
        raise NotFoundError(message)
    raise DecisionRefused(message or verdict, verdict)
