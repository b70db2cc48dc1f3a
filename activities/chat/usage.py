"""The tokens that a provider counted, wherever it puts the numbers and whatever it leaves out.

A stream may tell usage in every chunk, in the last one, or in parts. What comes later counts, but nothing does not take
back something.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MOST = 10**12
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "prompt_token_details", "cache")
_CACHED = (
    "cached_tokens",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
    "cached_prompt_tokens",
    "cache_read_tokens",
    "num_cached_tokens",
    "cached_content_token_count",
)
_WRITTEN = "cache_creation_input_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that the provider counted.

    Attributes:
        prompt_tokens: Tokens of the request, cached ones included.
        completion_tokens: Tokens of the answer, reasoning included.
        cached_tokens: How many of the request's tokens came from the provider's cache.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class UsageCount:
    """Collects what the chunks of an answer say of its usage."""

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take a chunk."""
        for usage in _places(chunk):
            for name, value in usage.items():
                if name not in self._told or _says_something(value):
                    self._told[name] = value

    def usage(self) -> Usage | None:
        """Return the usage; None when the provider told none."""
        prompt = _first(self._told, "prompt_tokens", "input_tokens", "prompt_token_count")
        completion = _first(self._told, "completion_tokens", "output_tokens", "candidates_token_count")
        total = _first(self._told, "total_tokens", "total_token_count")
        if prompt is None and completion is None:
            return None if total is None else Usage(prompt_tokens=total, completion_tokens=0)
        if prompt is None:
            prompt = max((total or 0) - (completion or 0), 0)
        cached = max((_count(each.get(name)) or 0 for each in self._counts() for name in _CACHED), default=0)
        prompt += self._outside(prompt, cached)
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=max(self._completion(completion or 0), (total or 0) - prompt),
            cached_tokens=min(cached, prompt),
        )

    def _counts(self) -> Iterator[Mapping[str, Any]]:
        yield self._told
        for name in _DETAILS:
            if isinstance(details := self._told.get(name), dict):
                yield details

    def _outside(self, prompt: int, cached: int) -> int:
        """The cached tokens that are not in the request's count, as where the form is Anthropic's."""
        own = _count(self._told.get("prompt_tokens")) is None and "cache_read_input_tokens" in self._told
        return cached + (_count(self._told.get(_WRITTEN)) or 0) if own or cached > prompt else 0

    def _completion(self, completion: int) -> int:
        """The answer's tokens with its reasoning, which is more than the rest only where it is counted beside it."""
        reasoning = _count(self._told.get("reasoning_tokens")) or 0
        for name in ("completion_tokens_details", "output_tokens_details"):
            if isinstance(details := self._told.get(name), dict):
                reasoning = max(reasoning, _count(details.get("reasoning_tokens")) or 0)
        return completion + reasoning if reasoning > completion else completion


def _places(chunk: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    choices = chunk.get("choices")
    holders = [chunk, chunk.get("x_groq"), *(choices if isinstance(choices, list) else ())]
    for holder in holders:
        for each in (holder, *((holder.get("delta"), holder.get("message")) if isinstance(holder, dict) else ())):
            if isinstance(each, dict) and isinstance(usage := each.get("usage"), dict):
                yield usage


def _says_something(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_says_something, value.values()))
    return bool(_count(value))


def _first(told: Mapping[str, Any], *names: str) -> int | None:
    found = [count for name in names if (count := _count(told.get(name))) is not None]
    return max(found, default=None)


def _count(value: object) -> int | None:
    """A count of tokens; None for what is none, such as a negative one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return round(number) if math.isfinite(number) and 0 <= number <= _MOST else None
