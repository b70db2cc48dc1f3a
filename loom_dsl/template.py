"""Values with ``${…}`` in them: ``"${expression}"`` alone keeps the expression's type, inside text it is interpolated.

``${env:NAME}`` is resolved before a plan is made, ``${secret:NAME}`` only where a tool runs; both stand
as whole strings and pass through here untouched.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.canonical import canonical_json
from loom_dsl.errors import ExpressionError
from loom_dsl.expr import ROOTS, Expression, compile_expression

_HOLE = re.compile(r"\$\{((?:[^{}\"']|\"[^\"]*\"|'[^']*'|\{[^{}]*\})*)\}")
_REFERENCE = re.compile(r"\$\{(env|secret):[^}]*\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A JSON value whose text may hold expressions."""

    expressions: tuple[Expression, ...]
    build: Callable[[Mapping[str, Any]], Any]

    def evaluate(self, names: Mapping[str, Any]) -> Any:
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
        parts = {str(key): compile_template(item, roots) for key, item in value.items()}
        found = tuple(e for part in parts.values() for e in part.expressions)
        return Template(found, lambda names: {key: part.build(names) for key, part in parts.items()})
    if isinstance(value, list):
        items = [compile_template(item, roots) for item in value]
        found = tuple(e for part in items for e in part.expressions)
        return Template(found, lambda names: [part.build(names) for part in items])
    return Template((), lambda names: value)


def _compile_text(text: str, roots: frozenset[str]) -> Template:
    if "${" not in text or _REFERENCE.fullmatch(text):
        return Template((), lambda names: text)
    pieces: list[str | Expression] = []
    end = 0
    for hole in _HOLE.finditer(text):
        pieces += [text[end : hole.start()], compile_expression(hole.group(1), roots)]
        end = hole.end()
    pieces.append(text[end:])
    if any(isinstance(piece, str) and "${" in piece for piece in pieces):
        raise ExpressionError(f"a `${{` in {text!r} is not closed", text.index("${") + 1)
    found = tuple(piece for piece in pieces if isinstance(piece, Expression))
    if len(found) == 1 and not any(isinstance(piece, str) and piece for piece in pieces):
        return Template(found, found[0].evaluate)

    def interpolate(names: Mapping[str, Any]) -> str:
        return "".join(piece if isinstance(piece, str) else _show(piece.evaluate(names)) for piece in pieces)

    return Template(found, interpolate)


def _show(value: Any) -> str:
    try:
        return value if isinstance(value, str) else canonical_json(value)
    except (ValueError, RecursionError):
        raise ExpressionError("a value that is put into text cannot be written as JSON") from None
