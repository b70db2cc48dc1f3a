"""Characters that hide, turn or imitate others, made visible: what people read must be what runs."""

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby

_WORD = re.compile(r"[^\W\d_]+(?:[\d_]*[^\W\d_]+)*")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Control characters but tab and newline, what has no width, turns the direction, or ends lines in other ways."""
_ORDINALS = frozenset("ªº")
_LETTERS_AND_DIGITS = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl"})
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_LIKE_LATIN = frozenset("аеорсухіјѕԁһӏԛԝвкмнтАВЕКМНОРСТХУІЈЅԌԚԜοαρντικυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
"""Cyrillic and Greek letters that look like Latin ones."""
_PUNCTUATION = {"\u2215": "/", "\u2044": "/", "\u29f8": "/", "\u2024": ".", "\uff0e": ".", "\uff0f": "/", "\u2010": "-",
                "\u2011": "-", "\u2212": "-", "\u037e": ";", "\u01c3": "!", "\ua789": ":", "\u2236": ":",
                "\u02d7": "-", "\ufe63": "-", "\u05c3": ":", "\u0589": ":", "\u2217": "*", "\u01c0": "|", "\u2223": "|",
                "\ufe68": "\\", "\u29f5": "\\", "\ufe52": ".", "\u0251": "a", "\u0261": "g", "\u0269": "i"}  # fmt: skip
_WIDE = frozenset("\u3002\uff61\u2e32") | {chr(code) for code in range(0xFF01, 0xFF5F)}
"""Punctuation and letters of Chinese and Japanese texts, which elsewhere stand for those of ASCII."""


MAX_BLANKS, MAX_BLANK_LINES = 40, 3
"""So many of them in a row are shown as they are: what stands behind more could be out of sight."""
_RUN = re.compile(rf"[ \t]{{{MAX_BLANKS + 1},}}")
_BLANK = re.compile(r"([+-]?)\s*")
_LINE_END = re.compile(r"\s*\n\s*")


def _script(letter: str) -> str:
    if letter.isascii():
        return "LATIN"
    name = unicodedata.name(letter, "UNKNOWN")
    return name.partition(" ")[0]


def mixes_scripts(text: str) -> bool:
    """Whether a word of a text has letters of several scripts, such as a Cyrillic one in a Latin word."""
    return any(len({_script(letter) for letter in word[0] if letter.isalpha()}) > 1 for word in _WORD.finditer(text))


def revealed(text: str) -> str:
    """Write as ``\\u0430`` what does not look like what it is.

    That is: control characters but tab and newline, characters without width and those that turn the direction,
    spaces that are none, letters of another script in a Latin word, letters and digits that Unicode takes for ASCII's
    in another dress, and punctuation that looks like ASCII's.
    """
    if text.isascii() and not _HIDDEN.search(text):
        return text
    plain = all(
        _script(c) == "LATIN" or c in _LIKE_LATIN or c in _WIDE for c in text if c.isalpha() and not _dressed(c)
    )
    text = _WORD.sub(lambda word: _revealed_word(word[0], plain), text)
    text = "".join(_escape(c) if _imitates(c, plain) else c for c in text)
    return _HIDDEN.sub(lambda found: _escape(found[0]), text)


def _imitates(character: str, plain: bool) -> bool:
    if character.isascii():
        return False
    if character in _WIDE:
        return plain
    return character in _PUNCTUATION or _SPACES.match(character) is not None or _dressed(character)


def _dressed(character: str) -> bool:
    """Whether it is a letter or a digit of ASCII in another form, such as a roman numeral or a mathematical letter."""
    if character.isascii() or character in _ORDINALS or unicodedata.category(character) not in _LETTERS_AND_DIGITS:
        return False
    meant = unicodedata.normalize("NFKC", character)
    return meant.isascii() and meant.isalnum()


def gathered(lines: Iterable[str]) -> list[str]:
    """Write many blanks in a row as ``␠×3000``, and many blank lines as ``⏎×200``: nothing is pushed out of sight.

    A line of a diff is blank when it has its mark alone.
    """
    shown: list[str] = []
    for blank, group in groupby(lines, key=_mark_of_blank):
        found = [_RUN.sub(lambda run: f"␠×{len(run[0])}", line) for line in group]
        shown += found if blank is None or len(found) <= MAX_BLANK_LINES else [f"{blank}⏎×{len(found)}"]
    return shown


def in_one_line(text: str, most: int) -> str:
    """Write a text in one line of at most `most` characters; where lines end, and how much is left out, is shown."""
    line = _LINE_END.sub(lambda end: f" ⏎×{count} " if (count := end[0].count("\n")) > 1 else " ⏎ ", text.strip())
    line = _RUN.sub(lambda run: f"␠×{len(run[0])}", line)
    if len(line) <= most:
        return line
    left = f"… ({len(line)} characters)"
    return line[: max(0, most - len(left))] + left


def _mark_of_blank(line: str) -> str | None:
    found = _BLANK.fullmatch(line)
    return found[1] if found else None


def _revealed_word(word: str, plain: bool) -> str:
    """A word of one script stays, unless each letter could be a Latin one and nothing else of that script is there."""
    scripts = {_script(letter) for letter in word if letter.isalpha()}
    if "LATIN" in scripts and len(scripts) > 1:
        return "".join(_escape(c) if c.isalpha() and _script(c) != "LATIN" else c for c in word)
    if plain and "LATIN" not in scripts and all(c in _LIKE_LATIN for c in word if c.isalpha()):
        return "".join(_escape(c) if c in _LIKE_LATIN else c for c in word)
    return word


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()
