"""Turns every failure of an activity into a code and redacted text, before it enters the history."""

import asyncio
import contextlib
import time
import traceback
from collections import OrderedDict
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.firing import BEGIN
from activities.heartbeats import Heartbeats
from activities.runtime import Run, Runtime, remember, take_run, this_run
from activities.tool_run import describe
from loom_dsl.errors import BlobMissing, LoomError, MissingTools, StoreError, StoreLocked, WrongStore
from loom_dsl.redaction import redact
from loom_store.engine import BUSY_SECONDS

LONGEST = 4_000
"""Characters of a failure's message that are kept."""
FLUSH = "loom.events.flush"
"""The activity without which no job ends: it is tried again whatever went wrong."""
NOT_ITS_FAULT = frozenset({MissingTools.code, WrongStore.code, "worker_stopped"})
"""Codes of failures that say nothing about a node, and that no attempt is counted for."""
RETRIED = frozenset({"loom.function.call", "loom.llm.call"})
"""The work of nodes of which watchers are told that it is tried again."""
LONGEST_WHY = 300
"""Characters of why it is."""
LONGEST_TRACE = 20_000
"""Characters of a traceback that are logged, from its end."""
LONGEST_DELAY = 60.0
"""Seconds that a provider may make a job wait; a longer retry-after is cut to this."""


def _patience() -> float:
    """How long an attempt may wait for the store, in seconds. A local one holds up its whole job, so it does not."""
    info = activity.info()
    if info.is_local or info.start_to_close_timeout is None:
        return 0.0
    return info.start_to_close_timeout.total_seconds() - 2 * BUSY_SECONDS


class Failures(Interceptor):
    """The interceptor of a worker. The runtime's secrets are masked in messages."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._warned: OrderedDict[Run, None] = OrderedDict()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap one activity."""
        return _Inbound(next, self._runtime, self._warned)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, runtime: Runtime, warned: OrderedDict[Run, None]) -> None:
        super().__init__(next)
        self._runtime, self._warned = runtime, warned

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        attempt = activity.info().attempt
        take_run(input.args[0] if input.args else None)
        if attempt > 1 and this_run() not in self._warned:  # where the tools are missing, nothing was tried
            await self._tell_retry(input, attempt)
        try:
            return await self._execute(input)
        except ApplicationError as error:
            if not error.non_retryable and error.type not in NOT_ITS_FAULT and has_attempts_left():
                await self._tell_retry(input, attempt + 1, error)
            raise

    async def _tell_retry(
        self, input: ExecuteActivityInput, attempt: int, error: ApplicationError | None = None
    ) -> None:
        """Tell who watches a graph that a node is tried again: when it is known why, or at the latest when it is."""
        given = input.args[0]
        if activity.info().activity_type not in RETRIED or "turn" in given:
            return
        why = {"code": error.type, "message": error.message[:LONGEST_WHY]} if error is not None else {}
        told = {"t": "node_retry", "n": 0, "node": given["at"], "attempt": attempt, "at": time.time(), **why}
        job = activity.info().workflow_id or ""
        with contextlib.suppress(StoreError):
            await self._runtime.store.write(
                lambda tx: tx.append_events(job, f"{given['at']}/attempt/{attempt}", [told])
            )

    async def _execute(self, input: ExecuteActivityInput) -> Any:
        try:
            async with Heartbeats():
                return await self._patiently(input)
        except ApplicationError:
            raise
        except (CancelledError, asyncio.CancelledError):
            details = activity.cancellation_details()
            if details is not None and details.worker_shutdown and not details.cancel_requested:
                # The server does not take a cancellation that nobody asked for, and would wait for a timeout.
                raise ApplicationError("the worker was stopped while this ran", type="worker_stopped") from None
            raise
        except LoomError as error:
            if isinstance(error, MissingTools):
                await self._warn(error, input.args[0].get("turn", 0))
            raise self._told(error) from None
        except Exception as error:
            masked = _masked(error, self._runtime)
            activity.logger.error("an activity failed in a way that Loom does not know", exc_info=masked)
            raise ApplicationError(self._text(describe(error)), type="internal") from None

    async def _patiently(self, input: ExecuteActivityInput) -> Any:
        """Wait for a locked store within the attempt: another process that writes for long is no failure of a job."""
        end = time.monotonic() + _patience()
        while True:
            try:
                if activity.info().activity_type != BEGIN:  # that writes the job down
                    await self._runtime.check_job(activity.info().workflow_id or "")
                given = input.args[0] if input.args else None
                return await self._runtime.steps.attempt(given, lambda: self.next.execute_activity(input))
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
            await self._runtime.store.write(lambda tx: tx.append_events(run[0], f"{turn}/{error.code}", [warning]))

    def _told(self, error: LoomError) -> ApplicationError:
        again = not is_final(error) or activity.info().activity_type == FLUSH
        delay = self._delay(error)
        return ApplicationError(
            self._text(error.message),
            type=error.code,
            non_retryable=not again,
            next_retry_delay=timedelta(seconds=delay) if delay is not None else None,
        )

    def _delay(self, error: LoomError) -> float | None:
        """Seconds until the next attempt; None leaves it to the plan.

        A full or failing disk is not mended in the seconds that a plan waits. A lock was waited for within the
        attempt, another worker need not wait for this one, and a content that is missing does not come back.
        """
        if isinstance(error, StoreError) and not isinstance(error, StoreLocked | WrongStore | BlobMissing):
            delays = self._runtime.store_delays
            return delays[min(activity.info().attempt, len(delays)) - 1]
        told: float | None = getattr(error, "retry_after", None)
        return None if told is None else min(told, LONGEST_DELAY)

    def _text(self, message: str) -> str:
        return telling(message, self._runtime)


def has_attempts_left() -> bool:
    """Whether the engine would try the activity again if this attempt failed."""
    policy = activity.info().retry_policy
    return policy is not None and (not policy.maximum_attempts or activity.info().attempt < policy.maximum_attempts)


class Unforeseen(Exception):
    """What an activity raised and Loom does not know, as it may be logged."""


def _masked(error: Exception, runtime: Runtime) -> Unforeseen:
    """The error as the log's formatters take it: what it is, and behind that its traceback, both without secrets."""
    masked = Unforeseen(telling(describe(error), runtime))
    masked.__cause__ = Unforeseen(redact("".join(traceback.format_exception(error)), runtime.secrets)[-LONGEST_TRACE:])
    return masked


def is_final(error: LoomError) -> bool:
    """Whether trying again cannot help. What is wrong with a store is not the job's fault, and can be put right."""
    return not error.retryable and not isinstance(error, StoreError)


def telling(message: str, runtime: Runtime) -> str:
    """A failure's message as it may enter the history."""
    return redact(message, runtime.secrets)[:LONGEST]
