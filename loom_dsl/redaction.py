"""Secrets out of text, and long text down to size.

Known values are masked first, under their names; then whatever looks like a credential; then what stands beside a name
that says that it is one. Masks are left alone when a
text is masked again, so the result does not depend on how often it passed through here. Every pattern takes linear
time: the text comes from tools and models.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

from loom_dsl.redaction_forms import SHORTEST_KNOWN as SHORTEST_KNOWN
from loom_dsl.redaction_forms import Known, known_of
from loom_dsl.redaction_patterns import NAMED, SHAPES, TELLING, is_secret_value

_MASK = re.compile(r"(\$\{secret:[A-Za-z0-9_.-]{1,64}\}|\[redacted:[a-z-]{1,32}\])")


def redact(text: str, known: Mapping[str, str] | None = None) -> str:
    """Mask the secrets in a text.

    Args:
        text: Any text, such as a tool's output.
        known: Names and values of secrets. A value is also found in the forms in which it travels: `redaction_forms`.

    Returns:
        The text with `${secret:NAME}` for known values and `[redacted:KIND]` for what looks like a credential.
    """
    text = _mask_known(text, known or {})
    for kind, pattern in SHAPES:
        if pattern.search(text):  # else the text need not be taken apart at its masks, which may be many
            text = _outside_masks(text, partial(pattern.sub, partial(_cover, kind)))
    return _outside_masks(text, _mask_named)


def contains_secret(text: str, known: Mapping[str, str] | None = None) -> bool:
    """Say whether `redact` would mask anything in the text."""
    return redact(text, known) != text


def mask_known(text: str, known: Mapping[str, str]) -> str:
    """Mask known values only: for text that must stay as it is otherwise, such as the arguments of a call."""
    return _mask_known(text, known)


class MaskedStream:
    """Masks known values in a text that comes in pieces, also where one lies across two of them.

    Args:
        known: Names and values of secrets.
        least: Characters of a value's beginning, at a piece's end, from which on they are held back.
    """

    def __init__(self, known: Mapping[str, str], least: int = 1) -> None:
        self._known, self._least = known_of(known), least
        self._held = ""

    def feed(self, text: str) -> str:
        """Take a piece, and give what can be told: all but what may be the beginning of a value."""
        masked = _masked(self._held + text, self._known)
        at = self._known.open_at(masked, self._least)
        self._held = masked[at:]
        return masked[:at]

    def rest(self) -> str:
        """Give what was held back: nothing more comes."""
        rest, self._held = self._held, ""
        return rest


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
    return "".join(part if position % 2 or not part else change(part) for position, part in enumerate(parts))


def _mask_known(text: str, known: Mapping[str, str]) -> str:
    return _masked(text, known_of(known)) if known else text


def _masked(text: str, known: Known) -> str:
    pattern = known.found_in(text)
    if pattern is None:
        return text
    return _outside_masks(text, lambda part: pattern.sub(lambda match: known.masks[match.lastgroup or ""], part))
