"""What the body of an error says: its codes, its words and the status that it names.

Bodies are nested, named and typed as each provider likes; read is every form that is common.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MESSAGES = (
    "message",
    "msg",
    "detail",
    "error_message",
    "error_msg",
    "errorMessage",
    "Message",
    "status_msg",
    "error_description",
    "description",
    "faultstring",
    "title",
)
_NUMBERS = ("code", "status", "status_code", "statusCode", "http_status", "http_code", "error_code", "errorCode")
_CODES = (*_NUMBERS, "type", "reason", "err_type", "Code", "quotaId")
_INSIDE = ("error", "errors", "fault", "base_resp", "minimax")
_MOST, _DEEPEST = 4_000, 4
_MINIMAX = {1001: 504, 1002: 429, 1004: 401, 1008: 402, 1039: 429, 1041: 429, 2049: 401, 2056: 429}
_STATUSES = (
    (
        429,
        r"rate_?limit|too_?many_?requests|resource_?exhausted|throttl|\b130[235]\b|concurrency"
        r"|limitrequests|slow_down",
    ),
    (503, r"overload|capacity|unavailable|busy"),
    (402, r"insufficient_(?:quota|balance)|billing|payment"),
    (401, r"authenticat|api_?key|unauthorized"),
    (403, r"permission|forbidden|access_?denied"),
    (404, r"not_?found|\bmodel_not"),
    (504, r"time_?d?_?out|deadline"),
    (500, r"internal|server_?error|aborted|cancelled|upstream|\bunknown"),
    (400, r"invalid|bad_?request|precondition|out_of_range|unprocessable|validation|context_length|content_filter"),
)
_IN_WORDS = (
    (429, r"rate limit|too many requests|resource.?exhausted|request limit reached"),
    (503, r"overload|unavailable|at capacity"),
    (401, r"invalid api key|incorrect api key|unauthorized|invalid authentication|authentication (?:error|fail)"),
    (404, r"^not found$|no such route|no route|cannot (?:post|get) /"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorText:
    """What an error says.

    Attributes:
        codes: Its codes, types and reasons, in one text.
        message: Its words; empty when there are none.
        status: The HTTP status that it names; None when it names none.
        details: What else it says, for words that decide.
        is_google: Whether it has the form of Google's errors, whose quotas are mostly rates.
    """

    codes: str
    message: str
    status: int | None
    details: str = ""
    is_google: bool = False

    @property
    def all(self) -> str:
        """Everything that it says, in one text."""
        return f"{self.codes} {self.message} {self.details}"


def read_error(body: object) -> ErrorText:
    """Read the body of an error: its JSON, or its text."""
    if isinstance(body, str):
        body = _parsed(body)
    if isinstance(body, str) or body is None:
        return ErrorText(codes="", message=body or "", status=None)
    levels = list(_levels(body))
    message = next((text for level in levels for text in _messages(level)), "")
    codes = " ".join(dict.fromkeys(word for level in levels for word in _codes(level)))
    numbers = [number for level in reversed(levels) for number in _numbers(level)]
    raw = next((level["raw"] for level in levels if isinstance(level.get("raw"), str)), "")
    if raw:
        inner = read_error(raw)
        codes, message = f"{codes} {inner.codes}", f"{message}: {inner.message}" if inner.message else message
    status = next((number for number in numbers if 400 <= number < 600), None)
    return ErrorText(
        codes=codes,
        message=message,
        status=status if status is not None else _minimax(levels),
        details=json.dumps(body, default=str, ensure_ascii=False)[:_MOST],
        is_google="RESOURCE_EXHAUSTED" in codes or "google" in str(levels)[:_MOST].lower(),
    )


def implied_status(said: ErrorText) -> int | None:
    """Return the HTTP status that an error without one means; None when nothing tells."""
    if said.status is not None:
        return said.status
    for text, table in ((said.codes, _STATUSES), (said.message, _IN_WORDS)):
        for status, words in table:
            if re.search(words, text, re.IGNORECASE):
                return status
    named = re.search(r"(?:error|status)(?: code)?:?\s*([45]\d\d)\b|^\s*([45]\d\d)\b", said.message, re.IGNORECASE)
    return int(named[1] or named[2]) if named else None


def _parsed(text: str) -> object:
    if text.lstrip()[:1] in ("{", "["):
        try:
            value: object = json.loads(text)
        except ValueError:
            return text
        return value
    return text


def _levels(body: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The objects of an error, the innermost that says `error` first."""
    if isinstance(body, str) and depth:
        body = _parsed(body)
    if isinstance(body, list):
        for each in body[:3]:
            yield from _levels(each, depth)
    elif isinstance(body, dict):
        for name in _INSIDE if depth < _DEEPEST else ():
            if body.get(name):
                yield from _levels(body[name], depth + 1)
        yield body
        yield from _beside(body)
    elif isinstance(body, str) and body:
        yield {"message": body}


def _beside(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What an error says besides its words: the codes in its details."""
    for name in ("metadata", "details", "innererror"):
        inner = body.get(name)
        for each in inner if isinstance(inner, list) else [inner]:
            if isinstance(each, dict):
                yield {key: value for key, value in each.items() if key not in _MESSAGES}


def _messages(level: Mapping[str, Any]) -> Iterator[str]:
    for name in _MESSAGES:
        value = level.get(name)
        if isinstance(value, dict) and "role" in value:
            continue  # a message of a conversation
        if value and not isinstance(value, bool):
            yield value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _codes(level: Mapping[str, Any]) -> Iterator[str]:
    for name in _CODES:
        value = level.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            yield str(value)


def _numbers(level: Mapping[str, Any]) -> Iterator[int]:
    for name in _NUMBERS:
        value = str(level.get(name)).removesuffix(".0")
        if value.isascii() and value.isdecimal():
            yield int(value)


def _minimax(levels: list[Mapping[str, Any]]) -> int | None:
    number = next((level["status_code"] for level in levels if "status_msg" in level and "status_code" in level), None)
    return _MINIMAX.get(number) if isinstance(number, int) else None
