"""A model's answer, put together from the pieces in which providers send it.

Providers differ in what they leave out: ids of calls, indices, usage, the end mark. What is missing is
filled in the same way each time, so that an attempt that is repeated gives the same names.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.chat import fields
from activities.chat.provider import cost_microusd
from loom_dsl.agent.context import estimate_tokens

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that the model asks for.

    Attributes:
        id: The provider's id, or ``call_INDEX`` when it gave none.
        name: The tool's name, as the model wrote it.
        arguments: The arguments' text, as the model wrote it; it need not be JSON.
        index: Its place in the message, from 0.
        extra: What else the provider said of it, verbatim, as JSON, such as ``extra_content.google.thought_signature``.
    """

    id: str
    name: str
    arguments: str
    index: int
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that the provider counted.

    Attributes:
        prompt_tokens: Tokens of the request, cached ones included.
        completion_tokens: Tokens of the answer.
        cached_tokens: How many of the request's tokens came from the provider's cache.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """An answer of a model.

    Attributes:
        text: The text, a refusal's text included; empty when there is none.
        tool_calls: The calls, in the message's order. Ids may occur twice.
        finish_reason: ``stop``, ``tool_calls``, ``length``, ``content_filter``, or the provider's own word where it
            means none of these.
        usage: None when the provider told none.
        model: The model that answered, by the provider's name; empty when it was not told.
        request_id: The provider's id of this request, for its support; may be empty.
        partial: Whether the answer was cut off: more was to come, and its calls cannot be run.
        reasoning: What the model thought, as far as it can be read; it is no part of `text`.
        think: What was cut out of the front of the content as reasoning, verbatim and with its tags, for models that
            think in their text; empty for all others.
        extra: The fields that the provider added to the message, verbatim, as JSON: ``reasoning_content``,
            ``reasoning_details`` and the like. ``content`` is among them where it has parts that are no text.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage | None = None
    model: str = ""
    request_id: str = ""
    partial: bool = False
    reasoning: str = ""
    think: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Slot:
    index: object
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: fields.Merged = field(default_factory=fields.of_call)


class ReplyBuilder:
    """Collects the chunks of one answer.

    Args:
        limit: The most characters of text and arguments together.
    """

    def __init__(self, limit: int) -> None:
        self.done = False
        """Whether the end mark was seen."""
        self._limit = limit
        self._size = 0
        self._text: list[str] = []
        self._half = ""
        self._slots: list[_Slot] = []
        self._finish = ""
        self._usage: Usage | None = None
        self._model = ""
        self._extra, self._reasoning = fields.of_message(), list[str]()
        self._parts: list[Any] = []

    @property
    def complete(self) -> bool:
        """Whether the message is whole: nothing but its usage can be missing."""
        return self.done or bool(self._finish)

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take a chunk of a stream, or a whole document, and return the text that it adds.

        Raises:
            ValueError: It has not the form of a chunk, or the message is over the limit.
        """
        self._model = str(chunk.get("model") or self._model)
        self._usage = _usage(chunk.get("usage")) or self._usage
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise ValueError("`choices` is not a list")
        text = ""
        for choice in choices:
            if not isinstance(choice, dict):
                raise ValueError("a choice is not an object")
            # Loom asks for one choice; a second one would mix two messages into one.
            if choice.get("index") not in (0, None):
                continue
            text += self._delta(choice.get("delta") or choice.get("message") or {})
            self._finish = str(choice.get("finish_reason") or self._finish)
        return text

    def reply(self, request_id: str) -> ModelReply:
        """Return the answer."""
        calls = tuple(
            ToolCall(
                id=slot.id or f"call_{index}",
                name=slot.name,
                arguments=_whole("".join(slot.arguments)),
                index=index,
                extra=slot.extra.fields(),
            )
            for index, slot in enumerate(self._slots)
        )
        return ModelReply(
            text="".join(self._text) + ("�" if self._half else ""),
            tool_calls=calls,
            finish_reason=self._finish or ("tool_calls" if calls else "stop"),
            usage=self._usage,
            model=self._model,
            request_id=request_id,
            partial=self._finish == "length",
            reasoning=_whole("".join(self._reasoning)),
            extra=self._fields(),
        )

    def _fields(self) -> dict[str, Any]:
        typed = any(isinstance(part, dict) and part.get("type", "text") != "text" for part in self._parts)
        parts = fields.parts_merged([], self._parts) if typed else []
        return {**self._extra.fields(), **({"content": fields.written(parts)} if parts else {})}

    def _delta(self, delta: object) -> str:
        if not isinstance(delta, dict):
            raise ValueError("a delta is not an object")
        text = self._join(_content(delta.get("content")) + _content(delta.get("refusal")))
        if text:
            self._text.append(text)
            self._grow(text)
        self._aside(delta)
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ValueError("`tool_calls` is not a list")
        for call in calls:
            self._call(call)
        return text

    def _aside(self, delta: Mapping[str, Any]) -> None:
        """Take what is no part of the text."""
        self._size += self._extra.add(delta)
        self._reasoning.append(reasoning := fields.reasoning_of(delta))
        if isinstance(content := delta.get("content"), list):
            self._parts += content
        self._grow(reasoning)

    def _call(self, call: object) -> None:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict | None):
            raise ValueError("a tool call is not an object")
        function = function or {}
        name, id = str(function.get("name") or ""), str(call.get("id") or "")
        slot = self._slot(call.get("index"), id, name)
        slot.id = slot.id or id
        # Most providers send the name once, some with every piece, and some in pieces.
        if name and name != slot.name:
            slot.name += name
        self._size += slot.extra.add(call)
        arguments = function.get("arguments")
        if isinstance(arguments, dict | list):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if arguments:
            slot.arguments.append(str(arguments))
            self._grow(slot.arguments[-1])

    def _slot(self, index: object, id: str, name: str) -> _Slot:
        """Find the call that a piece belongs to, also where indices are missing or always 0."""
        if index is None:
            known = self._slots[-1] if self._slots else None
        else:
            known = next((slot for slot in reversed(self._slots) if slot.index == index), None)
        starts_another = known is not None and bool(id and name and known.id) and id != known.id
        if known is None or starts_another or (index is None and name and not id and known.arguments):
            known = _Slot(index)
            self._slots.append(known)
        return known

    def _join(self, text: str) -> str:
        """Keep half a surrogate pair back until its other half comes, and replace what stays alone."""
        if not self._half and not _SURROGATE.search(text):
            return text
        if not text:
            return text
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _whole(text)

    def _grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > self._limit:
            raise ValueError(f"the message is over {self._limit} characters")


def _whole(text: str) -> str:
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if _is_text(part))
    return ""


def _is_text(part: object) -> bool:
    """Whether a part of a content is text for the reader: no reasoning, picture or reference."""
    return isinstance(part, dict) and part.get("type") in (None, "text", "output_text", "refusal")


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(cached),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def used(model: str, reply: ModelReply, body: bytes, calls: str = "") -> dict[str, Any]:
    """What an answer used: ``usage`` in tokens, estimated where the provider told none, and ``cost``.

    Args:
        model: The model as the user names it.
        reply: The answer.
        body: The request.
        calls: The answer's tool calls as JSON text.
    """
    usage = reply.usage
    prompt, completion, cached = (
        (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        if usage
        else (estimate_tokens(body.decode()), estimate_tokens(reply.text + calls), 0)
    )
    return {
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "cached_tokens": cached},
        "cost": cost_microusd(model, reply.model, prompt, completion, cached),
    }
