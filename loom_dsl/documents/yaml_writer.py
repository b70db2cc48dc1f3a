"""JSON data as YAML text that `loom_dsl.documents.document` reads as the same data.

A list or a mapping stands on one line where it fits, and text of several lines as it is.
"""

import re
from collections.abc import Iterator

from loom_dsl.errors import Diagnostic, DocumentError
from loom_dsl.text.canonical import Json, canonical_json

WIDTH = 110
"""Most characters of a line that holds a list or a mapping."""
MAX_KEY = 1_000
"""YAML finds a longer one only in its long form."""

_PLAIN = r"[A-Za-z_][A-Za-z0-9_ .()'\"=<>+*/%!$&|@;?^~-]*"
_ON_A_LINE = re.compile(rf"(?:{_PLAIN}(?::(?=[A-Za-z0-9_])[A-Za-z0-9_.-]+)?|(?:[0-9]+(?:ms|[smhd]))+)")
"""What needs no quotes anywhere."""
_ALONE = re.compile(r"[A-Za-z_$(].*|(?:[0-9]+(?:ms|[smhd]))+")
"""What needs none as a whole line's value, if `_needs_quotes` does not say otherwise."""
_WORDS = ("null", "true", "false")


class Rows(dict[str, Json]):
    """A mapping that has a line for each field, however short it is."""


def write_yaml(data: Rows) -> str:
    """Write data as a document.

    Raises:
        DocumentError: It holds what no document can: half of a surrogate pair, an endless number, a very long key.
    """
    return "".join(f"{line}\n" for line in _lines(data, ""))


def _lines(value: Json, pad: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(f"{pad}{_key(key)}:", item, f"{pad}  ")
        return
    for item in value:
        if _is_long(item, len(pad) + 2):
            first, *rest = _lines(item, f"{pad}  ")
            yield f"{pad}- {first[len(pad) + 2 :]}"
            yield from rest
        else:
            yield from _entry(f"{pad}-", item, f"{pad}  ")


def _entry(head: str, item: Json, inner: str) -> Iterator[str]:
    if isinstance(item, str):
        if _is_literal(item):
            yield f"{head} |{'' if item.endswith(chr(10)) else '-'}"
            yield from (f"{inner}{line}" if line else "" for line in item.removesuffix("\n").split("\n"))
        else:
            yield f"{head} {_text(item, alone=True)}"
        return
    if _is_long(item, len(head) + 1):
        yield head
        yield from _lines(item, inner)
    else:
        yield f"{head} {_flow(item)}"


def _is_long(item: Json, column: int) -> bool:
    """Whether something does not end on the line where it begins, at this column."""
    if not isinstance(item, (dict, list)) or not item:
        return False
    return isinstance(item, Rows) or _has_lines(item) or column + len(_flow(item)) > WIDTH


def _has_lines(item: Json) -> bool:
    if isinstance(item, str):
        return _is_literal(item)
    inside = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return any(map(_has_lines, inside))


def _flow(value: Json) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        return _text(value, alone=False)
    try:
        return canonical_json(value)
    except ValueError:
        raise _refusal(f"the number {value!r} is not JSON") from None


def _key(key: str) -> str:
    if len(key) > MAX_KEY:
        raise _refusal(f"the field {key[:40]!r}… has a name of over {MAX_KEY:,} characters")
    return _text(key, alone=False)


def _text(text: str, *, alone: bool) -> str:
    plain = _ALONE if alone else _ON_A_LINE
    if plain.fullmatch(text) and not _needs_quotes(text):
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _needs_quotes(text: str) -> bool:
    return text.lower() in _WORDS or text != text.strip() or not text.isprintable() or _ends_early(text)


def _ends_early(text: str) -> bool:
    return ": " in text or " #" in text or text.endswith(":")


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    number = ord(character)
    if 0xD800 <= number <= 0xDFFF:
        raise _refusal("half of a surrogate pair is not a character, so no document can hold it")
    if character in "\n\t":
        return {"\n": "\\n", "\t": "\\t"}[character]
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _is_literal(text: str) -> bool:
    """Whether a text is read as it is when each of its lines stands on one."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and all(line == line.rstrip() and line.isprintable() for line in lines)
        and lines[0] == lines[0].lstrip()
        and bool(lines[0] and lines[-1])
    )


def _refusal(message: str) -> DocumentError:
    return DocumentError([Diagnostic("L004", message)])
