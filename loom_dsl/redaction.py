"""Secrets out of text, and long text down to size.

Known values are masked first, under their names; then whatever looks like a credential; then what stands beside a name
that says that it is one. Masks are left alone when a
text is masked again, so the result does not depend on how often it passed through here. Every pattern takes linear
time: the text comes from tools and models.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from urllib.parse import quote, quote_plus

from loom_dsl.redaction_patterns import NAMED, SHAPES, TELLING, is_secret_value

SHORTEST_KNOWN = 8
"""Known values with fewer characters are not looked for: they would occur by chance."""

_MASK = re.compile(r"(\$\{secret:[A-Za-z0-9_.-]{1,64}\}|\[redacted:[a-z-]{1,32}\])")


def redact(text: str, known: Mapping[str, str] | None = None) -> str:
    """Mask the secrets in a text.

    Args:
        text: Any text, such as a tool's output.
        known: Names and values of secrets. A value is also found in base64, as
            hexadecimal digits, in a URL and in a JSON string.

    Returns:
        The text with `${secret:NAME}` for known values and `[redacted:KIND]` for what looks like a credential.
    """
    text = _mask_known(text, known or {})
    for kind, pattern in SHAPES:
        text = _outside_masks(text, partial(pattern.sub, partial(_cover, kind)))
    return _outside_masks(text, _mask_named)


def contains_secret(text: str, known: Mapping[str, str] | None = None) -> bool:
    """Say whether `redact` would mask anything in the text."""
    return redact(text, known) != text


def mask_known(text: str, known: Mapping[str, str]) -> str:
    """Mask known values only: for text that must stay as it is otherwise, such as the arguments of a call."""
    return _mask_known(text, known)


def cut_middle(text: str, limit: int = 10_000) -> tuple[str, bool]:
    """Shorten a text to at most `limit` characters by leaving out its middle, and say so where it was.

    Args:
        text: Any text.
        limit: Characters that may be left, the mark included; at least 64.

    Returns:
        The text, and whether it was cut.

    Raises:
        ValueError: The limit leaves no room for the mark.
    """
    if limit < 64:
        raise ValueError(f"a limit of {limit} characters is too small; give at least 64")
    if len(text) <= limit:
        return text, False
    room = limit - len(_cut_mark(len(text)))
    head, tail = room - room // 2, room // 2
    return text[:head] + _cut_mark(len(text) - head - tail) + text[len(text) - tail :], True


def _cut_mark(count: int) -> str:
    return f"\n[... {count} characters left out ...]\n"


def _cover(kind: str, found: re.Match[str]) -> str:
    """Replace the secret part of a match: its named group, or all of it."""
    if found.lastgroup == "none":
        return found[0]
    start, end = found.span(found.lastgroup) if found.lastgroup else found.span()
    whole, base = found[0], found.start()
    return f"{whole[: start - base]}[redacted:{kind}]{whole[end - base :]}"


def _cover_named(found: re.Match[str]) -> str:
    """Replace the value beside a telling name, unless it plainly is none."""
    group = found.lastgroup or "bare"
    name = found[0][: found.start(group) - found.start()]
    if not is_secret_value(name.strip("\"' \t"), found[group], quoted=group != "bare"):
        return found[0]
    return _cover("named", found)


def _mask_named(text: str) -> str:
    """Mask what stands beside a telling name, line by line: most lines have none, and are seen through quickly."""
    if not _may_tell(text):
        return text
    return "\n".join(NAMED.sub(_cover_named, line) if _may_tell(line) else line for line in text.split("\n"))


def _may_tell(text: str) -> bool:
    folded = text.casefold()
    return any(word in folded for word in TELLING)


def _outside_masks(text: str, change: Callable[[str], str]) -> str:
    if "[redacted:" not in text and "${secret:" not in text:
        return change(text)
    parts = _MASK.split(text)
    return "".join(part if position % 2 else change(part) for position, part in enumerate(parts))


def _mask_known(text: str, known: Mapping[str, str]) -> str:
    # Each form is looked for by itself first: a pattern of all of them tries every one at every character.
    found = {form: mask for form, mask in _masks(tuple(sorted(known.items()))) if form in text} if known else {}
    if not found:
        return text
    either = re.compile("|".join(re.escape(form) for form in sorted(found, key=lambda form: (-len(form), form))))
    return _outside_masks(text, lambda part: either.sub(lambda match: found[match[0]], part))


@lru_cache(maxsize=16)
def _masks(known: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Give every form of every value, with the mask of the first name that it belongs to."""
    masks: dict[str, str] = {}
    for name, value in known:
        if len(value) >= SHORTEST_KNOWN:
            mask = f"${{secret:{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:64] or '_'}}}"
            for form in _forms(value):
                masks.setdefault(form, mask)
    return tuple(masks.items())


def _forms(value: str) -> set[str]:
    """Write a value in the ways in which it travels. In base64 it may start at any of three places of a longer text."""
    raw = value.encode("utf-8", "surrogatepass")
    forms = {value, quote(raw, safe=""), quote(raw), quote_plus(raw)}
    forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    escaped = json.dumps(value)[1:-1]
    forms |= {raw.hex(), raw.hex().upper(), json.dumps(escaped)[1:-1], escaped.replace("/", "\\/")}
    forms |= {
        re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form) for form in (quote(raw, safe=""), quote(raw))
    }
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        forms.add(encode(raw).decode())
        for offset in range(3):
            encoded = encode(b"\0" * offset + raw).decode().rstrip("=")
            loose_end = 1 if (offset + len(raw)) % 3 else 0
            forms.add(encoded[(0, 2, 3)[offset] : len(encoded) - loose_end])
    return {form for form in forms if len(form) >= SHORTEST_KNOWN}
