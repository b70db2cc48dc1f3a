"""Loom's expression language: conditions and ``${…}`` mappings, pure and total.

The grammar is a small part of Python's: literals, names from fixed roots, ``a.b`` and ``a["b"]`` as
dictionary keys, slices, ``and or not``, comparisons, ``in``, arithmetic on numbers, ``+`` on text and
lists, ``x if c else y``, list comprehensions of one clause, and the functions of `FUNCTIONS`. There are
no methods, no attributes of Python objects, no assignment. Values are JSON.

An expression is compiled once into closures and evaluated with a budget (`FUEL`): every step costs one
unit, and what makes or reads a collection costs its size. So a hostile expression ends in a named error
within milliseconds instead of holding up a workflow task.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.expr_functions import FUNCTIONS

FUEL = 10_000
MAX_SOURCE = 2_000
MAX_DEPTH = 60
MAX_INTEGER = 2**63
MAX_TEXT = 1_000_000

ROOTS = frozenset({"input", "state", "nodes", "result", "item", "index", "event", "turn", "limits", "agent", "run"})
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


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


Step = Callable[[Scope], Any]


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Attributes:
        source: The text.
        references: Each path read from a root, such as ``("nodes", "model", "calls")``.
    """

    source: str
    references: tuple[tuple[str, ...], ...]
    step: Step

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Give the value for these names.

        Raises:
            ExpressionError: A key is missing, a type does not fit, or the work is too much.
        """
        try:
            return self.step(Scope(names))
        except ExpressionError as error:
            raise ExpressionError(f"{error.message} in `{self.source}`", error.column) from None
        except RecursionError:
            raise ExpressionError(f"the values are nested too deeply in `{self.source}`") from None


def compile_expression(source: str, roots: frozenset[str] = ROOTS) -> Expression:
    """Compile the text of an expression.

    Raises:
        ExpressionError: The text is not an expression of the language; the column says where.
    """
    if len(source) > MAX_SOURCE:
        raise ExpressionError(f"the expression is {len(source)} characters long; the limit is {MAX_SOURCE}")
    for wrong, right in (("&&", "and"), ("||", "or")):
        if wrong in source:
            raise ExpressionError(f"write `{right}` instead of `{wrong}`", source.index(wrong) + 1)
    text = source.strip()
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        hint = "; write `not` instead of `!`" if "!" in text.replace("!=", "") else ""
        raise ExpressionError(f"`{text}` is not an expression: {error.msg}{hint}", error.offset) from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("the expression is nested too deeply or holds a character that it cannot") from None
    compiler = _Compiler(roots)
    step = compiler.compile(tree.body, 0)
    return Expression(text, tuple(dict.fromkeys(compiler.references)), step)


class _Compiler:
    """Turns a syntax tree into closures, and refuses what is not in the language."""

    def __init__(self, roots: frozenset[str]) -> None:
        self.roots = roots
        self.bound: list[str] = []
        self.references: list[tuple[str, ...]] = []

    def compile(self, node: ast.AST, depth: int) -> Step:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        column = getattr(node, "col_offset", 0) + 1
        if method is None:
            raise ExpressionError(f"{_name_of(node)} is not part of the expression language", column)
        if depth > MAX_DEPTH:
            raise ExpressionError(f"the expression is nested over {MAX_DEPTH} levels deep", column)
        step: Step = method(node, depth + 1)
        return step

    def _constant(self, node: ast.Constant, depth: int) -> Step:
        value = node.value
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise ExpressionError(f"{value!r} is not a JSON value", node.col_offset + 1)
        checked = _number(value)
        return lambda scope: checked

    def _name(self, node: ast.Name, depth: int) -> Step:
        name, column = node.id, node.col_offset + 1
        if name in self.bound or name in self.roots:
            if name not in self.bound:
                self.references.append((name,))

            def read(scope: Scope) -> Any:
                scope.burn(1)
                try:
                    return scope.names[name]
                except KeyError:
                    raise ExpressionError(f"`{name}` has no value here", column) from None

            return read
        if name in _WORDS:
            value = _WORDS[name]
            return lambda scope: value
        known = ", ".join(sorted(self.roots | set(self.bound)))
        raise ExpressionError(f"unknown name `{name}`; the names are {known}", column)

    def _attribute(self, node: ast.Attribute, depth: int) -> Step:
        if node.attr.startswith("__"):
            raise ExpressionError(f"`{node.attr}` is not a key that an expression may read", node.col_offset + 1)
        path = _path(node)
        if path and path[0] in self.roots and path[0] not in self.bound:
            self.references.append(path)
        return self._lookup(self.compile(node.value, depth), node.attr, node)

    def _lookup(self, target: Step, key: str, node: ast.Attribute) -> Step:
        column = node.col_offset + 1

        def read(scope: Scope) -> Any:
            scope.burn(1)
            value = target(scope)
            if not isinstance(value, dict):
                raise ExpressionError(f"cannot read `.{key}` of {_kind(value)}", column)
            if key not in value:
                raise ExpressionError(f"there is no `{key}`; use has() or get() when it may be absent", column)
            return value[key]

        return read

    def _subscript(self, node: ast.Subscript, depth: int) -> Step:
        target, column = self.compile(node.value, depth), node.col_offset + 1
        if isinstance(node.slice, ast.Slice):
            return self._slice_of(target, node.slice, depth, column)
        key_step = self.compile(node.slice, depth)

        def read(scope: Scope) -> Any:
            scope.burn(1)
            value, key = target(scope), key_step(scope)
            if not isinstance(value, (dict, list, str)):
                raise ExpressionError(f"cannot index {_kind(value)}", column)
            wanted = str if isinstance(value, dict) else int
            if not isinstance(key, wanted) or isinstance(key, bool):
                raise ExpressionError(f"cannot index {_kind(value)} with {_kind(key)}", column)
            try:
                return value[key]  # type: ignore[index]
            except (KeyError, IndexError):
                raise ExpressionError(f"there is no [{key!r}] in {_kind(value)}", column) from None

        return read

    def _slice_of(self, target: Step, part: ast.Slice, depth: int, column: int) -> Step:
        if part.step is not None:
            raise ExpressionError("a slice has no step here", column)
        first = self.compile(part.lower, depth) if part.lower else None
        last = self.compile(part.upper, depth) if part.upper else None

        def read(scope: Scope) -> Any:
            value = target(scope)
            ends = [end(scope) if end else None for end in (first, last)]
            if not isinstance(value, (list, str)) or not all(
                e is None or (isinstance(e, int) and not isinstance(e, bool)) for e in ends
            ):
                raise ExpressionError(f"cannot slice {_kind(value)}", column)
            piece = value[ends[0] : ends[1]]
            scope.burn(1 + _weight(piece))
            return piece

        return read

    def _boolop(self, node: ast.BoolOp, depth: int) -> Step:
        steps = [self.compile(value, depth) for value in node.values]
        stop_at = isinstance(node.op, ast.Or)

        def choose(scope: Scope) -> Any:
            value: Any = None
            for step in steps:
                scope.burn(1)
                value = step(scope)
                if bool(value) is stop_at:
                    return value
            return value

        return choose

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> Step:
        operand, column = self.compile(node.operand, depth), node.col_offset + 1
        if isinstance(node.op, ast.Not):
            return lambda scope: not operand(scope)
        if not isinstance(node.op, ast.USub):
            raise ExpressionError("this operator is not part of the expression language", column)

        def negate(scope: Scope) -> Any:
            scope.burn(1)
            value = operand(scope)
            if not _is_number(value):
                raise ExpressionError(f"cannot negate {_kind(value)}", column)
            return -value

        return negate

    def _binop(self, node: ast.BinOp, depth: int) -> Step:
        operator = _OPERATORS.get(type(node.op))
        column = node.col_offset + 1
        if operator is None:
            raise ExpressionError(f"{_name_of(node.op)} is not an operator of the expression language", column)
        left, right = self.compile(node.left, depth), self.compile(node.right, depth)
        joins = isinstance(node.op, ast.Add)

        def apply(scope: Scope) -> Any:
            scope.burn(1)
            a, b = left(scope), right(scope)
            if joins and isinstance(a, (str, list)) and type(a) is type(b):
                return _joined(scope, a, b, column)
            if not (_is_number(a) and _is_number(b)):
                raise ExpressionError(f"cannot combine {_kind(a)} and {_kind(b)} like this", column)
            try:
                return _number(operator(a, b))
            except (ZeroDivisionError, OverflowError):
                raise ExpressionError("division by zero, or a number out of range", column) from None

        return apply

    def _compare(self, node: ast.Compare, depth: int) -> Step:
        column = node.col_offset + 1
        operators = [_COMPARISONS.get(type(op)) for op in node.ops]
        if None in operators:
            raise ExpressionError("`is` is not part of the language; use == or !=", column)
        steps = [self.compile(part, depth) for part in [node.left, *node.comparators]]

        def compare(scope: Scope) -> bool:
            left = steps[0](scope)
            for operator, step in zip(operators, steps[1:], strict=True):
                right = step(scope)
                scope.burn(1 + _weight(right) + _weight(left))
                try:
                    if not operator(left, right):  # type: ignore[misc]
                        return False
                except TypeError:
                    raise ExpressionError(f"cannot compare {_kind(left)} with {_kind(right)}", column) from None
                left = right
            return True

        return compare

    def _ifexp(self, node: ast.IfExp, depth: int) -> Step:
        test, yes, no = (self.compile(part, depth) for part in (node.test, node.body, node.orelse))
        return lambda scope: yes(scope) if test(scope) else no(scope)

    def _list(self, node: ast.List, depth: int) -> Step:
        steps = [self.compile(part, depth) for part in node.elts]

        def build(scope: Scope) -> list[Any]:
            scope.burn(1 + len(steps))
            return [step(scope) for step in steps]

        return build

    def _dict(self, node: ast.Dict, depth: int) -> Step:
        if any(not (isinstance(key, ast.Constant) and isinstance(key.value, str)) for key in node.keys):
            raise ExpressionError("the keys of an object are plain text", node.col_offset + 1)
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        steps = [self.compile(part, depth) for part in node.values]

        def build(scope: Scope) -> dict[str, Any]:
            scope.burn(1 + len(steps))
            return {str(key): step(scope) for key, step in zip(keys, steps, strict=True)}

        return build

    def _listcomp(self, node: ast.ListComp, depth: int) -> Step:
        return self._comprehension(node.elt, node.generators, depth, node.col_offset + 1)

    def _generatorexp(self, node: ast.GeneratorExp, depth: int) -> Step:
        return self._comprehension(node.elt, node.generators, depth, node.col_offset + 1)

    def _comprehension(self, body: ast.expr, clauses: list[ast.comprehension], depth: int, column: int) -> Step:
        if len(clauses) != 1 or not isinstance(clauses[0].target, ast.Name) or clauses[0].is_async:
            raise ExpressionError("a comprehension has one `for name in list`", column)
        clause, name = clauses[0], clauses[0].target.id
        over = self.compile(clause.iter, depth)
        self.bound.append(name)
        tests = [self.compile(test, depth) for test in clause.ifs]
        value = self.compile(body, depth)
        self.bound.pop()

        def build(scope: Scope) -> list[Any]:
            items = over(scope)
            if not isinstance(items, list):
                raise ExpressionError(f"cannot go through {_kind(items)}", column)
            inner = Scope(scope.names)
            kept = []
            for item in items:
                inner.fuel = scope.fuel
                inner.burn(1)
                inner.names[name] = item
                if all(test(inner) for test in tests):
                    kept.append(value(inner))
                scope.fuel = inner.fuel
            return kept

        return build

    def _call(self, node: ast.Call, depth: int) -> Step:
        column = node.col_offset + 1
        if not isinstance(node.func, ast.Name):
            raise ExpressionError("there are no methods; call a function, such as len(x)", column)
        function = FUNCTIONS.get(node.func.id)
        if function is None or node.keywords:
            known = ", ".join(sorted(FUNCTIONS))
            raise ExpressionError(f"unknown function `{node.func.id}`; the functions are {known}", column)
        low, high, body = function
        if not low <= len(node.args) <= high:
            raise ExpressionError(f"{node.func.id}() takes {low} to {high} arguments", column)
        steps, name = [self.compile(arg, depth) for arg in node.args], node.func.id

        def call(scope: Scope) -> Any:
            values = [step(scope) for step in steps]
            scope.burn(1 + sum(_weight(value) for value in values))
            try:
                return body(*values)
            except (TypeError, ValueError, OverflowError) as error:
                raise ExpressionError(f"{name}(): {error}", column) from None

        return call


def _joined(scope: Scope, a: Any, b: Any, column: int) -> Any:
    scope.burn(_weight(a) + _weight(b))
    if isinstance(a, str) and len(a) + len(b) > MAX_TEXT:
        raise ExpressionError("the text becomes too long", column)
    return a + b


def _path(node: ast.AST) -> tuple[str, ...]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ExpressionError("the number is out of range")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise ExpressionError("the number is out of range")
    return value


def _weight(value: Any) -> int:
    if isinstance(value, str):
        return len(value) // 64
    return len(value) if isinstance(value, (list, dict)) else 0


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")


def _name_of(node: ast.AST) -> str:
    return {"Lambda": "a lambda", "JoinedStr": "an f-string", "Pow": "`**`"}.get(type(node).__name__) or (
        f"`{type(node).__name__.lower()}`"
    )


_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: _same,
    ast.NotEq: lambda a, b: not _same(a, b),
    ast.Lt: lambda a, b: bool(a < b),
    ast.LtE: lambda a, b: bool(a <= b),
    ast.Gt: lambda a, b: bool(a > b),
    ast.GtE: lambda a, b: bool(a >= b),
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
