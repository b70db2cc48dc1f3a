"""What is an absence of the server, and what is its answer."""

import logging
from collections.abc import Iterator

import pytest
from temporalio.service import RPCError, RPCStatusCode

from loom_client.server.errors import is_away, is_missing, is_unanswered, refusal
from loom_client.server.reconnect import Outages, tell_outages
from loom_dsl.errors import NotFoundError, ServerAway

S = RPCStatusCode


def said(status: RPCStatusCode, message: str) -> RPCError:
    return RPCError(message, status, b"")


@pytest.mark.parametrize(
    "error",
    [
        said(S.UNAVAILABLE, "tcp connect error"),
        said(S.UNAVAILABLE, "Not enough hosts to serve the request"),
        said(S.DEADLINE_EXCEEDED, "context deadline exceeded"),
        said(S.UNKNOWN, "transport error"),
        said(S.UNKNOWN, "h2 protocol error: error reading a body from connection"),
        said(S.UNKNOWN, "connection error: Connection reset by peer (os error 104)"),
        said(S.INTERNAL, "stream error received: unexpected internal error encountered"),
        said(S.INTERNAL, "Http2 error: GOAWAY"),
        said(S.CANCELLED, "operation was canceled"),
        said(S.CANCELLED, "Timeout expired"),
        said(S.NOT_FOUND, "Namespace loom is not found."),
    ],
)
def test_a_server_that_breaks_off_is_away_in_whatever_way_that_is_said(error: RPCError) -> None:
    assert is_away(error)
    assert is_unanswered(error)
    assert not is_missing(error)
    assert isinstance(refusal("j", error), ServerAway)


@pytest.mark.parametrize(
    "error",
    [
        said(S.NOT_FOUND, "workflow not found for ID: j"),
        said(S.INVALID_ARGUMENT, "invalid connection string"),
        said(S.PERMISSION_DENIED, "Request unauthorized."),
        said(S.UNKNOWN, "unknown workflow type"),
        RuntimeError("transport error"),
    ],
)
def test_what_a_server_answers_is_no_absence(error: BaseException) -> None:
    assert not is_away(error)


def test_a_job_that_the_server_does_not_know_is_told_as_that() -> None:
    error = said(S.NOT_FOUND, "workflow not found for ID: j")
    assert is_missing(error)
    assert isinstance(refusal("j", error), NotFoundError)


@pytest.fixture
def told() -> Iterator[list[str]]:
    lines: list[str] = []
    tell_outages(lines.append)
    yield lines
    tell_outages(logging.getLogger("loom").warning)


def test_an_outage_is_told_once_and_its_end_once(told: list[str]) -> None:
    outages = Outages("here:1")
    for _ in range(2):
        outages.ends()
        outages.begins()
        outages.begins()
        outages.ends()
        outages.ends()
    away, back = "the Temporal server at here:1 does not answer; waiting for it", "answers again"
    assert told == [away, f"the Temporal server at here:1 {back}"] * 2
