"""Loom's expressions as Python objects: what one writes in Python is the text that a document would have.

    R.passed == True                         result.passed == true
    (R.score >= 0.8) & ~R.stale              result.score >= 0.8 and not result.stale
    f"Merge {nodes.checkout.branch}?"        Merge ${nodes.checkout.branch}?

Nothing is computed here: `R` (the result of the node before) stands for what it will be. So Python's own ``and``,
``or``, ``not``, ``in`` and ``if`` cannot work on it, and say so. Functions are in `loom_dsl.graph.builder.functions`.
"""

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NoReturn, TypeAlias, Union

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.values import MAX_INTEGER
from loom_dsl.text.canonical import Json

TERNARY, OR, AND, NOT, COMPARE, SUM, PRODUCT, NEGATIVE, ATOM = range(9)
"""How tightly the outermost operator of a text binds."""

Value: TypeAlias = Union["Expr", str, int, float, bool, Sequence["Value"], Mapping[str, "Value"], None]
"""What may stand where a document has JSON: data, with expressions anywhere in it."""
Condition: TypeAlias = Union["Expr", str]
"""An expression, or the text of one."""

_HOLE = re.compile(r"\$\{.*\}", re.DOTALL)


class Expr:
    """An expression. Attributes and items of it are expressions too, and so is what operators make of it.

    In an f-string it is written as ``${…}``.
    """

    __slots__ = ("_binds", "_source")

    def __init__(self, source: str, binds: int = ATOM) -> None:
        self._source = source
        self._binds = binds

    def __getattr__(self, name: str) -> "Expr":
        if name.startswith("_"):  # what Python and editors ask objects for; no key of a result begins like this
            raise AttributeError(f"write [{name!r}] for a key that begins with `_`")
        return _key(self, name)

    def __getitem__(self, key: "Expr | str | int | slice") -> "Expr":
        if isinstance(key, str):
            return _key(self, key)
        if isinstance(key, slice):
            if key.step is not None:
                raise ExpressionError("a slice has no step here")
            first, last = ("" if end is None else operand(end) for end in (key.start, key.stop))
            return Expr(f"{operand(self, ATOM)}[{first}:{last}]")
        return Expr(f"{operand(self, ATOM)}[{operand(key)}]")

    # Comparisons give expressions, which is not what `object` promises.
    def __eq__(self, other: object) -> "Expr":  # type: ignore[override]
        return _infix(self, "==", other, COMPARE)

    def __ne__(self, other: object) -> "Expr":  # type: ignore[override]
        return _infix(self, "!=", other, COMPARE)

    def __lt__(self, other: Value) -> "Expr":
        return _infix(self, "<", other, COMPARE)

    def __le__(self, other: Value) -> "Expr":
        return _infix(self, "<=", other, COMPARE)

    def __gt__(self, other: Value) -> "Expr":
        return _infix(self, ">", other, COMPARE)

    def __ge__(self, other: Value) -> "Expr":
        return _infix(self, ">=", other, COMPARE)

    __hash__ = None  # type: ignore[assignment] # equality is no question that Python could answer

    def __and__(self, other: Value) -> "Expr":
        return _infix(self, "and", other, AND)

    def __rand__(self, other: Value) -> "Expr":
        return _infix(other, "and", self, AND)

    def __or__(self, other: Value) -> "Expr":
        return _infix(self, "or", other, OR)

    def __ror__(self, other: Value) -> "Expr":
        return _infix(other, "or", self, OR)

    def __invert__(self) -> "Expr":
        return Expr(f"not {operand(self, NOT)}", NOT)

    def __add__(self, other: Value) -> "Expr":
        return _infix(self, "+", other, SUM)

    def __radd__(self, other: Value) -> "Expr":
        return _infix(other, "+", self, SUM)

    def __sub__(self, other: Value) -> "Expr":
        return _infix(self, "-", other, SUM)

    def __rsub__(self, other: Value) -> "Expr":
        return _infix(other, "-", self, SUM)

    def __mul__(self, other: Value) -> "Expr":
        return _infix(self, "*", other, PRODUCT)

    def __rmul__(self, other: Value) -> "Expr":
        return _infix(other, "*", self, PRODUCT)

    def __truediv__(self, other: Value) -> "Expr":
        return _infix(self, "/", other, PRODUCT)

    def __rtruediv__(self, other: Value) -> "Expr":
        return _infix(other, "/", self, PRODUCT)

    def __floordiv__(self, other: Value) -> "Expr":
        return _infix(self, "//", other, PRODUCT)

    def __rfloordiv__(self, other: Value) -> "Expr":
        return _infix(other, "//", self, PRODUCT)

    def __mod__(self, other: Value) -> "Expr":
        return _infix(self, "%", other, PRODUCT)

    def __rmod__(self, other: Value) -> "Expr":
        return _infix(other, "%", self, PRODUCT)

    def __neg__(self) -> "Expr":
        return Expr(f"-{operand(self, NEGATIVE)}", NEGATIVE)

    def __str__(self) -> str:
        return f"${{{self._source}}}"

    def __format__(self, spec: str) -> str:
        if spec:
            raise ExpressionError(
                f"`{self._source}` has no value yet that `:{spec}` could format; use round() or str()"
            )
        return str(self)

    def __repr__(self) -> str:
        return f"Expr({self._source!r})"

    def __bool__(self) -> NoReturn:
        message = (
            f"`{self._source}` has no value before the job runs, so Python cannot decide by it; combine conditions "
        )
        advice = "with & | ~ instead of and, or, not, with each comparison in parentheses, and choose with if_()"
        raise ExpressionError(message + advice)

    def __contains__(self, part: object) -> NoReturn:
        raise ExpressionError(f"Python's `in` cannot look into `{self._source}` before the job runs; use in_(x, list)")

    def __iter__(self) -> NoReturn:
        raise ExpressionError(f"Python cannot go through `{self._source}` before the job runs; use collect() or a map")

    def __len__(self) -> NoReturn:
        raise ExpressionError(f"`{self._source}` has no length before the job runs; use len_()")


