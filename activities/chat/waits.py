"""How long a provider asks to wait, which it says in a header, in a field of its error or in a sentence."""

import datetime
import email.utils
import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_UNIT = r"(?:milliseconds?|ms|us|µs|ns|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
_AMOUNT = rf"\d+(?:\.\d+)?\s*(?:{_UNIT})?"
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({_UNIT})?", re.IGNORECASE)
_SENTENCE = re.compile(
    rf"(?:(?:try|retry|retrying|come back)(?: again)?(?: in| after)?|retry[-_ ]after|retry ?delay"
    rf"|wait(?: for)?(?: at least)?|available (?:again )?in|resets? (?:in"
    rf"|after))[\s:=\"'~]*({_AMOUNT}(?:\s*(?:,|and)?\s*{_AMOUNT})*)",
    re.IGNORECASE,
)
_EPOCH = 1e9
"""Above this a number of seconds is a moment and not a span."""
_KINDS = ("requests", "tokens", "input-tokens", "output-tokens", "requests-minute", "tokens-minute", "requests-day")


def asked_wait(headers: Mapping[str, str], body: object, message: str, *, limited: bool) -> float | None:
    """Read how long a provider asks to wait, in seconds; None when it does not say.

    Args:
        headers: The answer's headers, in lower case.
        body: The answer's JSON.
        message: The words of its error.
        limited: Whether it is a rate limit, so that the headers that tell when it ends count.
    """
    inner = _inner_headers(body)
    found = retry_after(headers)
    if found is None:
        found = retry_after(inner)
    if found is None:
        found = _field(body)
    if found is None:
        found = _in_words(message)
    if found is None and limited:
        found = _reset({**inner, **headers})
    return found


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read the headers that say it, in seconds; None when they do not."""
    seconds = _number(headers.get("retry-after-ms"))
    if seconds is not None:
        seconds /= 1000
    else:
        seconds = _number(headers.get("retry-after"))
    if seconds is None:
        seconds = _until(headers.get("retry-after")) or _span(headers.get("retry-after", ""))
    return _bounded(seconds)


def _reset(headers: Mapping[str, str]) -> float | None:
    """When the limit that is used up ends; of all that are told, where none says that it is used up."""
    spans: list[tuple[bool, float]] = []
    for prefix in ("x-ratelimit", "ratelimit", "anthropic-ratelimit"):
        for kind in ("", *_KINDS):
            reset, left = _names(prefix, kind)
            value = next((headers[name] for name in reset if name in headers), None)
            if value is None or (seconds := _moment_or_span(value)) is None:
                continue
            remaining = _number(next((headers[name] for name in left if name in headers), None))
            if remaining is None or remaining <= 0:
                spans.append((remaining is not None, seconds))
    used_up = [seconds for certain, seconds in spans if certain]
    return _bounded(max(used_up or [seconds for _, seconds in spans], default=None))


def _names(prefix: str, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    tail = f"-{kind}" if kind else ""
    reset = (f"{prefix}-reset{tail}", f"{prefix}{tail}-reset", *((f"{prefix}-reset-after",) if not kind else ()))
    return reset, (f"{prefix}-remaining{tail}", f"{prefix}{tail}-remaining")


def _moment_or_span(text: str) -> float | None:
    number = _number(text)
    if number is None:
        return _span(text) if _PART.match(text.strip()) and "T" not in text else _until(text)
    if number > _EPOCH * 1000:
        number /= 1000
    return number - time.time() if number > _EPOCH else number


def _field(body: object) -> float | None:
    """A field of the error that says it: ``retry_after``, or RetryInfo's ``retryDelay``."""
    for name, value in _fields(body):
        plain = name.replace("_", "").replace("-", "").lower()
        if plain == "retrydelay" and isinstance(value, dict):
            found = (_number(str(value.get("seconds", 0))) or 0) + (_number(str(value.get("nanos", 0))) or 0) / 1e9
            return _bounded(found)
        if plain in ("retryafter", "retrydelay", "retryafterseconds", "retryin", "retryafterms"):
            text = str(value)
            seconds = _number(text) if _number(text) is not None else _span(text)
            if seconds is not None:
                return _bounded(seconds / 1000 if plain.endswith("ms") else seconds)
    return None


def _fields(body: object, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > 6:
        return
    if isinstance(body, dict):
        yield from body.items()
    for value in body.values() if isinstance(body, dict) else body if isinstance(body, list) else ():
        yield from _fields(value, depth + 1)


def _inner_headers(body: object) -> dict[str, str]:
    """Headers that a gateway hands on inside its error."""
    for name, value in _fields(body):
        if name == "headers" and isinstance(value, dict):
            return {str(key).lower(): str(each) for key, each in value.items()}
    return {}


def _in_words(message: str) -> float | None:
    found = _SENTENCE.search(message)
    return _bounded(_span(found[1])) if found else None


def _span(text: str) -> float | None:
    """Read a span such as ``1m30.5s``, ``20 seconds`` or ``250ms``; a number alone is seconds."""
    parts = _PART.findall(text.strip().lower())
    return sum(float(number) * _seconds(unit) for number, unit in parts) if parts else None


def _seconds(unit: str) -> float:
    """The seconds in a unit, by its name or its first letters."""
    if unit.startswith("milli"):
        return 0.001
    return _UNITS[unit] if unit in _UNITS else _UNITS[unit[:1] or "s"]


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None or seconds == math.inf else max(seconds, 0.0)


def _until(text: str | None) -> float | None:
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return moment.timestamp() - time.time()
