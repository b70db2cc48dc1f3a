"""Values beside names that say that they are secret: assignments, configuration, headers, command lines, markup.

No pattern runs over a whole text: a few words are looked for, which is quick, and what stands around each is read.
Every pattern takes linear time, because the text comes from tools and models.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

WORDS = ("passw", "passphrase", "pwd", "secret", "token", "key", "cred", "auth")
"""One of these is in every telling name, in small letters."""


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value beside a telling name.

    Attributes:
        name: The name, as it is written.
        value: The value.
        start: Where in the text the value begins.
        quoted: Whether it stands in quotes; what does not may be code or prose.
        shell: Whether it is an option or a variable of a command line, which are values whatever they look like.
    """

    name: str
    value: str
    start: int
    quoted: bool
    shell: bool = False


# How a name and a value are written beside each other.


_NAME_END = re.compile(r"[A-Za-z0-9_.-]{0,60}")
_NAME_LETTERS = frozenset(string.ascii_letters + string.digits + "_.$-")
_LONGEST_NAME = 60
_TYPE = r"(?:[ \t]{1,4}\*?[A-Za-z][A-Za-z0-9]{0,15}|[ \t]?:[ \t]?[A-Za-z][A-Za-z0-9]{0,15}\??|\[[0-9]{0,5}\])"
_BETWEEN = re.compile(
    r"(?:"
    # name string = …, name: String = …
    rf"{_TYPE}[ \t]{{0,8}}(?P<typed>:?=)(?!=)[ \t]{{0,20}}(?=[\"'`])"
    # <… name="NAME" value="…">, {"name": "NAME", "value": "…"}, name: NAME and value: … on the next line
    r"|[\"']?[ \t]{0,8},?\s{0,40}[\"']?(?i:value)[\"']?[ \t]{0,4}[=:][ \t]{0,8}"
    r"|[\"']?\][ \t]{0,8}=(?!=)[ \t]{0,8}"
    # "NAME", "…" of a call
    r"|[\"'],[ \t]{0,8}(?=[\"'`])"
    # <NAME>…</NAME>, <… name="NAME">…
    r"|[\"']?>\s{0,80}(?=[^<\s])"
    # NAME: | and the value on the next line
    r"|[ \t]{0,8}:[ \t]{0,8}[|>][+-]?[ \t]{0,8}\r?\n[ \t]{1,40}"
    r"|\\{0,3}[\"'`]?[ \t]{0,20}(?::{1,3}=|\?{1,2}=|[.+|]{1,2}=|=>|=(?!=)|:(?![:/]))[ \t]{0,20}"
    r")"
)
_OPTION = re.compile(r"[ \t]{1,4}(?![-|&;<>])")
_VALUE = re.compile(
    r"(?:[rbfuRBFU]{0,2}(?:"
    r"\\{1,3}\"(?P<inner>[^\"\\\r\n]+)"
    r"|\"{1,3}(?P<double>(?:[^\"\\\r\n]+|\\[^\r\n])+)"
    r"|'{1,3}(?P<single>[^'\r\n]+)"
    r"|`(?P<back>[^`\r\n]+))"
    r"|(?P<bare>[^\s\"'`,;&(){}\[\]<>\\|]{1,512}+)(?![(\[{]))"
)
_BARE_REST = re.compile(r"[^\s\"'`,;&(){}\[\]<>\\|]*")


