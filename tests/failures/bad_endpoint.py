"""Endpoints that are no models: a server that answers every request to /NAME/... with the same bytes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\nconnection: close\r\n\r\n"
_CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":%s}]}\n\n'

ANSWERS: Mapping[str, bytes] = {
    "page": _PLAIN % b"text/html" + b"<!doctype html><title>Sign in</title>",
    "moved": b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere.test/v1\r\ncontent-length: 0\r\n\r\n",
    "binary": _PLAIN % b"application/octet-stream" + bytes(range(256)) * 20,
    "silent": b"",
    "nohttp": b"220 mail.test ESMTP ready\r\n",
    "unpriced": _STREAM + _CHUNK % b"null" + _CHUNK % b'"stop"' + b"data: [DONE]\n\n",
    "unended": _STREAM + _CHUNK % b"null",
    "excused": _STREAM + b'data: {"error":{"message":"the model is being loaded","code":503}}\n\n',
    "wrongform": _STREAM + b'data: {"choices":[{"delta":{"tool_calls":[7]}}]}\n\n' + b"data: [DONE]\n\n",
}


@asynccontextmanager
async def bad_endpoints() -> AsyncIterator[dict[str, str]]:
    """Serve them, and give environment variables: a model ``NAME:m`` is asked at the endpoint of that name."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            contextlib.closing(writer),
            contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError),
        ):
            request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next(
                int(line.split(":")[1]) for line in request.splitlines() if line.lower().startswith("content-length")
            )
            await reader.readexactly(length)
            writer.write(ANSWERS[request.split("/")[1]])
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield {f"{name.upper()}_BASE_URL": f"http://127.0.0.1:{port}/{name}/v1" for name in ANSWERS}


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port where nobody listens, kept from others: bound, and never listened on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
