"""Turns every failure of an activity into a code and redacted text, before it enters the history."""

import asyncio
import contextlib
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.lifecycle.attempts import Steps
from activities.lifecycle.heartbeats import Heartbeats
from activities.lifecycle.shutdown import STOPPED
from activities.record.activity_call import BEGIN, Run, remember, take_run, this_run
from activities.record.job_store import JobStore
from loom_dsl.errors import (
    LoomError,
    MissingTools,
    NotAStore,
    StepDied,
    StoreError,
    StoreLocked,
    StoreLost,
    StoreMissing,
    StoreTooNew,
    StoreTooOld,
    WrongStore,
)
from loom_dsl.text.redaction import Masked, cut
from loom_store.engine import BUSY_SECONDS
from loom_tools import masking
from loom_tools.masking import redact
from loom_tools.running import describe

STOPPED_DELAY = 0.1
"""Seconds until a worker may take what another one was stopped in: it is the next one's at once."""
MAX_MESSAGE = 4_000
"""Characters of a failure's message that are kept."""
ELSEWHERE = (WrongStore, StoreLost, NotAStore, StoreTooNew, StoreTooOld, StoreMissing)
"""What is wrong with this worker's store; another worker may have the right one. What else does not pass, such as a
content that is missing, does not pass at all."""
FLUSH = "loom.events.flush"
"""The activity without which no job ends: it is tried again whatever went wrong."""
UNANSWERED = frozenset({MissingTools.code, WrongStore.code, STOPPED})
"""Codes of failures of this worker, not of a party that was asked: the engine tries again, without an end."""
RETRIED = frozenset({"loom.function.call", "loom.llm.call"})
"""The work of nodes of which watchers are told that it is tried again."""
MAX_WHY = 300
"""Characters of why it is."""
MAX_TRACE = 20_000
"""Characters of a traceback that are logged, from its end."""
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED)


def _patience() -> float:
    """How long an attempt may wait for the store, in seconds. A local one holds up its whole job, so it does not."""
    info = activity.info()
    if info.is_local or info.start_to_close_timeout is None:
        return 0.0
    return info.start_to_close_timeout.total_seconds() - 2 * BUSY_SECONDS


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """When what this worker could not do is tried again.

    Attributes:
        store: Seconds until the next attempt after the store failed, by attempt; the last one stays.
        tools: Seconds until a worker is asked again that may have a job's tools: at first, and at most.
    """

    store: Sequence[float] = (20.0, 120.0)
    tools: tuple[float, float] = (5.0, 300.0)


