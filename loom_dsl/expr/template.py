"""Values with ``${…}`` in them: ``"${expression}"`` alone keeps the expression's type, inside text it is interpolated.

A hole ends at the brace that closes it: braces inside it stand in pairs, and those in quotes do not count. Right before
a ``{``, two dollars mean one: ``$${`` is the text ``${``, and ``$$${price}`` is a dollar and a hole.

``${env:NAME}`` is resolved before a plan is made, ``${secret:NAME}`` only where a tool runs; both stand
as whole strings and pass through here untouched.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import ROOTS, Expression, compile_expression
from loom_dsl.expr.values import MAX_TEXT
from loom_dsl.text.canonical import canonical_json

_DOLLARS = re.compile(r"(?<!\$)\$++\{")
_PIECE = re.compile(r"[{}]|\"(?:[^\"\\]|\\[\s\S])*(?P<d>\")?|'(?:[^'\\]|\\[\s\S])*(?P<s>')?")
_REFERENCE = re.compile(r"\$\{(env|secret):[^}]*\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A JSON value whose text may hold expressions."""

    expressions: tuple[Expression, ...]
    build: Callable[[Mapping[str, object]], JsonValue]

    def evaluate(self, names: Mapping[str, object]) -> JsonValue:
        """Fill the holes.

        Raises:
            ExpressionError: An expression fails.
        """
        return self.build(names)


def compile_template(value: Any, roots: frozenset[str] = ROOTS) -> Template:
    """Compile every ``${…}`` of a JSON value.

    Raises:
        ExpressionError: An expression does not compile.
    """
    if isinstance(value, str):
        return _compile_text(value, roots)
    if isinstance(value, dict):
        parts = {_key(str(key)): compile_template(item, roots) for key, item in value.items()}
        found = tuple(e for part in parts.values() for e in part.expressions)
        return Template(found, lambda names: {key: part.build(names) for key, part in parts.items()})
    if isinstance(value, list):
        items = [compile_template(item, roots) for item in value]
        found = tuple(e for part in items for e in part.expressions)
        return Template(found, lambda names: [part.build(names) for part in items])
    return Template((), lambda names: value)


def has_holes(text: str) -> bool:
    """Whether a text has a ``${`` that begins an expression; also one that is not closed."""
    if "${" not in text:
        return False
    try:
        return any(hole[0] for hole in _split(text))
    except ExpressionError:
        return True


def hole_sources(text: str) -> list[str]:
    """What stands in the ``${…}`` of a text; nothing where one is not closed."""
    try:
        return [piece for is_hole, piece, _ in _split(text) if is_hole] if "${" in text else []
    except ExpressionError:
        return []


def may_be(text: str, given: str) -> bool:
    """Whether a text with ``${…}`` in it can become another text, whatever they give."""
    if not has_holes(text):
        return str(plain(text)) == given
    pattern = "".join(".*" if is_hole else re.escape(piece) for is_hole, piece, _ in _split(text))
    return re.fullmatch(pattern, given, re.DOTALL) is not None


def plain(value: Any) -> Any:
    """Give a value of a document in which nothing is computed: ``$${`` is read as ``${`` there, too."""
    try:
        template = compile_template(value)
    except ExpressionError:
        return value
    return value if template.expressions else template.evaluate({})


def _key(key: str) -> str:
    """A field's name, which is never computed."""
    if has_holes(key):
        advice = "name the field in the document, or write `$${` for the characters themselves"
        raise ExpressionError(f"a field's name is not computed, and {key[:60]!r} has a `${{`; {advice}")
    return "".join(piece for _, piece, _ in _split(key)) if "${" in key else key


@dataclass(frozen=True, slots=True)
class WrongHole:
    """One expression of a value that does not compile.

    Attributes:
        path: Where its text is in the value.
        text: The text.
        offset: Which of its characters is wrong, from 0.
        message: What is wrong.
    """

    path: tuple[str | int, ...]
    text: str
    offset: int
    message: str