def literal(value: Value) -> Expr:
    """Give a value as an expression. Text in it is taken as it is, with ``${…}`` too.

    Raises:
        ExpressionError: It is not JSON, or a number that JSON readers do not agree on.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, (list, tuple)):
        value = [literal(item) for item in value]
    elif isinstance(value, Mapping):
        value = {key: literal(item) for key, item in value.items()}
    return Expr(*_literal(value))


def source_of(condition: Condition) -> str:
    """Give the text of an expression.

    Raises:
        ExpressionError: It is neither an expression nor text.
    """
    if isinstance(condition, Expr):
        return condition._source
    if isinstance(condition, str):
        return condition
    advice = "write one such as `R.passed == True`, and mind that Python computes `is`, `in`, `not` and `and` at once"
    raise ExpressionError(f"{condition!r} is not an expression; {advice}")


def operand(value: object, binds: int = TERNARY) -> str:
    """Give the text of a value inside an expression, in parentheses if it binds less tightly than needed.

    Raises:
        ExpressionError: It is no JSON value.
    """
    if not isinstance(value, Expr) and isinstance(value, str) and _HOLE.search(value):
        advice = "join the parts with +, or write literal(text) for the characters themselves"
        raise ExpressionError(f"{value!r} is text inside an expression, where `${{…}}` is not filled; {advice}")
    source, tightness = (value._source, value._binds) if isinstance(value, Expr) else _literal(value)
    return source if tightness >= binds else f"({source})"


def to_json(value: object) -> Json:
    """Give a value as a document has it, with expressions as ``${…}``.

    Raises:
        ExpressionError: It is no JSON value.
    """
    if isinstance(value, Expr):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {_text_key(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    _literal(value)
    return str.__str__(value) if isinstance(value, str) else value


def _infix(left: object, operator: str, right: object, binds: int) -> Expr:
    # Comparisons would chain, and `a - (b - c)` is not `a - b - c`; `and` and `or` are the same either way.
    least_left = SUM if binds == COMPARE else binds
    least_right = binds if binds in (AND, OR) else binds + 1
    return Expr(f"{operand(left, least_left)} {operator} {operand(right, least_right)}", binds)


def _key(target: Expr, name: str) -> Expr:
    plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and not name.startswith("__")
    return Expr(f"{operand(target, ATOM)}{f'.{name}' if plain else f'[{_quoted(name)}]'}")


def _literal(value: object) -> tuple[str, int]:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value], ATOM
    if isinstance(value, (int, float)):
        if not (math.isfinite(value) and (isinstance(value, float) or -MAX_INTEGER <= value < MAX_INTEGER)):
            raise ExpressionError(f"the number {value!r} is out of range")
        return repr(float(value) if isinstance(value, float) else int(value)), NEGATIVE
    if isinstance(value, str):
        return _quoted(value), ATOM
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(operand(item) for item in value)}]", ATOM
    if isinstance(value, Mapping):
        pairs = (f"{_quoted(_text_key(key))}: {operand(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}", ATOM
    raise ExpressionError(f"{value!r} is not a JSON value; give text, a number, true, false, null, a list or a mapping")


def _text_key(key: object) -> str:
    if not isinstance(key, str):
        raise ExpressionError(f"the key {key!r} is not text, as keys of JSON are")
    return str.__str__(key)


def _quoted(text: str) -> str:
    quote = '"' if "'" in text and '"' not in text else "'"
    body = "".join(_escaped(character, quote) for character in text)
    return f"{quote}{body}{quote}"


def _escaped(character: str, quote: str) -> str:
    if character in (quote, "{", "}"):  # `${…}` ends at a brace that is not in quotes
        return _code(character)
    return "\\\\" if character == "\\" else character if character in "'\"" else repr(character)[1:-1]


def _code(character: str) -> str:
    return f"\\x{ord(character):02x}"


input = Expr("input")
"""What the graph was started with."""
state = Expr("state")
"""The graph's variables."""
nodes = Expr("nodes")
"""Results by node: ``nodes.checkout.path``."""
R = Expr("result")
"""The result of the node before, or of the node itself in its own edges, `write` and `compensate`."""
item = Expr("item")
"""The item of a map, or the result of a loop's round before."""
index = Expr("index")
"""The item's position, or the round's number, from 0."""
event = Expr("event")
"""The event that came."""
turn = Expr("turn")
"""The turn's state, in an agent's own graph."""
limits = Expr("limits")
"""The limits of the run, in an agent's own graph."""
agent = Expr("agent")
"""The agent's definition, in an agent's own graph."""
run = Expr("run")
"""The run itself, such as ``run.now``."""
