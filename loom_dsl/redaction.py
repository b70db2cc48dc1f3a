"""Secrets out of text, and long text down to size.

Known values are masked first, under their names; then whatever looks like a credential. Masks are left alone when a
text is masked again, so the result does not depend on how often it passed through here. Every pattern takes linear
time: the text comes from tools and models.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import quote, quote_plus

SHORTEST_KNOWN = 8
"""Known values with fewer characters are not looked for: they would occur by chance."""

_MASK = re.compile(r"(\$\{secret:[A-Za-z0-9_.-]{1,64}\}|\[redacted:[a-z-]{1,32}\])")
_TOKEN = r"[A-Za-z0-9._~+/=-]"
_PATTERNS: tuple[tuple[str, str], ...] = (
    (
        "private-key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
        r"[^-]*+(?:-(?!----)[^-]*+)*+(?:-----END [A-Z0-9 ]{0,60}-----)?",
    ),
    ("jwt", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?"),
    ("github-token", r"(?:gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_[A-Za-z0-9_]{20,}+)"),
    ("gitlab-token", r"glpat-[A-Za-z0-9_-]{16,}+"),
    ("slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}+"),
    ("google-key", r"AIza[A-Za-z0-9_-]{30,}+"),
    ("stripe-key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    ("aws-key", r"(?:AKIA|ASIA)[A-Z0-9]{16}[A-Za-z0-9]*+"),
    (
        "api-key",
        r"(?<![A-Za-z0-9])sk-(?:(?=[a-z_-]{0,200}[A-Z0-9])[A-Za-z0-9_-]{16,}+|[A-Za-z0-9]{16,}+[A-Za-z0-9_-]*+)",
    ),
    (
        "aws-secret",
        r"(?i:aws_secret_access_key[\"']?[ \t]{0,20}[=:][ \t]{0,20}[\"']?)(?P<aws>[A-Za-z0-9/+]{40}[A-Za-z0-9/+=]*+)",
    ),
    (
        "bearer",
        rf"(?i:bearer)[ \t]{{1,20}}(?P<bearer>(?=[A-Za-z._~+/=-]{{0,200}}[0-9]){_TOKEN}{{8,}}+|{_TOKEN}{{20,}}+)",
    ),
    ("url-password", r"://[^\s/:@]{1,100}:(?P<url>[^\s/@]{3,200})(?=@)"),
)
_SHAPES = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)


def redact(text: str, known: Mapping[str, str] | None = None) -> str:
    """Mask the secrets in a text.

    Args:
        text: Any text, such as a tool's output.
        known: Names and values of secrets. A value is also found in base64, in a URL and in a JSON string.

    Returns:
        The text with `${secret:NAME}` for known values and `[redacted:KIND]` for what looks like a credential.
    """
    text = _mask_known(text, known or {})
    for kind, pattern in _SHAPES:
        text = _outside_masks(text, partial(pattern.sub, partial(_cover, kind)))
    return text


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
    start, end = found.span(found.lastgroup) if found.lastgroup else found.span()
    whole, base = found[0], found.start()
    return f"{whole[: start - base]}[redacted:{kind}]{whole[end - base :]}"


def _outside_masks(text: str, change: Callable[[str], str]) -> str:
    parts = _MASK.split(text)
    return "".join(part if position % 2 else change(part) for position, part in enumerate(parts))


def _mask_known(text: str, known: Mapping[str, str]) -> str:
    forms: dict[str, str] = {}
    for name, value in sorted(known.items()):
        if len(value) >= SHORTEST_KNOWN:
            mask = f"${{secret:{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:64] or '_'}}}"
            for form in _forms(value):
                forms.setdefault(form, mask)
    if not forms:
        return text
    either = re.compile("|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form))))
    return _outside_masks(text, lambda part: either.sub(lambda found: forms[found[0]], part))


def _forms(value: str) -> set[str]:
    """Write a value in the ways in which it travels. In base64 it may start at any of three places of a longer text."""
    raw = value.encode("utf-8", "surrogatepass")
    forms = {value, quote(raw, safe=""), quote(raw), quote_plus(raw)}
    forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        forms.add(encode(raw).decode())
        for offset in range(3):
            encoded = encode(b"\0" * offset + raw).decode().rstrip("=")
            loose_end = 1 if (offset + len(raw)) % 3 else 0
            forms.add(encoded[(0, 2, 3)[offset] : len(encoded) - loose_end])
    return {form for form in forms if len(form) >= SHORTEST_KNOWN}
