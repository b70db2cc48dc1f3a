"""The fields that a provider adds to a message: kept verbatim, since some want them back with the next request.

A stream brings them in pieces, like the text. What a piece means is read from its form: strings go on, objects are
merged, entries of lists belong together by their index, and what names or signs something is said whole each time.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

_WHOLE = re.compile(r"type|id|index|format|role|name|object|status|model|.*signature|.*_id|.*_at")
"""Names of strings that are not said in pieces."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_OWN = {"role", "content", "refusal", "tool_calls", "function_call"}
"""Fields of a message that an answer has in a place of its own."""


class Merged:
    """Fields that are put together from the pieces of a stream."""

    def __init__(self, own: set[str]) -> None:
        self._own = own
        self._found: dict[str, Any] = {}

    def add(self, piece: Mapping[str, Any], *, snapshot: bool = False) -> int:
        """Take what is not the message's own, and return how many characters of text came with it.

        Args:
            piece: A part of a message, or of a tool call.
            snapshot: Whether it says the whole again, so that only what was not said yet is new.
        """
        size = 0
        for name, value in piece.items():
            if name in self._own or value is None or (snapshot and name in self._found):
                continue
            size += _size(value)
            self._found[name] = _merged(name, self._found.get(name), value)
        return size

    def fields(self) -> dict[str, Any]:
        """Return what was found."""
        return {whole(name): written(value) for name, value in self._found.items()}


def of_message() -> Merged:
    """Begin to collect the fields of a message."""
    return Merged(_OWN)


def of_call() -> Merged:
    """Begin to collect the fields of a tool call."""
    return Merged({"id", "index", "type", "function"})


def parts_merged(old: list[Any], new: list[Any]) -> list[Any]:
    """Put the parts of a content together: neighbours of one type without an index go on in each other."""
    return _lists([*old], new, neighbours=True)


def reasoning_of(delta: Mapping[str, Any]) -> str:
    """Return the readable reasoning in a piece of a message, wherever the provider puts it.

    Some say the same twice, under two names; it is taken once.
    """
    for name in ("reasoning_content", "reasoning", "thinking"):
        value = delta.get(name)
        if isinstance(value, dict):
            value = value.get("content") or value.get("text")
        if isinstance(value, str) and value:
            return value
    for name in ("reasoning_details", "thinking_blocks", "content"):
        if text := _reasoning_parts(delta.get(name)):
            return text
    return ""


def _reasoning_parts(parts: object) -> str:
    texts = []
    for part in parts if isinstance(parts, list) else ():
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if kind.startswith(("reasoning", "thinking", "summary")):
            value = part.get("thinking") or part.get("reasoning") or part.get("summary") or part.get("text") or ""
            if isinstance(value, list):
                value = "".join(str(each.get("text") or "") for each in value if isinstance(each, dict))
            texts.append(value if isinstance(value, str) else "")
    return "".join(texts)


class _Text:
    """A string that goes on; joined once, at the end."""

    def __init__(self, first: str) -> None:
        self.pieces = [first]


def _merged(name: str, old: Any, new: Any) -> Any:
    if isinstance(new, str) and not _WHOLE.fullmatch(name):
        if not isinstance(old, _Text):
            return _Text(new)
        old.pieces.append(new)
        return old
    if isinstance(new, dict):
        into = old if isinstance(old, dict) else {}
        for key, value in new.items():
            if value is not None:
                into[key] = _merged(key, into.get(key), value)
        return into
    if isinstance(new, list):
        return _lists(old if isinstance(old, list) else [], new)
    return old if new == "" and old else new


def _lists(into: list[Any], new: list[Any], *, neighbours: bool = False) -> list[Any]:
    for entry in new:
        known = _place(into, entry, neighbours=neighbours)
        if known is None:
            into.append(_merged("", {} if isinstance(entry, dict) else None, entry))
        else:
            _merged("", known, entry)
    return into


def _place(into: list[Any], entry: Any, *, neighbours: bool) -> dict[str, Any] | None:
    """The entry of a list that this one continues."""
    if not isinstance(entry, dict):
        return None
    index, kind = entry.get("index"), entry.get("type")
    if index is not None:
        same = (each for each in into if isinstance(each, dict) and each.get("index") == index)
        return next((each for each in same if each.get("type") in (kind, None) or kind is None), None)
    last = into[-1] if into and isinstance(into[-1], dict) else None
    return last if neighbours and last is not None and last.get("type") == kind and "index" not in last else None


def written(value: Any) -> Any:
    """Return merged fields as JSON."""
    if isinstance(value, _Text):
        return whole("".join(value.pieces))
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {whole(key): written(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [written(each) for each in value] if isinstance(value, list) else value


def is_whole(text: str) -> bool:
    """Whether a text has no half of a surrogate pair in it."""
    return not _SURROGATE.search(text)


def whole(text: str) -> str:
    """Return a text with its surrogate pairs joined; a half that stays alone is replaced, since it has no UTF-8."""
    return text if is_whole(text) else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(len(key) + _size(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str) else 8