def secret_values(text: str) -> Iterator[tuple[int, int]]:
    """Give where the values stand that are secret by the names beside them, from the left."""
    plain = text if text.isascii() else _plain(text)
    folded = plain.lower()
    done = 0
    for at in _places(folded):
        if at < done:
            continue
        end = done = _NAME_END.match(plain, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        while plain[end - 1] in ".-":
            end -= 1
        begun = _begun(plain, at)
        if at > len(begun) and plain[at - len(begun) - 1] == "/":  # a path
            continue
        name = begun + plain[at:end]
        found = _beside(plain, end, name) if is_telling(name) else None
        if found is not None and is_secret(found):
            done = _value_end(plain, found)
            yield found.start, done


def _value_end(text: str, found: NamedValue) -> int:
    end = found.start + len(found.value)
    return end if found.quoted else _BARE_REST.match(text, end).end()  # type: ignore[union-attr]


def _plain(text: str) -> str:
    """Give the text with those letters plain that are the same as plain ones when case is ignored; places stay."""
    for odd, plain in (("İ", "I"), ("ı", "i"), ("ſ", "s"), ("\u212a", "K")):
        text = text.replace(odd, plain)
    return text


def _places(folded: str) -> list[int]:
    places: list[int] = []
    for word in WORDS:
        at = folded.find(word)
        while at >= 0:
            places.append(at)
            at = folded.find(word, at + len(word))
    places.sort()
    return places


def _begun(text: str, at: int) -> str:
    """Give the part of a name that stands before a place in it."""
    start = at
    while start > 0 and at - start < _LONGEST_NAME and text[start - 1] in _NAME_LETTERS:
        start -= 1
    return text[start:at]


def _beside(text: str, end: int, name: str) -> NamedValue | None:
    between = _BETWEEN.match(text, end) or (_OPTION.match(text, end) if name.startswith("-") else None)
    value = _VALUE.match(text, between.end()) if between else None
    if between is None or value is None or value.lastgroup is None:
        return None
    kind = value.lastgroup
    shell = name.startswith("--") or (between[0] == "=" and name.isupper())
    return NamedValue(name, value[kind], value.start(kind), kind != "bare", shell)


_SECRET_KIND = re.compile(r"(?im:^[ \t]*[\"']?kind[\"']?:[ \t]*[\"']?secret[\"']?[ \t]*$)")
_NEXT_DOCUMENT = re.compile(r"(?m:^---)")
_DATA = re.compile(r"(?m:^([ \t]*)(?:string)?[dD]ata:[ \t]*\r?\n((?:\1[ \t]+[^\n]*\n?)+))")
_ENTRY = re.compile(
    r"(?m:^[ \t]+[\"']?[\w./-]+[\"']?:[ \t]*(?:[|>][+-]?[ \t]*\r?\n[ \t]+)?"
    r"[\"']?([A-Za-z0-9+/]{10,}={0,2})[\"']?[ \t]*$)"
)


def kubernetes_values(text: str) -> Iterator[tuple[int, int]]:
    """Give where the values of Kubernetes' secrets stand: those under `data`, whatever their names are."""
    if "ind" not in text or "ata:" not in text or not _SECRET_KIND.search(text):
        return
    ends = [*(mark.start() for mark in _NEXT_DOCUMENT.finditer(text)), len(text)]
    for start, end in zip([0, *ends], ends, strict=False):
        if _SECRET_KIND.search(text, start, end):
            for data in _DATA.finditer(text, start, end):
                yield from (entry.span(1) for entry in _ENTRY.finditer(text, *data.span(2)))


# Which names tell.


_ODD_CASE = re.compile(r"[A-Z][a-z][A-Z]{3}")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_STRONG = ("password", "passwd", "passwort", "passphrase", "pwd")
_TELLING: tuple[str, ...] = (*_STRONG, "secret", "token", "credential", "credentials", "creds", "apikey", "secretkey")
_TELLING += ("accesskey", "privatekey", "authkey", "signingkey", "encryptionkey")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEYS = _words(
    "api access secret private signing signature encryption shared storage account master auth client app "
    "license licence service admin user session jwt hmac webhook deploy ssh pgp gpg aes rsa"
)
_HARMLESS_KEYS = _words(
    "primary foreign public pub natural schema sequence bucket cache sort partition row index idx hash "
    "range object s idempotency dedup lookup hot group map dict json data search unique composite "
    "surrogate host issuer on up down column field event routing order metric message turn item node job "
    "tag label"
)
_HARMLESS_TOKENS = _words(
    "next page continuation cursor total max min pad eos bos unk sep cls mask csrf xsrf authenticity "
    "antiforgery public cancellation cancel stop start end special num first last prompt completion input "
    "output"
)
_MADE_UP = _words("fake dummy mock example sample placeholder invalid bogus non redacted masked")
"""A name with such a word says that its value is none that opens anything."""
_QUALIFIERS = _words(
    "string str value val text raw plain prod production dev development test staging live new old "
    "default env key base64 b64 base b"
)


def is_telling(name: str) -> bool:
    """Whether a name says that its value is secret: its last word does, whatever stands before it."""
    return _told_by(name) != ""


@lru_cache(maxsize=4096)
def _told_by(name: str) -> str:
    """Give the word that tells, `key` and `auth` for those that tell only of what looks like a secret."""
    words = [word.lower() for word in _PARTS.findall(name.lower() if _ODD_CASE.search(name) else name)]
    last = _last_telling(words)
    if last < 0 or not _MADE_UP.isdisjoint(words):
        return ""
    word, before = words[last], words[last - 1] if last else ""
    if not word.endswith(_TELLING) and (before + word).endswith(_TELLING):
        word, before = before + word, words[last - 2] if last > 1 else ""
    if word == "key":
        return _told_by_key(before)
    if word.endswith("token") and (before in _HARMLESS_TOKENS or word[:-5] in _HARMLESS_TOKENS):
        return ""
    return word if word.endswith(_TELLING) else "auth"


def _told_by_key(before: str) -> str:
    if not before or before in _HARMLESS_KEYS:
        return ""
    return "secret" if before in _KEYS or before.endswith(_TELLING) else "key"


def _last_telling(words: list[str]) -> int:
    """Find the word that tells, behind which only such stand as change nothing of it; -1: there is none."""
    for at in range(len(words) - 1, -1, -1):
        word = words[at]
        if word in ("key", "auth", "authorization") or word.endswith(_TELLING):
            return at
        if at and (words[at - 1] + word).endswith(_TELLING):
            return at
        if not (word in _QUALIFIERS or word.isdigit()):
            return -1
    return -1


# Which values are secrets.


_ALLOWED = re.compile(
    r"(?i:[0-9]{1,6}(?:\.[0-9]+)?|sha(?:1|224|256|384|512)[:-][0-9a-z+/=]+"
    r"|true|false|null|none|nil|undefined|str|string|int|bool|bytes|secretstr|any|required|redacted|hidden"
    r"|changeme|example|placeholder|test|todo|x{3,}|\*{3,}|\.{3,}|-{2,})[.!?]?"
)
_REFERENCE = re.compile(
    r"[$<{%|>!]|[.~]{0,2}/[\w.@-]+/|\[(?:redacted:|[A-Z_]+\])|(?:os|env|self|config|settings|process|args|options|request|vault|arn)[.:]"
    r"|[A-Za-z][A-Za-z0-9+.-]{1,15}://[^@]*\Z"
)
_PLACEHOLDER = re.compile(
    r"(?i:(.)\1{5}|your[_ -]?|[_-]here\b|(?:abcdef|bcdefg|cdefgh|uvwxyz)[a-z]|1234567|<[a-z]|\.\.\."
    r"|(?<![a-z])example|dummy|sample|placeholder)"
)
"""What people write where a secret is to be put. (No lot gives the alphabet in order, or one letter over and over.)"""
_PROSE = re.compile(r"[A-Za-z_]+(?:[. -][A-Za-z_]+)*")
_VARIABLE = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
"""The name of an environment's variable, which is no secret itself."""
_RANDOM = re.compile(r"[A-Za-z0-9+/_=.~-]{16,}")
_UUID = re.compile(r"(?i:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def is_secret(found: NamedValue) -> bool:
    """Whether a value beside a telling name is a secret, and not a type, a reference, a count, a word or a digest."""
    value, word = found.value[:4096].strip(), _told_by(found.name)
    if len(value) < (4 if word.endswith(_STRONG) else 8):  # most are: what is too short costs no pattern
        return False
    if _ALLOWED.fullmatch(value) or _REFERENCE.match(value):
        return False
    if not word.endswith(_STRONG) and is_placeholder(value):
        return False
    if word in ("key", "auth"):
        return looks_random(value)
    if word.endswith(("token", "key")) and (":" in value or " " in value):
        return False  # a reference such as image:tag, or prose; the formats that have a colon are known by their shape
    words = _PROSE.fullmatch(value) is not None
    if word.endswith(_STRONG):
        plain = found.quoted and " " not in value
        return not words or plain or found.shell
    if words and (_VARIABLE.fullmatch(value) or ("." in value and not found.quoted)):
        return False
    return (found.quoted or len(value) >= 10) and entropy(value) >= (3.5 if words else 2.5)


def is_placeholder(value: str) -> bool:
    """Whether a value is what people write where a secret is to be put."""
    return _PLACEHOLDER.search(value) is not None


def looks_random(value: str) -> bool:
    """Whether a value looks as if drawn by lot: long, of letters and digits, no name and no identifier."""
    if not _RANDOM.fullmatch(value) or _UUID.fullmatch(value):
        return False
    mixed = any(letter.isdigit() for letter in value) and any(letter.isalpha() for letter in value)
    return mixed and entropy(value) >= 3.5


def entropy(text: str) -> float:
    """Bits per character, by how often each occurs."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
