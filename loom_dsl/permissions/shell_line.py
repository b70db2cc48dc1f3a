"""Reading a line of the shell, strictly: each byte of it belongs to a construct that is known here, or none is read.

What is known: words with their quotes resolved, patterns of file names and braces in them, plain variables; pipes and
lists; redirections to literal files and between descriptors, and here-documents; assignments of a few inert variables
before a command, and of variables of the line's own; `$(…)` and `<(…)`, whose commands are read like all others; `for`,
`while`, `until`, `if`, `[[ … ]]` without arithmetic, `!`, `time`, groups and subshells. All else makes the reading
unknown. The grammar is that of bash(1) where it does not run `/etc/profile` and is not interactive.
"""

import posixpath
import re
import unicodedata
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NoReturn

from loom_dsl.permissions.paths import ANY, PART

Words = tuple[str, ...]
"""A command's words, quotes resolved. Where only running the line tells a part of one, it holds `paths.ANY` or `PART`;
such a word may also be several, or none."""

MAX_CHARACTERS = 10_000
MAX_COMMANDS = 200
MAX_DEPTH = 20
MAX_CHOICES = 64
"""Words that the braces of one word may stand for."""


@dataclass(frozen=True)
class ShellReading:
    """What a line is made of.

    Attributes:
        commands: The words of each simple command, in the order in which they are written.
        loops: Words that a `for` goes through; they may name paths.
        reads: Files that redirections read.
        writes: Files that redirections write, `/dev/null` left out.
        unknown: What could not be read, for people and for the model; empty: all of it was, else nothing of it counts.
    """

    commands: tuple[Words, ...] = ()
    loops: Words = ()
    reads: Words = ()
    writes: Words = ()
    unknown: str = ""

    @property
    def literal(self) -> tuple[Words, ...]:
        """The commands, when the line is nothing but them and each of their words is told; else none."""
        open_words = any(is_told_later(word) for words in self.commands for word in words)
        return () if open_words or self.loops or self.reads or self.writes else self.commands

    @property
    def moves(self) -> bool:
        """Whether it changes its directory, so that a path in it does not begin in the working directory."""
        return any("cd" in words or "pushd" in words or "popd" in words for words in self.commands)


def is_told_later(word: str) -> bool:
    """Say whether only running the line tells all of a word."""
    return ANY in word or PART in word


class _UnreadableError(ValueError):
    """Something stands in the line that no construct covers."""


@lru_cache(maxsize=256)
def read_line(line: str) -> ShellReading:
    """Read a line, in time that is linear in its length.

    Returns:
        What it is made of; with `unknown` alone where anything of it cannot be read.
    """
    try:
        return _Reader(line).read()
    except _UnreadableError as error:
        return ShellReading(unknown=str(error))


