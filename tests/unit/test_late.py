"""What is said of an activity that exceeded a limit."""

import pytest
from temporalio.exceptions import TimeoutError, TimeoutType

from loom_dsl.commands import RunActivity
from workflows.failing import failure_of


@pytest.mark.parametrize(
    ("kind", "attempts", "heartbeat", "told"),
    [
        (TimeoutType.START_TO_CLOSE, 1, None, "took longer than its timeout of 2.5 s"),
        (TimeoutType.START_TO_CLOSE, 3, None, "took longer than its timeout of 2.5 s (3 attempts)"),
        (TimeoutType.HEARTBEAT, 1, 30.0, "its worker was not heard of for 30 s"),
        (TimeoutType.HEARTBEAT, 1, None, "its worker was not heard of for 5 s"),
    ],
)
def test_a_timeout_tells_its_limit(kind: TimeoutType, attempts: int, heartbeat: float | None, told: str) -> None:
    retry = (attempts, 1.0, 2.0, 60.0)
    command = RunActivity(at="a#1", activity="x", arguments={}, timeout=2.5, heartbeat=heartbeat, retry=retry)
    error = TimeoutError("activity timed out", type=kind, last_heartbeat_details=[])
    assert failure_of(error, command) == ("timeout", told)


def test_a_timeout_of_something_else_is_told_as_the_engine_does() -> None:
    error = TimeoutError("workflow timed out", type=None, last_heartbeat_details=[])
    assert failure_of(error) == ("timeout", "no result in time (workflow timed out)")
