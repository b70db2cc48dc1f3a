"""An answer as the bytes that the OpenAI API sends: server-sent events, or one document."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loom_cli.dev.fake_model.request import ChatRequest
from loom_dsl.simulation.script import ScriptedStep, fill
from loom_dsl.text.canonical import Json

_CHUNK = 16
_BIG_CHUNK = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """What the model answers, before it is put on the wire.

    Attributes:
        id: The completion's id.
        created: Unix time, in seconds.
        model: The model's name, as it was asked for.
        text: The text, empty for none.
        calls: Id (empty: left out), tool name, the arguments' text and more fields of each call.
        finish: The finish reason.
        usage: The usage object.
        fields: More fields of the message.
        chunk: Characters in one streamed piece.
    """

    id: str
    created: int
    model: str
    text: str
    calls: tuple[tuple[str, str, str, dict[str, Any]], ...]
    finish: str
    usage: dict[str, Any]
    fields: dict[str, Any] = field(default_factory=dict)
    chunk: int = field(default=_CHUNK)


def compose(step: ScriptedStep, request: ChatRequest, *, id: str, created: int, prompt_size: int) -> ScriptedReply:
    """Fill a step's placeholders and name its calls.

    Args:
        step: The step to say.
        request: The request that it answers.
        id: The completion's id.
        created: Unix time, in seconds.
        prompt_size: Characters of the request, for the estimated usage.
    """
    text = "x" * step.big if step.big else fill(step.say or "", number=request.step, last=request.last_tool)
    calls = tuple(
        (
            call.id if call.id is not None else f"call_{request.step + 1}_{index}",
            call.tool,
            call.raw if call.raw is not None else _text(fill(call.args, number=request.step, last=request.last_tool)),
            fill(call.fields, number=request.step, last=""),
        )
        for index, call in enumerate(step.calls)
    )
    size = len(text) + sum(len(name) + len(arguments) for _, name, arguments, _ in calls)
    prompt, completion = max(1, prompt_size // 4), -(-size // 4)
    cached = 0
    if step.usage:
        prompt, completion, cached = step.usage.prompt, step.usage.completion, step.usage.cached
    return ScriptedReply(
        id=id,
        created=created,
        model=request.model,
        text=text,
        calls=calls,
        finish=step.finish or ("tool_calls" if calls else "stop"),
        usage={
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
        fields=fill(step.fields, number=request.step, last=""),
        chunk=step.chunk or (_BIG_CHUNK if step.big else _CHUNK),
    )


def events(answer: ScriptedReply, *, include_usage: bool) -> Iterator[bytes]:
    """Yield the answer's events: the role, the text, the calls, the reason, the usage, the end."""
    head = _head(answer)
    tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
    for delta in _deltas(answer):
        delta_text = _bytes(delta)
        yield b'%s[{"index":0,"delta":%s,"logprobs":null,"finish_reason":null}]%s' % (head, delta_text, tail)
    reason = _bytes(answer.finish)
    yield b'%s[{"index":0,"delta":{},"logprobs":null,"finish_reason":%s}]%s' % (head, reason, tail)
    if include_usage:
        yield b'%s[],"usage":%s}\n\n' % (head, _bytes(answer.usage))
    yield b"data: [DONE]\n\n"


def broken_events(answer: ScriptedReply) -> Iterator[bytes]:
    """Yield a stream with an event whose JSON breaks off, and then its end."""
    whole = next(events(answer, include_usage=False))
    yield whole
    yield whole[: len(whole) // 2] + b"\n\n"
    yield b"data: [DONE]\n\n"


def document(answer: ScriptedReply) -> bytes:
    """Return the answer to a request without ``stream``."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None, **answer.fields}
    if answer.calls:
        message["tool_calls"] = [_call(*call) for call in answer.calls]
    else:
        message["content"] = answer.text
    return _bytes(
        {
            "id": answer.id,
            "object": "chat.completion",
            "created": answer.created,
            "model": answer.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}],
            "usage": answer.usage,
            "service_tier": "default",
            "system_fingerprint": "fp_loom",
        }
    )


def _head(answer: ScriptedReply) -> bytes:
    fixed = {
        "id": answer.id,
        "object": "chat.completion.chunk",
        "created": answer.created,
        "model": answer.model,
        "service_tier": "default",
        "system_fingerprint": "fp_loom",
    }
    return b"data: " + _bytes(fixed)[:-1] + b',"choices":'


def _deltas(answer: ScriptedReply) -> Iterator[dict[str, Any]]:
    has_text = bool(answer.text) or not answer.calls
    yield {"role": "assistant", "content": "" if has_text else None, "refusal": None}
    for field_name, value in answer.fields.items():
        # As providers do: text in pieces, anything else whole.
        for piece in _pieces(value, answer.chunk) if isinstance(value, str) and value else (value,):
            yield {field_name: piece}
    for piece in _pieces(answer.text, answer.chunk):
        yield {"content": piece}
    for index, (id, name, arguments, fields) in enumerate(answer.calls):
        yield {"tool_calls": [{"index": index, **_call(id, name, "", fields)}]}
        for piece in _pieces(arguments, answer.chunk):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _call(id: str, name: str, arguments: str, fields: dict[str, Any]) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}
    return {"id": id, **call} if id else call


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _text(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _bytes(value: Json) -> bytes:
    # A lone surrogate (from a tool's result, quoted by {last}) becomes the escape that JSON has for it.
    return _text(value).encode("utf-8", "backslashreplace")
