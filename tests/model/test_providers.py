"""Answers as the providers write them: each shape through the real adapter, whole, re-cut and broken off.

The shapes are written after the providers' documentation and public reports, shortened; no recording is copied. One
server answers for the whole module: the request says which body it wants.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from activities.chat.calls import CallAssembler
from activities.chat.client import ChatEndpoint, chat_body
from activities.chat.errors import Provider, chunk_error, status_error
from activities.chat.reply import ModelReply, Usage
from activities.chat.stream import Timeouts
from activities.chat.thinking import thinks_in_text
from activities.model.call import warning_of
from loom_dsl.agent.finish import ended, is_cut
from loom_dsl.errors import (
    ContextLengthExceeded,
    LoomError,
    ModelAccessRefused,
    ModelError,
    ModelProtocolError,
    ModelRateLimit,
    ModelRequestRefused,
    ModelUnavailable,
)
from tests.support.waiting import PATIENCE

TOOLS = json.dumps([{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("a", "b", "read")])
SEED = 20_261_124


def body_for(model: str) -> bytes:
    return chat_body([b'{"role":"user","content":"hi"}'], model=model, tools_json=TOOLS, parameters={})


class Server:
    """Says exactly these bytes, in these packets, and closes the connection."""

    def __init__(self) -> None:
        self.parts: Sequence[bytes] = ()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ChatEndpoint]:
        async with await asyncio.start_server(self._answer, "127.0.0.1", 0) as server:
            endpoint = ChatEndpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", None)
            try:
                yield endpoint
            finally:
                await endpoint.aclose()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for part in self.parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()


@dataclass(frozen=True)
class Wire:
    """A server and the adapter that asks it."""

    server: Server
    endpoint: ChatEndpoint

    async def ask(self, raw: bytes | Sequence[bytes], *, model: str = "m", seen: list[str] | None = None) -> ModelReply:
        self.server.parts = [raw] if isinstance(raw, bytes) else raw
        heard = seen if seen is not None else []
        return await self.endpoint.stream(body_for(model), on_text=heard.append, timeouts=Timeouts(idle=PATIENCE))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire() -> AsyncIterator[Wire]:
    server = Server()
    async with server.running() as endpoint:
        yield Wire(server, endpoint)


def sse(*chunks: dict[str, Any] | str, done: bool = True) -> bytes:
    lines = [chunk if isinstance(chunk, str) else "data: " + json.dumps(chunk) for chunk in chunks]
    return "".join(f"{line}\n\n" for line in [*lines, *(["data: [DONE]"] if done else [])]).encode()


def piece(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **fields}


def call(index: int | None, name: str | None, arguments: Any, id: str | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"function": {"arguments": arguments}, **more}
    if name is not None:
        found["function"]["name"] = name
    if index is not None:
        found["index"] = index
    return found | ({"id": id, "type": "function"} if id is not None else {})


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return piece({"tool_calls": list(pieces)})


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An answer on the wire, and what it means."""

    raw: bytes
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    usage: tuple[int, int, int] | None = None
    reasoning: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    model: str = "m"


