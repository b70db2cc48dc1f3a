"""What an activity or a child job raised, as the machine takes it: a code, and a message."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TimeoutError,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from loom_dsl.machine.commands import ActivityFailed

WORKERS_SECONDS = 90.0
"""Seconds that a worker has for an activity beyond the step's own time, which the activity keeps itself: for waiting,
writing, and loading users' modules into a process of their own. When they are over, nobody has answered, and the engine
gives the activity to a worker again."""
HEARTBEAT = 5.0
"""Seconds after which a remote activity of a killed worker is given to another, where the plan says nothing."""


class WrongEngine(RuntimeError):
    """The job is for workers of another release.

    Not a LoomError: it must not end the job, only keep this worker from it.
    """


def failure_of(error: BaseException) -> tuple[str, str]:
    """Give code and message of what an activity or a child raised."""
    cause = _cause(error)
    if isinstance(cause, ApplicationError):
        return cause.type or "activity_failed", cause.message
    if isinstance(cause, TimeoutError):
        return "timeout", f"no result in time ({cause.message})"
    if isinstance(cause, (CancelledError, asyncio.CancelledError)):
        return "cancelled", "cancelled"
    return "activity_failed", str(cause)


def failed_activity(at: str, error: BaseException, *, now: float, tries: int = 1) -> ActivityFailed:
    """Give what the machine is told of an activity that failed: with what its party answered besides."""
    code, message = failure_of(error)
    cause = _cause(error)
    told = cause.details[0] if isinstance(cause, ApplicationError) and cause.details else {}
    told = told if isinstance(told, dict) else {}
    return ActivityFailed(
        now=now,
        at=at,
        code=code,
        message=message,
        cancelled=is_cancelled_exception(error),
        again=bool(told.get("again")),
        outage=bool(told.get("outage")),
        halts=bool(told.get("halts")),
        retry_after=told.get("retry_after"),
        action=str(told.get("action", "")),
        attempt=int(told.get("attempt", 1)),
        tries=tries,
    )


def _cause(error: BaseException) -> BaseException:
    return error.cause if isinstance(error, ActivityError) and error.cause else error


def is_final(error: FailureError) -> bool:
    """Whether another attempt cannot help."""
    cause = error.cause or error
    return isinstance(cause, ApplicationError) and cause.non_retryable
