"""The scripted model as an ASGI application.

It is plain ASGI, without a router: a benchmark's time at 0 ms would otherwise be the fake's own.
"""

import asyncio
import hashlib
import hmac
import json
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from loom_cli.dev.fake_model.request import ApiError, ChatRequest, check_fields, read_request
from loom_cli.dev.fake_model.wire import ScriptedReply, broken_events, compose, document, events
from loom_dsl.simulation.script import Script, ScriptedFailure, ScriptedStep

# One request and its answer.


class Exchange:
    """Reads a request and writes its answer.

    An answer that is begun and not ended makes the server close the connection: that is how a script's
    `close_after` and `hang` end.

    Attributes:
        request: The request.
        status: The status that was sent; 0 before that.
        headers: Headers for the answer, beside its type and length.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.request = Request(scope, receive)
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._receive, self._send = receive, send

    async def pause(self, seconds: float | None) -> None:
        """Wait, for ever without a time; raise `ClientDisconnect` as soon as the client leaves."""
        try:
            async with asyncio.timeout(seconds):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return
        raise ClientDisconnect

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


_KEPT_REQUESTS = 1000
_KEPT_BYTES = 64 * 1024 * 1024
_KEPT_COUNTERS = 10_000
_FAILURES: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", None, "You are not allowed to sample from this model"),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached. Please try again later."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """A chat request that was received.

    Attributes:
        number: Its place among all chat requests, from 1.
        status: The HTTP status of the answer; 0 when there was none.
        model: The model's name, empty when the request could not be read.
        step: The number of assistant messages in it.
        messages: The number of messages in it.
        stream: Whether it asked for a stream.
        headers: Its headers, in lower case, without the credential.
        body: Its body.
    """

    number: int
    status: int
    model: str
    step: int
    messages: int
    stream: bool
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class FakeModel:
    """A scripted model: an ASGI application that speaks the OpenAI API.

    Args:
        script: What it says.
        api_key: The only key that is accepted; without one, any is, and none is needed.
    """

    def __init__(self, script: Script, *, api_key: str | None = None) -> None:
        self.script = script
        self.count = 0
        """Chat requests received so far."""
        self.statuses: Counter[int] = Counter()
        """Answers by HTTP status; 0 for connections that were closed without an answer."""
        self.requests: deque[RecordedRequest] = deque()
        """The latest requests: at most 1,000, and at most 64 MiB of bodies."""
        self._kept_bytes = 0
        self._api_key = api_key
        self._disturbances: OrderedDict[tuple[str, ...], int] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        path = scope["path"].removeprefix("/v1")
        try:
            if path == "/_loom/requests":
                await exchange.document(200, self._report())
            elif (scope["method"], path) == ("POST", "/chat/completions"):
                await self._chat(exchange)
            elif (scope["method"], path) == ("GET", "/models"):
                self._check_key(exchange)
                await exchange.document(200, self._models())
            else:
                raise ApiError(f"Unknown request URL: {scope['method']} {scope['path']}.", status=404)
        except ApiError as error:
            await exchange.document(error.status, _dump({"error": error.error}))
        except ClientDisconnect:
            return

    async def _chat(self, exchange: Exchange) -> None:
        self.count += 1
        number = self.count
        body = await exchange.request.body()
        request: ChatRequest | None = None
        exchange.headers.append((b"x-request-id", b"req_%d" % number))
        try:
            self._check_key(exchange)
            request = read_request(body)
            await self._answer(exchange, request, body, number)
        except ApiError as error:
            await exchange.document(error.status, _dump({"error": error.error}))
        finally:
            self._record(exchange, request, body, number)

    async def _answer(self, exchange: Exchange, request: ChatRequest, body: bytes, number: int) -> None:
        tokens = -(-len(body) // 4)
        if self.script.window is not None and tokens > self.script.window:
            raise ApiError(
                f"This model's maximum context length is {self.script.window} tokens. However, your messages resulted "
                f"in {tokens} tokens. Please reduce the length of the messages.",
                param="messages",
                code="context_length_exceeded",
            )
        check_fields(request, self.script)
        step = self.script.step(request.step, model=request.model, opening=request.opening)
        if step.before:
            await exchange.pause(step.before)
        if step.fail and self._still(step, step.fail.times, exchange, request):
            await _fail(exchange, step.fail)
            return
        disturbed = step.disturbed and self._still(step, step.times, exchange, request)
        if disturbed and step.hang:
            await exchange.pause(None if step.hang is True else step.hang)
            await exchange.start_stream()
            return
        answer = compose(step, request, id=f"chatcmpl-loom{number}", created=int(time.time()), prompt_size=len(body))
        if request.stream:
            await _stream(exchange, step, answer, request.include_usage, disturbed)
        else:
            await _whole(exchange, step, answer, disturbed)

    def _still(self, step: ScriptedStep, times: int | None, exchange: Exchange, request: ChatRequest) -> bool:
        """Whether a disturbance that is meant for a number of requests has some left."""
        if times is None:
            return True
        opening = hashlib.blake2b(request.first_user.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        key = (exchange.request.headers.get("x-loom-run", ""), request.model, opening, str(id(step)), str(request.step))
        seen = self._disturbances.pop(key, 0) + 1
        self._disturbances[key] = seen
        if len(self._disturbances) > _KEPT_COUNTERS:
            self._disturbances.popitem(last=False)
        return seen <= times

    def _check_key(self, exchange: Exchange) -> None:
        if self._api_key is None:
            return
        expected, given = f"Bearer {self._api_key}", exchange.request.headers.get("authorization", "")
        if not hmac.compare_digest(expected.encode(), given.encode()):
            raise ApiError("Incorrect API key provided.", status=401, code="invalid_api_key")

    def _record(self, exchange: Exchange, request: ChatRequest | None, body: bytes, number: int) -> None:
        self.statuses[exchange.status] += 1
        headers = dict(exchange.request.headers)
        headers.pop("authorization", None)
        self.requests.append(
            RecordedRequest(
                number=number,
                status=exchange.status,
                model=request.model if request else "",
                step=request.step if request else 0,
                messages=request.messages if request else 0,
                stream=bool(request and request.stream),
                headers=headers,
                body=body,
            )
        )
        self._kept_bytes += len(body)
        while len(self.requests) > _KEPT_REQUESTS or (self._kept_bytes > _KEPT_BYTES and len(self.requests) > 1):
            self._kept_bytes -= len(self.requests.popleft().body)

    def _report(self) -> bytes:
        rows = [{**asdict(kept), "body": kept.body.decode("utf-8", "replace")} for kept in self.requests]
        return _dump({"count": self.count, "statuses": dict(sorted(self.statuses.items())), "requests": rows})

    def _models(self) -> bytes:
        names = [self.script.name, *(case.when.model for case in self.script.cases if case.when.model)]
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "loom"} for name in dict.fromkeys(names)]
        return _dump({"object": "list", "data": rows})


async def _fail(exchange: Exchange, failure: ScriptedFailure) -> None:
    kind, code, message = _FAILURES.get(
        failure.status, ("server_error", None, "The server had an error while processing your request.")
    )
    for name, value in failure.headers.items():
        exchange.headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    if failure.retry_after is not None:
        # As the API does: whole seconds, rounded up, and the exact time beside them.
        exchange.headers.append((b"retry-after", b"%d" % -(-failure.retry_after // 1)))
        exchange.headers.append((b"retry-after-ms", b"%d" % (failure.retry_after * 1000)))
    error = {"message": failure.message or message, "type": kind, "param": None, "code": failure.code or code}
    await exchange.document(failure.status, _dump({"error": error}))


async def _stream(
    exchange: Exchange, step: ScriptedStep, answer: ScriptedReply, include_usage: bool, disturbed: bool
) -> None:
    malformed = disturbed and step.malformed
    source = broken_events(answer) if malformed else events(answer, include_usage=include_usage)
    close_after = step.close_after if disturbed else None
    if close_after is not None:
        source = islice(source, close_after)
    async for part in _paced(exchange, source, step.delay):
        await exchange.send_part(part)
    if close_after is None:
        await exchange.end()
    else:
        await exchange.start_stream()


async def _paced(exchange: Exchange, source: Iterable[bytes], delay: float) -> AsyncIterator[bytes]:
    """Yield the events one by one with their delay, or in large pieces when there is none."""
    if delay:
        for index, event in enumerate(source):
            if index:
                await exchange.pause(delay)
            yield event
        return
    held, size = [], 0
    for event in source:
        held.append(event)
        size += len(event)
        if size >= 65536:
            yield b"".join(held)
            held, size = [], 0
            await asyncio.sleep(0)
    if held:
        yield b"".join(held)


async def _whole(exchange: Exchange, step: ScriptedStep, answer: ScriptedReply, disturbed: bool) -> None:
    body = document(answer)
    if disturbed and step.close_after is not None:
        await exchange.document(200, body, sent=len(body) // 2)
    elif disturbed and step.malformed:
        await exchange.document(200, body[: len(body) // 2])
    else:
        await exchange.document(200, body)


def _dump(value: Any) -> bytes:
    return json.dumps(value).encode()