CALLED = (("read", '{"path":"a"}'),)
OPENAI_USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
SHAPES: dict[str, Shape] = {
    "openai": Shape(
        raw=sse(
            piece({"role": "assistant", "content": "", "refusal": None}, obfuscation="x1"),
            piece({"content": "Hal"}),
            piece({"content": "lo ä🙂"}),
            piece({}, "stop"),
            {"object": "chat.completion.chunk", "choices": [], "usage": OPENAI_USAGE},
        ),
        text="Hallo ä🙂",
        usage=(20, 9, 16),
    ),
    "openai, a call": Shape(
        raw=sse(
            piece({"role": "assistant", "content": None, "tool_calls": [call(0, "read", "", "c1")]}),
            calls(call(0, None, '{"path"')),
            calls(call(0, None, ':"a"}')),
            piece({}, "tool_calls"),
        ),
        calls=CALLED,
        finish="tool_calls",
    ),
    "azure": Shape(
        raw=sse(
            {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]},
            piece({"content": "ok"}),
            {"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {"check_offset": 1}}]},
            piece({}, "stop"),
        ),
        text="ok",
    ),
    "deepseek": Shape(
        raw=sse(
            ": keep-alive",
            piece({"role": "assistant", "content": None, "reasoning_content": "Let me "}),
            piece({"content": None, "reasoning_content": "see."}),
            piece({"content": "ok", "reasoning_content": None}),
            piece(
                {"content": ""},
                "stop",
                usage={
                    "prompt_tokens": 30,
                    "completion_tokens": 8,
                    "total_tokens": 38,
                    "prompt_cache_hit_tokens": 10,
                    "prompt_cache_miss_tokens": 20,
                },
            ),
        ),
        text="ok",
        usage=(30, 8, 10),
        reasoning="Let me see.",
        extra={"reasoning_content": "Let me see."},
    ),
    "groq": Shape(
        raw=sse(
            piece({"role": "assistant", "content": ""}, x_groq={"id": "req_1"}),
            piece({"reasoning": "hm"}),
            piece({"content": "ok"}),
            piece({}, "stop", x_groq={"id": "req_1", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}),
        ),
        text="ok",
        usage=(5, 2, 0),
        reasoning="hm",
        extra={"reasoning": "hm"},
    ),
    "gemini": Shape(
        raw=sse(
            piece({"role": "assistant", "content": "I look. "}),
            calls(call(0, "read", '{"path":"a"}', "", extra_content={"google": {"thought_signature": "SIG=="}})),
            piece(
                {"role": "assistant"}, "stop", usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 30}
            ),
        ),
        text="I look. ",
        calls=CALLED,
        usage=(7, 23, 0),
    ),
    "xai": Shape(
        raw=sse(
            piece({"role": "assistant", "reasoning_content": "Think"}),
            piece({"content": "ok"}, usage={"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}),
            piece({}, "stop"),
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 4,
                    "completion_tokens": 1,
                    "total_tokens": 105,
                    "completion_tokens_details": {"reasoning_tokens": 100},
                },
            },
        ),
        text="ok",
        usage=(4, 101, 0),
        reasoning="Think",
        extra={"reasoning_content": "Think"},
    ),
    "openrouter": Shape(
        raw=sse(
            ": OPENROUTER PROCESSING",
            piece(
                {
                    "content": "",
                    "reasoning": "a",
                    "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "format": "f-v1"}],
                }
            ),
            ": OPENROUTER PROCESSING",
            piece(
                {
                    "content": "",
                    "reasoning": "b",
                    "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0, "signature": "S"}],
                }
            ),
            piece({"content": "ok"}),
            piece({"content": ""}, "stop", native_finish_reason="end_turn"),
            {"choices": [piece()["choices"][0]], "usage": {**OPENAI_USAGE, "cost": 0.01, "is_byok": False}},
        ),
        text="ok",
        usage=(20, 9, 16),
        reasoning="ab",
        extra={
            "reasoning": "ab",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "ab", "index": 0, "format": "f-v1", "signature": "S"}
            ],
        },
    ),
    "mistral": Shape(
        raw=sse(
            piece({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
            piece({"content": "ok"}),
            piece({"content": "", "tool_calls": [call(0, "read", '{"path":"a"}', "D681PevKs")]}, "tool_calls"),
        ),
        text="ok",
        calls=CALLED,
        finish="tool_calls",
        reasoning="hm",
        extra={"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    ),
    "together": Shape(
        raw=sse(piece({"content": "o", "token_id": 5}), piece({"content": "k"}), piece({"content": ""}, "eos")),
        text="ok",
        extra={"token_id": 5},
    ),
    "fireworks, a call by one index": Shape(
        raw=sse(calls(call(0, "a", "{}", "c1")), calls(call(0, "read", '{"path":"a"}', "c2")), piece({}, "tool_calls")),
        calls=(("a", "{}"), *CALLED),
        finish="tool_calls",
    ),
    "ollama": Shape(
        raw=sse(
            calls(call(0, "read", '{"path":"a"}', "call_x")),
            piece({"role": "assistant", "content": ""}, "tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}},
        ),
        calls=CALLED,
        finish="tool_calls",
        usage=(9, 4, 0),
    ),
    "vllm": Shape(
        raw=sse(
            piece({"role": "assistant", "content": ""}, usage={"prompt_tokens": 6, "completion_tokens": 0}),
            piece({"content": "o"}, usage={"prompt_tokens": 6, "completion_tokens": 1}),
            piece({"content": "k"}, usage={"prompt_tokens": 6, "completion_tokens": 2}),
            piece({"content": ""}, "stop", usage={"prompt_tokens": 6, "completion_tokens": 3}),
            {"choices": [], "usage": {}},
        ),
        text="ok",
        usage=(6, 3, 0),
    ),
    "vllm, reasoning by another name": Shape(
        raw=sse(
            piece({"reasoning": "hm", "reasoning_content": "hm"}),
            piece({"content": "ok"}),
            piece({"content": ""}, "stop"),
        ),
        text="ok",
        reasoning="hm",
        extra={"reasoning": "hm", "reasoning_content": "hm"},
    ),
    "a model that thinks in its text": Shape(
        raw=sse(piece({"content": "<th"}), piece({"content": "ink>so</thi"}), piece({"content": "nk>\n\nok"}, "stop")),
        text="ok",
        reasoning="so",
        model="deepseek-r1:8b",
    ),
    "a model that writes the tag": Shape(
        raw=sse(piece({"content": "<think>so</think>"}, "stop")), text="<think>so</think>", model="gpt-x"
    ),
    "llama.cpp": Shape(
        raw=sse(
            piece({"role": "assistant", "content": None}),
            piece({"content": "ok"}),
            piece({}, "stop", timings={"prompt_n": 3, "predicted_n": 2}),
        ),
        text="ok",
    ),
    "lm studio, no end mark": Shape(raw=sse(piece({"content": "ok"}), piece({}, "stop"), done=False), text="ok"),
    "tgi": Shape(raw=sse(piece({"content": "ok"}, "eos_token"), done=False), text="ok"),
    "cohere": Shape(raw=sse(piece({"content": "ok"}), piece({}, "COMPLETE")), text="ok"),
    "qwen": Shape(
        raw=sse(
            piece({"content": None, "reasoning_content": "hm"}),
            calls(call(0, "read", "", "call_1")),
            calls(call(0, "", '{"path":', "")),
            calls(call(0, None, '"a"}', "")),
            piece({"content": ""}, "tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": None}},
        ),
        calls=CALLED,
        finish="tool_calls",
        usage=(9, 4, 0),
        reasoning="hm",
        extra={"reasoning_content": "hm"},
    ),
    "moonshot": Shape(
        raw=sse(
            piece({"content": "ok"}),
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {},
                        "finish_reason": "stop",
                        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 4},
                    }
                ]
            },
        ),
        text="ok",
        usage=(5, 2, 4),
    ),
    "minimax": Shape(
        raw=sse(
            piece({"content": "ok", "name": "MM Assistant", "audio_content": ""}, base_resp={"status_code": 0}),
            {
                "choices": [{"index": 0, "message": {"content": "ok", "role": "assistant"}, "finish_reason": "stop"}],
                "object": "chat.completion",
                "usage": {"total_tokens": 12, "prompt_tokens": 10, "completion_tokens": 2},
                "base_resp": {"status_code": 0, "status_msg": ""},
            },
        ),
        text="ok",
        usage=(10, 2, 0),
        extra={"name": "MM Assistant", "audio_content": ""},
    ),
    "zhipu": Shape(
        raw=sse(piece({"role": "assistant", "content": "ok"}), piece({"content": ""}, "stop", request_id="1")),
        text="ok",
    ),
    "perplexity": Shape(
        raw=sse(
            {
                **piece({"role": "assistant", "content": "o"}),
                "citations": ["https://x"],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1},
            },
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {"role": "assistant", "content": "k"},
                        "message": {"role": "assistant", "content": "ok"},
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 1, "completion_tokens": 2},
            },
        ),
        text="ok",
        usage=(1, 2, 0),
    ),
    "anthropic behind a gateway": Shape(
        raw=sse(
            piece({"thinking_blocks": [{"type": "thinking", "thinking": "h", "signature": None}]}),
            piece({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "S"}]}),
            piece({"content": "ok"}),
            piece({}, "end_turn", usage={"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 20}),
        ),
        text="ok",
        usage=(23, 4, 20),
        reasoning="h",
        extra={
            "thinking_blocks": [
                {"type": "thinking", "thinking": "h"},
                {"type": "thinking", "thinking": "", "signature": "S"},
            ]
        },
    ),
    "a document": Shape(
        raw=json.dumps(
            {
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": "ok",
                            "tool_calls": [call(None, "read", {"path": "a"})],
                        },
                        "finish_reason": "tool_calls",
                    }
                ],
            }
        ).encode(),
        text="ok",
        calls=(("read", '{"path": "a"}'),),
        finish="tool_calls",
    ),
    "one object on each line": Shape(
        raw=b"\n".join(
            json.dumps(each).encode() for each in (piece({"content": "o"}), piece({"content": "k"}, "stop"))
        ),
        text="ok",
    ),
    "the old form of a call": Shape(
        raw=sse(
            piece({"function_call": {"name": "read", "arguments": ""}}),
            piece({"function_call": {"arguments": '{"path":"a"}'}}),
            piece({}, "function_call"),
        ),
        calls=CALLED,
        finish="tool_calls",
    ),
}


