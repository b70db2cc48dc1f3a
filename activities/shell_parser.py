"""Reading a shell command line with tree-sitter: what it would run, and whether it is plain."""

import re
from collections.abc import Iterator
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from activities.shell_words import known_word, shapes_of, text_of, words_of
from loom_dsl.command_doubt import (
    filled_in,
    hidden_in_assignment,
    is_unknown,
    may_run_its_words,
    only_given,
    places_run,
    places_written,
    takes_code,
    what_hides,
)
from loom_dsl.command_tables import SHELLS, base_name, is_language, risky_words
from loom_dsl.paths import normal_path
from loom_dsl.shell import MOST_CHARACTERS, UNKNOWN, NotPlain, ShellReading, Words, plain_parts

MOST_COMMANDS = 1_000
"""Of more than these, nothing is known."""
MOST_WORK = 100_000
"""Characters that are parsed, and words of commands that are kept, for one line; what is beyond is not known."""
MOST_LOOSE = 2_000
"""Words of code of another language that are looked at."""
LONGEST_LOOSE = 20
MOST_DEPTH = 6
"""How deep commands inside words of commands are followed."""
_PLAIN_NODES = frozenset(
    {"program", "list", "pipeline", "command", "command_name", "word", "string", "string_content", "raw_string"}
    | {"concatenation", "number"}
)
_SIMPLE = re.compile(r"[A-Za-z0-9_./:@%+,-]*")
_IN_BACKTICKS = re.compile(r"(?:[^`\\]|\\.)*", re.DOTALL)


@lru_cache(maxsize=64)
def read_command(line: str) -> ShellReading:
    """Say what a command line would run.

    It comes from a model, so the work is bounded, whatever it holds: what is not read for that is `UNKNOWN`.
    """
    doubt = ""
    plain: tuple[tuple[str, ...], ...] | None = None
    try:
        plain = plain_parts(line)
        if plain != _parts_by_parser(line):
            plain, doubt = None, "it can be read in more than one way"
    except NotPlain as error:
        doubt = str(error)
    reader = _Reader()
    commands = tuple(dict.fromkeys(reader.read(line)))
    return ShellReading(plain, doubt, commands, tuple(dict.fromkeys(reader.touched)), reader.hides)


def _parse(line: str) -> tuple[bytes, Node]:
    source = line.encode()
    return source, Parser(Language(tree_sitter_bash.language())).parse(source).root_node


def _parts_by_parser(line: str) -> tuple[tuple[str | None, ...], ...] | None:
    """Give the words of each command as the parser sees them; None where it sees anything that is not plain."""
    source, root = _parse(line)
    nodes = list(_walk(root))
    if root.has_error or any(node.is_named and node.type not in _PLAIN_NODES for node in nodes):
        return None
    return tuple(words_of(source, node) for node in nodes if node.type == "command")


def _walk(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(current.children))


class _NotKnown(Exception):
    """Something of a line cannot be read, or it is too much: then what the rest is changes nothing."""


