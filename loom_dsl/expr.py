"""Loom's expression language: conditions and ``${…}`` mappings, pure and total.

The grammar is a small part of Python's: literals, names from fixed roots, ``a.b`` and ``a["b"]`` as
dictionary keys, slices, ``and or not``, comparisons, ``in``, arithmetic on numbers, ``+`` on text and
lists, ``x if c else y``, list comprehensions of one clause, and the functions of `expr_functions.FUNCTIONS`. There are
no methods, no attributes of Python objects, no assignment. Values are JSON.

An expression is compiled once into closures and evaluated with a budget (`expr_values.Budget`): every step costs one
unit, and what makes or reads a collection costs its size. The budget grows with what the expression reads, so that it
can go through anything that a job holds, up to a bound: a hostile expression ends in a named error in about a second
at most, and in milliseconds where it reads little, instead of holding up a workflow task.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.expr_compiler import Compiler
from loom_dsl.expr_mistakes import mistake, refused, unquoted
from loom_dsl.expr_steps import Step
from loom_dsl.expr_types import type_of
from loom_dsl.expr_values import Budget, Scope, Type, check_volume

MAX_SOURCE = 2_000
LONGEST_SHOWN = 200
"""Characters of an expression that a message quotes."""
ROOTS = frozenset({"input", "state", "nodes", "result", "item", "index", "event", "turn", "limits", "agent", "run"})
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Attributes:
        source: The text.
        references: Each path read from a root, such as ``("nodes", "model", "calls")``.
        type: The type of every value that it can have, as far as its text tells.
        builds: Whether its value can be larger than what it reads.
        reads: The references without those on the way to another one: the budget grows with what is there.
    """

    source: str
    references: tuple[tuple[str, ...], ...]
    step: Step
    type: Type = "any"
    builds: bool = False
    reads: tuple[tuple[str, ...], ...] = ()

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Give the value for these names.

        Raises:
            ExpressionError: A key is missing, a type does not fit, or the work is too much.
        """
        budget = Budget(names, self.reads)
        scope = Scope(names, budget)
        try:
            value = self.step(scope)
            return check_volume(scope, value) if self.builds else value
        except ExpressionError as error:
            raise ExpressionError(f"{error.message} in `{self.source}`", error.column) from None
        except RecursionError:
            raise ExpressionError(f"the values are nested too deeply in `{self.source}`") from None
        finally:
            budget.settle(max(scope.fuel, 0))


def compile_expression(source: str, roots: frozenset[str] = ROOTS) -> Expression:
    """Compile the text of an expression.

    Raises:
        ExpressionError: The text is not an expression of the language; the column says where.
    """
    if len(source) > MAX_SOURCE:
        raise ExpressionError(f"the expression is {len(source)} characters long; the limit is {MAX_SOURCE}")
    text = source.strip()
    if not text:
        raise ExpressionError("the expression is empty", 1)
    places = _Places(source, text)
    tree = _parsed(text, places)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            node.col_offset = places.of_bytes(node.lineno, node.col_offset) - 1
    compiler = Compiler(roots)
    step = compiler.compile(tree.body, 0)
    references, reads = (tuple(dict.fromkeys(paths)) for paths in (compiler.references, compiler.reads))
    return Expression(text, references, step, type_of(tree.body), compiler.builds, reads)


def _parsed(text: str, places: "_Places") -> ast.Expression:
    wrong = refused(text)
    if wrong is not None:
        raise ExpressionError(wrong[0], places.at(wrong[1]))
    try:
        return ast.parse(text, mode="eval")
    except SyntaxError as error:
        wrong = mistake(text) or (unquoted(text) if error.msg.startswith("invalid syntax") else None)
        if wrong is not None:
            raise ExpressionError(f"`{_cut(text)}` is not an expression: {wrong[0]}", places.at(wrong[1])) from None
        column = places.of(error.lineno or 1, max((error.offset or 1) - 1, 0))
        column = min(column, places.at(len(text)))  # Python counts bytes in some messages
        raise ExpressionError(f"`{_cut(text)}` is not an expression: {error.msg}", column) from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("the expression is nested too deeply or holds a character that it cannot") from None


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


class _Places:
    """Columns as authors count them: characters from the start of the source, from 1."""

    def __init__(self, source: str, text: str) -> None:
        self.before = source.index(text)
        self.lines = _LINE_END.split(text)
        ends = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self.starts = [self.before + end for end in ends]

    def at(self, position: int) -> int:
        return self.before + position + 1

    def of(self, line: int, characters: int) -> int:
        return self.starts[min(line, len(self.starts)) - 1] + characters + 1

    def of_bytes(self, line: int, offset: int) -> int:
        text = self.lines[min(line, len(self.lines)) - 1]
        return self.of(line, len(text.encode("utf-8")[:offset].decode("utf-8", "replace")))
