"""Asking a model behind an OpenAI-compatible endpoint, always streaming.

Uses the SDK below its typed surface. `client.chat.completions.create` transforms and validates what
the store already holds as JSON: 41 ms of CPU for a call at 200 messages. `client.post` with `content=`
and the HTTP library's response as `cast_to`, the SDK's documented way to undocumented requests, sends
prepared bytes and hands back the open response in 1.1 ms (the bare HTTP library: 0.8 ms), and keeps
the SDK's credentials, headers and error classes. The stream is read by `activities.chat.stream`.

Nothing here knows of the store or of Temporal. A failed call raises one of `loom_dsl.errors.ModelError`;
it is never repeated here, because the engine repeats it.
"""

import contextlib
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import httpx2
import openai

from activities.chat.errors import Provider, chunk_error, ended_badly, error_in, status_error
from activities.chat.provider import address, is_local
from activities.chat.reply import ModelReply, ReplyBuilder
from activities.chat.stream import AnswerStream, Clock, Timeouts
from activities.connections import causes_of
from loom_dsl.agent import finish
from loom_dsl.errors import ConfigurationError, ModelProtocolError, ModelUnavailable

# The body of a chat request, joined from JSON that exists already.
#
# The store holds each message as JSON. Parsing it, handing it to a typed client that checks and copies
# it, and writing it again costs 40 ms at 200 messages; joining bytes costs well under one.


_OWN = frozenset({"model", "messages", "stream", "stream_options", "tools", "n"})
_NEEDS_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
_MODEL = re.compile(rb'\{"model":("(?:[^"\\]|\\.)*")')


