"""How an activity's error is told to the server: one that Loom does not know without secrets, a store's with time."""

import dataclasses
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.interceptor import Failures
from activities.runtime import Runtime
from loom_cli.commands.serve.log import OneLine
from loom_dsl.errors import (
    BlobMissing,
    LoomError,
    MissingTools,
    ModelAccessRefused,
    ModelProtocolError,
    ModelRateLimit,
    ModelRequestRefused,
    ModelUnavailable,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    WrongStore,
)
from loom_store.store import Store
from loom_tools.registry import ToolRegistry

SECRET = "a-value-that-only-the-worker-knows-77"
SHAPED = "sk-proj-1234567890abcdefABCDEF1234567890"


class Faulty(ActivityInboundInterceptor):
    """An activity that raises an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Raise the error, because of something that nobody thought of."""
        try:
            raise KeyError(SHAPED)
        except KeyError as error:
            raise self.error from error


async def told(folder: Path, error: Exception, attempt: int = 1) -> ApplicationError:
    """What the server is told when an activity of a job raises this."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info, workflow_id="job", attempt=attempt, start_to_close_timeout=timedelta(seconds=1)
    )
    with Store.open(folder / "loom.db") as store:
        await store.write(lambda tx: tx.create_session("s"))
        job = {"session": "s", "agent": "a", "plan": "p", "task": "t", "workdir": "/", "namespace": "n"}
        await store.write(lambda tx: tx.create_job("job", task_queue="q", created_at=1.0, **job))
        runtime = Runtime(store, ToolRegistry.load(), folder, secrets={"SHELF": SECRET}, environment={})
        inbound = Failures(runtime.jobs, runtime.steps, runtime.delays).intercept_activity(Faulty(error))
        given = ExecuteActivityInput(fn=lambda: None, args=[{}], executor=None, headers={})
        with pytest.raises(ApplicationError) as caught:
            await environment.run(inbound.execute_activity, given)
    return caught.value


@pytest.mark.parametrize("formatter", [logging.Formatter(), OneLine()])
async def test_an_unknown_error_is_logged_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, formatter: logging.Formatter
) -> None:
    error = await told(tmp_path, RuntimeError(f"cannot log in with {SECRET}"))
    assert error.message == "RuntimeError: cannot log in with ${secret:SHELF}"
    (record,) = [record for record in caplog.records if "Loom does not know" in record.message]
    record.exc_text = None  # the capture's own formatter has filled it in
    logged = formatter.format(record)
    assert "RuntimeError: cannot log in with ${secret:SHELF}" in logged
    assert SECRET not in logged
    assert SHAPED not in logged
    assert ("in execute_activity" in logged) == (not isinstance(formatter, OneLine)), "the place of the mistake"


@pytest.mark.parametrize(
    ("error", "attempt", "delay"),
    [
        pytest.param(StoreError("disk I/O error"), 1, 20.0, id="first"),
        pytest.param(StoreError("disk I/O error"), 2, 120.0, id="second"),
        pytest.param(StoreReadOnly(), 9, 120.0, id="ninth"),
        pytest.param(StoreLocked(), 1, None, id="locked"),
        pytest.param(WrongStore(), 1, 5.0, id="another store"),
        pytest.param(MissingTools(), 3, 15.0, id="other tools"),
        pytest.param(MissingTools(), 900, 300.0, id="other tools for long"),
    ],
)
async def test_what_nobody_answered_is_tried_again_by_the_engine(
    tmp_path: Path, error: LoomError, attempt: int, delay: float | None
) -> None:
    caught = await told(tmp_path, error, attempt)
    assert (caught.type, caught.non_retryable) == (error.code, False)
    assert caught.next_retry_delay == (None if delay is None else timedelta(seconds=delay))


@pytest.mark.parametrize(
    ("error", "details"),
    [
        (BlobMissing(), {"again": True}),
        (ModelRateLimit(retry_after=7_000.0), {"again": True, "outage": True, "retry_after": 7_000.0}),
        (ModelUnavailable(), {"again": True, "outage": True}),
        (ModelProtocolError(), {"again": True}),
        (ModelAccessRefused(), {"halts": True}),
        (ModelRequestRefused(), {}),
        (RuntimeError("a fault of ours"), {"again": True}),
    ],
)
async def test_what_a_party_answered_ends_the_activity_and_says_what_may_follow(
    tmp_path: Path, error: Exception, details: dict[str, Any]
) -> None:
    caught = await told(tmp_path, error, 4)
    assert caught.non_retryable
    (said,) = caught.details
    assert {name: said[name] for name in said if name != "action"} == {"attempt": 4, **details}
