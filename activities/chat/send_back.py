"""What providers want back of their answers, what they refuse, and the variables that say otherwise.

By default a provider gets back what it gave. The table has those whose service is known to want something else; what
another one refuses is found out from its refusal.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.chat.provider import NamedModel
from loom_dsl.agent.provider_fields import SendBack, sent_names, without_names
from loom_dsl.errors import ConfigurationError

STREAM_OPTIONS = "stream_options"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How the service at a host differs.

    Attributes:
        names: Only these fields go back; None for all.
        stream_options: Whether the field of this name, which asks for the usage, is taken.
        calls_only: As in `SendBack`.
        message_fill: As in `SendBack`.
        call_fill: As in `SendBack`, for the models that `filled` finds.
        filled: Which models need what is filled in.
    """

    names: frozenset[str] | None = None
    stream_options: bool = True
    calls_only: bool = False
    message_fill: str = ""
    call_fill: str = ""
    filled: str = ""


_RULES = {
    # It refuses fields that it does not know, and tells the usage unasked. Its reasoning is in parts of the content.
    "api.mistral.ai": _Rule(names=frozenset({"content"}), stream_options=False),
    # Thinking models refuse a call without its reasoning, be it empty; of other messages they ignore it, or refuse it.
    "api.deepseek.com": _Rule(calls_only=True, message_fill='{"reasoning_content":""}'),
    # From version 3 on, a call without a signature is refused. This one is documented for calls of other models.
    "generativelanguage.googleapis.com": _Rule(
        call_fill='{"extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}}}',
        filled=r"gemini-(?![12]\b)",
    ),
}
_DEFAULT = _Rule()
_REFUSES = re.compile(
    r"unsupported|not supported|unknown|unrecogni[sz]ed|not permitted|not allowed|additional propert|unexpected",
    re.IGNORECASE,
)
_WANTS = re.compile(r"must be (?:passed|provided|included|sent|set|present)|missing|required", re.IGNORECASE)
"""A refusal in these words is for the lack of a field."""


def send_back(place: NamedModel, env: Mapping[str, str], refused: frozenset[str] = frozenset()) -> SendBack:
    """Say what a model's provider is sent of the fields that it gave.

    Args:
        place: Where the model is.
        env: The environment: ``NAME_SEND_BACK`` is ``all``, ``none`` or the fields' names, with commas.
        refused: Fields that the provider has refused.
    """
    rule, by = _rule(place), f"{place.provider}@{place.host}"
    told = env.get(variable(place, "SEND_BACK"), "").strip()
    if told.lower() in ("all", "none"):
        rule = _Rule(names=None if told.lower() == "all" else frozenset())
    elif told:
        rule = _Rule(names=frozenset(name.strip() for name in told.split(",") if name.strip()))
    fills = not rule.filled or re.search(rule.filled, place.model, re.IGNORECASE) is not None
    return SendBack(
        by=by,
        model=place.model,
        names=rule.names,
        without=refused,
        calls_only=rule.calls_only,
        message_fill=rule.message_fill if fills else "",
        call_fill=rule.call_fill if fills else "",
    )


def asks_for_usage(place: NamedModel, env: Mapping[str, str]) -> bool:
    """Whether requests to a model have ``stream_options``; ``NAME_STREAM_OPTIONS`` is ``on`` or ``off``.

    Raises:
        ConfigurationError: The variable is something else.
    """
    told = switch(env, variable(place, "STREAM_OPTIONS"))
    return _rule(place).stream_options if told is None else told


def writes_thoughts(place: NamedModel, env: Mapping[str, str]) -> bool | None:
    """Whether a provider's models write their reasoning into their text; ``NAME_THINK_TAGS`` is ``on`` or ``off``.

    Returns:
        None: nothing is said, so that a model's name tells.

    Raises:
        ConfigurationError: The variable is something else.
    """
    return switch(env, variable(place, "THINK_TAGS"))


def switch(env: Mapping[str, str], name: str) -> bool | None:
    """Read a variable that is ``on`` or ``off``; None where it is not set.

    Raises:
        ConfigurationError: It is something else.
    """
    told = env.get(name, "").strip().lower()
    if told in ("on", "true", "1", "yes"):
        return True
    if told in ("off", "false", "0", "no"):
        return False
    if told:
        raise ConfigurationError(f"{name} is {told[:40]!r}; set it to on or off, or not at all.")
    return None


def variable(place: NamedModel, what: str) -> str:
    """Name the variable of a provider that says something about it."""
    return f"{place.prefix}_{what}"


def refused_fields(body: bytes, told: str) -> frozenset[str]:
    """Find the fields that a request can do without and whose refusal a provider's words tell.

    Args:
        body: The request.
        told: What the provider said.
    """
    if not _REFUSES.search(told) or _WANTS.search(told):
        return frozenset()
    request = _request(body)
    mine = sent_names(request.get("messages") or ()) | ({STREAM_OPTIONS} & request.keys())
    return frozenset(name for name in mine if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", told))


def without_fields(body: bytes, names: frozenset[str]) -> bytes:
    """Write a request without some fields that it can do without."""
    request = _request(body)
    if STREAM_OPTIONS in names:
        request.pop(STREAM_OPTIONS, None)
    request["messages"] = [without_names(message, names) for message in request["messages"]]
    return json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _request(body: bytes) -> dict[str, Any]:
    value = json.loads(body)
    return value if isinstance(value, dict) else {}


def _rule(place: NamedModel) -> _Rule:
    return next((rule for host, rule in _RULES.items() if place.host == host), _DEFAULT)
