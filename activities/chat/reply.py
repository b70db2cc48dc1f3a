"""A model's answer, put together from the pieces in which providers send it.

Providers differ in what they leave out: ids of calls, indices, usage, the end mark. What is missing is
filled in the same way each time, so that an attempt that is repeated gives the same names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.chat import fields
from activities.chat.calls import CallAssembler, ToolCall
from activities.chat.provider import cost_microusd
from activities.chat.thinking import ThinkReader, thinks_in_text
from activities.chat.usage import Usage, UsageCount
from loom_dsl.agent import finish
from loom_dsl.agent.context import estimate_tokens

__all__ = ["ModelReply", "ReplyBuilder", "ToolCall", "Usage", "used"]

_NO_WORD = ("", "null", "none")


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
    extra: Mapping[str, Any] = field(default_factory=dict)


class ReplyBuilder:
    """Collects the chunks of one answer.

    Args:
        limit: The most characters of text and arguments together.
        model: The model that was asked, by its name at the provider.
        tools: Gives the names of the tools that it may call.
        thinks: Whether it writes its reasoning into its text; None: as its name says.
    """

    def __init__(
        self, limit: int, *, model: str = "", tools: Callable[[], set[str]] = set, thinks: bool | None = None
    ) -> None:
        self.done = False
        """Whether the end mark was seen."""
        self.seen = False
        """Whether there was any choice, which is what an answer is made of."""
        self.finish = ""
        """How the answer ended, as `loom_dsl.agent.finish` names it; empty as long as it was not told."""
        self.end_word = ""
        """The provider's own word for it."""
        self._limit = limit
        self._size = 0
        self._said: list[str] = []
        self._text: list[str] = []
        self._half = ""
        self._calls = CallAssembler(tools)
        self._usage = UsageCount()
        self._asked, self._model = model, ""
        self._extra, self._reasoning = fields.of_message(), list[str]()
        self._parts: list[Any] = []
        self._think = ThinkReader(active=thinks_in_text(model) if thinks is None else thinks)

    @property
    def complete(self) -> bool:
        """Whether the message is whole: nothing but its usage can be missing."""
        return self.done or bool(self.finish)

    @property
    def empty(self) -> bool:
        """Whether there is nothing of an answer, and not even a word of how it ended."""
        return not (self.finish or self._calls or "".join(self._said).strip())

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take a chunk of a stream, or a whole document, and return the text that it adds.

        Raises:
            ValueError: It has not the form of a chunk, its calls cannot be told apart, or the message is over the
                limit.
        """
        self._model = fields.whole(str(chunk.get("model") or self._model))
        self._usage.add(chunk)
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise ValueError("`choices` is not a list")
        text = ""
        for choice in choices:
            if choice is None:
                continue
            if not isinstance(choice, dict):
                raise ValueError("a choice is not an object")
            # Loom asks for one choice; a second one would mix two messages into one.
            if choice.get("index") not in (0, None):
                continue
            self.seen = True
            text += self._choice(choice)
            self._end(choice)
        return text

    def close(self) -> str:
        """Return what was held back of the text until its end was known."""
        half, self._half = ("\ufffd" if self._half else ""), ""
        text = self._think.feed(half) + self._think.finish(cut=finish.is_cut(self.finish))
        self._text.append(text)
        return text

    def reply(self, request_id: str) -> ModelReply:
        """Return the answer.

        Raises:
            ValueError: A call has no name.
        """
        self.close()
        calls = self._calls.calls()
        thought = fields.whole("".join(self._reasoning)) or fields.whole(self._think.reasoning)
        return ModelReply(
            text="".join(self._text),
            tool_calls=calls,
            finish_reason=self.finish or ("tool_calls" if calls else "stop"),
            usage=self._usage.usage(),
            model=self._model,
            request_id=request_id,
            partial=finish.is_cut(self.finish),
            reasoning=thought,
            extra=self._fields(),
        )

    def _fields(self) -> dict[str, Any]:
        typed = any(isinstance(part, dict) and part.get("type", "text") != "text" for part in self._parts)
        parts = fields.parts_merged([], self._parts) if typed else []
        return {**self._extra.fields(), **({"content": fields.written(parts)} if parts else {})}

    def _choice(self, choice: Mapping[str, Any]) -> str:
        delta, message = choice.get("delta"), choice.get("message")
        text = ""
        if delta or not message:
            text += self._delta(delta or {"content": choice.get("text")})
        if message:
            text += self._message(message, last=bool(choice.get("finish_reason")))
        return text

    def _message(self, message: object, *, last: bool) -> str:
        """Take a whole message: the only one, or one that says again what came in pieces."""
        if not isinstance(message, dict):
            raise ValueError("a message is not an object")
        said, content = "".join(self._said), _content(message.get("content")) + _content(message.get("refusal"))
        if content.startswith(said):
            content = content[len(said) :]
        elif not content or content.strip() == said.strip():
            content = ""
        elif last:
            raise ValueError("the message at the end is another than the one that came in pieces")
        again = bool(said or self._calls or self._reasoning)
        rest = {**message, "content": content, "refusal": None} if said else message
        return self._delta(rest, again=again, whole=True)

    def _end(self, choice: Mapping[str, Any]) -> None:
        for name in ("finish_reason", "native_finish_reason"):
            word = fields.whole(str(choice.get(name) or ""))
            kind = finish.ended(word)
            # A later word does not take back that the answer was cut; a gateway's own word is often "stop" for all.
            if word.lower() in _NO_WORD or finish.is_cut(self.finish):
                continue
            if name == "finish_reason" or finish.is_cut(kind):
                self.finish, self.end_word = kind, word

    def _delta(self, delta: object, *, again: bool = False, whole: bool = False) -> str:
        if not isinstance(delta, dict):
            raise ValueError("a delta is not an object")
        said = _content(delta.get("content")) + _content(delta.get("refusal"))
        if said:
            self._said.append(said)
            self._grow(len(said))
        text = self._think.feed(self._join(said))
        if text:
            self._text.append(text)
        self._aside(delta, again=again)
        if calls := delta.get("tool_calls"):
            self._grow(self._calls.add(calls, whole=whole))
        elif called := delta.get("function_call"):
            self._grow(self._calls.add([{"index": 0, "function": called}], whole=whole))
        return text

    def _aside(self, delta: Mapping[str, Any], *, again: bool) -> None:
        """Take what is no part of the text."""
        self._grow(self._extra.add(delta, snapshot=again))
        if (reasoning := fields.reasoning_of(delta)) and not (again and self._reasoning):
            self._reasoning.append(reasoning)
        if isinstance(content := delta.get("content"), list):
            self._parts += content

    def _join(self, text: str) -> str:
        """Keep half a surrogate pair back until its other half comes, and replace what stays alone."""
        if not self._half and fields.is_whole(text):
            return text
        if not text:
            return text
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return fields.whole(text)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise ValueError(f"the message is over {self._limit} characters")


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        return "".join(part if isinstance(part, str) else _part(part) for part in content)
    return ""


def _part(part: object) -> str:
    """The text of a part of a content, where it is text for the reader: no reasoning, picture or reference."""
    if not isinstance(part, dict) or part.get("type") not in (None, "text", "output_text", "refusal"):
        return ""
    text = part.get("text") or part.get("refusal") or ""
    return text if isinstance(text, str) else ""


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
        else (estimate_tokens(body.decode()), estimate_tokens(reply.reasoning + reply.text + calls), 0)
    )
    return {
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "cached_tokens": cached},
        "cost": cost_microusd(model, reply.model, prompt, completion, cached),
    }
