"""Turns every failure of an activity into a code and redacted text, before it enters the history."""

import asyncio
import time
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.runtime import Heartbeats, Runtime
from loom_dsl.errors import LoomError, StoreError, StoreLocked
from loom_dsl.redaction import redact
from loom_store.engine import BUSY_SECONDS

LONGEST = 2_000
"""Characters of a failure's message that are kept."""
FLUSH = "loom.events.flush"
"""The activity without which no job ends: it is tried again whatever went wrong."""
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

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap one activity."""
        return _Inbound(next, self._runtime)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, runtime: Runtime) -> None:
        super().__init__(next)
        self._runtime = runtime

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
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
            raise self._told(error) from None
        except Exception as error:
            activity.logger.exception("an activity failed in a way that Loom does not know")
            raise ApplicationError(self._text(f"{type(error).__name__}: {error}"), type="internal") from None

    async def _patiently(self, input: ExecuteActivityInput) -> Any:
        """Wait for a locked store within the attempt: another process that writes for long is no failure of a job."""
        end = time.monotonic() + _patience()
        while True:
            try:
                await self._runtime.check_job(activity.info().workflow_id or "")
                return await self.next.execute_activity(input)
            except StoreLocked:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.1)

    def _told(self, error: LoomError) -> ApplicationError:
        # Whatever is wrong with a store, it is not the job's fault, and somebody can put it right.
        again = error.retryable or isinstance(error, StoreError) or activity.info().activity_type == FLUSH
        delay = getattr(error, "retry_after", None)
        return ApplicationError(
            self._text(error.message),
            type=error.code,
            non_retryable=not again,
            next_retry_delay=timedelta(seconds=min(delay, LONGEST_DELAY)) if delay is not None else None,
        )

    def _text(self, message: str) -> str:
        return redact(message, self._runtime.secrets)[:LONGEST]
