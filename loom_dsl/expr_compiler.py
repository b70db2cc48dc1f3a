"""From a syntax tree to closures; what is not in the language is refused here."""

import ast
from collections.abc import Callable
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.expr_functions import FUNCTIONS, SCOPED
from loom_dsl.expr_values import (
    COMPARISONS,
    OPERATORS,
    Scope,
    is_number,
    joined,
    kind_of,
    name_of,
    number,
    path_of,
    shown_key,
    weight,
)

MAX_DEPTH = 60
Step = Callable[[Scope], Any]
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


class Compiler:
    """Turns a syntax tree into closures, and refuses what is not in the language."""

    def __init__(self, roots: frozenset[str]) -> None:
        self.roots = roots
        self.bound: list[str] = []
        self.references: list[tuple[str, ...]] = []
        self.builds = False

    def compile(self, node: ast.AST, depth: int) -> Step:
        """Compile one node.

        Raises:
            ExpressionError: It is not part of the language.
        """
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        column = getattr(node, "col_offset", 0) + 1
        if method is None:
            raise ExpressionError(f"{name_of(node)} is not part of the expression language", column)
        if depth > MAX_DEPTH:
            raise ExpressionError(f"the expression is nested over {MAX_DEPTH} levels deep", column)
        step: Step = method(node, depth + 1)
        return step

    def _constant(self, node: ast.Constant, depth: int) -> Step:
        value = node.value
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise ExpressionError(f"{value!r} is not a JSON value", node.col_offset + 1)
        checked = number(value, node.col_offset + 1)
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
        path = path_of(node)
        if path and path[0] in self.roots and path[0] not in self.bound:
            self.references.append(path)
        return self._lookup(self.compile(node.value, depth), node.attr, node)

    def _lookup(self, target: Step, key: str, node: ast.Attribute) -> Step:
        column = node.col_offset + 1

        def read(scope: Scope) -> Any:
            scope.burn(1)
            value = target(scope)
            if not isinstance(value, dict):
                raise ExpressionError(f"cannot read `.{key}` of {kind_of(value)}", column)
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
                raise ExpressionError(f"cannot index {kind_of(value)}", column)
            wanted = str if isinstance(value, dict) else int
            if not isinstance(key, wanted) or isinstance(key, bool):
                raise ExpressionError(f"cannot index {kind_of(value)} with {kind_of(key)}", column)
            try:
                return value[key]  # type: ignore[index]
            except (KeyError, IndexError):
                raise ExpressionError(f"there is no [{shown_key(key)}] in {kind_of(value)}", column) from None

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
                raise ExpressionError(f"cannot slice {kind_of(value)}", column)
            piece = value[ends[0] : ends[1]]
            scope.burn(1 + weight(piece))
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
            if not is_number(value):
                raise ExpressionError(f"cannot negate {kind_of(value)}", column)
            return -value

        return negate

    def _binop(self, node: ast.BinOp, depth: int) -> Step:
        operator = OPERATORS.get(type(node.op))
        column = node.col_offset + 1
        if operator is None:
            raise ExpressionError(f"{name_of(node.op)} is not an operator of the expression language", column)
        left, right = self.compile(node.left, depth), self.compile(node.right, depth)
        joins = isinstance(node.op, ast.Add)

        def apply(scope: Scope) -> Any:
            scope.burn(1)
            a, b = left(scope), right(scope)
            if joins and isinstance(a, (str, list)) and type(a) is type(b):
                return joined(scope, a, b, column)
            if not (is_number(a) and is_number(b)):
                raise ExpressionError(f"cannot combine {kind_of(a)} and {kind_of(b)} like this", column)
            try:
                return number(operator(a, b), column)
            except (ZeroDivisionError, OverflowError):
                raise ExpressionError("division by zero, or a number out of range", column) from None

        return apply

    def _compare(self, node: ast.Compare, depth: int) -> Step:
        column = node.col_offset + 1
        operators = [COMPARISONS.get(type(op)) for op in node.ops]
        if None in operators:
            raise ExpressionError("`is` is not part of the language; use == or !=", column)
        steps = [self.compile(part, depth) for part in [node.left, *node.comparators]]

        def compare(scope: Scope) -> bool:
            left = steps[0](scope)
            for operator, step in zip(operators, steps[1:], strict=True):
                right = step(scope)
                try:
                    if not operator(scope, left, right):  # type: ignore[misc]
                        return False
                except TypeError:
                    raise ExpressionError(f"cannot compare {kind_of(left)} with {kind_of(right)}", column) from None
                left = right
            return True

        return compare

    def _ifexp(self, node: ast.IfExp, depth: int) -> Step:
        test, yes, no = (self.compile(part, depth) for part in (node.test, node.body, node.orelse))
        return lambda scope: yes(scope) if test(scope) else no(scope)

    def _list(self, node: ast.List, depth: int) -> Step:
        steps = [self.compile(part, depth) for part in node.elts]
        self.builds = True

        def build(scope: Scope) -> list[Any]:
            scope.burn(1 + len(steps))
            return [step(scope) for step in steps]

        return build

    def _dict(self, node: ast.Dict, depth: int) -> Step:
        if any(not (isinstance(key, ast.Constant) and isinstance(key.value, str)) for key in node.keys):
            raise ExpressionError("the keys of an object are plain text", node.col_offset + 1)
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        steps = [self.compile(part, depth) for part in node.values]
        self.builds = True

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
        self.builds = True

        def build(scope: Scope) -> list[Any]:
            items = over(scope)
            if not isinstance(items, list):
                raise ExpressionError(f"cannot go through {kind_of(items)}", column)
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
        if node.keywords:
            raise ExpressionError(f"{node.func.id}() takes its arguments by place, without names", column)
        if function is None:
            known = ", ".join(sorted(FUNCTIONS))
            raise ExpressionError(f"unknown function `{node.func.id}`; the functions are {known}", column)
        low, high, body = function
        if not low <= len(node.args) <= high:
            raise ExpressionError(f"{node.func.id}() takes {low} to {high} arguments", column)
        steps, name = [self.compile(arg, depth) for arg in node.args], node.func.id
        scoped = name in SCOPED

        def call(scope: Scope) -> Any:
            values = [step(scope) for step in steps]
            scope.burn(1 + sum(weight(value) for value in values))
            try:
                return number(body(scope, *values) if scoped else body(*values), column)
            except (TypeError, ValueError, OverflowError) as error:
                raise ExpressionError(f"{name}(): {error}", column) from None

        return call