def check(shape: Shape, reply: ModelReply, heard: list[str]) -> None:
    assert (reply.text, "".join(heard)) == (shape.text, shape.text)
    assert tuple((each.name, each.arguments) for each in reply.tool_calls) == shape.calls
    assert reply.finish_reason == shape.finish or shape.calls
    assert (reply.reasoning, reply.extra) == (shape.reasoning, shape.extra)
    assert not reply.partial
    usage = reply.usage and (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_tokens)
    assert usage == shape.usage


def recut(raw: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.sample(range(1, len(raw)), min(6, len(raw) - 1)))
    return [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_providers_answer_is_read_as_it_is_meant_however_it_is_cut(wire: Wire, name: str) -> None:
    shape, chance = SHAPES[name], random.Random(SEED)
    is_stream = shape.raw[:1] not in (b"{", b"[")
    ways = [[shape.raw], *(recut(shape.raw, chance) for _ in range(3)), [shape.raw.replace(b"\n", b"\r\n")]]
    if is_stream:
        ways += [[b"\xef\xbb\xbf: hello\n\n" + shape.raw], [shape.raw.replace(b"\n\n", b"\n\n: x\n\nid: 1\n")]]
    for parts in ways:
        heard: list[str] = []
        check(shape, await wire.ask(parts, model=shape.model, seen=heard), heard)


def cuts_of(raw: bytes, chance: random.Random) -> Iterator[int]:
    at = 0
    while (at := raw.find(b"\n\n", at)) >= 0:
        at += 2
        yield at
    yield from chance.sample(range(len(raw)), min(12, len(raw)))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_that_is_broken_off_anywhere_is_an_error_or_the_whole_answer(wire: Wire, name: str) -> None:
    shape = SHAPES[name]
    for at in cuts_of(shape.raw, random.Random(SEED)):
        try:
            reply = await wire.ask(shape.raw[:at], model=shape.model)
        except (ModelUnavailable, ModelProtocolError):
            continue  # told, and asked again
        found = (reply.text, tuple((each.name, each.arguments) for each in reply.tool_calls))
        assert found == (shape.text, shape.calls), at


SAID = piece({"content": "half an ans"})
NO_ANSWERS: list[tuple[str, bytes, type[LoomError], str]] = [
    ("nothing", b"", ModelUnavailable, "before it was complete"),
    ("an empty object", b"{}", ModelProtocolError, "without an answer"),
    ("no choices", b'{"choices": []}', ModelProtocolError, "without an answer"),
    ("choices null", b'{"choices": null, "model": "m"}', ModelProtocolError, "without an answer"),
    ("a bare end mark", b"data: [DONE]\n\n", ModelProtocolError, "without an answer"),
    ("all is well", b'{"code": 0, "msg": "ok", "data": {}}', ModelProtocolError, "without an answer"),
    (
        "another protocol",
        b'{"message": {"role": "assistant", "content": "hi"}, "done": true}',
        ModelProtocolError,
        "without an answer",
    ),
    ("only usage", sse({"choices": [], "usage": OPENAI_USAGE}), ModelProtocolError, "without an answer"),
    ("a chunk without words", sse(piece({"role": "assistant"})), ModelProtocolError, "empty answer"),
    ("only blanks", sse(piece({"content": " \n"})), ModelProtocolError, "empty answer"),
    ("detail", b'{"detail": "Not Found"}', ModelAccessRefused, "Not Found"),
    ("a list of details", b'{"detail": [{"msg": "field required"}]}', ModelError, "field required"),
    ("a code", b'{"code": 500, "msg": "internal", "data": null}', ModelUnavailable, "internal"),
    ("a code that is text", b'{"code": "500", "message": "oh"}', ModelUnavailable, "oh"),
    ("success false", b'{"success": false, "errors": [{"code": 7000, "message": "No route"}]}', ModelError, "No route"),
    ("a message", b'{"message": "Internal Server Error"}', ModelUnavailable, "Internal Server Error"),
    ("an error that is text", b'{"error": "model overloaded"}', ModelUnavailable, "overloaded"),
    ("an error on a line", b'data: {"error": {"message": "said"}}\n\n', ModelUnavailable, "said"),
    ("an error as an event", b'event: error\ndata: {"message": "said"}\n\n', ModelUnavailable, "said"),
    ("an error event of text", b"event: error\ndata: upstream timeout\n\n", ModelUnavailable, "upstream timeout"),
    (
        "an error event after text",
        sse(SAID, 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
        ModelUnavailable,
        "Overloaded",
    ),
    ("an error between events", sse(SAID, '{"error": {"message": "said"}}'), ModelUnavailable, "said"),
    ("a failure after text", sse(SAID, {"code": 500, "message": "said"}), ModelUnavailable, "said"),
    (
        "an error in a choice",
        sse(
            piece({}, "error")
            | {
                "choices": [
                    {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "said"}}
                ]
            }
        ),
        ModelUnavailable,
        "said",
    ),
    ("an error of groq", sse(SAID, {"x_groq": {"error": "said"}, "choices": []}), ModelUnavailable, "said"),
    (
        "an error of minimax",
        b'{"choices": null, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}',
        ModelAccessRefused,
        "billing",
    ),
    ("a limit of minimax", b'{"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}', ModelRateLimit, "rate"),
    ("half, then error", sse(SAID, piece({}, "error")), ModelUnavailable, "'error'"),
    ("half, then network_error", sse(SAID, piece({}, "network_error")), ModelUnavailable, "network_error"),
    ("half, then no resource", sse(SAID, piece({}, "insufficient_system_resource")), ModelUnavailable, "insufficient"),
    ("half, then abort", sse(SAID, piece({}, "abort")), ModelUnavailable, "abort"),
    ("half, then a rate limit", sse(SAID, piece({}, "rate_limit")), ModelRateLimit, "rate_limit"),
    ("a malformed call", sse(piece({}, "MALFORMED_FUNCTION_CALL")), ModelProtocolError, "MALFORMED"),
    (
        "hidden by a gateway",
        sse(
            SAID,
            piece({}, "stop")
            | {
                "choices": [
                    {
                        "index": 0,
                        "delta": {},
                        "finish_reason": "stop",
                        "native_finish_reason": "MALFORMED_FUNCTION_CALL",
                    }
                ]
            },
        ),
        ModelProtocolError,
        "MALFORMED",
    ),
    ("HTML", b"  <html><body>Sign in</body></html>", ModelProtocolError, "web page"),
    ("text", b"upstream connect error", ModelProtocolError, "no event stream"),
    ("a chunk as a document", json.dumps(SAID).encode(), ModelUnavailable, "before it was complete"),
    (
        "lines that break off",
        json.dumps(SAID).encode() + b"\n" + json.dumps(SAID).encode() + b"\n",
        ModelUnavailable,
        "before it was complete",
    ),
    (
        "another message at the end",
        sse(SAID, {"choices": [{"index": 0, "message": {"content": "quite another"}, "finish_reason": "stop"}]}),
        ModelProtocolError,
        "another",
    ),
]


@pytest.mark.parametrize(
    ("raw", "kind", "told"), [each[1:] for each in NO_ANSWERS], ids=[each[0] for each in NO_ANSWERS]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_no_answer_is_never_an_empty_success(
    wire: Wire, raw: bytes, kind: type[LoomError], told: str
) -> None:
    with pytest.raises(kind) as caught:
        await wire.ask(raw)
    assert told in caught.value.message


CALLS: list[tuple[str, list[dict[str, Any]], list[tuple[str, str]]]] = [
    (
        "one index, no ids",
        [calls(call(0, "a", "{}")), calls(call(0, "read", '{"x":1}'))],
        [("a", "{}"), ("read", '{"x":1}')],
    ),
    (
        "one index, no ids, one tool twice",
        [calls(call(0, "read", '{"x"')), calls(call(0, None, ":1}")), calls(call(0, "read", '{"x":2}'))],
        [("read", '{"x":1}'), ("read", '{"x":2}')],
    ),
    ("one index, two in one piece", [calls(call(0, "a", "{}"), call(0, "a", "{}"))], [("a", "{}"), ("a", "{}")]),
    ("one index, no arguments", [calls(call(0, "a", "")), calls(call(0, "b", ""))], [("a", ""), ("b", "")]),
    ("no index, no ids", [calls(call(None, "a", "{}")), calls(call(None, "b", "{}"))], [("a", "{}"), ("b", "{}")]),
    ("the name in every piece", [calls(call(0, "a", '{"x"')), calls(call(0, "a", ":1}"))], [("a", '{"x":1}')]),
    (
        "a new id in every piece",
        [calls(call(0, "a", '{"x"', "1")), calls(call(0, "a", ":1}", "2"))],
        [("a", '{"x":1}')],
    ),
    (
        "the index counts pieces",
        [calls(call(i, "a" if not i else None, part)) for i, part in enumerate(('{"x"', ":", "1}"))],
        [("a", '{"x":1}')],
    ),
    (
        "the index counts pieces, with id",
        [calls(call(0, "a", "", "i")), calls(call(1, None, "{}", "i"))],
        [("a", "{}")],
    ),
    ("indexes from 1", [calls(call(1, "a", "{}", "i")), calls(call(2, "b", "{}", "j"))], [("a", "{}"), ("b", "{}")]),
    (
        "woven",
        [
            calls(call(0, "a", '{"x"', "i"), call(1, "b", '{"y"', "j")),
            calls(call(1, None, ":2}"), call(0, None, ":1}")),
        ],
        [("a", '{"x":1}'), ("b", '{"y":2}')],
    ),
    ("an empty call at the end", [calls(call(0, "a", "{}")), calls(call(1, None, ""))], [("a", "{}")]),
    ("blanks at the end", [calls(call(0, "a", "{}")), calls(call(0, None, " \n"))], [("a", "{}")]),
    (
        "an empty object holds the place",
        [calls(call(0, "a", "{}", "i")), calls(call(0, None, '{"x":1}'))],
        [("a", '{"x":1}')],
    ),
    (
        "from the beginning each time",
        [calls(call(0, "a", '{"x"', "i")), calls(call(0, None, '{"x":1}'))],
        [("a", '{"x":1}')],
    ),
    ("said twice", [calls(call(0, "a", '{"x":1}', "i")), calls(call(0, "a", '{"x":1}', "i"))], [("a", '{"x":1}')]),
    ("an object inside", [calls(call(0, "a", '{"x":')), calls(call(0, "a", '{"y":1}}'))], [("a", '{"x":{"y":1}}')]),
    (
        "braces in a text",
        [calls(call(0, "a", '{"x":"}{')), calls(call(0, None, '{\\"}"}'))],
        [("a", '{"x":"}{{\\"}"}')],
    ),
    ("null pieces", [piece({"tool_calls": [None, call(0, "a", "{}")]}), piece({"tool_calls": [None]})], [("a", "{}")]),
    (
        "no function object",
        [piece({"tool_calls": [{"index": 0, "id": "i", "name": "a", "arguments": {}}]})],
        [("a", "{}")],
    ),
    ("an index that is text", [piece({"tool_calls": [{**call(0, "a", "{}"), "index": "0"}]})], [("a", "{}")]),
    (
        "a snapshot",
        [
            calls(call(0, "a", "{}", "i")),
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {},
                        "message": {"tool_calls": [call(None, "a", "{}", "i")]},
                        "finish_reason": "tool_calls",
                    }
                ]
            },
        ],
        [("a", "{}")],
    ),
]


