"""Asking a server on the internet."""

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import httpcore2
from pydantic import Field

from activities.builtin.network_address import CheckedBackend, check_literal
from activities.builtin.network_message import (
    LARGEST_BODY,
    SAFE_METHODS,
    Target,
    answer_text,
    checked_headers,
    parse_url,
    redirect_of,
)
from loom_dsl.errors import Aborted, LoomError, ToolError
from loom_dsl.tools import Arguments, Reconciliation, Risk, ToolContext, tool

MOST_REDIRECTS = 5
SECONDS = 60.0


def _key(arguments: Arguments) -> str | None:
    try:
        return f"host:{parse_url(str(arguments.get('url', ''))).origin}"
    except LoomError:
        return None


def _reconcile(arguments: Arguments, context: ToolContext) -> Reconciliation:
    """A request that only asks may be sent again; what became of another one, only the server knows."""
    return Reconciliation(outcome="not_happened" if arguments.get("method") in SAFE_METHODS else "unknown")


def _check(arguments: Arguments) -> None:
    """What is refused wherever the request would come from is refused before anybody is asked about it."""
    check_literal(parse_url(str(arguments["url"])).host)


def _preview(arguments: Arguments, context: ToolContext) -> str:
    headers = "".join(f"{name}: {value}\n" for name, value in (arguments.get("headers") or {}).items())
    return f"{arguments['method']} {arguments['url']}\n{headers}\n{arguments.get('body') or ''}".rstrip()


@tool(
    risk=Risk.HIGH,
    concurrency_key=_key,
    timeout=SECONDS + 5,
    summarise=lambda arguments: f"{arguments.get('method', 'GET')} {arguments.get('url')}",
    preview=_preview,
    check=_check,
    reconcile=_reconcile,
)
def network_request(
    context: ToolContext,
    url: Annotated[str, Field(max_length=4_000)],
    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] = "GET",
    headers: dict[str, str] | None = None,
    body: Annotated[str, Field(max_length=1_000_000)] | None = None,
) -> str:
    """Send one HTTP request to a server on the internet, and give its answer: status, headers and text.

    Redirects within the same host are followed when the method only asks; of another one you are told where it leads.

    Args:
        url: Begins with https:// or http://.
        method: The HTTP method.
        headers: Request headers. A secret is named, never written: {"Authorization": "Bearer ${secret:NAME}"}.
        body: The request's body. Give its Content-Type among the headers.
    """
    until = time.monotonic() + SECONDS
    target = parse_url(url)
    sent = checked_headers(headers or {}, target, context, method, body)
    data = b"" if body is None else body.encode("utf-8", "replace")
    backend = CheckedBackend(until, context.services.private_hosts)
    with httpcore2.ConnectionPool(network_backend=backend, max_connections=1, retries=0) as pool:
        for _ in range(MOST_REDIRECTS + 1):
            context.progress(f"{method} {target.shown}")
            found = _ask(pool, method, target, sent, data, context)
            following = redirect_of(target, method, found)
            if following is None:
                return answer_text(found, target)
            target = following
    raise ToolError(f"{url!r} leads from one redirect to the next, more than {MOST_REDIRECTS} times")


class Answer:
    """What a server said.

    Attributes:
        status: The HTTP status.
        headers: Names in lower case.
        body: At most `LARGEST_BODY` bytes of it.
        whole: Whether that is all of it.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes, whole: bool) -> None:
        self.status, self.headers, self.body, self.whole = status, headers, body, whole


def _ask(
    pool: httpcore2.ConnectionPool,
    method: str,
    target: Target,
    headers: Mapping[str, str],
    body: bytes,
    context: ToolContext,
) -> Answer:
    fields = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
    limits: dict[str, Any] = {"timeout": {"connect": 10.0, "read": 30.0, "write": 30.0, "pool": 10.0}}
    try:
        with pool.stream(method, target.url, headers=fields, content=body or None, extensions=limits) as response:
            told = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            data, whole = _read(response.iter_stream(), context)
            return Answer(response.status, told, data, whole)
    except httpcore2.TimeoutException as error:
        raise ToolError(f"{target.shown} did not answer in time ({_words(error)})") from error
    except httpcore2.ConnectError as error:
        raise ToolError(f"{target.shown} cannot be reached: {_words(error)}") from error
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
        raise ToolError(f"the answer of {target.shown} broke off or is no HTTP: {_words(error)}") from error


def _read(pieces: Iterator[bytes], context: ToolContext) -> tuple[bytes, bool]:
    data = bytearray()
    for piece in pieces:
        if context.cancelled():
            raise Aborted("the request was given up, because the job was ended")
        data += piece
        if len(data) > LARGEST_BODY:
            return bytes(data[:LARGEST_BODY]), False
        if len(data) > 100_000:
            context.progress(f"{len(data):,} bytes so far")
    return bytes(data), True


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
