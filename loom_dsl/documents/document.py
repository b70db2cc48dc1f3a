"""YAML documents as plain JSON data, with the place of every value.

Only what JSON can say is read: no dates, no octal numbers, no ``yes`` for true, no tags. Anything
else that looks like a scalar is text. Every complaint is a `Diagnostic` with file, line and column.

Codes: L001 syntax · L002 unknown field · L003 missing field · L004 wrong type or value ·
L005 duplicate key · L006 version or kind · L007 size, encoding or depth · L008 environment reference.
"""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from loom_dsl.documents.scalar_places import Position, WrittenScalar
from loom_dsl.errors import Diagnostic, DocumentError
from loom_dsl.fields import DocumentPath
from loom_dsl.text.canonical import Json
from loom_dsl.text.wording import shown, suggest, type_name

# The nodes of a YAML document, and what JSON data they stand for.


MAX_NODES = 50_000
"""Values in a document, counting what an alias repeats. A graph of 2,000 nodes has some 20,000."""
MAX_DOCUMENT_DEPTH = 64
"""Levels of nesting."""

T = TypeVar("T")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
"""What YAML takes for a number, and JSON cannot say."""
_WORDS: dict[str, Json] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_SURROGATE = re.compile("[\ud800-\udfff]")


def refuse(code: str, message: str, source: str, place: Position | None, fix: str = "") -> NoReturn:
    """Raise the one finding of a document that cannot be read on."""
    line, column = place if place else (None, None)
    raise DocumentError([Diagnostic(code, message, source, line, column, fix)])


@dataclass
class YamlNode:
    """A node as it was written; an alias is the same object again."""

    kind: str
    place: Position
    text: str = ""
    plain: bool = False
    style: str = ""
    offset: int = 0
    items: list["YamlNode"] = field(default_factory=list)
    pairs: list[tuple["YamlNode", "YamlNode"]] = field(default_factory=list)


class Expansion:
    """Turns nodes into data, repeating what aliases repeat, within the limits."""

    def __init__(self, source: str) -> None:
        self.values: dict[DocumentPath, Position] = {}
        self.keys: dict[DocumentPath, Position] = {}
        self.texts: dict[DocumentPath, YamlNode] = {}
        self._source = source

    def value(self, node: YamlNode, path: DocumentPath) -> Json:
        """Give a node's data, and note where it and everything in it stands."""
        if len(path) > MAX_DOCUMENT_DEPTH:
            self._refuse(
                "L007", f"aliases nest the document deeper than {MAX_DOCUMENT_DEPTH} levels", node, "write it out"
            )
        if len(self.values) >= MAX_NODES:
            self._refuse("L007", f"the document has over {MAX_NODES:,} values", node, "split it, or use fewer aliases")
        self.values[path] = node.place
        if node.kind == "scalar":
            self.texts[path] = node
            return self._scalar(node)
        if node.kind == "list":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._mapping(node, path)

    def _mapping(self, node: YamlNode, path: DocumentPath) -> dict[str, Json]:
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

    def _scalar(self, node: YamlNode) -> Json:
        text = self._text(node)
        if not node.plain:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if not _NUMBER.fullmatch(text):
            if _NO_NUMBER.fullmatch(text):
                self._refuse("L004", f"JSON has no number such as {text}", node, "quote it to make it text")
            return text
        if _INTEGER.fullmatch(text):
            if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
                self._refuse("L004", "the number does not fit into 64 bits", node, "quote it to make it text")
            return int(text)
        number = float(text)
        if number in (float("inf"), float("-inf")):
            self._refuse("L004", f"the number {shown(text)} is too large", node, "quote it to make it text")
        return number

    def _text(self, node: YamlNode) -> str:
        if _SURROGATE.search(node.text):
            self._refuse("L001", "half of a surrogate pair is not a character", node, "write the character itself")
        return node.text

    def _refuse(self, code: str, message: str, node: YamlNode, fix: str = "") -> NoReturn:
        refuse(code, message, self._source, node.place, fix)


MAX_DOCUMENT = 1_000_000
"""Bytes of a document."""
VERSION = 1
"""The version of the schema that `loom:` names."""
KINDS = ("agent", "graph", "fake-model", "scenario")

