"""Reading the body of an answer: its events, whatever a provider makes of the protocol.

What came is told apart by its first byte, because providers mislabel it: a server-sent event stream,
one JSON document although a stream was asked for, or a web page from something that is no model.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic_core

from activities.chat.errors import Provider
from loom_dsl.errors import ConfigurationError, ModelProtocolError, ModelUnavailable
from loom_dsl.fields import parse_duration
from loom_dsl.text.canonical import read_json

# How long a model call may wait, and for what.


T = TypeVar("T")
_TAIL = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a call may wait, in seconds.

    Attributes:
        connect: For a connection.
        first_byte: For the first byte of the answer's body, connecting included.
        idle: Between two reads after that; keep-alive comments count as reads.
        total: For the whole call. Time spent in the caller's callback counts, but is not interrupted.
    """

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 120.0
    total: float = 1500.0

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Timeouts":
        """Read them from LOOM_MODEL_CONNECT, _FIRST_BYTE, _IDLE and _TOTAL, such as ``90s`` or ``5m``.

        The defaults are made for models that think for minutes before they say a word.

        Raises:
            ConfigurationError: One of them is not a time.
        """
        given: dict[str, float] = {}
        for field in dataclasses.fields(cls):
            name = f"LOOM_MODEL_{field.name.upper()}"
            if text := env.get(name, "").strip():
                try:
                    given[field.name] = parse_duration(text)
                except ValueError as error:
                    raise ConfigurationError(f"{name}: {error}") from None
                if given[field.name] <= 0:
                    raise ConfigurationError(f"{name}: {text} is no time at all; write it as 90s or 5m")
        return cls(**given)


class Clock:
    """Bounds each wait of one call. The library's own read timeout knows no first byte and no total."""

    def __init__(self, host: str, timeouts: Timeouts) -> None:
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._timeouts = timeouts
        self._idle = timeouts.idle
        self._start = self._loop.time()
        self.answering = False
        """Whether a byte of the answer was read."""

    async def wait(self, pending: Awaitable[T]) -> T:
        """Wait for the provider.

        Raises:
            ModelUnavailable: It takes too long.
        """
        first = self._start + self._timeouts.first_byte
        phase = self._loop.time() + self._idle if self.answering else first
        end = self._start + self._timeouts.total
        try:
            async with asyncio.timeout_at(min(phase, end)):
                return await pending
        except TimeoutError:
            raise ModelUnavailable(self._told(out_of_time=end <= phase)) from None

    def hurry(self) -> None:
        """Wait only shortly from now on: the message is whole, and only its usage may still come."""
        self._idle = min(self._idle, _TAIL)

    def _told(self, *, out_of_time: bool) -> str:
        limits = self._timeouts
        if out_of_time:
            return f"{self._host} did not finish its answer within {limits.total:g} s. LOOM_MODEL_TOTAL allows more."
        if self.answering:
            silent = f"{self._host} fell silent for {limits.idle:g} s in the middle of its answer"
            return f"{silent}. LOOM_MODEL_IDLE allows more."
        late = f"{self._host} did not begin to answer within {limits.first_byte:g} s"
        return f"{late}. Is the model loaded? LOOM_MODEL_FIRST_BYTE allows more."


# Reading server-sent events from bytes, as they come from the network.
#
# The SDK's own decoder is an async generator over its own types inside its stream class. This one is fed,
# so that it has neither I/O nor time in it, and it refuses a line without end.


class EventReader:
    """Cuts a byte stream into the data of its events.

    Args:
        limit: The longest line and the longest event, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._first = True
        self._failed = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take bytes, and yield the data of each event that they complete.

        Raises:
            ValueError: A line or an event is longer than the limit.
        """
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return
        self._after_cr = chunk[-1:] == b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *rest = chunk.split(b"\n")
        self._hold(first)
        for part in rest:
            line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
            self._line, self._line_size = [], 0
            yield from self._take(line)
            self._hold(part)

    def finish(self) -> Iterator[bytes]:
        """Yield the data of a last event that no empty line follows."""
        line, self._line = b"".join(self._line), []
        yield from self._take(line)
        yield from self._take(b"")

    def _hold(self, part: bytes) -> None:
        if part:
            self._line.append(part)
            self._line_size += len(part)
            self._check(self._line_size)

    def _take(self, line: bytes) -> Iterator[bytes]:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data, self._data_size = [], 0
                yield _as_error(data) if self._failed else data
            self._failed = False
            return
        if line.startswith((b"event: error", b"event:error")):
            self._failed = True
        elif line.startswith(b"{") and not self._data:
            # An error is often put between the events as it is.
            yield line
        # All other fields (id, retry) and comments, which keep connections alive, say nothing here.
        elif line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._data_size += len(value)
            self._check(self._data_size)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise ValueError(f"an event is over {self._limit} bytes")


