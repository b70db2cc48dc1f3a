"""What an activity or a child job raised, as the machine takes it: a code, and a message."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TimeoutError,
    TimeoutType,
)

with workflow.unsafe.imports_passed_through():
    from loom_dsl.commands import RunActivity

HEARTBEAT = 5.0
"""Seconds after which a remote activity of a killed worker is given to another, where the plan says nothing."""


class WrongEngine(RuntimeError):
    """The job is for workers of another release.

    Not a LoomError: it must not end the job, only keep this worker from it.
    """


def failure_of(error: BaseException, command: RunActivity | None = None) -> tuple[str, str]:
    """Give code and message of what an activity or a child raised; `command` is what had been commanded."""
    cause = error.cause if isinstance(error, ActivityError) and error.cause else error
    if isinstance(cause, ApplicationError):
        return cause.type or "activity_failed", cause.message
    if isinstance(cause, TimeoutError):
        return "timeout", _lateness(cause, command)
    if isinstance(cause, (CancelledError, asyncio.CancelledError)):
        return "cancelled", "cancelled"
    return "activity_failed", str(cause)


def _lateness(error: TimeoutError, command: RunActivity | None) -> str:
    """Say which limit an activity exceeded."""
    if command is None:
        return f"no result in time ({error.message})"
    attempts = command.retry[0]
    tried = f" ({attempts} attempts)" if attempts > 1 else ""
    if error.type is TimeoutType.HEARTBEAT:
        return f"its worker was not heard of for {command.heartbeat or HEARTBEAT:g} s{tried}"
    return f"took longer than its timeout of {command.timeout:g} s{tried}"


def is_final(error: FailureError) -> bool:
    """Whether another attempt cannot help."""
    cause = error.cause or error
    return isinstance(cause, ApplicationError) and cause.non_retryable