def chat_body(
    messages_json: Iterable[bytes | str],
    *,
    model: str,
    tools_json: str | None,
    parameters: Mapping[str, Any],
    stream_options: bool = True,
) -> bytes:
    """Write the body of a streamed chat request.

    What stays the same from turn to turn comes first, and the parameters in a fixed order, so that a
    provider's prompt cache can hold.

    Args:
        messages_json: Each message, serialised.
        model: The model's name at the provider.
        tools_json: The JSON list of the tools' specifications; None or ``[]`` for none.
        parameters: What else the request holds, such as ``temperature``. `tool_choice` and
            `parallel_tool_calls` are left out when there are no tools, as the API refuses them then.
        stream_options: Whether the usage is asked for by the field of this name, which some providers refuse.

    Raises:
        ConfigurationError: A parameter is Loom's own to set, or is not JSON.
    """
    taken = sorted(_OWN & parameters.keys())
    if taken:
        raise ConfigurationError(f"The model parameter `{taken[0]}` is set by Loom. Remove it from `parameters:`.")
    tools = tools_json if tools_json and tools_json.strip() != "[]" else None
    fields = {name: parameters[name] for name in sorted(parameters) if tools or name not in _NEEDS_TOOLS}
    usage = {"stream_options": {"include_usage": True}} if stream_options else {}
    head = {"model": model, "stream": True, **usage, **fields}
    try:
        start = json.dumps(head, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The model parameters cannot be written as JSON: {error}.") from error
    parts = [_bytes(start)[:-1]]
    if tools:
        parts += [b',"tools":', _bytes(tools)]
    parts += [b',"messages":[', b",".join(map(_bytes, messages_json)), b"]}"]
    return b"".join(parts)


def model_of(body: bytes) -> str:
    """Return the model that a body of `chat_body` asks for; empty for another body."""
    found = _MODEL.match(body)
    return str(json.loads(found[1])) if found else ""


def tools_of(body: bytes) -> set[str]:
    """Return the names of the tools that a body of `chat_body` offers."""
    offered = json.loads(body).get("tools") or []
    return {str(tool["function"]["name"]) for tool in offered if isinstance(tool.get("function"), dict)}


def _bytes(text: bytes | str) -> bytes:
    # A lone surrogate has no UTF-8: providers refuse the whole conversation for it.
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")


MESSAGE_LIMIT = 16 * 1024 * 1024
"""Characters of text and arguments that one answer may have."""

OnText = Callable[[str], Awaitable[None] | None]
_DEFAULT = Timeouts()


class ChatEndpoint:
    """One provider's chat completions, over shared connections. It belongs to one event loop.

    Args:
        base_url: The API's base address, such as ``https://api.openai.com/v1``.
        api_key: The credential, None or empty when none is needed.
        key_name: The environment variable to name when the credential is refused.
        url_name: The environment variable to name when the address is wrong.
        message_limit: The most characters of text and arguments in one answer.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        key_name: str = "OPENAI_API_KEY",
        url_name: str = "OPENAI_BASE_URL",
        message_limit: int = MESSAGE_LIMIT,
    ) -> None:
        url = httpx2.URL(base_url)
        self.base_url = base_url.rstrip("/")
        self.provider = Provider(
            host=url.netloc.decode("ascii"),
            url=f"{self.base_url}/chat/completions",
            api_key=api_key or "",
            key_name=key_name,
            url_name=url_name,
        )
        self._limit = message_limit
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            max_retries=0,
            # A proxy from the environment cannot reach this machine's own addresses.
            http_client=openai.DefaultAsyncHttpxClient(trust_env=not is_local(base_url)),
        )
        if not (url.host == "openai.com" or url.host.endswith(".openai.com")):
            # The SDK takes them from the environment; they are nobody else's business.
            self._client.organization = self._client.project = None

    async def stream(
        self,
        body: bytes,
        *,
        on_text: OnText,
        timeouts: Timeouts = _DEFAULT,
        headers: Mapping[str, str] | None = None,
        thinks: bool | None = None,
    ) -> ModelReply:
        """Ask the model, and return its answer when it is complete.

        Args:
            body: The request, as `chat_body` writes it.
            on_text: Called with the text of each read, in order. What it raises ends the call.
            timeouts: How long to wait.
            headers: More headers for this request.
            thinks: Whether the model writes its reasoning into its text; None: as its name says.

        Raises:
            ModelRateLimit: The provider asks to slow down.
            ModelUnavailable: It cannot be reached, fails, is silent or breaks off; trying again may help.
            ModelProtocolError: Its answer cannot be understood, or is over the limit.
            ContextLengthExceeded: The conversation is too long for the model.
            ModelRequestRefused: The request or the credential is wrong, or the quota used up.
        """
        clock = Clock(self.provider.host, timeouts)
        response = await self._open(body, clock, timeouts, headers or {})
        builder = ReplyBuilder(self._limit, model=model_of(body), tools=partial(tools_of, body), thinks=thinks)
        answer = AnswerStream(_read(response, self.provider), clock, self.provider, 2 * self._limit + 65536)
        try:
            while (batch := await self._next(answer, builder)) is not None:
                text = "".join(self._add(builder, chunk, body) for chunk in batch)
                builder.done = answer.ended
                if builder.complete:
                    clock.hurry()
                await _tell(on_text, text)
            await _tell(on_text, builder.close())
        finally:
            # Also when cancelled: the connection closes at once, and the provider stops generating.
            await response.aclose()
        self._check(builder, answer)
        with self._understood():
            return builder.reply(response.headers.get("x-request-id", ""))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _open(self, body: bytes, clock: Clock, timeouts: Timeouts, headers: Mapping[str, str]) -> httpx2.Response:
        options: Any = {
            "headers": {"Accept": "text/event-stream", **headers},
            "timeout": httpx2.Timeout(None, connect=timeouts.connect, pool=timeouts.connect),
            "follow_redirects": False,
        }
        with _transport_errors(self.provider):
            try:
                # The SDK types every stream as its own stream class; with this `cast_to` it is the response.
                opened = cast(
                    Awaitable[httpx2.Response],
                    self._client.post(
                        "/chat/completions",
                        cast_to=httpx2.Response,
                        content=body,
                        options=options,
                        stream=True,
                        stream_cls=openai.AsyncStream[object],
                    ),
                )
                return await clock.wait(opened)
            except openai.APIStatusError as error:
                found, model = error.response, model_of(body)
                raise status_error(self.provider, found.status_code, found.text, found.headers, model=model) from None

    async def _next(self, answer: AnswerStream, builder: ReplyBuilder) -> list[dict[str, Any]] | None:
        try:
            return await answer.next()
        except (ModelUnavailable, ModelProtocolError):
            # Some providers tell the finish reason, and then neither an end mark nor close properly.
            if builder.complete:
                return None
            raise

    def _add(self, builder: ReplyBuilder, chunk: Mapping[str, Any], body: bytes) -> str:
        with self._understood():
            if (error := error_in(chunk)) is not None:
                raise chunk_error(self.provider, error, model=model_of(body))
            return builder.add(chunk)

    def _check(self, builder: ReplyBuilder, answer: AnswerStream) -> None:
        """Refuse what has the form of an answer and is none: nobody said a word, or it was given up."""
        host = self.provider.host
        if builder.finish == finish.FAILED:
            raise ended_badly(self.provider, builder.end_word)
        if not builder.complete:
            raise ModelUnavailable(f"{host} ended its answer before it was complete.")
        if not builder.seen:
            raise ModelProtocolError(f"{self.provider.url} answered 200 without an answer in it: {answer.first}")
        if builder.empty:
            raise ModelProtocolError(f"{host} ended an empty answer without saying why it ended.")

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except ValueError as problem:
            raise ModelProtocolError(f"The answer of {self.provider.host} cannot be used: {problem}.") from None
        except RecursionError:
            raise ModelProtocolError(f"The answer of {self.provider.host} is nested too deeply.") from None


def endpoint_from_environment(model: str, env: Mapping[str, str]) -> tuple[ChatEndpoint, str]:
    """Make the endpoint that a model's name means, and return it with the model's name there.

    Making one loads certificates; keep it for all calls of a worker.

    Args:
        model: ``provider:model``, or a model's name alone for OpenAI.
        env: The environment variables.

    Raises:
        ConfigurationError: The provider is not known, its address is not one, or its key is missing.
    """
    found = address(model, env)
    endpoint = ChatEndpoint(found.base_url, found.api_key, key_name=found.key_name, url_name=found.url_name)
    return endpoint, found.model


async def _tell(on_text: OnText, text: str) -> None:
    if text and (pending := on_text(text)) is not None:
        await pending


async def _read(response: httpx2.Response, provider: Provider) -> AsyncIterator[bytes]:
    with _transport_errors(provider):
        async for chunk in response.aiter_bytes():
            yield chunk


@contextlib.contextmanager
def _transport_errors(provider: Provider) -> Iterator[None]:
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