class _Reader:
    """Collects the commands of one line."""

    def __init__(self) -> None:
        self._found: list[Words] = []
        self._loose: list[Words] = []
        self._left = MOST_WORK
        self._ran: set[str] = set()
        self._written: set[str] = set()
        self.touched: list[str] = []
        self.hides = ""

    def read(self, line: str) -> list[Words]:
        try:
            self._line(line, 0)
        except _NotKnown:
            self._found.append(UNKNOWN)
        both = sorted(self._written & self._ran)
        self._doubt(f"it writes {both[0]} and may run it" if both else "")
        return [*self._found, *self._loose]

    def _doubt(self, reason: str) -> None:
        self.hides = self.hides or reason

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0 or len(self._found) > MOST_COMMANDS:
            raise _NotKnown

    def _line(self, line: str, depth: int) -> None:
        odd = "\0" in line or any("\ud800" <= letter <= "\udfff" for letter in line)
        if odd or depth > MOST_DEPTH or len(line) > MOST_CHARACTERS:
            raise _NotKnown
        for text in dict.fromkeys((line, re.sub(r"\\\r?\n", "", line))):
            self._tree(text, depth)
        start = line.find("`")
        while start >= 0:  # the parser does not see all of them, as in ${a:-`…`}
            quoted = _IN_BACKTICKS.match(line, start + 1)
            end = quoted.end() if quoted else start
            self._spend(end - start)
            closed = line[end : end + 1] == "`"
            if closed:
                self._line(re.sub(r"\\([\\$`])", r"\1", line[start + 1 : end]), depth + 1)
            start = line.find("`", end + 1 if closed else start + 1)

    def _tree(self, line: str, depth: int) -> None:
        self._spend(len(line) + 1)
        source, root = _parse(line)
        if root.has_error:
            raise _NotKnown
        for node in _walk(root):
            self._node(source, node, depth)

    def _node(self, source: bytes, node: Node, depth: int) -> None:
        self.touched.extend(shapes_of(source, node))
        if node.type == "command":
            self._command(words_of(source, node), depth)
        elif node.type == "file_redirect":
            self._redirected(source, node)
        elif node.type in ("declaration_command", "unset_command"):
            self._command(tuple(known_word(source, child) for child in node.children), depth)
        elif node.type == "variable_assignment":
            self._assignment(source, node, depth)
        elif node.type == "heredoc_body":
            self._unseen(source, node, depth)
        elif node.type == "test_command":
            self._strings(source, node, depth)
        elif node.type == "expansion" and text_of(source, node).rstrip("}").endswith("@P"):
            raise _NotKnown  # what a variable holds is expanded once more
        if node.type == "redirected_statement" or node.children_by_field_name("redirect"):
            self._fed(source, node)

    def _assignment(self, source: bytes, node: Node, depth: int) -> None:
        """A value may be run: by name (PAGER), or when it is expanded once more (PS4, arithmetic)."""
        text, value = text_of(source, node), node.child_by_field_name("value")
        if text.startswith(_CHANGES_COMMANDS):
            raise _NotKnown
        known = None if value is None else known_word(source, value)
        if node.parent is not None and node.parent.type == "command":
            self._doubt(hidden_in_assignment(f"{text.partition('=')[0]}={known or text}"))
        if known and (_RUN_BY_NAME.search(text.partition("=")[0]) or not _SIMPLE.fullmatch(known)):
            for part in dict.fromkeys((known, *_INSIDE.findall(known))):
                self._line(part.lstrip("|! "), depth + 1)

    def _redirected(self, source: bytes, node: Node) -> None:
        target = node.child_by_field_name("destination")
        known = known_word(source, target) if target is not None and ">" in text_of(source, node) else None
        if known and (place := normal_path(known)) is not None:
            self._written.add(place)

    def _fed(self, source: bytes, node: Node) -> None:
        """What a command that runs others, or a language, is given to read."""
        self._spend(node.end_byte - node.start_byte)
        commands = [words_of(source, inner) for inner in _walk(node) if inner.type == "command"]
        if not any(_may_run(words) or None in words[:1] for words in commands):
            return
        for inner in _walk(node):
            if inner.type in ("heredoc_body", "herestring_redirect"):
                self._loosely(text_of(source, inner))
                code = next((words[0] for words in commands if takes_code(words) or risky_words(words)), None)
                self._doubt(f"{code} is given code" if code else "")

    def _unseen(self, source: bytes, node: Node, depth: int) -> None:
        """Substitutions in a here-document that the parser has not seen, as after a tab."""
        text = text_of(source, node)
        places = [found.start() for found in re.finditer(r"\$\(", text)]
        if len(places) > sum(inner.type in ("command_substitution", "arithmetic_expansion") for inner in _walk(node)):
            for place in places[:MOST_DEPTH]:
                self._line(text[place:], depth + 1)
            if len(places) > MOST_DEPTH:
                raise _NotKnown

    def _strings(self, source: bytes, node: Node, depth: int) -> None:
        """`-v` and comparisons of numbers expand what a string holds."""
        self._spend(node.end_byte - node.start_byte)
        for inner in _walk(node):
            if inner.type == "raw_string" and ("$(" in (text := text_of(source, inner)) or "`" in text):
                for part in _INSIDE.findall(text):
                    self._line(part, depth + 1)

    def _loosely(self, text: str) -> None:
        """Take every rest of a text for a command: where it begins in code of another language, nobody can tell."""
        words = _TOKEN.findall(text)
        if len(words) > MOST_LOOSE:
            raise _NotKnown
        for start in range(min(len(words), MOST_LOOSE)):
            rest = tuple(words[start : start + LONGEST_LOOSE])
            self._spend(len(rest))
            self._loose.append(rest)

    def _command(self, words: Words, depth: int) -> None:
        self._spend(len(words))
        self._found.append(words)
        if not words:
            raise _NotKnown
        self._doubt(what_hides(words))
        self._written |= places_written(words)
        self._ran |= places_run(words)
        if words[0] and base_name(words[0]).startswith("git-"):
            self._command(("git", base_name(words[0])[4:], *words[1:]), depth)
        if is_unknown(words):
            self._perhaps(words)
        elif may_run_its_words(words):
            self._through(words, depth)

    def _through(self, words: Words, depth: int) -> None:
        """Every rest of the words may be a command, and every word a line or code."""
        whole, begins = filled_in(words), sorted(set(range(len(words))) - only_given(words))
        for start in begins:
            behind = whole[start:]
            self._spend(len(behind))
            if start:
                self._found.append(behind)
            if _reads_commands(behind):
                raise _NotKnown
        for word in (words[place] or "" for place in begins if place):
            self._inside(word)
            for text in _texts(word):
                self._line(text, depth + 1)

    def _perhaps(self, words: Words) -> None:
        """Nobody knows what a program does with its words: each may be a command, or hold one."""
        filled = filled_in(words)
        for start in range(1, len(words)):
            self._spend(len(words) - start)
            if filled[start] is not None:
                self._found.append(filled[start:])
            self._inside(words[start] or "")

    def _inside(self, word: str) -> None:
        if not _NAME.fullmatch(word):
            self._loosely(re.sub(r"[=,:@]", " ", word))