INERT_VARIABLE = re.compile(
    r"CI|DEBUG|VERBOSE|TZ|LANG|LANGUAGE|LC_[A-Z]+|TERM|COLUMNS|LINES|PORT|HOST|(?:NODE|RAILS|FLASK|APP)_ENV"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|CARGO_TERM_COLOR|GOOS|GOARCH|CGO_ENABLED|RUST_(?:LOG|BACKTRACE)"
    r"|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|UTF8|IOENCODING|PATH|WARNINGS)|DJANGO_SETTINGS_MODULE"
)
"""What no program heeds so that it runs something else, but those that can run anything by themselves."""
SWITCH = re.compile(r"[A-Z][A-Z0-9_]*=(?:\d+|true|false|yes|no|on|off)")
"""A variable that only switches something on or off."""
_KEYWORDS_TEXT = """
! { } [[ ]] case coproc do done elif else esac fi for function if in select then time until while
"""
_KEYWORDS = frozenset(_KEYWORDS_TEXT.split())
_ENDS_WORD = " \t\n;&|<>()"
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,=^!#\]}-]+")
_KEYWORD = re.compile(r"(?:[a-z]+|[!{}]|\[\[|\]\])(?=[ \t\n;&|<>()]|$)|[()]")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|[?$#!0-9])", re.ASCII)
_CHANGED = re.compile(
    r"\$\{(?:#[A-Za-z_]\w*|(?:[A-Za-z_]\w*|[1-9])(?:(?::?[-+?]|##?|%%?)[\w./*:@+,=-]*|\^\^?|,,?|:\d+(?::\d+)?))\}",
    re.ASCII,
)
"""Expansions whose operands expand nothing: no arithmetic but numbers, no `@P`, nothing that sets the variable."""
_DOLLAR = re.compile(r"\$(?=[\s\"/.,|)]|$)")
_DOLLAR_IN_STRING = re.compile(r"\$(?=[\s\"/.,|)'%&;:=~^]|$)")
"""A `$` that begins nothing."""
_CLASS = re.compile(r"\[[\w!^.,:@%+=-]+\]", re.ASCII)
_CHOICES = re.compile(r"\{([\w./:@%+=-]*(?:,[\w./:@%+=-]*)+)\}", re.ASCII)
_RANGE = re.compile(r"\{(?:\d+\.\.\d+|[a-z]\.\.[a-z]|[A-Z]\.\.[A-Z])\}", re.ASCII)
_NO_CHOICE = re.compile(
    r"\{(?![^}]*\.\.)[\w./*:@%+=-]*\}(?:(?=\\;)|(?![<>]|[^ \t\n;&|<>()]*[,}\"'\\$]))|\{(?=[ \t\n;&|()]|$)", re.ASCII
)
"""Braces that stand for themselves: `{}`, `stash@{0}`, `{./web}`."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(=|\+=|\[)", re.ASCII)
_REDIRECTION = re.compile(r"(?:&>>?|[0-9]*(?:<<<|<<-|<<|<>|<&|<|>>|>\||>&|>))")
_DESCRIPTOR = re.compile(r"(?:[0-9]+|-)(?=[ \t\n;&|<>()]|$)")
_DELIMITER = re.compile(r"(?:'([\w.-]+)'|\"([\w.-]+)\"|([\w.-]+))(?=[ \t\n;&|<>()]|$)", re.ASCII)
_UNARY = re.compile(r"-[a-hknprsuwxzGLNOS](?=[ \t])")
_BINARY = re.compile(r"(?:==?|!=)(?=[ \t])")
"""What `[[ … ]]` may ask: nothing of it is arithmetic, which expands what its operands hold."""
GIVEN_FILE = f"/dev/fd/{PART}"
"""What `<(…)` gives."""
LOOP_VARIABLE = re.compile(r"(?!\w*_proxy\b|_\b)[a-z_][a-z0-9_]*", re.ASCII)
_HARMLESS_FILES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
_SPECIAL_FILES = ("/dev/", "/proc/", "//")
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")
_SIMPLE = re.compile(r"[\w./:@%+,=-]*|~", re.ASCII)
_ESCAPED = '$`"\\'
_SIGNS = {
    "`": "a command substitution (`, not $(…))",
    "$": "an expansion ($)",
    "(": "a parenthesis where none can stand",
    ")": "a parenthesis where none can stand",
    "{": "a brace expansion",
    "~": "a home directory (~)",
}


class _Reader:
    """Goes through a line once, from left to right."""

    def __init__(self, line: str) -> None:
        self._line, self._at, self._depth = line, 0, 0
        self._commands: list[Words] = []
        self._loops: list[str] = []
        self._reads: list[str] = []
        self._writes: list[str] = []
        self._documents: list[tuple[str, bool, bool]] = []
        self._variables: dict[str, str] = {}
        self._whole: set[str] = set()  # variables whose values are one word each
        self._splits = False  # the word that is read may become several
        self._ended = 0  # where the word before ends
        self._nested = 0  # substitutions around this place
        self._moves = _MOVES.search(line) is not None

    def read(self) -> ShellReading:
        self._check_characters()
        self._list(frozenset({""}))
        if self._documents:
            raise _UnreadableError("a here-document does not end")
        commands, loops = tuple(self._commands), tuple(self._loops)
        return ShellReading(commands, loops, tuple(self._reads), tuple(self._writes))

    def _check_characters(self) -> None:
        if len(self._line) > MAX_CHARACTERS:
            raise _UnreadableError(f"it is longer than {MAX_CHARACTERS:,} characters")
        for character in self._line:
            if " " <= character <= "~" or character in "\t\n":
                continue
            if ord(character) < 128 or unicodedata.category(character)[0] not in "LNPSM":
                raise _UnreadableError(f"it holds the character U+{ord(character):04X}")

    def _fail(self) -> NoReturn:
        if self._at >= len(self._line):
            raise _UnreadableError("it ends in the middle")
        sign = self._line[self._at]
        raise _UnreadableError(f"it holds {_SIGNS.get(sign, repr(sign))} that cannot be read")

    def _take(self, text: str) -> bool:
        found = self._line.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _peek(self) -> str:
        return self._line[self._at : self._at + 1]

    def _blanks(self, *, lines: bool = False) -> None:
        while True:
            if self._peek() in (" ", "\t") and self._peek():
                self._at += 1
            elif self._line.startswith("\\\n", self._at):
                self._at += 2
            elif self._peek() == "#":
                if self._nested:
                    self._fail()  # where it ends depends on the release of bash
                end = self._line.find("\n", self._at)
                self._at = len(self._line) if end < 0 else end
            elif lines and self._peek() == "\n":
                self._newline()
            else:
                return

    def _newline(self) -> None:
        self._at += 1
        for delimiter, tabs, quoted in self._documents:
            self._document(delimiter, tabs=tabs, quoted=quoted)
        self._documents.clear()

    def _document(self, delimiter: str, *, tabs: bool, quoted: bool) -> None:
        begins = self._at
        while (ends := self._at) < len(self._line):
            end = self._line.find("\n", self._at)
            text = self._line[self._at : end if end >= 0 else None]
            self._at = end + 1 if end >= 0 else len(self._line)
            if not quoted and text.endswith("\\"):
                break  # which joins the next line, that may be the end
            if (text.lstrip("\t") if tabs else text) == delimiter:
                if not quoted:
                    self._inside(self._line[begins:ends])._text("")
                return
        raise _UnreadableError(f"the here-document {delimiter} does not end")

    def _inside(self, text: str) -> "_Reader":
        """Give a reader of a text that stands in the line; what it finds is the line's."""
        inner = copy(self)
        inner._line, inner._at, inner._documents = text, 0, []
        return inner

    def _keyword(self) -> str:
        """Give the word or sign of the shell's own language that stands here; empty: none does."""
        found = _KEYWORD.match(self._line, self._at)
        return found[0] if found and (found[0] in _KEYWORDS or found[0] in "()") else ""

    def _list(self, closing: frozenset[str]) -> str:
        """Read commands up to one of the words that close them, and give that one."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _UnreadableError("it is nested too deep")
        is_empty = True
        while True:
            self._blanks(lines=True)
            word = self._keyword()
            if word in closing and (word or self._at == len(self._line)):
                if is_empty:
                    raise _UnreadableError(f"there is no command{f' before {word!r}' if word else ' in it'}")
                self._at += len(word)
                self._depth -= 1
                return word
            self._and_or()
            is_empty = False
            if self._peek() == "\n":
                self._newline()
            elif self._peek() in (";", "&") and self._peek():
                self._at += 1
            elif self._peek() != ")" and self._at < len(self._line):
                self._fail()

    def _and_or(self) -> None:
        self._pipeline()
        while self._take("&&") or self._take("||"):
            self._blanks(lines=True)
            self._pipeline()

    def _pipeline(self) -> None:
        while self._keyword() in ("!", "time"):
            self._at += len(self._keyword())
            self._blanks()
            if self._line.startswith("-p ", self._at):
                self._at += 3
                self._blanks()
        self._command()
        while self._peek() == "|" and not self._line.startswith("||", self._at):
            self._at += 1
            self._take("&")
            self._blanks(lines=True)
            self._command()

    def _command(self) -> None:
        word = self._keyword()
        if not word:
            self._simple()
        elif word == "(":
            self._at += 1
            self._list(frozenset({")"}))
        elif word == "[[":
            self._test()
        elif word in ("{", "if", "while", "until", "for"):
            self._at += len(word)
            self._compound(word)
        else:
            raise _UnreadableError(f"it holds {word!r} that cannot be read")
        if word:
            self._redirections()

    def _compound(self, word: str) -> None:
        if word == "{":
            self._list(frozenset({"}"}))
            return
        if word == "if":
            self._list(frozenset({"then"}))
            while (ended := self._list(frozenset({"elif", "else", "fi"}))) == "elif":
                self._list(frozenset({"then"}))
            if ended == "else":
                self._list(frozenset({"fi"}))
            return
        if word != "for":
            self._list(frozenset({"do"}))
            self._list(frozenset({"done"}))
            return
        variable = self._for()
        self._list(frozenset({"done"}))
        self._variables[variable] = ANY  # behind the loop it may have run or not, here or in a subshell
        self._whole.discard(variable)

    def _is_known(self, variable: str) -> bool:
        """Say whether what surrounds this place relies on a variable's value."""
        return variable in self._whole or self._variables.get(variable, ANY) != ANY

    def _for(self) -> str:
        self._blanks()
        found = LOOP_VARIABLE.match(self._line, self._at)
        self._at = found.end() if found else self._at
        self._blanks()
        if found is None or self._keyword() != "in" or self._is_known(found[0]):
            raise _UnreadableError("it holds a 'for' that cannot be read")
        self._at += 2
        self._blanks()
        words: list[str] = []
        while self._peek() and self._peek() not in ";\n":
            words += self._word()
            self._blanks()
        self._loops += words
        self._variables[found[0]] = words[0] if len(words) == 1 else ANY
        if all(map(_SIMPLE.fullmatch, words)):
            self._whole.add(found[0])
        self._take(";")
        self._blanks(lines=True)
        if self._keyword() != "do":
            self._fail()
        self._at += 2
        return found[0]

    def _test(self) -> None:
        """Read `[[ … ]]`, whose words are not split and name no files, as a `test` of those that are told."""
        words: list[str] = []
        self._at += 2
        while True:
            self._blanks()
            while self._take("! "):
                self._blanks()
            if self._operator(_UNARY):
                words += self._operand()
            else:
                words += self._operand()
                words += self._operand() if self._operator(_BINARY) else []
            if not (self._take("&&") or self._take("||")):
                break
        if self._keyword() != "]]":
            raise _UnreadableError("it holds '[[' that cannot be read")
        self._at += 2
        self._commands.append(("test", *(word for word in words if not is_told_later(word))))

    def _operator(self, known: re.Pattern[str]) -> bool:
        found = known.match(self._line, self._at)
        self._at = found.end() if found else self._at
        self._blanks()
        return found is not None

    def _operand(self) -> list[str]:
        if self._keyword() == "]]":
            self._fail()
        word = self._word()
        self._blanks()
        return word

    def _simple(self) -> None:
        words: list[str] = []
        own: list[str] = []
        begins = self._at
        while True:
            self._redirections()
            if not self._peek() or self._peek() in ";&|\n)":
                break
            start = self._at
            read = self._word()
            if not words and (found := _ASSIGNMENT.match(self._line, start)):
                if found[2] != "=":
                    raise _UnreadableError(f"it changes the variable {found[1]}")
                own += [] if INERT_VARIABLE.fullmatch(found[1]) else [self._line[start : self._at]]
                continue
            words += read
        if self._at == begins:
            self._fail()
        given = [setting for setting in own if self._is_given(setting, words)]
        if words:
            self._add(words, given)

    def _is_given(self, setting: str, words: list[str]) -> bool:
        """Say whether a setting goes to a program, as by `env`: only what switches something on or off.

        Others may be of the line's own variables, and go to no program; `IFS` may tell `read` how to split.
        """
        name = setting.partition("=")[0]
        if words and SWITCH.fullmatch(setting):
            return True
        is_own = LOOP_VARIABLE.fullmatch(name) and not words and not self._is_known(name)
        if not is_own and (name != "IFS" or words[:1] != ["read"]):
            raise _UnreadableError(f"it sets {name}, which programs may heed")
        return False

    def _add(self, words: list[str], given: list[str]) -> None:
        if not words[0] or is_told_later(words[0]):
            raise _UnreadableError("only running it tells which program it runs")
        if words[0] in _KEYWORDS or "=" in words[0]:
            raise _UnreadableError(f"the program {words[0]!r} is written so that it can be read in two ways")
        if "read" in words and any(map(self._is_known, words)):
            raise _UnreadableError("it reads a variable that a 'for' goes through")
        self._commands.append(("env", *given, *words) if given else tuple(words))
        if len(self._commands) > MAX_COMMANDS:
            raise _UnreadableError(f"it holds more than {MAX_COMMANDS} commands")

    def _redirections(self) -> None:
        self._blanks()
        while not self._line.startswith("<(", self._at) and (found := _REDIRECTION.match(self._line, self._at)):
            self._at = found.end()
            self._blanks()
            sign = found[0].lstrip("0123456789")
            if len(found[0]) > len(sign) + 3:
                raise _UnreadableError(f"it holds {found[0]} that cannot be read")
            if sign in (">&", "<&") and (number := _DESCRIPTOR.match(self._line, self._at)):
                self._at = number.end()
            elif sign in ("<<", "<<-"):
                self._begin_document(tabs=sign == "<<-")
            elif sign == "<<<":
                self._word()
            else:
                self._redirect(sign)
            self._blanks()

    def _begin_document(self, *, tabs: bool) -> None:
        found = _DELIMITER.match(self._line, self._at)
        if not found:
            raise _UnreadableError("it holds a here-document whose end cannot be read")
        self._at = found.end()
        self._documents.append((found[1] or found[2] or found[3], tabs, found[3] is None))

    def _redirect(self, sign: str) -> None:
        target = self._word()
        place = target[0]
        if place == GIVEN_FILE:
            return
        if sign == ">&" and not _SIMPLE.fullmatch(place):
            raise _UnreadableError("it holds >& before a word that bash may expand twice")
        if len(target) > 1 or is_told_later(place) or not place:
            raise _UnreadableError("only running it tells which file a redirection names")
        if place in _HARMLESS_FILES:
            return
        if posixpath.normpath(place).startswith(_SPECIAL_FILES) or sign == "<&":
            raise _UnreadableError(f"it redirects to {place}")
        if "<" in sign:
            self._reads.append(place)
        if ">" in sign:
            self._writes.append(place)

    def _word(self) -> list[str]:
        """Read a word; several where braces stand for several."""
        start, self._splits = self._at, False
        if self._peek() == "<":
            return self._given_file()
        pieces: list[tuple[str, ...]] = []
        count = 1
        while self._peek() and self._peek() not in _ENDS_WORD:
            piece = self._piece(self._at == start)
            count *= len(piece)
            if count > MAX_CHOICES:
                raise _UnreadableError(f"its braces stand for more than {MAX_CHOICES} words")
            pieces.append(piece)
        if self._at == start:
            self._fail()
        if self._documents and "\n" in self._line[start : self._at]:
            raise _UnreadableError("a string goes over the line after which a here-document begins")
        self._ended = self._at
        words = ["".join(choice) for choice in product(*pieces)]
        if count > 1 and not {"'", '"'} & set(self._line[start : self._at]):
            words = [word for word in words if word]
        return [*words, ANY] if self._splits else words

    def _given_file(self) -> list[str]:
        """Read `<(…)`, which is a word of its own here."""
        if self._at == self._ended or not self._take("<("):
            self._fail()
        self._substitution()
        if self._peek() and self._peek() not in " \t\n;&|)":
            self._fail()
        return [GIVEN_FILE]

    def _substitution(self) -> None:
        """Read the commands of `$(…)` or `<(…)` as commands of the line."""
        if self._peek() == "(" or self._documents:
            self._fail()
        splits, self._nested = self._splits, self._nested + 1
        self._list(frozenset({")"}))
        if self._documents:
            raise _UnreadableError("a here-document does not end where its command does")
        self._splits, self._nested = splits, self._nested - 1

    def _piece(self, first: bool) -> tuple[str, ...]:
        sign = self._peek()
        if found := _BARE.match(self._line, self._at):
            return self._end(found, found[0])
        if sign == "~":
            return self._tilde(first)
        if sign in "*?" or sign > "~":
            self._at += 1
            return (PART if sign in "*?" else sign,)
        if sign not in _PIECES:
            self._fail()
        return _PIECES[sign](self)

    def _raw(self) -> tuple[str, ...]:
        end = self._line.find("'", self._at + 1)
        if end < 0:
            raise _UnreadableError("it holds a string that does not end")
        begin, self._at = self._at + 1, end + 1
        return (self._line[begin:end],)

    def _end(self, found: re.Match[str], *pieces: str) -> tuple[str, ...]:
        self._at = found.end()
        return pieces

    def _escaped(self, *, quoted: bool) -> str:
        after = self._line[self._at + 1 : self._at + 2]
        if not after:
            self._fail()
        if after == "\n" and not quoted:
            raise _UnreadableError("a word goes over two lines")
        self._at += 2
        return "" if after == "\n" else after

    def _string(self) -> str:
        self._at += 1
        text = self._text('"')
        self._at += 1
        return text

    def _text(self, end: str) -> str:
        """Read what stands between double quotes, or in a here-document."""
        pieces: list[str] = []
        while (sign := self._peek()) != end:
            if not sign:
                raise _UnreadableError("it holds a string that does not end")
            if sign == "`":
                self._fail()
            if sign == "$":
                pieces.append(self._variable(quoted=True))
            elif sign == "\\" and (after := self._line[self._at + 1 : self._at + 2]) and after in f"{_ESCAPED}\n":
                pieces.append(self._escaped(quoted=True))
            else:
                pieces.append(sign)
                self._at += 1
        return "".join(pieces)

    def _variable(self, *, quoted: bool) -> str:
        if found := _VARIABLE.match(self._line, self._at):
            self._at = found.end()
            if found[1] and not quoted and self._peek() == "{":
                self._fail()  # braces stand for their words first: `$a{b,c}` is `$ab $ac`
            name = found[1] or found[2] or ""
            value = "." if name == "PWD" and not self._moves else self._variables.get(name, ANY)
            value = "~" if name == "HOME" else value
            if quoted or _SIMPLE.fullmatch(value):
                return value
            self._splits |= bool(name) and name not in self._whole
            return ANY
        changed = _CHANGED.match(self._line, self._at)
        if changed or self._take("$("):
            self._at = changed.end() if changed else self._at
            if not changed:
                self._substitution()
            self._splits |= not quoted
            return ANY
        found = (_DOLLAR_IN_STRING if quoted else _DOLLAR).match(self._line, self._at)
        if found is None or (not quoted and self._line[found.end() : found.end() + 1] == '"'):
            self._fail()
        self._at = found.end()
        return "$"

    def _class(self) -> tuple[str, ...]:
        if found := _CLASS.match(self._line, self._at):
            return self._end(found, PART)
        rest = re.compile(r"[^ \t\n;&|<>()]*").match(self._line, self._at)
        if rest is None or "]" in rest[0]:
            raise _UnreadableError("it holds a pattern of file names ([) that cannot be read")
        self._at += 1
        return ("[",)

    def _braces(self) -> tuple[str, ...]:
        if found := _CHOICES.match(self._line, self._at):
            return self._end(found, *found[1].split(","))
        if found := _RANGE.match(self._line, self._at):
            first, last = (int(end) if end.isdecimal() else ord(end) for end in found[0][1:-1].split(".."))
            written = str if found[0][1].isdecimal() else chr
            if not first < last < first + MAX_CHOICES or found[0][1] == "0":
                return self._end(found, PART)
            return self._end(found, *map(written, range(first, last + 1)))
        if found := _NO_CHOICE.match(self._line, self._at):
            return self._end(found, found[0].replace("*", PART))
        self._fail()

    def _tilde(self, first: bool) -> tuple[str, ...]:
        """The home directory stays written as `~`, which no path inside the working directory begins with."""
        after = self._line[self._at + 1 : self._at + 2]
        if first and after and after not in "/" + _ENDS_WORD:
            self._fail()
        if not first and self._line[self._at - 1] in ":=":
            self._fail()
        self._at += 1
        return ("~",)


_PIECES: Mapping[str, Callable[[_Reader], tuple[str, ...]]] = {
    "'": _Reader._raw,
    '"': lambda reader: (reader._string(),),
    "\\": lambda reader: (reader._escaped(quoted=False),),
    "$": lambda reader: (reader._variable(quoted=False),),
    "[": _Reader._class,
    "{": _Reader._braces,
}
"""What begins with a sign inside a word."""
