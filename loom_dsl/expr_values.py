"""What expressions compute with: JSON values, the fuel that work costs, and the operators."""

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from loom_dsl.errors import ExpressionError

Type = Literal["bool", "int", "float", "number", "str", "list", "dict", "null", "any"]
"""As documents name types. ``number`` is `int` or `float`; ``any`` cannot be told before the job runs."""
WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
FUEL = 10_000
MAX_INTEGER = 2**63
MAX_TEXT = 1_000_000
VOLUME = 100_000
"""Most values, or pieces of 64 characters, in what an expression builds."""


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

    def burn_deep(self, *values: Any) -> None:
        """Pay for everything inside the values. What is shared is paid for as often as it would be looked at.

        Raises:
            ExpressionError: The budget is used up.
        """
        stack = list(values)
        while stack:
            value = stack.pop()
            self.burn(1 + weight(value))
            stack.extend(inside(value))


def joined(scope: Scope, a: Any, b: Any, column: int) -> Any:
    """Put two texts or two lists together."""
    scope.burn(weight(a) + weight(b))
    if isinstance(a, str) and len(a) + len(b) > MAX_TEXT:
        raise ExpressionError("the text becomes too long", column)
    return a + b


def check_volume(value: Any) -> Any:
    """Give a value back that an expression has built.

    Ten nested comprehensions fit into a line and build a list that refers to itself so often that writing it
    down would never end: small in memory, endless as JSON.

    Raises:
        ExpressionError: Written down it would have more than `VOLUME` units of 64 characters or one value.
    """
    left, stack = VOLUME, [value]
    while stack:
        part = stack.pop()
        left -= 1 + weight(part)
        if left < 0:
            raise ExpressionError("the value becomes too large")
        stack.extend(item for item in inside(part) if isinstance(item, (str, list, dict)))
    return value


def same(scope: Scope, a: Any, b: Any) -> bool:
    """Whether two values are equal as JSON: 1 is 1.0, but true is not 1."""
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        scope.burn(1)
        if isinstance(x, list) and isinstance(y, list):
            if len(x) != len(y):
                return False
            scope.burn(len(x))
            stack.extend(zip(x, y, strict=True))
        elif isinstance(x, dict) and isinstance(y, dict):
            if x.keys() != y.keys():
                return False
            scope.burn(len(x))
            stack.extend((x[key], y[key]) for key in x)
        else:
            scope.burn(weight(x) if isinstance(x, str) else 0)
            if x != y or isinstance(x, bool) != isinstance(y, bool):
                return False
    return True


def form_of(value: Any) -> str:
    """Write a value so that two have one text when they are the same: 1 and 1.0, but not true and 1.

    Raises:
        TypeError: It is not JSON.
    """
    if isinstance(value, list):
        return f"[{','.join(form_of(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key!r}:{form_of(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise TypeError("needs JSON values")


def contained(scope: Scope, part: Any, target: Any) -> bool:
    """Whether a list has the element, an object the key, a text the part.

    Raises:
        TypeError: The two do not fit.
    """
    scope.burn(1 + weight(target) + weight(part))
    if isinstance(target, list):
        return any(same(scope, part, item) for item in target)
    if isinstance(target, (str, dict)) and isinstance(part, str):
        return part in target
    raise TypeError("needs a list, or a text in a text or an object")


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Scope, Any, Any], bool]:
    def apply(scope: Scope, a: Any, b: Any) -> bool:
        scope.burn_deep(a, b)
        return compare(a, b)

    return apply


def inside(value: Any) -> Iterable[Any]:
    """Give the items of a list or the values of an object."""
    return value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()


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


def number(value: Any, column: int | None = None) -> Any:
    """Give the value back.

    Raises:
        ExpressionError: It is a number outside of what JSON readers agree on.
    """
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ExpressionError("the number is out of range", column)
    if isinstance(value, float) and (not math.isfinite(value)):
        raise ExpressionError("the number is out of range", column)
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


def shown_key(key: str | int) -> str:
    """Quote a key or an index in a message, cut to 60 characters."""
    return repr(key[:60] if isinstance(key, str) else key)


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


COMPARISONS: Mapping[type[ast.cmpop], Callable[[Scope, Any, Any], bool]] = {
    ast.Eq: same,
    ast.NotEq: lambda scope, a, b: not same(scope, a, b),
    ast.Lt: _ordered(lambda a, b: bool(a < b)),
    ast.LtE: _ordered(lambda a, b: bool(a <= b)),
    ast.Gt: _ordered(lambda a, b: bool(a > b)),
    ast.GtE: _ordered(lambda a, b: bool(a >= b)),
    ast.In: contained,
    ast.NotIn: lambda scope, a, b: not contained(scope, a, b),
}