def _may_run(words: Words) -> bool:
    return may_run_its_words(words) or is_language(words)


_RUN_BY_NAME = re.compile(
    r"(?i)(?:pager|editor|visual|browser|command|shell|ssh|askpass|open|close|diff|proxy|helper|value_\d+|cmds|aliases)"
    r"(?:\[.*)?$"
)
"""Variables whose values programs run: `GIT_PAGER`, `BASH_CMDS[x]`, `GIT_CONFIG_VALUE_0`."""
_INSIDE = re.compile(r"\$\((?!\()[^()]*\)|`[^`]*`")
_NAME = re.compile(r"[A-Za-z0-9_./+~-]*")
_TOKEN = re.compile(r"[A-Za-z0-9_./~+=-]+")
_CHANGES_COMMANDS = ("PATH=", "BASH_ENV=", "ENV=", "LD_PRELOAD=", "PROMPT_COMMAND=", "IFS=")


def _reads_commands(words: Words) -> bool:
    """Whether it is a shell that takes its commands from elsewhere."""
    name, rest = words[0], words[1:]
    if name in (".", "source"):
        return any(word is None or word.startswith(_STREAMS) for word in rest)
    if name is None or base_name(name) not in SHELLS:
        return False
    flags = "".join(word for word in rest if word and re.match(r"-[A-Za-z]", word))
    if "c" in flags:
        return None in rest
    return "s" in flags or all(word is None or word.startswith(("-", *_STREAMS)) for word in rest)


_STREAMS = ("/dev/", "/proc/")


def _texts(word: str) -> Iterator[str]:
    """Give what of an argument could itself be a command line."""
    candidates = [word, word.partition("=")[2], word.partition("=exec=")[2], word.rpartition("!")[2]]
    if word.startswith("-") and not word.startswith("--"):
        candidates.append(word[2:])
    for text in dict.fromkeys(candidates):
        if text and (text != word or not _SIMPLE.fullmatch(text)):
            yield text
