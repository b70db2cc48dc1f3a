"""How a job begins that a schedule started: first it is written down."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from workflows.failures import HEARTBEAT, failed_activity

with workflow.unsafe.imports_passed_through():
    from loom_dsl.machine.tokens.retry import growing_pause

BEGIN = "loom.job.begin"
ATTEMPT, MAX_PAUSE = timedelta(seconds=30), timedelta(seconds=60)
"""One attempt, and the longest time between two."""


async def begin(order: str, cancelled: Callable[[], None]) -> dict[str, Any]:
    """Write this job down, however long it takes, and give the state that it begins with.

    Args:
        order: Digest of the schedule's order.
        cancelled: Called for a cancellation that comes meanwhile: the job begins all the same, to end as it should.

    Raises:
        ApplicationError: It cannot be: another job has its id.
    """
    tries = 0
    while True:
        try:
            begun = await _attempts(order)
        except (FailureError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                cancelled()
                continue
            failed = failed_activity("~begin", error, now=workflow.time())
            if not failed.again:
                raise ApplicationError(failed.message, type=failed.code, non_retryable=True) from None
            tries += 1
            try:
                await workflow.sleep(growing_pause(tries, 2.0, 2.0, MAX_PAUSE.total_seconds()))
            except asyncio.CancelledError:
                cancelled()
            continue
        workflow.upsert_memo({"loom.origin": begun["origin"]})
        state: dict[str, Any] = begun["state"]
        return state


async def _attempts(order: str) -> Any:
    return await workflow.execute_activity(
        BEGIN,
        {"at": "~begin", "with": {"order": order}},
        activity_id="0/~begin",
        start_to_close_timeout=ATTEMPT,
        heartbeat_timeout=timedelta(seconds=HEARTBEAT),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=MAX_PAUSE),
    )