class Failures(Interceptor):
    """The interceptor of a worker. Secrets are masked in messages."""

    def __init__(self, jobs: JobStore, steps: Steps, delays: RetryDelays) -> None:
        self.jobs, self.steps, self.delays = jobs, steps, delays
        self.warned: OrderedDict[Run, None] = OrderedDict()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap one activity."""
        return _Inbound(next, self)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, worker: Failures) -> None:
        super().__init__(next)
        self._jobs, self._steps, self._delays, self._warned = worker.jobs, worker.steps, worker.delays, worker.warned

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        attempt = activity.info().attempt
        take_run(input.args[0] if input.args else None)
        _BEFORE.set(_before(input))
        await masking.ready()
        if attempt > 1 and this_run() not in self._warned:  # where the tools are missing, nothing was tried
            await self._tell_retry(input, attempt)
        return await self._execute(input)

    async def _tell_retry(self, input: ExecuteActivityInput, attempt: int) -> None:
        """Tell who watches a graph that a node is run again whose attempt was lost; the machine knows nothing of it."""
        given = input.args[0]
        if activity.info().activity_type not in RETRIED or "turn" in given:
            return
        attempt += given.get("before", 0)
        told = {"t": "node_retry", "n": 0, "node": given["at"], "attempt": attempt, "at": time.time()}
        job = activity.info().workflow_id or ""
        with contextlib.suppress(StoreError):
            await self._jobs.store.write(lambda tx: tx.append_events(job, f"{given['at']}/attempt/{attempt}", [told]))

    async def _execute(self, input: ExecuteActivityInput) -> Any:
        try:
            async with Heartbeats():
                return await self._patiently(input)
        except ApplicationError as error:
            raise _ended(error, self._text(error.message)) from None
        except (CancelledError, asyncio.CancelledError):
            details = activity.cancellation_details()
            if details is not None and details.worker_shutdown and not details.cancel_requested:
                # The server does not take a cancellation that nobody asked for, and would wait for a timeout.
                raise _unanswered(Masked("the worker was stopped while this ran"), STOPPED, STOPPED_DELAY) from None
            raise
        except LoomError as error:
            if isinstance(error, MissingTools):
                await self._warn(error, input.args[0].get("turn", 0))
            raise self._told(error) from None
        except RPCError as error:
            text = self._text(describe(error))
            if error.status in _AWAY:
                raise _unanswered(text, "server_away") from None
            raise answered(text, "internal", again=True) from None
        except Exception as error:
            masked = _masked(error, self._jobs.secrets)
            activity.logger.error("an activity failed in a way that Loom does not know", exc_info=masked)
            raise answered(self._text(describe(error)), "internal", again=True) from None

    async def _patiently(self, input: ExecuteActivityInput) -> Any:
        """Wait for a locked store within the attempt: another process that writes for long is no failure of a job."""
        end = time.monotonic() + _patience()
        while True:
            try:
                if activity.info().activity_type != BEGIN:  # that writes the job down
                    await self._jobs.conversation(activity.info().workflow_id or "")
                given = input.args[0] if input.args else None
                return await self._steps.attempt(given, lambda: self.next.execute_activity(input))
            except StoreLocked:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.1)

    async def _warn(self, error: MissingTools, turn: int) -> None:
        """Say in the log and to watchers what the job waits for: nothing else happens until such a worker comes."""
        message = self._text(f"the job waits for a worker with its tools: {error.message}")
        run = this_run()
        if run not in self._warned:
            remember(self._warned, run, None)
            activity.logger.warning(message)
        warning = {"t": "warning", "n": turn, "code": error.code, "message": message}
        with contextlib.suppress(StoreError):
            await self._jobs.store.write(lambda tx: tx.append_events(run[0], f"{turn}/{error.code}", [warning]))

    def _told(self, error: LoomError) -> ApplicationError:
        text = self._text(error.message)
        gone = isinstance(error, StoreError) and not error.passes and not isinstance(error, ELSEWHERE)
        elsewhere = isinstance(error, StepDied) and not error.halts  # a local step that is to run remotely
        unanswered = elsewhere or (isinstance(error, StoreError | MissingTools) and not gone)
        if unanswered or activity.info().activity_type == FLUSH:
            return _unanswered(text, error.code, self._delay(error))
        return answered(
            text,
            error.code,
            again=error.retryable or gone,
            outage=error.outage,
            halts=error.halts,
            retry_after=getattr(error, "retry_after", None),
            action=error.action,
        )

    def _delay(self, error: LoomError) -> float | None:
        """Seconds until the next attempt; None leaves it to the engine.

        A full or failing disk is not mended in seconds. A lock was waited for within the attempt.
        """
        attempt = activity.info().attempt
        if isinstance(error, MissingTools | WrongStore):
            first, longest = self._delays.tools
            return min(first * attempt, longest)
        if isinstance(error, StoreError) and not isinstance(error, StoreLocked):
            delays = self._delays.store
            return delays[min(attempt, len(delays)) - 1]
        return None

    def _text(self, message: str) -> Masked:
        return telling(message, self._jobs.secrets)


_BEFORE: ContextVar[int] = ContextVar("before", default=0)


def _before(input: ExecuteActivityInput) -> int:
    """The engine's attempts in the tries before this one."""
    given = input.args[0] if input.args else None
    before = given.get("before", 0) if isinstance(given, dict) else 0
    return before if isinstance(before, int) else 0


def answered(text: Masked, code: str, **how: Any) -> ApplicationError:
    """Make the failure of an activity whose party has answered: it ends, and the machine says what follows.

    Args:
        text: The message, without secrets.
        code: Its stable code.
        how: `again`, `outage`, `halts`, `retry_after` and `action`, as `ActivityFailed` has them.
    """
    given = activity.info().attempt
    details = {"attempt": given + _BEFORE.get(), **{name: value for name, value in how.items() if value}}
    return ApplicationError(text, details, type=code, non_retryable=True)


def _unanswered(text: Masked, code: str, delay: float | None = None) -> ApplicationError:
    """Make the failure of an attempt in which nobody answered: the engine tries again, without an end."""
    return ApplicationError(
        text, type=code, next_retry_delay=None if delay is None else timedelta(seconds=delay), non_retryable=False
    )


def _ended(error: ApplicationError, text: Masked) -> ApplicationError:
    """What an activity raised itself: an answer, unless it says that this worker could not do it.

    Args:
        error: What it raised.
        text: Its message, without secrets.
    """
    if error.type == STOPPED:
        return _unanswered(text, STOPPED, STOPPED_DELAY)
    if error.type in UNANSWERED or (error.non_retryable and error.details):
        if text == error.message:
            return error
        again = error.next_retry_delay
        final = error.non_retryable
        return ApplicationError(text, *error.details, type=error.type, non_retryable=final, next_retry_delay=again)
    return answered(text, error.type or "activity_failed", again=not error.non_retryable)


class Unforeseen(Exception):
    """What an activity raised and Loom does not know, as it may be logged."""


def _masked(error: Exception, secrets: Mapping[str, str]) -> Unforeseen:
    """The error as the log's formatters take it: what it is, and behind that its traceback, both without secrets."""
    masked = Unforeseen(telling(describe(error), secrets))
    masked.__cause__ = Unforeseen(redact("".join(traceback.format_exception(error)), secrets)[-MAX_TRACE:])
    return masked


def is_final(error: LoomError) -> bool:
    """Whether trying again cannot help. What is wrong with a store is not the job's fault, and can be put right."""
    return not error.retryable and not isinstance(error, StoreError)


def telling(message: str, secrets: Mapping[str, str]) -> Masked:
    """A failure's message as it may enter the history."""
    return cut(redact(message, secrets), MAX_MESSAGE)
