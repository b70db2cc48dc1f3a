"""Words of a parsed command line as shapes of paths: what of them is told, and what only running the line tells."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from loom_dsl.command_tables import base_name
from loom_dsl.path_shapes import ANY, PART, is_partly_open
from loom_dsl.shell import Words

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