def _as_error(data: bytes) -> bytes:
    """Write what an event named `error` says as the error that it is."""
    try:
        said = json.loads(data)
    except ValueError:
        said = data.decode("utf-8", "replace").strip()
    if isinstance(said, dict) and (said.get("error") or not said):
        return data if said else b'{"error":"no reason given"}'
    return json.dumps({"error": said}).encode()


_BLANK = b"\xef\xbb\xbf \t\r\n"
_DRAIN = 0.25


class AnswerStream:
    """The JSON objects in one response's body.

    Args:
        body: Its bytes, as they come.
        clock: Bounds each read.
        provider: Who answers.
        limit: The longest event or document, in bytes.
    """

    def __init__(self, body: AsyncIterator[bytes], clock: Clock, provider: Provider, limit: int) -> None:
        self.ended = False
        """Whether the end mark was read."""
        self.first = "nothing"
        """What came first, for a message to a person."""
        self._chunks = body
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
            return self._whole(b"".join(self._document).removeprefix(b"\xef\xbb\xbf"))
        batch = self._objects(self._reader.finish(), broken_off=not self.ended)
        if self._known and not (self._seen or self.ended):
            raise ModelProtocolError(f"{self._provider.url} answered with something that is no event stream.")
        return batch

    def _whole(self, document: bytes) -> list[dict[str, Any]]:
        """Read a body that is no event stream: one document, a list of them, or one on each line."""
        self.first = self._provider.masked(document[:200].decode("utf-8", "replace"))
        lines = [] if b"\n" not in document.strip() else _lines(document)
        if lines is None or not lines:
            found = _json_list(document, self._provider)
        else:
            self.ended = any(line.startswith(b"[DONE]") for line in lines)
            found = [_json(line, self._provider) for line in lines if not line.startswith(b"[DONE]")]
        if len(found) == 1 and not any("delta" in choice for choice in _choices(found[0])):
            self.ended = True
        return found

    def _objects(self, payloads: Iterator[bytes], *, broken_off: bool = False) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with _bounded(self._provider):
            for payload in payloads:
                text = payload.strip()
                if text.strip(b'"')[:6].upper() == b"[DONE]":
                    self.ended = True
                    break
                if text:
                    if not self._seen and not found:
                        self.first = self._provider.masked(text[:200].decode("utf-8", "replace"))
                    found += _event(text, self._provider, broken_off=broken_off)
        self._seen = self._seen or bool(found)
        return found

    async def _drain(self) -> None:
        """Read to the end of the body, so that the connection can serve the next call; not for long."""
        with contextlib.suppress(TimeoutError, ModelUnavailable):
            async with asyncio.timeout(_DRAIN):
                while await self._read() is not None:
                    pass


def _lines(document: bytes) -> list[bytes] | None:
    """The lines of a body with one object on each; None where it is another document."""
    lines = [line.strip().removeprefix(b"data:").strip() for line in document.splitlines()]
    lines = [line for line in lines if line and not line.startswith((b":", b"event:", b"id:", b"retry:"))]
    starts = all(line[:1] == b"{" or line.startswith(b"[DONE]") for line in lines)
    return lines if starts and lines and lines[0][-1:] == b"}" else None


def _choices(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = found.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _event(text: bytes, provider: Provider, *, broken_off: bool) -> list[dict[str, Any]]:
    try:
        return [_json(text, provider)]
    except ModelProtocolError:
        if not broken_off:
            raise
        raise ModelUnavailable(f"{provider.host} broke its answer off in the middle of an event.") from None


@contextlib.contextmanager
def _bounded(provider: Provider) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ModelProtocolError(f"{provider.host} answered beyond bounds: {error}.") from None


def _json(text: bytes, provider: Provider) -> dict[str, Any]:
    return _json_list(text, provider)[0]


def _json_list(text: bytes, provider: Provider) -> list[dict[str, Any]]:
    try:
        try:
            # Faster than json, but it refuses the lone surrogates that json takes.
            value = pydantic_core.from_json(text)
        except ValueError:
            value = read_json(text)
    except ValueError:
        shown = provider.masked(text[:200].decode("utf-8", "replace"))
        raise ModelProtocolError(f"{provider.host} answered with broken JSON: {shown}") from None
    values = value if isinstance(value, list) and value else [value]
    if not all(isinstance(each, dict) for each in values):
        raise ModelProtocolError(f"{provider.host} answered with JSON that is not an object.")
    return values
