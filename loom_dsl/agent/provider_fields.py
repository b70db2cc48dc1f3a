"""A provider's own fields in an answer: reasoning, signatures and whatever else it wants back with the next request.

Loom does not know what they mean. They are kept beside the message as they came, and go back to the provider and model
that gave them, to no other: a signature that another one made is refused, and reasoning is nobody else's business.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom_dsl.text.redaction import mask_known

Fields = Mapping[str, Any]
_MESSAGE = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})
_CALL = frozenset({"id", "type", "function", "index"})
_ONLY_GIVEN = frozenset({"refusal", "annotations", "audio", "function_call", "logprobs"})
"""Fields of the API's answers that its requests do not have, or have in another form."""
_READABLE = frozenset({"reasoning", "reasoning_content", "reasoning_text", "thinking"})
"""Fields whose text is made for reading and has no signature over it, so that it may be masked and still be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFields:
    """What a provider put into an answer beside the text and the calls.

    Attributes:
        by: Who gave it: the provider's name and host, as ``deepseek@api.deepseek.com``.
        model: The model that was asked, by the provider's name for it.
        message: The message's fields.
        calls: The fields of each call, in the message's order.
        reasoning: The reasoning as text, for people; empty where there is none.
    """

    by: str
    model: str
    message: Fields
    calls: tuple[Fields, ...] = ()
    reasoning: str = ""

    def dump(self) -> bytes:
        """Write it as JSON, for the store."""
        data = {
            "by": self.by,
            "model": self.model,
            "message": dict(self.message),
            "calls": [dict(fields) for fields in self.calls],
            "reasoning": self.reasoning,
        }
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes) -> "ProviderFields":
        """Read what `dump` wrote."""
        kept = json.loads(data)
        return cls(**{**kept, "calls": tuple(kept["calls"])})


def given_fields(
    *, by: str, model: str, message: Fields, calls: Iterable[Fields], reasoning: str, secrets: Mapping[str, str]
) -> ProviderFields | None:
    """Choose what of an answer's fields is kept; None where there is nothing.

    Known secrets are masked in text that is made for reading. Anything else in which one stands is left out, because a
    signature that was changed is refused.
    """
    kept, kept_calls = _kept(message, _MESSAGE, secrets), [_kept(fields, _CALL, secrets) for fields in calls]
    if not kept and not any(kept_calls) and not reasoning:
        return None
    reasoning = mask_known(reasoning, secrets)
    return ProviderFields(by=by, model=model, message=kept, calls=tuple(kept_calls), reasoning=reasoning)


def _kept(fields: Fields, own: frozenset[str], secrets: Mapping[str, str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in fields.items():
        parts = name == "content" and isinstance(value, list)  # of which some are no text, such as reasoning
        if value is None or (name in own and not parts) or name in _ONLY_GIVEN:
            continue
        if isinstance(value, str) and name in _READABLE:
            kept[name] = mask_known(value, secrets)
        elif mask_known(name, secrets) == name and _is_clean(value, secrets):
            kept[name] = value
    return kept


def _is_clean(value: object, secrets: Mapping[str, str]) -> bool:
    """Whether a value can be written as JSON again, and holds no secret that is known."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return False
    return mask_known(text, secrets) == text


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBack:
    """What a model's provider is sent of the fields that it gave.

    Attributes:
        by: The provider, as `ProviderFields.by` names it.
        model: The model that is asked, by the provider's name for it.
        names: Only these fields; None for all.
        without: Fields that the provider has refused.
        calls_only: Whether a message without calls goes back without its fields.
        message_fill: Fields as JSON that a message with calls has where nobody gave them.
        call_fill: Fields as JSON of the first call in a message whose fields are not this provider's.
    """

    by: str
    model: str
    names: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    calls_only: bool = False
    message_fill: str = ""
    call_fill: str = ""

    @property
    def fills(self) -> bool:
        """Whether also messages of others are changed."""
        return bool(self.message_fill or self.call_fill)

    def takes(self, given: ProviderFields | None) -> bool:
        """Whether this provider and model gave the fields."""
        return given is not None and (given.by, given.model) == (self.by, self.model)

    def message(self, message: Fields, given: ProviderFields | None) -> dict[str, Any]:
        """Write a message as the provider gets it back.

        Args:
            message: As it is kept, without anybody's fields.
            given: The fields that belong to it.
        """
        calls: Sequence[Fields] = message.get("tool_calls") or ()
        took = given if given is not None and self.takes(given) and (calls or not self.calls_only) else None
        sent = {**message, **self._chosen(took.message if took else {})}
        if not calls:
            return sent
        fields = [self._chosen(one) for one in (took.calls if took else ())]
        if took is None and self.call_fill:
            fields = [json.loads(self.call_fill)]
        for name, value in (json.loads(self.message_fill) if self.message_fill else {}).items():
            sent.setdefault(name, value)
        fields += [{}] * (len(calls) - len(fields))
        sent["tool_calls"] = [{**call, **more} for call, more in zip(calls, fields, strict=False)]
        return sent

    def _chosen(self, fields: Fields) -> dict[str, Any]:
        return {
            name: value
            for name, value in fields.items()
            if name not in self.without and (self.names is None or name in self.names)
        }


def sent_names(messages: Iterable[object]) -> set[str]:
    """Give the names of all fields in a request's messages that are a provider's own."""
    found: set[str] = set()
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") != "assistant":
            continue
        found |= message.keys() - _MESSAGE
        for call in message.get("tool_calls") or ():
            found |= call.keys() - _CALL
    return found


def without_names(message: Any, names: Iterable[str]) -> Any:
    """Write an assistant's message without some of a provider's own fields."""
    gone = set(names) - _MESSAGE - _CALL
    if not isinstance(message, Mapping) or message.get("role") != "assistant":
        return message
    left = {name: value for name, value in message.items() if name not in gone}
    if left.get("tool_calls"):
        left["tool_calls"] = [{k: v for k, v in call.items() if k not in gone} for call in left["tool_calls"]]
    return left
