"""Finds what looks like a credential: the rules of a library, and a few of Loom's own in its form.

The library is imported here and nowhere else, and when it is first needed: its rules take seconds to compile, once for
a machine, and a third of a second from its cache after that.
"""

import codecs
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

_RULES = Path(__file__).with_name("secret_rules.yml")
_OURS = "loom."
_SHORTEST_KEY = 16
_SURROGATE = re.compile("[\ud800-\udfff]")
_ONE_LETTER = re.compile(r"(.)\1{7}")
_NOT_IN_A_KIND = re.compile(r"[^a-z0-9]+")


class SecretFinding(NamedTuple):
    """What looks like a credential.

    Attributes:
        start: Where in the text it begins.
        end: Where it ends.
        kind: What it looks like: small letters, digits and dashes.
        rank: Whose word for it counts where several found it: 0 Loom's rules, 1 the library's, 2 a name beside it.
    """

    start: int
    end: int
    kind: str
    rank: int = 1


class SecretScanner:
    """The compiled rules. It may be used by several threads at once; scanning lets other threads run."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._scanner: Scanner | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether `find` answers at once."""
        return self._scanner is not None

    def load(self) -> "Scanner":
        """Load the rules, or wait for who does."""
        with self._loading:
            if self._scanner is None:
                from kingfisher_sdk import Rules, Scanner

                self._scanner = Scanner(Rules([_RULES], cache_dir=_cache_dir()))
            return self._scanner

    def find(self, text: str) -> Iterator[SecretFinding]:
        """Give what looks like a credential in a text, in any order; what is found may overlap."""
        scanner = self._scanner or self.load()
        data = _readable(text)
        for finding in scanner.scan(data):
            place = finding.location
            start, end = place["start_offset"], place["end_offset"]
            if finding.visible and _is_meant(finding.rule_id, data[start:end]):
                # Places are those of bytes.
                first = start if len(data) == len(text) else len(data[:start].decode("utf-8", "replace"))
                length = end - start if len(data) == len(text) else len(data[start:end].decode("utf-8", "replace"))
                yield SecretFinding(
                    first, first + length, _kind(finding.rule_id), 0 if finding.rule_id.startswith(_OURS) else 1
                )


def _readable(text: str) -> bytes:
    """The text as bytes that the library takes for UTF-8, whatever they begin with; places stay as they are."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = _SURROGATE.sub("\ufffd", text).encode()  # as many bytes each
    data = "\u200b".encode() + data[3:] if data.startswith(codecs.BOM_UTF8) else data
    return data.replace(b"\0", b" ")


def _is_meant(rule: str, value: bytes) -> bool:
    """Whether what a rule of Loom's found is a credential; the library judges what its own rules find."""
    if not rule.startswith(_OURS):
        return True
    text = value.decode("utf-8", "replace")
    if rule == "loom.api-key" and len(text) < _SHORTEST_KEY + 3:
        return False
    if rule == "loom.bearer" and len(text) < 20 and not any(letter.isdigit() for letter in text):
        return False
    return _ONE_LETTER.search(text) is None or rule in ("loom.url-password", "loom.slack-hook")


def _kind(rule: str) -> str:
    name = rule.rpartition("/")[2].partition(".")[2] if "." in rule.rpartition("/")[2] else rule.rpartition("/")[2]
    return _NOT_IN_A_KIND.sub("-", name.lower()).strip("-")[:40] or "secret"


def _cache_dir() -> Path:
    """Where compiled rules are kept; the library lets nobody else in, and does without where it cannot."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "loom" / "secret-rules"
