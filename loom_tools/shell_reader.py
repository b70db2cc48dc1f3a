"""Reading a shell command line with tree-sitter: what it would run, and whether it is plain."""

import re
from collections.abc import Iterator
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from loom_dsl.permissions.paths import ANY, PART, is_partly_open, normal_path
from loom_dsl.permissions.risky_commands import (
    MAX_CHARACTERS,
    SHELLS,
    UNKNOWN,
    NotPlain,
    ShellReading,
    Words,
    base_name,
    is_language,
    plain_parts,
    risky_words,
)
from loom_dsl.permissions.shell_reading import (
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

# Words of a parsed command line as shapes of paths: what of them is told, and what only running the line tells.


_WORDS = frozenset(
    {"word", "number", "concatenation", "string", "raw_string", "ansi_c_string", "translated_string"}
    | {
        "simple_expansion",
        "expansion",
        "command_substitution",
        "brace_expression",
        "arithmetic_expansion",
        "command_name",
    }
)
_IN_WORDS = frozenset({"concatenation", "string", "command_name", "translated_string"})
_OPENED = frozenset({"command", "file_redirect", "for_statement"})
"""Where a word that is not told may name a file. Elsewhere it only says something to the shell."""
_SAYING = frozenset({"echo", "printf", "exit", "return", "[", "test", ":", "true", "false", "sleep"})
_BRACKETS = "{}[]"
_UNQUOTED = "\ue002\ue003\ue004\ue005"
"""Stand for `{`, `}`, `[` and `]` outside of quotes until the whole word is known."""
_BRACES = re.compile("\ue002(.*?)\ue003", re.DOTALL)
_CLASS = re.compile("\ue004[^/]*\ue005", re.DOTALL)
_TOKENS = re.compile(r"\\(.)|([*?])|([{}\[\]])", re.DOTALL)
_BARE_SPECIAL = re.compile(r"(?<!\\)(?:\\\\)*[*?\[{}]|^~")
_WITH_MARK = re.compile(r"[\w./:=%@+,-]*\{\}[\w./:=%@+,-]*", re.ASCII)
"""`{}` means itself to the shell."""
_ESCAPED_IN_STRING = re.compile(r'\\([$`"\\\n])')
_HERE = ("$PWD", "${PWD}")
_ALL_OF_IT = "./"
"""Not `.`, which as a command's name reads a file."""


def shapes_of(source: bytes, node: Node) -> Iterator[str]:
    """Give the shape of a node that is a whole word; nothing for any other."""
    parent = node.parent
    if node.type not in _WORDS or parent is None or parent.type in _IN_WORDS:
        return
    may_open = parent.type in _OPENED and node.type != "command_name" and not _only_says(source, parent)
    for choice in _choices(_shape(source, node)):
        shape = _CLASS.sub(PART, choice).translate(str.maketrans(_UNQUOTED, _BRACKETS))
        if may_open or not (is_partly_open(shape) or shape == _ALL_OF_IT):
            yield shape


def _choices(word: str) -> list[str]:
    """Write `{a,b}` outside of quotes as `a` and `b`; what is more than that, such as braces in braces, as any text."""
    found = _BRACES.search(word)
    if not found:
        return [word]
    texts = found[1].split(",")
    if len(texts) < 2 or not found[1].isprintable() or _BRACES.search(word, found.end()):
        return [word[: found.start()] + ANY + word[word.rindex(_UNQUOTED[1]) + 1 :]]
    return [word[: found.start()] + text + word[found.end() :] for text in texts]


def _only_says(source: bytes, command: Node) -> bool:
    name = command.child_by_field_name("name")
    return command.type == "command" and name is not None and base_name(text_of(source, name)) in _SAYING


def _shape(source: bytes, node: Node) -> str:
    text = text_of(source, node)
    if text in _HERE:
        return _ALL_OF_IT
    if node.type in ("concatenation", "command_name"):
        return "".join(_shape(source, child) for child in node.children)
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "ansi_c_string":
        return ANY if "\\" in text else text[2:-1]
    if node.type == "string":
        return _in_string(source, node)
    if node.type in ("word", "number") or not node.is_named:
        return ANY if node.named_child_count and node.type != "word" else _TOKENS.sub(_token, text)
    return ANY


def _token(found: re.Match[str]) -> str:
    if found[1] is not None:
        return "" if found[1] == "\n" else found[1]
    return PART if found[2] else _UNQUOTED[_BRACKETS.index(found[3])]


def _in_string(source: bytes, node: Node) -> str:
    """The parser leaves some spaces of a string to no node, so what lies between expansions is taken as it is."""
    pieces, start = [], node.start_byte + 1
    for child in (child for child in node.children if child.is_named and child.type != "string_content"):
        pieces += [source[start : child.start_byte].decode(errors="replace"), _shape(source, child)]
        start = child.end_byte
    pieces.append(source[start : node.end_byte - 1].decode(errors="replace"))
    return "".join(_unescaped(piece) for piece in pieces)


def words_of(source: bytes, command: Node) -> Words:
    """Give the words of a command."""
    name = command.child_by_field_name("name")
    first = [known_word(source, name)] if name is not None else []
    return (*first, *(known_word(source, node) for node in command.children_by_field_name("argument")))


def text_of(source: bytes, node: Node) -> str:
    """Give the text of a node."""
    return source[node.start_byte : node.end_byte].decode()


def known_word(source: bytes, node: Node) -> str | None:
    """Give what a word is when the command runs; None when only running it tells."""
    text = text_of(source, node)
    if node.type == "raw_string" or _WITH_MARK.fullmatch(text):
        return text.strip("'")
    if node.type in ("command_name", "concatenation"):
        if "{" in re.sub(r"'[^']*'|\"[^\"]*\"", "", text):
            return None
        dollar = any(text_of(source, child).endswith("$") for child in node.children[:-1])  # of `$"m"`, left behind
        pieces = [known_word(source, child) for child in node.children]
        return None if dollar or None in pieces else "".join(piece for piece in pieces if piece is not None)
    if node.type == "string":
        if any(child.is_named and child.type != "string_content" for child in node.children):
            return None
        return _unescaped(text[1:-1])
    if node.type in ("word", "number", "variable_name", "variable_assignment") or not node.is_named:
        if _BARE_SPECIAL.search(text) or (node.is_named and node.named_child_count and node.type != "word"):
            return _assigned(source, node) if node.type == "variable_assignment" else None
        return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
    return None


def _assigned(source: bytes, node: Node) -> str | None:
    """Give `NAME=value` of a declaration, when the value is known."""
    value = node.child_by_field_name("value")
    known = "" if value is None else known_word(source, value)
    name = node.child_by_field_name("name")
    return None if known is None or name is None else f"{text_of(source, name)}={known}"


def _unescaped(text: str) -> str:
    return _ESCAPED_IN_STRING.sub(lambda found: found[1].replace("\n", ""), text)


MAX_COMMANDS = 1_000
"""Of more than these, nothing is known."""
MAX_WORK = 100_000
"""Characters that are parsed, and words of commands that are kept, for one line; what is beyond is not known."""
MAX_LOOSE = 2_000
"""Words of code of another language that are looked at."""
MAX_LOOSE_LENGTH = 20
MAX_DEPTH = 6
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
        self._left = MAX_WORK
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
        if self._left < 0 or len(self._found) > MAX_COMMANDS:
            raise _NotKnown

    def _line(self, line: str, depth: int) -> None:
        odd = "\0" in line or any("\ud800" <= letter <= "\udfff" for letter in line)
        if odd or depth > MAX_DEPTH or len(line) > MAX_CHARACTERS:
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
            for place in places[:MAX_DEPTH]:
                self._line(text[place:], depth + 1)
            if len(places) > MAX_DEPTH:
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
        if len(words) > MAX_LOOSE:
            raise _NotKnown
        for start in range(min(len(words), MAX_LOOSE)):
            rest = tuple(words[start : start + MAX_LOOSE_LENGTH])
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
    flags = "".join(word for word in set(rest) if word and word[0] == "-" and _FLAGS.match(word))
    if "c" in flags:
        return None in rest
    return "s" in flags or all(word is None or word.startswith(("-", *_STREAMS)) for word in rest)


_STREAMS = ("/dev/", "/proc/")
_FLAGS = re.compile("-[A-Za-z]")


def _texts(word: str) -> Iterator[str]:
    """Give what of an argument could itself be a command line."""
    candidates = [word, word.partition("=")[2], word.partition("=exec=")[2], word.rpartition("!")[2]]
    if word.startswith("-") and not word.startswith("--"):
        candidates.append(word[2:])
    for text in dict.fromkeys(candidates):
        if text and (text != word or not _SIMPLE.fullmatch(text)):
            yield text
