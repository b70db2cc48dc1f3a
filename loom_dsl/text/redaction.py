"""Secrets out of text, and long text down to size.

Known values are masked first, under their names; then whatever looks like a credential; then what stands beside a name
that says that it is one. Masks are left alone when a
text is masked again, so the result does not depend on how often it passed through here. Every pattern takes linear
time: the text comes from tools and models.
"""

import base64
import html
import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal
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


# What a credential looks like: shapes that are precise by themselves, and names beside which a value is secret.
#
# Every pattern takes linear time: repeats are bounded, lazy or possessive, and none begins inside another's repeat.
# Only what repeats a single character is possessive: Python before 3.11.5 loses its way in possessive groups. A
# pattern with a named group masks that group, others their whole match; what the group `none` finds is left as it is.
# Where it can be, a pattern starts with letters and only then looks at what is before them: letters are found many
# times faster.


_TOKEN = r"[A-Za-z0-9._~+/=-]"
_PATTERNS: tuple[tuple[str, str], ...] = (
    (
        "private-key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
        r"[\s\S]*?(?:-----END [A-Z0-9 ]{0,60}-----|(?=-----)|\Z)",
    ),
    ("jwt", r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?"),
    ("github-token", r"(?:gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_[A-Za-z0-9_]{20,}+)"),
    ("gitlab-token", r"glpat-[A-Za-z0-9_-]{16,}+"),
    ("slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}+"),
    ("slack-hook", r"hooks\.slack\.com/services/(?P<hook>[A-Za-z0-9/]{20,}+)"),
    ("google-key", r"AIza[A-Za-z0-9_-]{30,}+"),
    ("stripe-key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    ("npm-token", r"npm_(?<![A-Za-z0-9_]npm_)[A-Za-z0-9]{36}[A-Za-z0-9]*+"),
    ("aws-key", r"(?:AKIA|ASIA)[A-Z0-9]{16}[A-Za-z0-9]*+"),
    (
        "api-key",
        # The last way reads on over what is no key, up to where one may begin, so that nothing is read again.
        r"sk-(?<![A-Za-z0-9]sk-)(?:(?=[a-z_-]*+[A-Z0-9])[A-Za-z0-9_-]{16,}+|[a-z]{16,}+[A-Za-z0-9_-]*+"
        r"|(?P<none>[a-z_-]*?)(?=(?<![A-Za-z0-9])sk-[a-z]{16}|[^a-z_-]|\Z))",
    ),
    (
        "aws-secret",
        r"(?i:aws_secret_access_key[\"']?[ \t]{0,20}[=:][ \t]{0,20}[\"']?)(?P<aws>[A-Za-z0-9/+]{40}[A-Za-z0-9/+=]*+)",
    ),
    (
        "bearer",
        rf"(?i:bearer)[ \t]{{1,20}}(?P<bearer>(?=[A-Za-z._~+/=-]{{0,200}}[0-9]){_TOKEN}{{8,}}+|{_TOKEN}{{20,}}+)",
    ),
    (
        "basic-auth",
        rf"(?i:authorization[\"']?[ \t]{{0,20}}[=:][ \t]{{0,20}}[\"']?basic)[ \t]{{1,20}}(?P<basic>{_TOKEN}{{8,}}+)",
    ),
    ("url-password", r"://[^\s/:@]{0,100}:(?P<url>[^\s/@]{3,200})(?=@)"),
)
SHAPES = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)

_SECRET_NAME = (
    r"(?:passw(?:or)?d|passwd|passphrase|(?<=[_-])pwd|(?:client|app|webhook|shared)?[_-]?secret(?:[_-]?access)?(?:[_-]?key)?|"
    r"api[_-]?key|token|(?:private|access|signing|encryption)[_-]?key|credentials?)"
)
NAMED = re.compile(
    # Only from a word's start, so that a long word is read once: DB_PASSWORD, db.password, --api-key, stripeApiKey.
    rf"(?<![A-Za-z0-9_./-])(?:[A-Za-z0-9_.-]{{0,60}}[_.-]|[A-Za-z0-9]{{1,40}}(?=[A-Z]))?(?i:{_SECRET_NAME})"
    r"(?![A-Za-z0-9_-])\\?[\"']?[ \t]{0,20}(?:=>|:=|=(?!=)|:(?![:/=]))[ \t]{0,20}"
    r"(?:\\?\"(?P<double>[^\"\\\n]++)|'(?P<single>[^'\n]++)|(?P<bare>[^\s\"'`,;&(){}\[\]<>\\]++)(?![(\[]))"
)
"""A name that says that its value is secret, and the value: in JSON (also inside a string), YAML, an environment file,
a command line or code. A name that only holds such a word (max_tokens, token_type, password_hash) does not say so."""

TELLING = ("pass", "pwd", "secret", "key", "token", "credent")
"""One of these is in every name that `NAMED` finds, once its case is folded. (Not `credential`: for a pattern that
ignores case, ı is an i.)"""

_HARMLESS_NAME = re.compile(
    r"(?i:(?:next|page|continuation|cursor|total|max|min|pad|eos|bos|unk|sep|cls|mask)[_.-]?token)"
)
_ALLOWED = re.compile(
    r"(?i:[0-9]{1,6}(?:\.[0-9]+)?|sha(?:1|224|256|384|512)[:-][0-9a-z+/=]+"
    r"|true|false|null|none|nil|undefined|str|string|int|bool|bytes|secretstr|any|required|redacted|hidden"
    r"|changeme|example|placeholder|test|todo|x{3,}|\*{3,}|\.{3,}|-{2,})[.!?]?"
)
_REFERENCE = re.compile(r"[$<{%|>!]|(?:os|env|self|config|settings|process|args|options|request|vault|arn)[.:]")
_WORDS = re.compile(r"[A-Za-z_]++(?:[. -][A-Za-z_]++)*")
_VARIABLE = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
"""The name of an environment's variable, which is no secret itself."""
_STRONG = re.compile(r"(?i:passw|pwd)")


def is_secret_value(name: str, value: str, *, quoted: bool) -> bool:
    """Whether the value beside a telling name is a secret, and not a type, a reference, a count, a word or a digest.

    Args:
        name: The name, with what stands up to the value.
        value: The value.
        quoted: Whether it stands in quotes; what does not may be code or prose.
    """
    value = value[:4096]
    if _HARMLESS_NAME.search(name) or _ALLOWED.fullmatch(value) or _REFERENCE.match(value):
        return False
    words = _WORDS.fullmatch(value) is not None
    if _STRONG.search(name):
        plain = quoted and " " not in value
        shell = name.startswith("-") or (name.isupper() and name.endswith("="))
        return len(value) >= 4 and (not words or plain or shell)
    if words and (_VARIABLE.fullmatch(value) or ("." in value and not quoted)):
        return False
    return len(value) >= 8 and entropy(value) >= (3.5 if words else 2.5)


def entropy(text: str) -> float:
    """Bits per character, by how often each occurs."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())


_MASK = re.compile(r"(\$\{secret:[A-Za-z0-9_.-]{1,64}\}|\[redacted:[a-z-]{1,32}\])")


def redact(text: str, known: Mapping[str, str] | None = None) -> str:
    """Mask the secrets in a text.

    Args:
        text: Any text, such as a tool's output.
        known: Names and values of secrets. A value is also found in the forms in which it travels.

    Returns:
        The text with `${secret:NAME}` for known values and `[redacted:KIND]` for what looks like a credential.
    """
    text = _mask_known(text, known or {})
    for kind, pattern in SHAPES:
        if pattern.search(text):  # else the text need not be taken apart at its masks, which may be many
            text = _outside_masks(text, partial(pattern.sub, partial(_cover, kind)))
    return _outside_masks(text, mask_named)


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


def cover_named(found: re.Match[str]) -> str:
    """Replace the value beside a telling name, unless it plainly is none."""
    group = found.lastgroup or "bare"
    name = found[0][: found.start(group) - found.start()]
    if not is_secret_value(name.strip("\"' \t"), found[group], quoted=group != "bare"):
        return found[0]
    return _cover("named", found)


def mask_named(text: str) -> str:
    """Mask what stands beside a telling name, line by line: most lines have none, and are seen through quickly."""
    if not _may_tell(text):
        return text
    return "\n".join(NAMED.sub(cover_named, line) if _may_tell(line) else line for line in text.split("\n"))


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
