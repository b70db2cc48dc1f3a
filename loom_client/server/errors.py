"""What an error of the Temporal server says: whether it is away, whether it knows the job, whether anybody answers."""

from temporalio.service import RPCError, RPCStatusCode

from loom_dsl.errors import LoomError, NotFoundError, ServerAway

_AWAY = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED})
_BROKEN = frozenset(
    {
        RPCStatusCode.UNKNOWN,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.DATA_LOSS,
    }
)
"""What a connection that breaks is reported as, but a server's own answers too: the words tell which it is."""
_WORDS = (
    "transport error",
    "connect error",
    "connection",
    "broken pipe",
    "h2 protocol error",
    "http2 error",
    "http/2",
    "goaway",
    "stream error",
    "stream closed",
    "reset by peer",
    "rst_stream",
    "error reading a body",
    "unexpected end of file",
    "unexpected eof",
    "operation was canceled",
    "timeout expired",
    "timed out",
    "dns error",
    "channel closed",
    "service was not ready",
    "tls handshake",
    "shutting down",
    "shutdown",
    "database is closed",
    "context canceled",
)
"""Parts of what tonic, hyper, h2 and the operating system say of a connection that breaks, and of what a server says
while it ends."""
_NO_POLLER = (RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.CANCELLED)
"""What the server says to a question when it has had no worker on the queue for a while, and the SDK at our timeout."""


def is_missing(error: RPCError) -> bool:
    """Whether the server does not know the job."""
    return error.status is RPCStatusCode.NOT_FOUND and not _of_namespace(error)


def is_away(error: BaseException) -> bool:
    """Whether the server itself cannot be reached, does not answer in time, or broke off.

    Nothing else in Loom looks at how this is said: a server that is killed is told as UNAVAILABLE as well as UNKNOWN,
    INTERNAL or CANCELLED, and one that comes back does not know its namespaces for a moment.
    """
    if not isinstance(error, RPCError):
        return False
    if error.status in _AWAY or _of_namespace(error):
        return True
    said = error.message.lower()
    return error.status in _BROKEN and any(word in said for word in _WORDS)


def is_unanswered(error: RPCError) -> bool:
    """Whether a question to the job found no worker, or no server."""
    return is_away(error) or error.status in _NO_POLLER


def refusal(job: str, error: RPCError) -> LoomError:
    """Give what to raise when the server did not answer about a job."""
    if is_missing(error):
        return NotFoundError(f"the server does not know a running job {job}")
    if is_away(error):
        return ServerAway(f"the server did not take it: {error.message}")
    return LoomError(f"the server did not take it: {error.message}")


def _of_namespace(error: RPCError) -> bool:
    """Whether it is the namespace that the server does not know (yet)."""
    return error.status is RPCStatusCode.NOT_FOUND and error.message.lower().startswith("namespace ")