@pytest.mark.parametrize(("chunks", "expected"), [each[1:] for each in CALLS], ids=[each[0] for each in CALLS])
@pytest.mark.asyncio(loop_scope="module")
async def test_pieces_of_calls_are_told_apart(
    wire: Wire, chunks: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    reply = await wire.ask(sse(*chunks, piece({}, "tool_calls")))
    assert [(each.name, each.arguments) for each in reply.tool_calls] == expected


def dialects(chance: random.Random) -> tuple[list[tuple[str, str]], list[dict[str, Any]]]:
    """Draw calls of different tools, and their pieces as some provider would send them."""
    inner = (1, "x", 'a"}{"', "", [1, {"q": 2}], {}, {"y": {"z": []}}, None, "\\")
    truth = [(name, json.dumps({"x": chance.choice(inner)})) for name in chance.sample(["a", "b", "read"], 2)]
    index = chance.choice(("right", "zero", "none", "drift"))
    id, name = chance.choice(("first", "none")), chance.choice(("first", "each"))
    pieces: list[dict[str, Any]] = []
    for number, (tool, arguments) in enumerate(truth):
        cuts = sorted(chance.sample(range(1, len(arguments)), min(3, len(arguments) - 1)))
        parts = [arguments[start:end] for start, end in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        for at, part in enumerate(parts):
            numbers = {"right": number, "zero": 0, "none": None, "drift": len(pieces)}
            given = f"id{number}" if id == "first" and not at else None
            pieces.append(call(numbers[index], tool if name == "each" or not at else None, part, given))
    return truth, pieces


def test_calls_in_any_dialect_are_put_together_as_they_were_meant_or_refused() -> None:
    chance, refused = random.Random(SEED), 0
    for _ in range(1_500):
        truth, pieces = dialects(chance)
        assembler = CallAssembler(lambda: {"a", "b", "read"})
        try:
            for each in pieces:
                assembler.add([each])
            found = [(each.name, each.arguments) for each in assembler.calls()]
        except ValueError:
            refused += 1
            continue
        assert found == truth, pieces
    assert refused < 30


@pytest.mark.parametrize(
    ("chunks", "told"),
    [
        ([calls(call(0, "a", '{"x":1}')), calls(call(0, None, '{"x":2}'))], "after their end"),
        ([calls(call(0, "a", "{}")), calls(call(1, None, '{"x":1}'))], "no name"),
        ([calls(call(0, "a", '{"x"', "1")), calls(call(1, "a", ":1}", "2"))], "pieces"),
        (
            [
                calls(call(0, "a", "{}"), call(1, "b", "{}")),
                {
                    "choices": [
                        {"index": 0, "message": {"tool_calls": [call(None, "a", "{}")]}, "finish_reason": "tool_calls"}
                    ]
                },
            ],
            "fewer",
        ),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_calls_that_cannot_be_told_apart_are_refused(wire: Wire, chunks: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ModelProtocolError, match=told):
        await wire.ask(sse(*chunks, piece({}, "tool_calls")))


USAGES: list[tuple[list[Any], tuple[int, int, int] | None]] = [
    ([{}], None),
    ([None], None),
    ([{"prompt_tokens": 3, "completion_tokens": 4}, {}], (3, 4, 0)),
    ([{"prompt_tokens": 3, "completion_tokens": 4}, {"prompt_tokens": 0, "completion_tokens": 0}], (3, 4, 0)),
    ([{"prompt_tokens": 3, "completion_tokens": 1}, {"completion_tokens": 4}], (3, 4, 0)),
    ([{"prompt_tokens": 3.0, "completion_tokens": "4"}], (3, 4, 0)),
    ([{"prompt_tokens": -3, "completion_tokens": float("inf")}], None),
    ([{"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 5}], (3, 4, 0)),
    ([{"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 90}], (3, 87, 0)),
    ([{"prompt_tokens": 3, "completion_tokens": 4, "reasoning_tokens": 80}], (3, 84, 0)),
    (
        [{"prompt_tokens": 3, "completion_tokens": 90, "completion_tokens_details": {"reasoning_tokens": 80}}],
        (3, 90, 0),
    ),
    ([{"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 8}}], (9, 4, 8)),
    ([{"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 8}], (9, 1, 8)),
    ([{"prompt_tokens": 9, "completion_tokens": 1, "cache_read_input_tokens": 8}], (9, 1, 8)),
    (
        [{"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {}, "prompt_cache_hit_tokens": 8}],
        (9, 1, 8),
    ),
    ([{"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 80}], (89, 1, 80)),
    (
        [{"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2}],
        (16, 1, 5),
    ),
]


@pytest.mark.parametrize(("told", "expected"), USAGES)
@pytest.mark.asyncio(loop_scope="module")
async def test_usage_is_counted_wherever_it_stands(
    wire: Wire, told: list[Any], expected: tuple[int, int, int] | None
) -> None:
    places = ({"usage": usage} for usage in told)
    reply = await wire.ask(sse(piece({"content": "ok"}, "stop"), *({"choices": [], **each} for each in places)))
    want = expected and Usage(prompt_tokens=expected[0], completion_tokens=expected[1], cached_tokens=expected[2])
    assert reply.usage == want


CUT_WORDS = ["length", "MAX_TOKENS", "max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded"]
FILTER_WORDS = ["content_filter", "SAFETY", "sensitive", "refusal", "RECITATION", "guardrail_intervened"]


@pytest.mark.parametrize("word", [*CUT_WORDS, *FILTER_WORDS])
@pytest.mark.parametrize("arguments", ["", '{"path":"a', "{}"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_cut_answer_says_so_whatever_the_word(wire: Wire, word: str, arguments: str) -> None:
    reply = await wire.ask(sse(calls(call(0, "read", arguments, "i")), piece({}, word)))
    assert reply.partial
    assert is_cut(reply.finish_reason)
    warning = warning_of(reply)
    assert warning is not None
    assert warning["code"] == ("answer_cut" if word in CUT_WORDS else "answer_filtered")


@pytest.mark.asyncio(loop_scope="module")
async def test_an_end_that_nobody_knows_keeps_the_text_and_warns(wire: Wire) -> None:
    reply = await wire.ask(sse(piece({"content": "ok"}, "somewhere")))
    assert (reply.text, reply.finish_reason, reply.partial) == ("ok", "somewhere", False)
    assert (warning_of(reply) or {})["code"] == "answer_end_unknown"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wholly_filtered_answer_and_a_lost_call_are_errors(wire: Wire) -> None:
    with pytest.raises(ModelRequestRefused, match="withheld"):
        warning_of(await wire.ask(sse(piece({}, "content_filter"))))
    with pytest.raises(ModelProtocolError, match="has none"):
        warning_of(await wire.ask(sse(piece({"content": "I call"}, "tool_calls"))))


def test_words_for_ends_are_read_by_what_they_name() -> None:
    assert {ended(word) for word in ("STOP", "end_turn", "eos", "FinishReason.STOP", "stop_sequence")} == {"stop"}
    assert {ended(word) for word in ("tool_use", "tool_call", "function_call")} == {"tool_calls"}
    assert {ended(word) for word in CUT_WORDS} == {"length"}
    assert {ended(word) for word in FILTER_WORDS} == {"content_filter"}
    assert {ended(word) for word in ("error", "network_error", "aborted", "timeout", "engine_overloaded")} == {"error"}


def test_models_that_think_in_their_text_are_known_by_name() -> None:
    assert all(map(thinks_in_text, ("deepseek-r1:8b", "Qwen/Qwen3-32B", "MiniMax-M2", "qwq-32b", "magistral-small")))
    assert not any(
        map(thinks_in_text, ("gpt-4.1", "llama-3.3-70b", "claude-sonnet-4", "mistral-large", "gemini-2.5-pro"))
    )


PROVIDER = Provider(
    host="api.x", url="https://api.x/v1/chat/completions", api_key="", key_name="X_API_KEY", url_name="X_URL"
)


def judged(status: int | None, body: Any) -> ModelError:
    """The error of an HTTP status, or of a body in a 200 answer."""
    if status is None:
        return chunk_error(PROVIDER, body, model="m")
    return status_error(PROVIDER, status, body, {}, model="m")


OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "Input is too long for requested model.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
    "the request exceeds the available context size. try increasing the context size",
    "Trying to keep the first 7000 tokens when context the overflows. It has a context length of only 4096 tokens",
    "The number of tokens to keep from the initial prompt is greater than the context length",
    "input length exceeds context length",
    "prompt too long; exceeded max context length by 12 tokens",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "invalid params, context window exceeds limit (2013)",
    "Range of input length should be [1, 30720]",
    "The prompt is too long: 9000, model maximum context length: 8191",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
    "prompt token count of 140000 exceeds the limit of 128000",
    "The input (300 tokens) is longer than the model's context length (200 tokens).",
    "Prompt has 5000 tokens, but the configured context size is 4096 tokens",
    "tokens in request more than max tokens allowed",
    "Prompt 超长",
    "输入长度超过模型最大长度限制",
    "'max_tokens' is too large: 500. This model's maximum context length is 4096 tokens and your request has 3900",
]


@pytest.mark.parametrize("message", OVERFLOWS)
@pytest.mark.parametrize("status", [400, None])
def test_a_conversation_that_is_too_long_is_known_by_many_words(message: str, status: int | None) -> None:
    body = {"error": {"message": message}}
    found = judged(status, body)
    assert type(found) is ContextLengthExceeded, found


def error(message: str, code: Any = None, kind: Any = None, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "type": kind, **more}}


GOOGLE_DAY = [
    {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
    }
]
GOOGLE_WAIT = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]
REFUSALS: list[tuple[int | None, Any, type[LoomError], str]] = [
    (
        400,
        error(
            "'max_tokens' or 'max_completion_tokens' is too large: 100000. This model's maximum context length is 8192 "
            "tokens and your request has 12 input tokens (100000 > 8192 - 12)."
        ),
        ModelRequestRefused,
        "max_tokens",
    ),
    (
        400,
        error("max_tokens is too large: 99999. This model supports at most 16384 completion tokens"),
        ModelRequestRefused,
        "",
    ),
    (400, error("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"), ModelRequestRefused, ""),
    (
        400,
        error("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens"),
        ModelRequestRefused,
        "",
    ),
    (
        400,
        error(
            "This model's maximum context length is 4096 tokens. However, you requested 8100 tokens (100 in the "
            "messages, 8000 in the completion). Please reduce the length of the messages or completion."
        ),
        ModelRequestRefused,
        "Lower max_tokens",
    ),
    (498, error("Flex tier capacity exceeded", "capacity_exceeded"), ModelUnavailable, "498"),
    (
        400,
        error("Failed to call a function.", "tool_use_failed", failed_generation="<x>"),
        ModelProtocolError,
        "asked again",
    ),
    (
        429,
        error("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota"),
        ModelAccessRefused,
        "billing",
    ),
    (429, error("You exceeded your current quota", "exceeded_current_quota_error"), ModelAccessRefused, "billing"),
    (
        400,
        error("Your credit balance is too low to access the Anthropic API.", None, "invalid_request_error"),
        ModelAccessRefused,
        "billing",
    ),
    (402, error("Insufficient Balance", "invalid_request_error", "unknown_error"), ModelAccessRefused, "billing"),
    (402, error("This request requires more credits, or fewer max_tokens."), ModelAccessRefused, "billing"),
    (
        403,
        error("Your team has either used all available credits or reached its monthly spending limit."),
        ModelAccessRefused,
        "billing",
    ),
    (
        403,
        {"code": "AllocationQuota.FreeTierOnly", "message": "The free tier of the model has been exhausted."},
        ModelAccessRefused,
        "billing",
    ),
    (
        400,
        {"code": "Arrearage", "message": "Access denied, make sure your account is in good standing."},
        ModelAccessRefused,
        "billing",
    ),
    (429, error("余额不足或无可用资源包,请充值。", "1113"), ModelAccessRefused, "billing"),
    (
        429,
        error(
            "Rate limit reached for gpt-x. Please try again in 20s. You can increase your limit by adding a payment "
            "method at https://platform.openai.com/account/billing.",
            "rate_limit_exceeded",
            "requests",
        ),
        ModelRateLimit,
        "",
    ),
    (
        429,
        [
            error(
                "You exceeded your current quota, please check your plan and billing details.",
                429,
                status="RESOURCE_EXHAUSTED",
                details=GOOGLE_WAIT,
            )
        ],
        ModelRateLimit,
        "Lower the rate",
    ),
    (
        429,
        error("You exceeded your current quota", 429, status="RESOURCE_EXHAUSTED", details=GOOGLE_DAY),
        ModelAccessRefused,
        "for today",
    ),
    (500, error("upstream billing service timeout"), ModelUnavailable, "status page"),
    (None, error("Resource has been exhausted", None, status="RESOURCE_EXHAUSTED"), ModelRateLimit, ""),
    (None, error("slow down", 429.0), ModelRateLimit, ""),
    (None, error("slow down", "too_many_requests"), ModelRateLimit, ""),
    (None, {"error": {"message": "busy", "status": 503}}, ModelUnavailable, ""),
    (None, {"status": 429, "title": "Too Many Requests"}, ModelRateLimit, ""),
    (None, error("said", None, status="UNAVAILABLE"), ModelUnavailable, ""),
    (None, error("said", None, status="INVALID_ARGUMENT"), ModelRequestRefused, ""),
    (None, error("Insufficient Balance"), ModelAccessRefused, "billing"),
    (None, error("The response was filtered", "content_filter"), ModelRequestRefused, "content"),
    (400, error("Content Exists Risk", "invalid_request_error"), ModelRequestRefused, "refuses the content"),
    (
        400,
        {"code": "DataInspectionFailed", "message": "Input data may contain inappropriate content."},
        ModelRequestRefused,
        "refuses the content",
    ),
    (
        403,
        error("Your chosen model requires moderation and your input was flagged", 403),
        ModelRequestRefused,
        "content",
    ),
    (
        403,
        error("Country, region, or territory not supported", "unsupported_country_region_territory"),
        ModelAccessRefused,
        "does not serve this place",
    ),
    (
        400,
        error("User location is not supported for the API use.", 400, status="FAILED_PRECONDITION"),
        ModelAccessRefused,
        "does not serve this place",
    ),
    (
        400,
        error("API key not valid. Please pass a valid API key.", 400, status="INVALID_ARGUMENT"),
        ModelAccessRefused,
        "Set X_API_KEY",
    ),
    (400, error("Model Not Exist", "invalid_request_error"), ModelAccessRefused, "for the model 'm'"),
    (400, error("m is not a valid model ID", 400), ModelAccessRefused, "for the model 'm'"),
    (
        400,
        error("The model `m` has been decommissioned", "model_decommissioned"),
        ModelAccessRefused,
        "for the model 'm'",
    ),
    (
        404,
        error('model "m" not found, try pulling it first', None, "api_error"),
        ModelAccessRefused,
        "for the model 'm'",
    ),
    (
        400,
        error("Provider returned error", 400, metadata={"raw": '{"error":{"message":"prompt is too long: 9 > 8"}}'}),
        ContextLengthExceeded,
        "prompt is too long",
    ),
    (
        413,
        error("Request too large for model on tokens per minute (TPM): Limit 6000", "rate_limit_exceeded"),
        ContextLengthExceeded,
        "",
    ),
]


@pytest.mark.parametrize(("status", "body", "kind", "told"), REFUSALS)
def test_a_refusal_is_of_its_class_and_names_its_cause(
    status: int | None, body: Any, kind: type[LoomError], told: str
) -> None:
    found = judged(status, body)
    assert type(found) is kind, found
    assert told in found.message


WAITS: list[tuple[dict[str, str], Any, float | None]] = [
    ({}, error("Please try again in 2s."), 2.0),
    ({}, error("Please try again in 20ms."), 0.02),
    ({}, error("Please try again in 1m30.5s. Visit https://x"), 90.5),
    ({}, error("Please try again in 7m33.12s."), 453.12),
    ({}, error("Please retry after 20 seconds."), 20.0),
    ({}, error("Please wait 1 minute and 5 seconds before the next request"), 65.0),
    ({}, error("Try again in 3 days"), 259_200.0),
    ({}, error("Try again later"), None),
    ({}, error("said", details=GOOGLE_WAIT), 17.0),
    ({}, error("said", details=[{"retryDelay": {"seconds": 3, "nanos": 500_000_000}}]), 3.5),
    ({}, error("said", retry_after=4), 4.0),
    ({}, error("said", metadata={"headers": {"Retry-After": "6"}}), 6.0),
    ({"retry-after": "9"}, error("Please try again in 2s."), 9.0),
    ({"retry-after": "20s"}, error("said"), 20.0),
    ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, error("said"), 360.0),
    (
        {
            "x-ratelimit-reset-requests": "6m0s",
            "x-ratelimit-remaining-requests": "5",
            "x-ratelimit-reset-tokens": "1.5s",
            "x-ratelimit-remaining-tokens": "0",
        },
        error("said"),
        1.5,
    ),
    ({"ratelimit-reset": "30"}, error("said"), 30.0),
    ({"anthropic-ratelimit-requests-reset": "2015-01-01T00:00:00Z"}, error("said"), 0.0),
]


@pytest.mark.parametrize(("headers", "body", "seconds"), WAITS)
def test_how_long_to_wait_is_read_wherever_it_is_said(
    headers: dict[str, str], body: Any, seconds: float | None
) -> None:
    found = status_error(PROVIDER, 429, body, headers, model="m")
    assert isinstance(found, ModelRateLimit)
    assert found.retry_after == (None if seconds is None else pytest.approx(seconds))
