"""Known secrets out of text, and long text down to size. What looks like a secret is found by `loom_tools.masking`.

Masks are left alone when a text is masked again, so the result does not depend on how often it passed through here.
Every pattern takes linear time: the text comes from tools and models.
"""

import base64
import html
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NewType
from urllib.parse import quote, quote_plus

# The forms in which a known value travels: as it is, escaped, encoded, and broken over lines.


SHORTEST_KNOWN = 8
"""Known values with fewer characters are not looked for: they would occur by chance."""

Spread = Literal["", "lines", "base64", "hex"]
_BETWEEN: Mapping[Spread, str] = {
    "lines": r"(?:\r?\n[ \t]*)?",
    "base64": r"(?:\s|\\[rn]){0,8}",
    "hex": r"(?:[\s:,-]|\\x|\\[rn]){0,4}",
}
"""What may stand between the characters, or for hexadecimal digits the bytes, of a value that is spread out."""
_SQUEEZED: Mapping[Spread, re.Pattern[str]] = {
    "lines": re.compile(r"\r?\n[ \t]*"),
    "base64": re.compile(r"\s+|\\[rn]"),
    "hex": re.compile(r"(?:[\s:,-]|\\[xrn])+"),
}


@dataclass(frozen=True)
class Form:
    """One way to write a value.

    Attributes:
        text: How it looks; hexadecimal digits that are spread out in small letters.
        name: Of the pattern's group of its secret.
        spread: What may stand inside it; empty: nothing.
    """

    text: str
    name: str
    spread: Spread

    @property
    def pattern(self) -> str:
        """A regular expression for it."""
        if not self.spread:
            return re.escape(self.text)
        width = 2 if self.spread == "hex" else 1
        parts = [re.escape(self.text[at : at + width]) for at in range(0, len(self.text), width)]
        whole = _BETWEEN[self.spread].join(parts)
        return rf"(?i:(?:\\x)?{whole})" if self.spread == "hex" else whole


