"""What an error of the Temporal server says about a job."""

from temporalio.service import RPCError, RPCStatusCode

from loom_dsl.errors import LoomError, NotFoundError

_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED)
_NO_POLLER = (RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.CANCELLED)
"""What the server says to a question when it has had no worker on the queue for a while, and the SDK at our timeout."""


def is_missing(error: RPCError) -> bool:
    """Whether the server does not know the job."""
    return error.status is RPCStatusCode.NOT_FOUND


def is_away(error: RPCError) -> bool:
    """Whether the server itself cannot be reached, or does not answer in time."""
    return error.status in _AWAY


def is_unanswered(error: RPCError) -> bool:
    """Whether a question to the job found no worker, or no server."""
    return is_away(error) or error.status in _NO_POLLER


def refusal(job: str, error: RPCError) -> LoomError:
    """Give what to raise when the server did not answer about a job."""
    if is_missing(error):
        return NotFoundError(f"the server does not know a running job {job}")
    return LoomError(f"the server did not take it: {error.message}")
