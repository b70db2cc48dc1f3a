"""What a worker's log says of attempts that were broken off, and of steps that are halted."""

import asyncio
import dataclasses
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from loom_cli.commands.serve.log import FAILED, OncePerCause, log_halt

LATE = "its heartbeat did not reach the server within 5 s, so it is run again: the server was away, or this worker"


async def logged(details: ActivityCancellationDetails, seconds: float) -> str:
    """Give what is logged of an attempt of 60 s that was broken off after so many seconds, as the SDK logs it."""
    said: list[str] = []

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Said()
    handler.addFilter(OncePerCause())
    activity.logger.base_logger.addHandler(handler)

    @activity.defn
    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            activity.logger.warning(FAILED, exc_info=True)

    begun = asyncio.Event()
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info,
        workflow_id="job-1",
        activity_id="0/fetch#1",
        started_time=datetime.now(UTC) - timedelta(seconds=seconds),
        start_to_close_timeout=timedelta(seconds=60),
        heartbeat_timeout=timedelta(seconds=5),
    )
    running = asyncio.ensure_future(environment.run(waits))
    await begun.wait()
    environment.cancel(details)
    await running
    activity.logger.base_logger.removeHandler(handler)
    (line,) = said
    return line


@pytest.mark.parametrize(
    ("details", "seconds", "expected"),
    [
        (ActivityCancellationDetails(timed_out=True, not_found=True), 7, LATE),
        (ActivityCancellationDetails(timed_out=True, not_found=True), 60, "it took longer than its timeout of 60 s"),
        (
            ActivityCancellationDetails(not_found=True),
            7,
            "the server waits for it no more: its heartbeat came too late",
        ),
        (ActivityCancellationDetails(worker_shutdown=True), 60, "this worker was stopped"),
        (ActivityCancellationDetails(cancel_requested=True), 7, "its job was ended, or wants it no more"),
        (ActivityCancellationDetails(paused=True), 7, "the server paused it, or began it anew"),
    ],
)
async def test_the_log_says_what_broke_an_attempt_off(
    details: ActivityCancellationDetails, seconds: float, expected: str
) -> None:
    line = await logged(details, seconds)
    assert line.startswith(f"job job-1: fetch#1 was broken off (attempt 1): {expected}")


def test_a_cancellation_of_which_nothing_is_known_is_not_given_a_reason() -> None:
    error = asyncio.CancelledError()
    record = logging.LogRecord("temporalio", 30, __file__, 1, FAILED, (), (type(error), error, None))
    record.temporal_activity = {"workflow_id": "j", "activity_id": "0/fetch#1", "attempt": 2}
    assert OncePerCause().filter(record)
    assert record.getMessage() == "job j: fetch#1 was broken off (attempt 2): something in this worker cancelled it"


def test_a_halt_is_one_line_with_its_job_its_step_its_cause_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    halt: dict[str, Any] = {"t": "halted", "n": 1, "job": "job-1", "node": "review#1/model#1", "cause": "model_access"}
    halt |= {"message": "it says 401: no such key.", "action": "set OPENAI_API_KEY at the worker", "since": time.time()}
    log_halt({"t": "state", "n": 1, "job": "job-1", "state": "running"})
    log_halt({**halt, "t": "resumed"})
    log_halt(halt)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("job job-1: model_access: halted at review/model since ")
    assert record.getMessage().endswith(
        ": it says 401: no such key; set OPENAI_API_KEY at the worker, then `loom resume job-1`"
    )
