"""What real providers send that the protocol does not foresee: a socket that says exactly these bytes."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest

from activities.chat.client import ChatEndpoint, chat_body
from activities.chat.reply import ModelReply, ToolCall
from activities.chat.stream import Timeouts
from loom_dsl.errors import (
    ContextLengthExceeded,
    LoomError,
    ModelAccessRefused,
    ModelProtocolError,
    ModelRateLimit,
    ModelRequestRefused,
    ModelUnavailable,
)
from tests.support.waiting import PATIENCE

BODY = chat_body([b'{"role":"user","content":"hi"}'], model="m-1", tools_json=None, parameters={})
DONE = b"data: [DONE]\n\n"
STREAM = "200 OK\r\ncontent-type: text/event-stream"
DOCUMENT = "200 OK\r\ncontent-type: application/json"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"model": "m", "choices": choices, **fields}).encode() + b"\n\n"


def calls(*pieces: dict[str, Any]) -> list[bytes]:
    return [chunk({"tool_calls": [piece]}) for piece in pieces]


def call(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"name": name, "arguments": arguments}}


async def converse(
    parts: Sequence[bytes],
    head: str = STREAM,
    *,
    keep_open: bool = False,
    idle: float = PATIENCE,
    seen: list[str] | None = None,
) -> ModelReply:
    """Ask a server that answers with these parts, each in a packet of its own."""

    finished = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await say(reader, writer)
        writer.close()
        finished.set()

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {head}\r\nconnection: close\r\n\r\n".encode())
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.002)
        if keep_open:
            await reader.read()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        found = ChatEndpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", None)
        try:
            heard = seen if seen is not None else []
            return await found.stream(BODY, on_text=heard.append, timeouts=Timeouts(idle=idle))
        finally:
            await found.aclose()
            await finished.wait()


WHOLE: list[tuple[str, list[bytes]]] = [
    ("keep-alive comments", [b": PROCESSING\n\n", b":\n", chunk({"content": "ok"}, "stop"), b": x\n\n", DONE]),
    ("event names, ids and retries", [b"event: x\nid: 1\nretry: 3\n" + chunk({"content": "ok"}, "stop"), DONE]),
    ("CRLF cut in the middle", [chunk({"content": "ok"}, "stop").replace(b"\n", b"\r\n")[:-1], b"\n", DONE]),
    ("CR alone", [(chunk({"content": "ok"}, "stop") + DONE).replace(b"\n", b"\r")]),
    ("no space after the colon", [chunk({"content": "ok"}, "stop").replace(b"data: ", b"data:"), b"data:[DONE]\n\n"]),
    ("a byte order mark", [b"\xef\xbb\xbf" + chunk({"content": "ok"}, "stop"), DONE]),
    ("leading blank lines", [b"\n\n", chunk({"content": "ok"}, "stop"), DONE]),
    ("no end mark", [chunk({"content": "ok"}), chunk({}, "stop")]),
    ("no finish reason", [chunk({"content": "ok"}), DONE]),
    ("no empty line at the end", [chunk({"content": "ok"}), b"data: [DONE]"]),
    ("one byte at a time", [bytes([byte]) for byte in chunk({"content": "ok"}, "stop") + DONE]),
    ("an empty event and empty choices", [b"data:\n\n", chunk(), chunk({"content": "ok"}, "stop"), DONE]),
    ("an event over several lines", [b'data: {"choices":[{"delta":\ndata: {"content":"ok"}}]}\n\n', DONE]),
    ("reasoning beside the text", [chunk({"reasoning_content": "hm"}), chunk({"content": "ok"}, "stop"), DONE]),
    ("null fields", [chunk({"content": None, "tool_calls": None}), chunk({"content": "ok"}, "stop"), DONE]),
    ("text in parts", [chunk({"content": [{"type": "text", "text": "o"}, {"text": "k"}]}, "stop"), DONE]),
    ("a refusal", [chunk({"refusal": "ok"}, "stop"), DONE]),
    ("a named error that is null", [chunk({"content": "ok"}, "stop", error=None), DONE]),
]


@pytest.mark.parametrize("parts", [parts for _, parts in WHOLE], ids=[name for name, _ in WHOLE])
async def test_a_dialect_of_the_stream_is_understood(parts: list[bytes]) -> None:
    heard: list[str] = []
    reply = await converse([part for part in parts if part], seen=heard)
    assert reply.text == "".join(heard) == "ok"
    assert (reply.finish_reason, reply.usage, reply.request_id) == ("stop", None, "")


async def test_a_second_choice_is_not_mixed_into_the_first() -> None:
    other = b'data: {"choices":[{"index":1,"delta":{"content":"no"}}]}\n\n'
    assert (await converse([chunk({"content": "o"}), other, chunk({"content": "k"}, "stop"), DONE])).text == "ok"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (
            [call("a", '{"x"', index=0), {"index": 0, "function": {"arguments": ":1}"}}, call("b", "{}", index=1)],
            [("call_0", "a", '{"x":1}'), ("call_1", "b", "{}")],
        ),
        (
            [call("a", "{}", id="i1", index=0), call("b", "{}", id="i2", index=0)],
            [("i1", "a", "{}"), ("i2", "b", "{}")],
        ),
        (
            [call("a", '{"x"', id="i1"), {"function": {"arguments": ":1}"}}, call("b", "{}", id="i2")],
            [("i1", "a", '{"x":1}'), ("i2", "b", "{}")],
        ),
        ([call("a", "{", id="i", index=0), call("a", "}", id="i", index=0)], [("i", "a", "{}")]),
        ([call("re", "", index=0), call("ad", "{}", index=0)], [("call_0", "read", "{}")]),
        ([call("a", {"x": "é"}, index=0)], [("call_0", "a", '{"x": "é"}')]),
        ([call("a", None, index=0), call("", "", index=0)], [("call_0", "a", "")]),
        (
            [call("b", "1", index=1), call("a", "2", index=0), {"index": 1, "function": {"arguments": "1"}}],
            [("call_0", "b", "11"), ("call_1", "a", "2")],
        ),
    ],
)
async def test_tool_calls_are_assembled_from_incomplete_pieces(
    pieces: list[dict[str, Any]], expected: list[tuple[str, str, str]]
) -> None:
    reply = await converse([*calls(*pieces), DONE])
    assert [(found.id, found.name, found.arguments) for found in reply.tool_calls] == expected
    assert [found.index for found in reply.tool_calls] == list(range(len(expected)))
    assert reply.finish_reason == "tool_calls"


async def test_half_a_character_waits_for_its_other_half_and_one_that_stays_alone_is_replaced() -> None:
    heard: list[str] = []
    pieces = [chunk({"content": text}) for text in ("a\ud83d", "\ude42b", "\udc00c\ud800")]
    reply = await converse([*pieces, DONE], seen=heard)
    assert reply.text == "a🙂b�c�"
    for text in heard:
        text.encode()


async def test_one_document_answers_a_request_for_a_stream() -> None:
    message = {"role": "assistant", "content": "ok", "tool_calls": [call("a", "{}", id="i", type="function")]}
    answer = {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    text = json.dumps({**answer, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}, indent=1).encode()
    heard: list[str] = []
    reply = await converse([text[:20], text[20:]], DOCUMENT, seen=heard)
    assert (reply.text, heard) == ("ok", ["ok"])
    assert reply.tool_calls == (ToolCall(id="i", name="a", arguments="{}", index=0),)
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_tokens) == (3, 4, 0)


async def test_a_connection_that_stays_open_after_the_end_mark_does_not_hold_the_answer() -> None:
    # Waiting for more would end in an error.
    assert (await converse([chunk({"content": "ok"}, "stop"), DONE], keep_open=True)).text == "ok"


async def test_a_whole_message_counts_although_the_provider_then_falls_silent() -> None:
    assert (await converse([chunk({"content": "ok"}, "stop")], keep_open=True, idle=2)).text == "ok"


ERROR = {"message": "said", "type": "server_error", "code": None}
FAILURES: list[tuple[list[bytes], str, type[LoomError], str]] = [
    ([], STREAM, ModelUnavailable, "ended its answer before"),
    ([chunk({"content": "o"})], STREAM, ModelUnavailable, "ended its answer before"),
    ([b"hello\n"], STREAM, ModelProtocolError, "no event stream"),
    ([b"<!DOCTYPE html><html>"], "200 OK\r\ncontent-type: text/html", ModelProtocolError, "a web page"),
    ([b"{oops"], DOCUMENT, ModelProtocolError, "broken JSON"),
    ([b"data: 42\n\n"], STREAM, ModelProtocolError, "not an object"),
    ([b"data: " + b"[" * 100_000 + b"\n\n"], STREAM, ModelProtocolError, "broken JSON"),
    ([b'data: {"choices": {}, "x": 1}\n\n', b'data: {"choices": 3}\n\n'], STREAM, ModelProtocolError, "not a list"),
    ([b'data: {"choices": [{"delta": 3}]}\n\n'], STREAM, ModelProtocolError, "not an object"),
    ([b'data: {"choices": [{"delta": {"tool_calls": [3]}}]}\n\n'], STREAM, ModelProtocolError, "not an object"),
    ([chunk(error=ERROR)], STREAM, ModelUnavailable, "said"),
    ([chunk(error="overloaded")], STREAM, ModelUnavailable, "overloaded"),
    ([chunk(error={**ERROR, "code": "rate_limit_exceeded"})], STREAM, ModelRateLimit, "said"),
    ([chunk(error={**ERROR, "code": 429})], STREAM, ModelRateLimit, "said"),
    ([chunk(error={**ERROR, "code": "insufficient_quota"})], STREAM, ModelAccessRefused, "billing"),
    ([chunk(error={**ERROR, "type": "invalid_request_error"})], STREAM, ModelRequestRefused, "said"),
    ([chunk(error={**ERROR, "code": "context_length_exceeded"})], STREAM, ContextLengthExceeded, "too long"),
    ([b'{"object":"error","message":"said","code":400}'], DOCUMENT, ModelRequestRefused, "said"),
    ([b'[{"error":{"code":429,"message":"said"}}]'], DOCUMENT, ModelRateLimit, "said"),
    ([b""], "301 Moved\r\nlocation: https://other.example/v1", ModelAccessRefused, "redirects to https://other"),
    ([b"Bad Gateway"], "502 Bad Gateway\r\ncontent-type: text/plain", ModelUnavailable, "Bad Gateway"),
    ([b"short"], "200 OK\r\ncontent-length: 100", ModelUnavailable, "closed the connection"),
]


@pytest.mark.parametrize(("parts", "head", "kind", "told"), FAILURES)
async def test_an_answer_that_cannot_be_used_has_its_class(
    parts: list[bytes], head: str, kind: type[LoomError], told: str
) -> None:
    with pytest.raises(kind) as caught:
        await converse(parts, head)
    assert type(caught.value) is kind
    assert told in caught.value.message


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "the request exceeds the available context size. try increasing the context size",
        "Please reduce the length of the messages or completion.",
        "Input is too long for requested model.",
    ],
)
async def test_a_context_overflow_is_known_by_the_words_of_several_providers(message: str) -> None:
    head = "400 Bad Request\r\ncontent-type: application/json"
    with pytest.raises(ContextLengthExceeded):
        await converse([json.dumps({"error": {"message": message}}).encode()], head)


async def test_a_stream_without_line_ends_is_stopped_at_the_limit() -> None:
    finished = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {STREAM}\r\n\r\ndata: ".encode())
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"x" * 65536)
                await writer.drain()
        writer.transport.abort()
        finished.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = ChatEndpoint(f"http://127.0.0.1:{port}/v1", None, message_limit=1 << 20)
        with pytest.raises(ModelProtocolError, match="beyond bounds"):
            await found.stream(BODY, on_text=lambda text: None)
        await found.aclose()
        await finished.wait()