class Known:
    """Values in all their forms.

    Args:
        values: By their names.

    Attributes:
        masks: What stands for a value, by the name of its group in the pattern.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.masks: dict[str, str] = {}
        forms: dict[tuple[str, Spread], Form] = {}
        for number, (name, value) in enumerate(sorted(values.items())):
            if len(value) < SHORTEST_KNOWN:
                continue
            self.masks[f"s{number}"] = f"${{secret:{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:64] or '_'}}}"
            for text, spread in _forms(value):
                forms.setdefault((text, spread), Form(text, f"s{number}", spread))
        self._forms = sorted(forms.values(), key=lambda form: (-len(form.text), bool(form.spread), form.text))
        self._sorted = {spread: sorted(form.text for form in self._forms if form.spread == spread) for spread in _ALL}
        self._longest = {spread: max(map(len, texts), default=0) for spread, texts in self._sorted.items()}
        self._starts = {spread: {text[:_START] for text in texts} for spread, texts in self._sorted.items()}
        self._patterns: dict[tuple[int, ...], re.Pattern[str]] = {}

    def found_in(self, text: str) -> re.Pattern[str] | None:
        """Give a pattern for the forms that a text holds; None: it holds none.

        Each form is looked for by itself first: a pattern of all of them tries every one at every character.
        """
        squeezed = {spread: _squeeze(text, spread) for spread in _ALL if self._sorted[spread]}
        found = tuple(at for at, form in enumerate(self._forms) if form.text in squeezed[form.spread])
        if not found:
            return None
        if found not in self._patterns:
            # A group of one name may stand in a pattern only once, so each form has its own.
            parts = [f"(?P<{self._group(at)}>{self._forms[at].pattern})" for at in found]
            if len(self._patterns) > 64:
                self._patterns.clear()
            self._patterns[found] = re.compile("|".join(parts))
        return self._patterns[found]

    def _group(self, at: int) -> str:
        form = self._forms[at]
        group = f"{form.name}_{at}"
        self.masks.setdefault(group, self.masks[form.name])
        return group

    def open_at(self, text: str, least: int = 1) -> int:
        """Say where at the end of a text a form may have begun that is not complete yet.

        Args:
            text: What came so far, without complete forms.
            least: Characters from which on such a beginning counts.
        """
        return min((self._open_at(text, spread, least) for spread in _ALL if self._sorted[spread]), default=len(text))

    def _open_at(self, text: str, spread: Spread, least: int) -> int:
        known, starts = self._sorted[spread], self._starts[spread]
        tail, places = _tail(text, spread, self._longest[spread])
        for at in range(len(tail) - least + 1):
            if len(tail) - at >= _START and tail[at : at + _START] not in starts:
                continue
            begun = tail[at:]
            place = bisect_left(known, begun)
            if begun and place < len(known) and known[place].startswith(begun):
                return places[at]
        return len(text)


_START = 4
"""Characters by which it is seen quickly that no form begins somewhere."""
_ALL: tuple[Spread, ...] = ("", "lines", "base64", "hex")


def _squeeze(text: str, spread: Spread) -> str:
    """Take out what may stand between: quickly, as it is done to every text."""
    if spread == "lines":
        return _SQUEEZED["lines"].sub("", text) if "\n" in text else text
    if spread:
        text = "".join(text.replace("\\n", "").replace("\\r", "").split())
    return text.replace("\\x", "").translate(_NO_SEPARATORS).lower() if spread == "hex" else text


_NO_SEPARATORS = str.maketrans("", "", ":,-")


def _tail(text: str, spread: Spread, longest: int) -> tuple[str, list[int]]:
    """Give the last characters of a text, squeezed, and where in the text each is."""
    start = max(0, len(text) - (longest if not spread else 4 * longest))
    part = text[start:]
    if not spread:
        return part, list(range(start, len(text)))
    gaps = {at for found in _SQUEEZED[spread].finditer(part) for at in range(*found.span())}
    kept = [at for at in range(len(part)) if at not in gaps]
    tail = "".join(part[at] for at in kept)
    return (tail.lower() if spread == "hex" and len(tail.lower()) == len(tail) else tail), [start + at for at in kept]


def known_of(values: Mapping[str, str]) -> Known:
    """Give the forms of some values; they are found out once."""
    return _known(tuple(sorted(values.items())))


@lru_cache(maxsize=16)
def _known(values: tuple[tuple[str, str], ...]) -> Known:
    return Known(dict(values))


def _forms(value: str) -> Iterator[tuple[str, Spread]]:
    raw = value.encode("utf-8", "surrogatepass")
    for text in _plain_forms(value, raw):
        if len(text) >= SHORTEST_KNOWN:
            yield text, ""
    joined = _SQUEEZED["lines"].sub("", value)
    if len(joined) >= SHORTEST_KNOWN:
        yield joined, "lines"
    encoded = base64.b64encode(raw)
    texts = {text for data in (raw, encoded) for text in _base64(data)}
    for text in texts:
        if len(text) >= SHORTEST_KNOWN:
            yield text, "base64"
    yield raw.hex(), "hex"


def _plain_forms(value: str, raw: bytes) -> set[str]:
    escaped, units = json.dumps(value)[1:-1], value.encode("utf-16-be", "surrogatepass")
    pairs = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    percent = "".join(f"%{byte:02X}" for byte in raw)
    forms = {value, percent, quote(raw, safe=""), quote(raw), quote_plus(raw)}
    forms |= {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form) for form in forms if "%" in form}
    forms |= {
        escaped,
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(escaped)[1:-1],
        escaped.replace("/", "\\/"),
    }
    forms |= {"".join(f"\\u{change(pair)}" for pair in pairs) for change in _CASES}
    entities = (html.escape(value), html.escape(value, quote=False), html.escape(value).replace("&#x27;", "&#39;"))
    forms |= {*entities, "".join(f"&#{ord(letter)};" for letter in value)}
    forms |= {"".join(f"&#{x}{change(f'{ord(letter):x}')};" for letter in value) for x in "xX" for change in _CASES}
    return forms | {base64.b32encode(raw).decode()}


_CASES: tuple[Callable[[str], str], ...] = (str.lower, str.upper)


def _base64(raw: bytes) -> Iterator[str]:
    """Give base64 of what may start at any of three places of a longer text."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).decode()
        for offset in range(3):
            encoded = encode(b"\0" * offset + raw).decode().rstrip("=")
            loose_end = 1 if (offset + len(raw)) % 3 else 0
            yield encoded[(0, 2, 3)[offset] : len(encoded) - loose_end]


MASK = re.compile(r"(\$\{secret:[A-Za-z0-9_.-]{1,64}\}|\[redacted:[a-z0-9-]{1,40}\])")
"""What stands for a secret."""

Masked = NewType("Masked", str)
"""A text in which no secret is left that can be found: what events, messages, failures and logs are made of.

Only what masks makes one: `loom_tools.masking.redact`, what a store is given to mask with, and what keeps it so.
"""


def mask_known(text: str, known: Mapping[str, str]) -> str:
    """Mask known values only: for text that must stay as it is otherwise, such as the arguments of a call."""
    return _mask_known(text, known)


def cut(text: Masked, limit: int) -> Masked:
    """Give the beginning of a masked text. A mask at the cut may lose its end; nothing is shown by that."""
    return Masked(text[:limit])


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


def _outside_masks(text: str, change: Callable[[str], str]) -> str:
    if "[redacted:" not in text and "${secret:" not in text:
        return change(text)
    parts = MASK.split(text)
    return "".join(part if position % 2 or not part else change(part) for position, part in enumerate(parts))


def _mask_known(text: str, known: Mapping[str, str]) -> str:
    return _masked(text, known_of(known)) if known else text


def _masked(text: str, known: Known) -> str:
    pattern = known.found_in(text)
    if pattern is None:
        return text
    return _outside_masks(text, lambda part: pattern.sub(lambda match: known.masks[match.lastgroup or ""], part))
