"""What is said of what did not end in time."""

from temporalio.exceptions import TimeoutError

from workflows.failures import failure_of


def test_a_timeout_of_something_else_is_told_as_the_engine_does() -> None:
    error = TimeoutError("workflow timed out", type=None, last_heartbeat_details=[])
    assert failure_of(error) == ("timeout", "no result in time (workflow timed out)")
