"""Secrets out of text: known values under their names, what looks like a credential, and values beside telling names.

Known values are looked for in all their forms (`loom_dsl.text.redaction`), credentials by a library
(`loom_tools.secret_scanner`), and values by the names that they stand beside (`loom_dsl.text.named_values`).
Masks are left alone when a text is masked again: masking twice is masking once.
"""

import asyncio
import re
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from loom_dsl.text.named_values import kubernetes_values, secret_values
from loom_dsl.text.redaction import MASK, Masked, mask_known
from loom_tools.secret_scanner import SecretFinding, SecretScanner

_SCANNER = SecretScanner()
"""One for the process: the rules are constants."""
_WINDOW, _OVERLAP = 32 * 1024, 4 * 1024
"""Characters that are looked at at once, and of them those that are looked at with the next ones, too. The library is
fastest with what fits a processor's cache, and its work for text made to be hard grows with the square."""
_MAX_ROUNDS = 8
"""What is masked changes what stands beside it; after the second round there is hardly ever something new."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
    r"(?P<body>[\s\S]*?)(?:-----END [A-Z0-9 ]{0,60}-----|(?=-----)|\Z)"
)


_EMPTY_KEY = 8
"""A block with fewer characters only shows how one looks."""


def prepare() -> None:
    """Begin to load what secrets are found by, and do not wait for it."""
    if not _SCANNER.is_loaded:
        threading.Thread(target=_SCANNER.load, name="loom-secret-rules", daemon=True).start()


async def ready() -> None:
    """Wait until a text can be masked at once. Without it, the first `redact` waits."""
    if not _SCANNER.is_loaded:
        await asyncio.to_thread(_SCANNER.load)


def redact(text: str, known: Mapping[str, str] | None = None) -> Masked:
    """Mask the secrets in a text.

    Args:
        text: Any text, such as a tool's output.
        known: Names and values of secrets. A value is also found in the forms in which it travels.

    Returns:
        The text with `${secret:NAME}` for known values and `[redacted:KIND]` for what looks like a credential.
    """
    text = mask_known(text, known or {})
    changed: Sequence[int] | None = None
    for _ in range(_MAX_ROUNDS):
        found = _found_in(text, changed)
        text, changed = _cover(text, found) if found else (text, ())
        if not changed:
            break
    return Masked(text)


def contains_secret(text: str, known: Mapping[str, str] | None = None) -> bool:
    """Say whether `redact` would mask anything in the text."""
    return redact(text, known) != text


def redact_values(value: Any, known: Mapping[str, str] | None = None) -> Any:
    """Mask the secrets in all texts of a JSON value, and the values beside telling keys."""
    if isinstance(value, str):
        return redact(value, known)
    if isinstance(value, Mapping):
        return {redact(str(key), known): _beside(str(key), part, known) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(part, known) for part in value]
    return value


def _beside(key: str, value: Any, known: Mapping[str, str] | None) -> Any:
    """Mask the value of a key as it is masked in JSON."""
    masked = redact_values(value, known)
    if not isinstance(masked, str) or "\n" in masked:
        return masked
    shown, written = f'"{key}": "', masked.replace("\\", "\\\\").replace('"', '\\"')
    if redact(f'{shown}{written}"', known) == f'{shown}{written}"' or MASK.search(masked):
        return masked
    return Masked("[redacted:named]")


# What is found, from the left, and what comes in its place.


def _found_in(text: str, changed: Sequence[int] | None) -> list[SecretFinding]:
    """Give what is found, from the left; after the first round only where something is new."""
    found = [SecretFinding(*match.span(), "private-key", 0) for match in _private_keys(text)]
    for start, window in _windows(text):
        if changed is not None and not _any_within(changed, start, start + len(window)):
            continue
        found += [
            SecretFinding(start + each.start, start + each.end, each.kind, each.rank) for each in _in_window(window)
        ]
    return sorted(found, key=lambda each: (each.start, each.rank))


def _any_within(places: Sequence[int], start: int, end: int) -> bool:
    at = bisect_left(places, start)
    return at < len(places) and places[at] <= end


def _private_keys(text: str) -> Iterator[re.Match[str]]:
    if "PRIVATE KEY" in text:
        yield from (found for found in _PRIVATE_KEY.finditer(text) if len(found["body"].strip()) > _EMPTY_KEY)


def _windows(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    while True:
        end = start + _WINDOW
        yield start, text[start:end]
        if end >= len(text):
            return
        after = end - _OVERLAP
        start = text.rfind("\n", start + 1, after) + 1 or after
        start = max(start, end - 2 * _OVERLAP)


def _in_window(text: str) -> Iterator[SecretFinding]:
    yield from _SCANNER.find(text)
    for start, end in secret_values(text):
        yield SecretFinding(start, end, "named", 2)
    for start, end in kubernetes_values(text):
        yield SecretFinding(start, end, "named", 2)


def _cover(text: str, found: Iterable[SecretFinding]) -> tuple[str, list[int]]:
    """Put masks in place of what was found: one for what overlaps, and none in place of a mask.

    Returns:
        The text, and where in it masks are new.
    """
    masks = [match.span() for match in MASK.finditer(text)] if "[redacted:" in text or "${secret:" in text else []
    parts: list[str] = []
    new: list[int] = []
    done = at = length = 0
    for start, end, kind, _ in _merged(found):
        while at < len(masks) and masks[at][1] <= start:
            at += 1
        for piece, piece_end in _outside(start, end, masks[at:] if at < len(masks) and masks[at][0] < end else []):
            if any(letter.isalnum() for letter in text[piece:piece_end]):
                mask = f"[redacted:{kind}]"
                parts += [text[done:piece], mask]
                length += piece - done + len(mask)
                new.append(length)
                done = piece_end
    return "".join([*parts, text[done:]]), new


def _merged(found: Iterable[SecretFinding]) -> Iterator[SecretFinding]:
    last: SecretFinding | None = None
    for each in found:
        if last is not None and each.start < last.end:
            last = last._replace(end=max(last.end, each.end))
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


def _outside(start: int, end: int, masks: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for mask_start, mask_end in masks:
        if mask_start >= end:
            break
        if mask_start > start:
            yield start, mask_start
        start = max(start, mask_end)
    if start < end:
        yield start, end