def wrong_holes(value: Any, roots: frozenset[str] = ROOTS, path: tuple[str | int, ...] = ()) -> Iterator[WrongHole]:
    """Give every ``${…}`` of a JSON value that does not compile, in the order written."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from wrong_holes(item, roots, (*path, key))
    if not isinstance(value, str):
        return
    try:
        for start, source in holes(value):
            try:
                compile_expression(source, roots)
            except ExpressionError as error:
                yield WrongHole(path, value, start + max((error.column or 1) - 1, 0), error.message)
    except ExpressionError as error:  # one that is not closed: nothing can be told of what follows
        yield WrongHole(path, value, max((error.column or 1) - 1, 0), error.message)


def mended(value: Any, roots: frozenset[str] = ROOTS) -> Any:
    """Give a JSON value in which each ``${…}`` that does not compile is one that does: the others can be read then."""
    if isinstance(value, dict):
        return {key: mended(item, roots) for key, item in value.items()}
    if isinstance(value, list):
        return [mended(item, roots) for item in value]
    if not isinstance(value, str):
        return value
    found, end = "", 0
    try:
        for start, source in holes(value):
            try:
                compile_expression(source, roots)
            except ExpressionError:
                found, end = f"{found}{value[end:start]}run.now", start + len(source)
    except ExpressionError as error:  # one that is not closed
        return found + value[end : (error.column or 1) - 1]
    return found + value[end:]


def holes(text: str) -> Iterator[tuple[int, str]]:
    """Give what stands in each ``${…}`` of a text, and where it begins.

    Raises:
        ExpressionError: One is not closed; those before it were given.
    """
    if "${" in text and not _REFERENCE.fullmatch(text):
        yield from ((start, piece) for is_hole, piece, start in _split(text) if is_hole)


def escaped(text: str) -> str:
    """Write a text so that as a template it gives just that text.

    Args:
        text: Any text, also with ``${…}`` in it.

    Returns:
        The text, with the dollars before each ``{`` doubled.
    """
    return _DOLLARS.sub(lambda found: f"{'$$' * (len(found[0]) - 1)}{{", text)


def literal_texts(value: Any) -> Iterator[str]:
    """Give the text of a JSON value that its author wrote out: what is around the `${…}`, not what they give."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from literal_texts(item)
    elif isinstance(value, str):
        yield from (piece for is_hole, piece, _ in _split(value) if piece and not is_hole)


def _compile_text(text: str, roots: frozenset[str]) -> Template:
    if "${" not in text or _REFERENCE.fullmatch(text):
        return Template((), lambda names: text)
    pieces = _pieces(text, roots)
    found = tuple(piece for piece in pieces if isinstance(piece, Expression))
    if len(pieces) == 1 and found:
        return Template(found, found[0].evaluate)

    def interpolate(names: Mapping[str, Any]) -> str:
        parts, left = [], MAX_TEXT
        for piece in pieces:
            parts.append(piece if isinstance(piece, str) else _show(piece.evaluate(names)))
            left -= len(parts[-1])
            if left < 0:
                raise ExpressionError(f"the text becomes too long (over {MAX_TEXT:,} characters)")
        return "".join(parts)

    return Template(found, interpolate)


def _pieces(text: str, roots: frozenset[str]) -> list[str | Expression]:
    """Take a text apart; no piece of text is empty."""
    parts = ((is_hole, piece) for is_hole, piece, _ in _split(text) if is_hole or piece)
    return [compile_expression(piece, roots) if is_hole else piece for is_hole, piece in parts]


def _split(text: str) -> Iterator[tuple[bool, str, int]]:
    """Give the pieces of a text, whether each is what stands in a hole, and where it begins."""
    end = 0
    while opening := _DOLLARS.search(text, end):
        dollars = opening.end() - opening.start() - 1
        yield False, text[end : opening.start()] + "$" * (dollars // 2), end
        end = opening.end()
        if dollars % 2 == 0:
            yield False, "{", end - 1
            continue
        last = _end_of_hole(text, end)
        yield True, text[end:last], end
        end = last + 1
    yield False, text[end:], end


def _end_of_hole(text: str, start: int) -> int:
    depth = 1
    for piece in _PIECE.finditer(text, start):
        if piece[0] == "{":
            depth += 1
        elif piece[0] == "}":
            depth -= 1
        elif not (piece["d"] or piece["s"]):
            break
        if depth == 0:
            return piece.start()
    advice = "write `$${` for the characters themselves"
    raise ExpressionError(f"the `${{` at {text[start - 2 : start + 28]!r} is not closed; {advice}", start - 1)


def _show(value: Any) -> str:
    try:
        return value if isinstance(value, str) else canonical_json(value)
    except (ValueError, TypeError, RecursionError):
        raise ExpressionError("a value that is put into text cannot be written as JSON") from None
