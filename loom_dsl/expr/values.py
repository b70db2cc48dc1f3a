"""What expressions compute with: JSON values, the fuel that work costs, and the operators."""

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

from loom_dsl.errors import ExpressionError

Type = Literal["bool", "int", "float", "number", "str", "list", "dict", "null", "any"]
"""As documents name types. ``number`` is `int` or `float`; ``any`` cannot be told before the job runs."""
WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
FUEL, MAX_STEPS = 10_000, 2_000_000
"""Steps of an expression that reads nothing, and as many more for each value and each character that it reads; at most
so many. A step took 0.35 µs in the mean and 1.3 µs at the worst (measured over all functions, on two busy cores), so no
expression takes over 0.7 s, or 2.6 s at the worst. 20,000 items of a map are 100 steps for each."""
MAX_AT_ONCE = 3 * MAX_STEPS
"""Steps of all expressions that are evaluated for one input of a machine: 2.1 s, or 7.8 s at the worst. A workflow task
may take 10 s, and a worker gives a workflow 60 s. After `MAX_STEPS` no other node is entered in the same task."""
MAX_INTEGER = 2**63
MAX_TEXT = 1_500_000
"""Characters of a text that an expression builds: a longer one is in no argument that the engine carries."""
VOLUME, MAX_VOLUME = 100_000, 750_000
"""Most values, or pieces of 64 characters, in what an expression builds that reads nothing, and in what any builds:
what has more of them has over 1.5 MB as JSON, and the engine carries no such value."""
MORE_VOLUME = 1_000
"""By how much `VOLUME` grows for each value and each character that is read."""
METER = "~steps"
"""Where a meter stands among the names that an expression is given; it is no name that an expression can read."""


class Meter:
    """Counts the steps of the expressions that are evaluated one after the other.

    Attributes:
        used: Steps so far.
    """

    __slots__ = ("used",)

    def __init__(self, used: int = 0) -> None:
        self.used = used


class Budget:
    """What one evaluation may use. It grows with what the expression reads, which is looked at only when it matters.

    Attributes:
        steps: Steps that are granted so far.
    """

    __slots__ = ("_left", "_meter", "_names", "_read", "_reads", "steps")

    def __init__(self, names: Mapping[str, Any], reads: Sequence[tuple[str, ...]] = ()) -> None:
        self._names, self._reads = names, reads
        self._meter: Meter | None = names.get(METER)
        self._left = MAX_STEPS if self._meter is None else max(0, min(MAX_STEPS, MAX_AT_ONCE - self._meter.used))
        self._read: int | None = None
        self.steps = min(FUEL, self._left)

    def more(self) -> int:
        """Give the steps that are granted for what is read, the first time; then none."""
        before, self.steps = self.steps, min(self._left, FUEL * (1 + self.read()))
        return self.steps - before

    def read(self) -> int:
        """Count the values and the characters that the expression reads, as far as more of them grant more."""
        if self._read is None:
            self._read = _extent(_found(self._names, self._reads), max(MAX_STEPS // FUEL, MAX_VOLUME // MORE_VOLUME))
        return self._read

    def volume(self) -> int:
        """Give the most values that may be in what the expression builds."""
        return min(MAX_VOLUME, VOLUME + MORE_VOLUME * self.read())

    def settle(self, left: int) -> None:
        """Tell the meter what was used: all but what is left."""
        if self._meter is not None:
            self._meter.used += self.steps - left

    def refusal(self) -> str:
        """Say why there are no more steps, and what to do."""
        if self.steps == self._left < MAX_STEPS:
            return f"the expressions of one step of the job do too much work (over {MAX_AT_ONCE:,} steps)"
        return f"the expression does too much work (over {self.steps:,} steps)"


def _found(names: Mapping[str, Any], reads: Iterable[tuple[str, ...]]) -> list[Any]:
    """The values at the ends of these paths, as far as they are there."""
    found = []
    for path in reads:
        value: Any = names
        for key in path:
            if not isinstance(value, Mapping) or key not in value:
                break
            value = value[key]
        if value is not names:
            found.append(value)
    return found


def _extent(values: list[Any], most: int) -> int:
    """How many values are in these, and characters; not counted further than `most`."""
    count, stack = 0, values
    while stack and count < most:
        value = stack.pop()
        count += 1 + (len(value) if isinstance(value, str) else 0)
        stack.extend(islice(inside(value), most))
    return min(count, most)


class Scope:
    """What the names of an expression mean, and the fuel that is left."""

    __slots__ = ("budget", "fuel", "names")

    def __init__(self, names: Mapping[str, Any], budget: Budget, fuel: int | None = None) -> None:
        self.names = dict(names)
        self.budget = budget
        self.fuel = budget.steps if fuel is None else fuel

    def burn(self, units: int) -> None:
        """Pay for work, before it is done.

        Raises:
            ExpressionError: The budget is used up.
        """
        self.fuel -= units
        if self.fuel < 0:
            self.fuel += self.budget.more()
            if self.fuel < 0:
                raise ExpressionError(self.budget.refusal())

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
    if isinstance(a, str) and len(a) + len(b) > MAX_TEXT:
        raise ExpressionError("the text becomes too long", column)
    scope.burn(built(len(a) + len(b)) if isinstance(a, str) else len(a) + len(b))
    return a + b


def check_volume(scope: Scope, value: Any) -> Any:
    """Give a value back that an expression has built.

    Ten nested comprehensions fit into a line and build a list that refers to itself so often that writing it
    down would never end: small in memory, endless as JSON.

    Raises:
        ExpressionError: Written down it would have more units of 64 characters or one value than may be.
    """
    used, most, stack = 0, VOLUME, [value]
    while stack:
        part = stack.pop()
        used += 1 + weight(part)
        if used > VOLUME:
            most = scope.budget.volume()
            if used > most:
                raise ExpressionError(f"the value becomes too large (over {most:,} values)")
            scope.burn(1 + weight(part) // 4)
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


def built(length: int) -> int:
    """What making a text of so many characters costs. It is memory too: no expression builds over 16 million."""
    return length // 8


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
