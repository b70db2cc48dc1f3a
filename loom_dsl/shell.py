"""What a shell command line would run, as far as reading it can tell. Reading itself is done where a parser is.

A line is *plain* when it is made of literal words alone: no expansion, redirection, assignment, glob or keyword, in one
line. Only plain lines can be covered by a rule that allows some commands; a rule that forbids looks at everything that
might run, in substitutions and behind wrappers too.
"""

import re
import unicodedata
from dataclasses import dataclass

Words = tuple[str | None, ...]
"""A command's words; None for what is known only when it runs, which may be any number of words."""

MOST_CHARACTERS = 10_000
MOST_PARTS = 50
"""Commands that a plain line may hold."""
UNKNOWN: Words = (None,)
"""A command of which nothing is known."""

_RESERVED = frozenset(
    [
        "!",
        "{",
        "}",
        "[[",
        "]]",
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
    ]
)
_BARE = r"(?:[A-Za-z0-9_./:@%+,=^-]|(?<![\s'\":=|&;])~|[^\x00-\x7f])"
_QUOTED = r"'[^'\n]*'|\"[^\"\\$`!\n]*\""
_WORD = re.compile(rf"(?:{_BARE}|{_QUOTED})+")
_PIECE = re.compile(rf"({_QUOTED})")
_OPERATOR = re.compile(r"&&|\|\||;|\|(?!&)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


@dataclass(frozen=True)
class ShellReading:
    """What is known of a command line.

    Attributes:
        plain: The words of each command, when the line is plain; None: it is not.
        doubt: Why it is not plain, for people and for the model; empty when it is.
        commands: Everything that might run, also inside substitutions and behind wrappers.
        touches: Words that could name paths, wherever they stand, in the form of `path_shapes`.
        hides: Why it may run what nobody can read, such as code of another language; empty: it does not.
    """

    plain: tuple[tuple[str, ...], ...] | None
    doubt: str
    commands: tuple[Words, ...]
    touches: tuple[str, ...] = ()
    hides: str = ""


class NotPlain(ValueError):
    """A line is not made of literal words alone; says what it holds."""


def plain_parts(line: str) -> tuple[tuple[str, ...], ...]:
    """Split a plain line into its commands and their words, by a grammar much smaller than the shell's.

    Raises:
        NotPlain: It is not plain; says why.
    """
    _check_characters(line)
    parts: list[tuple[str, ...]] = []
    words: list[str] = []
    position, expected = 0, True
    while position < len(line):
        if line[position] in " \t":
            position += 1
        elif found := _OPERATOR.match(line, position):
            if not words:
                raise NotPlain(f"there is no command before {found[0]!r}")
            parts.append(_command(words))
            words, position, expected = [], found.end(), found[0] != ";"
        elif found := _WORD.match(line, position):
            _check_gap(line, found.end())
            words.append(_unquoted(found[0]))
            position = found.end()
            _check_first(words, found[0])
        else:
            raise NotPlain(_unreadable(line, position))
    if words:
        parts.append(_command(words))
    elif expected:
        raise NotPlain("the command line is empty, or ends in the middle")
    if len(parts) > MOST_PARTS:
        raise NotPlain(f"it holds more than {MOST_PARTS} commands")
    return tuple(parts)


def _check_characters(line: str) -> None:
    if len(line) > MOST_CHARACTERS:
        raise NotPlain(f"it is longer than {MOST_CHARACTERS:,} characters")
    for character in line:
        if character in " \t" or "!" <= character <= "~":
            continue
        if character == "\n":
            raise NotPlain("it has more than one line")
        if ord(character) < 128 or unicodedata.category(character)[0] not in "LNPS":
            raise NotPlain(f"it holds the character U+{ord(character):04X}")


def _check_gap(line: str, position: int) -> None:
    """What follows a word must end it: anything else could be read as a part of it."""
    if position < len(line) and line[position] not in " \t" and not _OPERATOR.match(line, position):
        raise NotPlain(_unreadable(line, position))


def _check_first(words: list[str], raw: str) -> None:
    if len(words) > 1:
        return
    if not raw.isascii() or raw != words[0]:
        raise NotPlain(f"the command's name {raw} is written with quotes or unusual letters")
    if words[0] in _RESERVED:
        raise NotPlain(f"{words[0]!r} is a word of the shell's own language")
    if _ASSIGNMENT.match(words[0]):
        raise NotPlain(f"{words[0]!r} sets a variable")
    if words[0].startswith(("-", "%")):
        raise NotPlain(f"{words[0]!r} is not a command's name")


def _command(words: list[str]) -> tuple[str, ...]:
    return tuple(words)


def _unquoted(raw: str) -> str:
    return "".join(piece[1:-1] if piece[:1] in ("'", '"') else piece for piece in _PIECE.split(raw))


_WHAT = {
    "$": "an expansion ($)",
    "`": "a command substitution (`)",
    "\\": "a backslash",
    ">": "a redirection (>)",
    "<": "a redirection (<)",
    "&": "a command in the background (&)",
    "*": "a pattern of file names (*)",
    "?": "a pattern of file names (?)",
    "[": "a pattern of file names ([)",
    "{": "a brace expansion",
    "}": "a brace expansion",
    "(": "a subshell or a function",
    ")": "a subshell or a function",
    "!": "a negation or the history (!)",
    "#": "a comment (#)",
    "~": "a home directory (~)",
    '"': "a string that is expanded or does not end",
    "'": "a string that does not end",
}


def _unreadable(line: str, position: int) -> str:
    return f"it holds {_WHAT.get(line[position], repr(line[position]))}"