_TAGS = {None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


@dataclass(frozen=True)
class Document:
    """A document as it was read.

    Attributes:
        data: The content: None, bool, int, float, str, list and dict with string keys.
        source: The document's name as the user gave it.
    """

    data: Json
    source: str
    _values: Mapping[DocumentPath, Position] = field(repr=False)
    _keys: Mapping[DocumentPath, Position] = field(repr=False)
    _texts: Mapping[DocumentPath, YamlNode] = field(default_factory=dict, repr=False)
    _written: str = field(default="", repr=False)
    _origins: Mapping[DocumentPath, DocumentPath] = field(default_factory=dict, repr=False)
    """Where it was written what a short form has put elsewhere, by where it is now."""

    def written_at(self, path: Sequence[str | int]) -> DocumentPath:
        """Give the path, in the document as it was written, of what is at a path now."""
        at = tuple(path)
        length = len(at)
        while length and self._origins:
            if at[:length] in self._origins:
                at = (*self._origins[at[:length]], *at[length:])
                length = len(at)
            else:
                length -= 1
        return at

    def position(self, path: Sequence[str | int] = (), *, key: bool = False) -> Position:
        """Give line and column (both from 1) of the value at a path, or of its key.

        What is not in the document has the place of the innermost thing around it.
        """
        at = tuple(path)
        while at and at not in self._values:
            at, key = at[:-1], False
        if key and at in self._keys:
            return self._keys[at]
        return self._values.get(at, (1, 1))

    def position_in(self, path: Sequence[str | int], offset: int) -> Position:
        """Give line and column (both from 1) of a character of the text at a path.

        Args:
            path: Where the text is.
            offset: Which character of the text, from 0; its length is the place behind the last one.

        Returns:
            Where the text starts, if the character cannot be found in it.
        """
        node = self._texts.get(tuple(path))
        if node is None or not self._written:
            return self.position(path)
        scalar = WrittenScalar(node.text, self._written[node.offset :], node.style, node.place)
        return scalar.position(offset) or node.place

    def at(self, path: Sequence[str | int]) -> Json:
        """Give the value at a path.

        Raises:
            KeyError: There is none.
        """
        value = self.data
        for part in path:
            inside = isinstance(value, dict) and part in value
            if not inside and not (isinstance(value, list) and isinstance(part, int) and -1 < part < len(value)):
                raise KeyError(part)
            value = value[part]
        return value

    def part(self, path: Sequence[str | int]) -> "Document":
        """Give the mapping at a path as a document of its own, with the places that it has in this one.

        Raises:
            KeyError: There is none.
        """
        at = tuple(path)

        def below(places: Mapping[DocumentPath, T]) -> dict[DocumentPath, T]:
            return {key[len(at) :]: place for key, place in places.items() if key[: len(at)] == at}

        inner = (below(self._values), below(self._keys), below(self._texts))
        return Document(self.at(at), self.source, *inner, self._written)

    def diagnostic(
        self,
        code: str,
        message: str,
        path: Sequence[str | int] = (),
        *,
        fix: str = "",
        key: bool = False,
        offset: int | None = None,
    ) -> Diagnostic:
        """Make a finding about the value (or the key) at a path, or about one character of the text there."""
        line, column = self.position(path, key=key) if offset is None else self.position_in(path, offset)
        return Diagnostic(code, message, self.source, line, column, fix)


def load_document(text: str | bytes, source: str, *, kinds: Sequence[str] = KINDS) -> Document:
    """Read a Loom document: a mapping that starts with ``loom: 1`` and a `kind`.

    Args:
        text: The document's content; bytes are taken as UTF-8.
        source: The name to use in messages, such as the file's path.
        kinds: What `kind` may be.

    Raises:
        DocumentError: It is not YAML, not JSON data, too large, or not such a document.
    """
    return of_kind(load_yaml(text, source), kinds)


def of_kind(document: Document, kinds: Sequence[str] = KINDS) -> Document:
    """Give a document that was read already, if it starts as a Loom document of one of these kinds does.

    Raises:
        DocumentError: It does not.
    """
    findings = list(_header_findings(document, kinds))
    if findings:
        raise DocumentError(findings)
    return document


def load_yaml(text: str | bytes, source: str) -> Document:
    """Read YAML whose top level is a mapping, with any fields.

    Raises:
        DocumentError: It is not YAML, not JSON data, too large, or not a mapping.
    """
    decoded = _decode(text, source)
    tree = _Reader(decoded, source).read()
    expansion = Expansion(source)
    data = expansion.value(tree, ())
    if not isinstance(data, dict):
        what = "empty" if data is None else f"a {type_name(data)}"
        refuse("L001", f"the document is {what}, not a mapping", source, tree.place, "write `field: value` lines")
    return Document(data, source, expansion.values, expansion.keys, expansion.texts, decoded)


def _header_findings(document: Document, kinds: Sequence[str]) -> Iterable[Diagnostic]:
    data = document.data
    if "loom" not in data:
        yield document.diagnostic("L006", "missing `loom: 1`", fix="start the document with `loom: 1`")
    elif data["loom"] is True or data["loom"] != VERSION:
        yield document.diagnostic(
            "L006",
            f"unknown version {shown(data['loom'])} of the document",
            ("loom",),
            fix=f"this release reads `loom: {VERSION}`; upgrade Loom if the document is newer",
        )
    expected = " or ".join(f"`kind: {kind}`" for kind in kinds)
    if "kind" not in data:
        yield document.diagnostic("L006", "missing `kind`", fix=f"write {expected}")
    elif data["kind"] not in kinds:
        hint = suggest(data["kind"], kinds) if isinstance(data["kind"], str) else ""
        yield document.diagnostic(
            "L006", f"unknown kind {shown(data['kind'])}", ("kind",), fix=hint or f"write {expected}"
        )


def _decode(text: str | bytes, source: str) -> str:
    size = len(text)
    if isinstance(text, bytes):
        if text.startswith((b"\xff\xfe", b"\xfe\xff")):
            refuse("L007", "the document is UTF-16", source, None, "save it as UTF-8")
        try:
            text = text.decode("utf-8") if size <= MAX_DOCUMENT else ""
        except UnicodeDecodeError as error:
            before = error.object[: error.start]
            line = before.count(b"\n") + 1
            column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
            byte = error.object[error.start]
            refuse("L007", f"byte 0x{byte:02x} is not UTF-8", source, (line, column), "save the document as UTF-8")
    elif size <= MAX_DOCUMENT:
        size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_DOCUMENT:
        refuse(
            "L007",
            f"the document has over {MAX_DOCUMENT:,} bytes",
            source,
            None,
            "split it, or keep long texts in files that tools read",
        )
    return text.removeprefix("\ufeff")


class _Reader:
    """Builds nodes from the parser's events, one by one, so that no limit is checked too late."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._events = self._parse()
        self._anchors: dict[str, YamlNode] = {}
        self._count = 0

    def read(self) -> YamlNode:
        next(self._events)  # the start of the stream
        event = next(self._events)
        if type(event).__name__ == "StreamEndEvent":
            return YamlNode("scalar", (1, 1), plain=True)
        tree = self._node(next(self._events), 0)
        next(self._events)  # the end of the document
        event = next(self._events)
        if type(event).__name__ != "StreamEndEvent":
            self._refuse("L001", "a second document starts here", event, "keep one document in a file")
        return tree

    def _parse(self) -> Iterator[Any]:
        from ruamel.yaml import YAML  # only who reads documents needs it: workers get JSON plans
        from ruamel.yaml.error import MarkedYAMLError

        try:
            yield from YAML(typ="safe", pure=True).parse(io.StringIO(self._text))
        except DocumentError:
            raise
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            if "quoted scalar" in (error.context or "") and "stream" in (error.problem or "") and error.context_mark:
                mark = error.context_mark  # where it begins that has no end
            place = (mark.line + 1, mark.column + 1) if mark else None
            problem = error.problem or "this is not YAML"
            if "'\\t'" in problem:
                refuse("L001", "a tab is used for indentation", self._source, place, "indent with spaces")
            context = f" {error.context}" if error.context else ""
            refuse("L001", f"{problem}{context}", self._source, place, self._advice(problem, mark))
        except (
            Exception
        ) as error:  # the parser is not free of slips on hostile input; the caller gets one kind of error
            offset = getattr(error, "position", None)
            place = self._place_of_offset(offset) if isinstance(offset, int) else None
            reason = getattr(error, "reason", None) or type(error).__name__
            refuse("L001", f"the document cannot be read as YAML: {reason}", self._source, place)

    def _advice(self, problem: str, mark: Any) -> str:
        lines = self._text.splitlines()
        if mark and mark.line < len(lines) and lines[mark.line][: mark.column].endswith("$"):
            return 'between braces an expression stands in quotes: "${...}"'
        if "mapping values are not allowed" in problem:
            return "quote a text that holds `: `"
        if "cannot start any token" in problem:
            return "quote a text that starts with this character"
        return "check quotes, brackets and indentation"

    def _place_of_offset(self, offset: int) -> Position:
        before = self._text[:offset]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1

    def _refuse(self, code: str, message: str, event: Any, fix: str = "") -> NoReturn:
        mark = event.start_mark
        refuse(code, message, self._source, (mark.line + 1, mark.column + 1), fix)

    def _node(self, event: Any, depth: int) -> YamlNode:
        name = type(event).__name__
        self._count += 1
        if self._count > 2 * MAX_NODES:  # keys are nodes here, but not values of the document
            self._refuse("L007", f"the document has over {MAX_NODES:,} values", event, "split the document")
        if depth > MAX_DOCUMENT_DEPTH:
            self._refuse("L007", f"the document is nested deeper than {MAX_DOCUMENT_DEPTH} levels", event, "flatten it")
        if name == "AliasEvent":
            if event.anchor not in self._anchors:
                self._refuse("L001", f"there is no anchor `&{event.anchor}` before this alias", event)
            return self._anchors[event.anchor]
        tag = None if event.tag is None else str(event.tag)
        if tag not in _TAGS:
            self._refuse("L001", f"the tag `{tag}` is not allowed", event, "write the plain value")
        node = YamlNode(name.removesuffix("Event"), (event.start_mark.line + 1, event.start_mark.column + 1))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._fill(node, event, depth)
        return node

    def _fill(self, node: YamlNode, event: Any, depth: int) -> None:
        if node.kind == "Scalar":
            node.kind, node.text, node.plain = "scalar", event.value, bool(event.implicit[0]) and event.tag is None
            node.style, node.offset = event.style or "", event.start_mark.index
        elif node.kind == "SequenceStart":
            node.kind = "list"
            while type(item := next(self._events)).__name__ != "SequenceEndEvent":
                node.items.append(self._node(item, depth + 1))
        else:
            node.kind = "mapping"
            while type(key := next(self._events)).__name__ != "MappingEndEvent":
                node.pairs.append((self._node(key, depth + 1), self._node(next(self._events), depth + 1)))
