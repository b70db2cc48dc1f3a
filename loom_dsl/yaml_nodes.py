"""The nodes of a YAML document, and what JSON data they stand for."""

import re
from dataclasses import dataclass, field
from typing import NoReturn

from loom_dsl.canonical import Json
from loom_dsl.diagnostic import Diagnostic
from loom_dsl.errors import DocumentError
from loom_dsl.validation import shown

MOST_NODES = 50_000
"""Values in a document, counting what an alias repeats. A graph of 2,000 nodes has some 20,000."""
DEEPEST = 64
"""Levels of nesting."""

Path = tuple[str | int, ...]
Place = tuple[int, int]
"""Line and column, both from 1."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Json] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_SURROGATE = re.compile("[\ud800-\udfff]")


def refuse(code: str, message: str, source: str, place: Place | None, fix: str = "") -> NoReturn:
    """Raise the one finding of a document that cannot be read on."""
    line, column = place if place else (None, None)
    raise DocumentError([Diagnostic(code, message, source, line, column, fix)])


@dataclass
class Node:
    """A node as it was written; an alias is the same object again."""

    kind: str
    place: Place
    text: str = ""
    plain: bool = False
    items: list["Node"] = field(default_factory=list)
    pairs: list[tuple["Node", "Node"]] = field(default_factory=list)


class Expansion:
    """Turns nodes into data, repeating what aliases repeat, within the limits."""

    def __init__(self, source: str) -> None:
        self.values: dict[Path, Place] = {}
        self.keys: dict[Path, Place] = {}
        self._source = source

    def value(self, node: Node, path: Path) -> Json:
        """Give a node's data, and note where it and everything in it stands."""
        if len(path) > DEEPEST:
            self._refuse("L007", f"aliases nest the document deeper than {DEEPEST} levels", node, "write it out")
        if len(self.values) >= MOST_NODES:
            self._refuse("L007", f"the document has over {MOST_NODES:,} values", node, "split it, or use fewer aliases")
        self.values[path] = node.place
        if node.kind == "scalar":
            return self._scalar(node)
        if node.kind == "list":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._mapping(node, path)

    def _mapping(self, node: Node, path: Path) -> dict[str, Json]:
        result: dict[str, Json] = {}
        for key, item in node.pairs:
            if key.kind != "scalar":
                fix = 'write an expression as a text: "${input.x}", not {{input.x}}' if key.kind == "mapping" else ""
                self._refuse("L001", "a field's name must be text", key, fix)
            if key.plain and key.text == "<<":
                self._refuse("L001", "merge keys (`<<`) are not read", key, "write the fields out")
            name = self._text(key)
            if name in result:
                first = self.keys[(*path, name)][0]
                message = f"duplicate field `{name}` (first on line {first}, again on line {key.place[0]})"
                self._refuse("L005", message, key, "keep one of them")
            self.keys[(*path, name)] = key.place
            result[name] = self.value(item, (*path, name))
        return result

    def _scalar(self, node: Node) -> Json:
        text = self._text(node)
        if not node.plain:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if not _NUMBER.fullmatch(text):
            return text
        if _INTEGER.fullmatch(text):
            if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
                self._refuse("L004", "the number does not fit into 64 bits", node, "quote it to make it text")
            return int(text)
        number = float(text)
        if number in (float("inf"), float("-inf")):
            self._refuse("L004", f"the number {shown(text)} is too large", node, "quote it to make it text")
        return number

    def _text(self, node: Node) -> str:
        if _SURROGATE.search(node.text):
            self._refuse("L001", "half of a surrogate pair is not a character", node, "write the character itself")
        return node.text

    def _refuse(self, code: str, message: str, node: Node, fix: str = "") -> NoReturn:
        refuse(code, message, self._source, node.place, fix)
