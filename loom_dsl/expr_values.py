"""What expressions compute with: JSON values, the fuel that work costs, and the operators."""

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

from loom_dsl.errors import ExpressionError

FUEL = 10_000
MAX_INTEGER = 2**63
MAX_TEXT = 1_000_000


class Scope:
    """What the names of an expression mean, and the fuel that is left."""

    __slots__ = ("fuel", "names")

    def __init__(self, names: Mapping[str, Any], fuel: int = FUEL) -> None:
        self.names = dict(names)
        self.fuel = fuel

    def burn(self, units: int) -> None:
        """Pay for work.

        Raises:
            ExpressionError: The budget is used up.
        """
        self.fuel -= units
        if self.fuel < 0:
            raise ExpressionError(f"the expression does too much work (over {FUEL} steps)")


def joined(scope: Scope, a: Any, b: Any, column: int) -> Any:
    """Put two texts or two lists together."""
    scope.burn(weight(a) + weight(b))
    if isinstance(a, str) and len(a) + len(b) > MAX_TEXT:
        raise ExpressionError("the text becomes too long", column)
    return a + b


def path_of(node: ast.AST) -> tuple[str, ...]:
    """Give the path of a chain of attributes on a name, such as ``("nodes", "model", "calls")``; empty for others."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def is_number(value: Any) -> bool:
    """Whether a value is a number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(value: Any) -> Any:
    """Give the value back.

    Raises:
        ExpressionError: It is a number outside of what JSON readers agree on.
    """
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ExpressionError("the number is out of range")
    if isinstance(value, float) and (not math.isfinite(value)):
        raise ExpressionError("the number is out of range")
    return value


def weight(value: Any) -> int:
    """What looking at a whole value costs."""
    if isinstance(value, str):
        return len(value) // 64
    return len(value) if isinstance(value, (list, dict)) else 0


def kind_of(value: Any) -> str:
    """Name a value's type for people."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")


def name_of(node: ast.AST) -> str:
    """Name a piece of syntax for people."""
    return {"Lambda": "a lambda", "JoinedStr": "an f-string", "Pow": "`**`"}.get(type(node).__name__) or (
        f"`{type(node).__name__.lower()}`"
    )


OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: _same,
    ast.NotEq: lambda a, b: not _same(a, b),
    ast.Lt: lambda a, b: bool(a < b),
    ast.LtE: lambda a, b: bool(a <= b),
    ast.Gt: lambda a, b: bool(a > b),
    ast.GtE: lambda a, b: bool(a >= b),
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
