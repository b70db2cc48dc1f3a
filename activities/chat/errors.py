"""What a provider's refusal means to Loom: try again, wait, compress, or tell a person.

Providers agree on the status codes and on little else, so a refusal is read from its status, its code
and its words. What is passed on is cut and never holds a credential.
"""

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loom_dsl.errors import (
    ContextLengthExceeded,
    ModelAccessRefused,
    ModelError,
    ModelRateLimit,
    ModelRequestRefused,
    ModelUnavailable,
)

_MESSAGE_LIMIT = 500
_SECRETS = re.compile(r"\b(?:sk|pk|gsk|xai|key|AIza)[-_][A-Za-z0-9_*.-]{6,}|(?i:bearer)\s+[^\s\"',;]+")
_CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"}
_CONTEXT_WORDS = re.compile(
    r"context.?length|context.?window|context size|maximum context|prompt is too long|input is too long"
    r"|too many (?:input )?tokens|reduce the length of the (?:messages|input|prompt)"
    r"|token count.{0,40}exceeds|exceeds? the (?:maximum|max|model's).{0,40}tokens|request too large",
    re.IGNORECASE,
)
_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
_AGAIN = {408, 409, 425}
_ACCESS = {401, 402, 403, 404, *range(300, 400)}
"""Statuses that tell of the credential, the account, the model's name or the address, which a person can put right."""
_CONTENT = re.compile(r"content.?(?:policy|filter|management)|moderation|flagged|safety|guardrail", re.IGNORECASE)
"""Words of a refusal that is about what was said, and not about who says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What messages need to say about the other side.

    Attributes:
        host: The host of the base URL, with its port.
        url: The address of chat completions.
        api_key: The credential, to be masked; empty for none.
        key_name: The environment variable that holds the credential.
        url_name: The environment variable that holds the base URL.
    """

    host: str
    url: str
    api_key: str = field(repr=False)
    key_name: str
    url_name: str

    def masked(self, text: str) -> str:
        """Return a provider's text, cut, and without anything that looks like a credential."""
        if self.api_key:
            text = text.replace(self.api_key, "***")
        text = " ".join(_SECRETS.sub("***", text[: 4 * _MESSAGE_LIMIT]).split())
        return text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 1] + "…"


def status_error(
    provider: Provider, status: int, body: object, headers: Mapping[str, str], *, model: str
) -> ModelError:
    """Return the error that an HTTP status means.

    Args:
        provider: Who answered.
        status: The HTTP status.
        body: The answer's JSON, or its text.
        headers: The answer's headers, in lower case.
        model: The model that was asked for.
    """
    code, kind, message = _words(body)
    said = provider.masked(message).rstrip(".") or "no reason given"
    told = f"{provider.host} answered {status}: {said}"
    wait = retry_after(headers)
    if _is_context(status, code, message):
        return ContextLengthExceeded(
            f"The conversation is too long for the model {model!r}: {said}. Take a larger model, or set "
            "limits.max_context_tokens to what this one takes."
        )
    again = headers.get("x-should-retry")
    if code in _QUOTA or kind in _QUOTA:
        return ModelAccessRefused(f"{told}. The account's quota is used up: look at its plan and billing.")
    if again == "false" and status not in (401, 403, 404):
        later = status == 429 or status >= 500 or status in _AGAIN  # what a person may try again, and we may not
        return (ModelAccessRefused if later else ModelRequestRefused)(f"{told}. The provider asks not to try again.")
    if status == 429:
        return ModelRateLimit(f"{told}. Lower the rate, or wait.", retry_after=wait)
    if status >= 500 or status in _AGAIN or again == "true":
        return ModelUnavailable(f"{told}. The provider is failing; look at its status page.", retry_after=wait)
    if status in (400, 401, 403) and _CONTENT.search(f"{code} {kind} {message}"):
        return ModelRequestRefused(f"{provider.host} refuses the content ({status}): {said}")
    refused = ModelAccessRefused if status in _ACCESS else ModelRequestRefused
    return refused(_refusal(provider, status, said, model, headers))


def chunk_error(provider: Provider, error: object, *, model: str) -> ModelError:
    """Return the error that an ``error`` object inside a 200 answer means."""
    code, kind, message = _words({"error": error})
    words = f"{code} {kind}"
    status = int(code) if code.isdigit() and 400 <= int(code) < 600 else 500
    if "rate_limit" in words or "overloaded" in words:
        status = 429 if "rate_limit" in words else 529
    elif "authentication" in words or "api_key" in words:
        status = 401
    elif "invalid_request" in words:
        status = 400
    return status_error(provider, status, {"error": {"code": code, "type": kind, "message": message}}, {}, model=model)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read how long the provider asks to wait, in seconds; None when it does not say."""
    seconds = _number(headers.get("retry-after-ms"))
    if seconds is not None:
        seconds /= 1000
    else:
        seconds = _number(headers.get("retry-after"))
    if seconds is None:
        seconds = _until(headers.get("retry-after"))
    return None if seconds is None or seconds == math.inf else max(seconds, 0.0)


def _refusal(provider: Provider, status: int, said: str, model: str, headers: Mapping[str, str]) -> str:
    if status in (401, 403):
        return (
            f"{provider.host} refuses the credential ({status}): {said}. "
            f"Set {provider.key_name} to a key that is valid there, or {provider.url_name} to where the key belongs."
        )
    if status == 404:
        return (
            f"{provider.url} answered 404 for the model {model!r}: {said}. Check the model's name, "
            f"and that {provider.url_name} is the API's base address (most end in /v1)."
        )
    if 300 <= status < 400:
        target = provider.masked(headers.get("location", "another address"))
        return f"{provider.host} redirects to {target}. Set {provider.url_name} to the final address."
    return f"{provider.host} refuses the request ({status}): {said}"


def _is_context(status: int, code: str, message: str) -> bool:
    if code in _CONTEXT_CODES or status == 413:
        return True
    # A rate limit that one request alone exceeds is not helped by waiting; its words say "request too large".
    words = _CONTEXT_WORDS.search(message)
    return bool(words) and (status in (400, 422, 500) or (status == 429 and "too large" in message.lower()))


def _words(body: object) -> tuple[str, str, str]:
    """Return code, type and message of an error body, in whichever of the common forms it comes."""
    if isinstance(body, list) and body:
        body = body[0]
    error: Any = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return "", "", "" if error is None else str(error)
    message = error.get("message") or error.get("detail") or error.get("msg") or ""
    if not isinstance(message, str):
        message = json.dumps(message, default=str)
    return str(error.get("code") or ""), str(error.get("type") or ""), message


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _until(text: str | None) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
    return None if moment is None else moment.timestamp() - time.time()
