"""One request and its answer, on top of ASGI's messages."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientGone(Exception):
    """The client closed its connection."""


class Exchange:
    """Reads a request and writes its answer.

    An answer that is begun and not ended makes the server close the connection: that is how a script's
    `close_after` and `hang` end.
    """

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.status = 0
        """The status that was sent; 0 before that."""
        self.headers: list[tuple[bytes, bytes]] = []
        """Headers for the answer, beside its type and length."""
        self._receive = receive
        self._send = send

    def header(self, name: str) -> str:
        """Return a request header by its lower-case name, or an empty text."""
        wanted = name.encode("latin-1")
        return next((value.decode("latin-1") for key, value in self.scope["headers"] if key == wanted), "")

    async def body(self) -> bytes:
        """Read the request's body."""
        parts = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)

    async def pause(self, seconds: float | None) -> None:
        """Wait, for ever without a time; raise `ClientGone` as soon as the client leaves."""
        try:
            async with asyncio.timeout(seconds):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return
        raise ClientGone

    async def document(self, status: int, body: bytes, *, sent: int | None = None) -> None:
        """Answer with a JSON document, or only with its first `sent` bytes."""
        length = (b"content-length", b"%d" % len(body))
        await self._start(status, [(b"content-type", b"application/json"), length])
        await self._send({"type": "http.response.body", "body": body[:sent], "more_body": sent is not None})

    async def start_stream(self) -> None:
        """Begin a stream of server-sent events, if it has not begun."""
        if not self.status:
            kind = (b"content-type", b"text/event-stream; charset=utf-8")
            await self._start(200, [kind, (b"cache-control", b"no-cache")])

    async def send_part(self, part: bytes) -> None:
        """Send some of the stream."""
        await self.start_stream()
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        """End the stream."""
        await self.start_stream()
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers + self.headers})
