"""Reading the body of an answer: its events, whatever a provider makes of the protocol.

What came is told apart by its first byte, because providers mislabel it: a server-sent event stream,
one JSON document although a stream was asked for, or a web page from something that is no model.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pydantic_core

from activities.chat_clock import Clock
from activities.chat_errors import Provider
from activities.sse import EventReader
from activities.unreached import causes_of
from loom_dsl.canonical import read_json
from loom_dsl.errors import ModelProtocolError, ModelUnavailable

_BLANK = b"\xef\xbb\xbf \t\r\n"
_DRAIN = 0.25


class AnswerStream:
    """The JSON objects in one response's body.

    Args:
        response: The open response.
        clock: Bounds each read.
        provider: Who answers.
        limit: The longest event or document, in bytes.
    """

    def __init__(self, response: httpx2.Response, clock: Clock, provider: Provider, limit: int) -> None:
        self.ended = False
        """Whether the end mark was read."""
        self._chunks = response.aiter_bytes()
        self._clock = clock
        self._provider = provider
        self._limit = limit
        self._reader = EventReader(limit)
        self._document: list[bytes] = []
        self._size = 0
        self._known = self._seen = self._over = False

    async def next(self) -> list[dict[str, Any]] | None:
        """Read once, and return what that completes; None at the end.

        Raises:
            ModelUnavailable: The connection breaks, or is silent for too long.
            ModelProtocolError: The body is not what it should be.
        """
        if self._over:
            return None
        chunk = await self._read()
        if chunk is None:
            self._over = True
            return self._last()
        if not self._known:
            self._recognise(chunk)
        if self._document:
            self._hold(chunk)
            return []
        batch = self._objects(self._reader.feed(chunk))
        if self.ended:
            self._over = True
            await self._drain()
        return batch

    async def _read(self) -> bytes | None:
        with transport_errors(self._provider):
            chunk = await self._clock.wait(anext(self._chunks, None))
        self._clock.answering = True
        return chunk

    def _recognise(self, chunk: bytes) -> None:
        head = chunk.lstrip(_BLANK)
        self._known = bool(head)
        if head[:1] in (b"{", b"["):
            self._document = [b""]
        elif head[:1] == b"<":
            raise ModelProtocolError(
                f"{self._provider.url} answered with a web page. "
                f"Check that {self._provider.url_name} is the API's base address (most end in /v1)."
            )

    def _hold(self, chunk: bytes) -> None:
        self._document.append(chunk)
        self._size += len(chunk)
        if self._size > self._limit:
            raise ModelProtocolError(f"{self._provider.host} answered with over {self._limit} bytes.")

    def _last(self) -> list[dict[str, Any]]:
        if self._document:
            self.ended = True
            return [_json(b"".join(self._document).removeprefix(b"\xef\xbb\xbf"), self._provider)]
        batch = self._objects(self._reader.finish())
        if self._known and not (self._seen or self.ended):
            raise ModelProtocolError(f"{self._provider.url} answered with something that is no event stream.")
        return batch

    def _objects(self, payloads: Iterator[bytes]) -> list[dict[str, Any]]:
        found = []
        with _bounded(self._provider):
            for payload in payloads:
                text = payload.strip()
                if text.startswith(b"[DONE]"):
                    self.ended = True
                    break
                if text:
                    found.append(_json(text, self._provider))
        self._seen = self._seen or bool(found)
        return found

    async def _drain(self) -> None:
        """Read to the end of the body, so that the connection can serve the next call; not for long."""
        with contextlib.suppress(TimeoutError, ModelUnavailable):
            async with asyncio.timeout(_DRAIN):
                while await self._read() is not None:
                    pass


@contextlib.contextmanager
def transport_errors(provider: Provider) -> Iterator[None]:
    """Turn what the connection raises into `ModelUnavailable`, saying what to check."""
    try:
        yield
    except (openai.APITimeoutError, httpx2.TimeoutException):
        raise ModelUnavailable(f"No connection to {provider.host} in time. Check {provider.url_name}.") from None
    except (openai.APIConnectionError, httpx2.HTTPError, httpx2.StreamError) as error:
        raise ModelUnavailable(_reason(provider, error)) from None


def _reason(provider: Provider, error: BaseException) -> str:
    chain = list(causes_of(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"The certificate of {provider.host} is not trusted: {cause.verify_message}."
        if isinstance(cause, socket.gaierror):
            return f"There is no host {provider.host}: {cause.strerror}. Check {provider.url_name} and the network."
        if isinstance(cause, ConnectionRefusedError):
            return f"Nothing listens at {provider.host}. Start the model's server, or check {provider.url_name}."
    if isinstance(error, httpx2.HTTPError) or any(isinstance(cause, httpx2.RemoteProtocolError) for cause in chain):
        return f"{provider.host} closed the connection before its answer was complete."
    return (
        f"Cannot reach {provider.host}: {provider.masked(str(chain[-1]))}. Check {provider.url_name} and the network."
    )


@contextlib.contextmanager
def _bounded(provider: Provider) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ModelProtocolError(f"{provider.host} answered beyond bounds: {error}.") from None


def _json(text: bytes, provider: Provider) -> dict[str, Any]:
    try:
        try:
            # Faster than json, but it refuses the lone surrogates that json takes.
            value = pydantic_core.from_json(text)
        except ValueError:
            value = read_json(text)
    except ValueError:
        shown = provider.masked(text[:200].decode("utf-8", "replace"))
        raise ModelProtocolError(f"{provider.host} answered with broken JSON: {shown}") from None
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0]
    if not isinstance(value, dict):
        raise ModelProtocolError(f"{provider.host} answered with JSON that is not an object.")
    return value
