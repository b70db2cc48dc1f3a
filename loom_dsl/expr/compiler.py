"""From a syntax tree to closures; what is not in the language is refused here."""

import ast
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.functions import FUNCTIONS, Function
from loom_dsl.expr.values import (
    COMPARISONS,
    OPERATORS,
    WORDS,
    Scope,
    built,
    is_number,
    joined,
    kind_of,
    name_of,
    number,
    path_of,
    shown_key,
    weight,
)

# What compiled expressions do: closures that read keys, items and slices, and go through lists.


Step = Callable[[Scope], Any]
_INSTEAD = {"length": "len(…)", "size": "len(…)", "first": "first(…)", "last": "last(…)"}
"""What people write as keys of lists and texts, and the function that does it."""


def key_of(target: Step, key: str, column: int) -> Step:
    """Read ``target.key``."""

    def read(scope: Scope) -> Any:
        scope.burn(1)
        value = target(scope)
        if not isinstance(value, dict):
            hint = f"; write {_INSTEAD[key]}" if key in _INSTEAD and isinstance(value, (str, list)) else ""
            raise ExpressionError(f"cannot read `.{key}` of {kind_of(value)}{hint}", column)
        if key not in value:
            raise ExpressionError(f"there is no `{key}`; use has() or get() when it may be absent", column)
        return value[key]

    return read


def item_of(target: Step, key_step: Step, column: int) -> Step:
    """Read ``target[key]``."""

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


def slice_of(target: Step, first: Step | None, last: Step | None, column: int) -> Step:
    """Read ``target[first:last]``."""

    def read(scope: Scope) -> Any:
        value = target(scope)
        ends = [end(scope) if end else None for end in (first, last)]
        if not isinstance(value, (list, str)) or not all(
            e is None or (isinstance(e, int) and not isinstance(e, bool)) for e in ends
        ):
            raise ExpressionError(f"cannot slice {kind_of(value)}", column)
        length = len(range(*slice(*ends).indices(len(value))))
        scope.burn(1 + (built(length) if isinstance(value, str) else length))
        return value[ends[0] : ends[1]]

    return read


def each_of(over: Step, names: Sequence[str], tests: Sequence[Step], value: Step, column: int) -> Step:
    """Make a list: ``[value for names in over if tests]``."""

    def build(scope: Scope) -> list[Any]:
        items = over(scope)
        if not isinstance(items, list):
            hint = "; write keys(…), values(…) or items(…)" if isinstance(items, dict) else ""
            raise ExpressionError(f"cannot go through {kind_of(items)}{hint}", column)
        inner = Scope(scope.names, scope.budget, scope.fuel)
        kept = []
        for item in items:
            inner.fuel = scope.fuel
            inner.burn(1 + len(tests))
            inner.names.update(_named(names, item, column))
            if all(test(inner) for test in tests):
                kept.append(value(inner))
            scope.fuel = inner.fuel
        return kept

    return build


def _named(names: Sequence[str], item: Any, column: int) -> dict[str, Any]:
    if len(names) == 1:
        return {names[0]: item}
    if not isinstance(item, list) or len(item) != len(names):
        found = f"a list of {len(item)}" if isinstance(item, list) else kind_of(item)
        raise ExpressionError(f"cannot give {found} the {len(names)} names {', '.join(names)}", column)
    return dict(zip(names, item, strict=True))


MAX_DEPTH = 60
_NOTHING = dict.fromkeys(("none", "nil", "undefined", "nothing"), "null")


class Compiler:
    """Turns a syntax tree into closures, and refuses what is not in the language."""

    def __init__(self, roots: frozenset[str]) -> None:
        self.roots = roots
        self.bound: list[str] = []
        self.references: list[tuple[str, ...]] = []
        self.reads: list[tuple[str, ...]] = []
        """References as long as they are written: not `nodes` of `nodes.model`."""
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
                self.reads.append((name,))

            def read(scope: Scope) -> Any:
                scope.burn(1)
                try:
                    return scope.names[name]
                except KeyError:
                    raise ExpressionError(f"`{name}` has no value here", column) from None

            return read
        if name in WORDS:
            value = WORDS[name]
            return lambda scope: value
        if name in FUNCTIONS:
            raise ExpressionError(f"`{name}` is a function; call it, such as {name}(…)", column)
        names = sorted(self.roots | set(self.bound))
        close = _close(_NOTHING.get(name.lower(), name), [*names, *WORDS])
        known = f"the names are {', '.join(names)}" + ("" if close else f"; a text stands in quotes: '{name}'")
        raise ExpressionError(f"unknown name `{name}`; {close}{known}", column)

    def _attribute(self, node: ast.Attribute, depth: int) -> Step:
        if node.attr.startswith("__"):
            raise ExpressionError(f"`{node.attr}` is not a key that an expression may read", node.col_offset + 1)
        path, before = path_of(node), len(self.reads)
        rooted = bool(path) and path[0] in self.roots and path[0] not in self.bound
        if rooted:
            self.references.append(path)
        target = self.compile(node.value, depth)
        if rooted:
            self.reads[before:] = [path]
        return key_of(target, node.attr, node.col_offset + 1)

    def _subscript(self, node: ast.Subscript, depth: int) -> Step:
        target, column = self.compile(node.value, depth), node.col_offset + 1
        if not isinstance(node.slice, ast.Slice):
            return item_of(target, self.compile(node.slice, depth), column)
        if node.slice.step is not None:
            raise ExpressionError("a slice has no step here", column)
        first = self.compile(node.slice.lower, depth) if node.slice.lower else None
        last = self.compile(node.slice.upper, depth) if node.slice.upper else None
        return slice_of(target, first, last, column)

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
            return _not(operand)
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

        def choose(scope: Scope) -> Any:
            scope.burn(1)
            return yes(scope) if test(scope) else no(scope)

        return choose

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
            scope.burn(3 + 2 * len(steps))
            return {str(key): step(scope) for key, step in zip(keys, steps, strict=True)}

        return build

    def _set(self, node: ast.Set, depth: int) -> Step:
        raise ExpressionError("braces hold an object, {'key': value}; around a name write none", node.col_offset + 1)

    def _listcomp(self, node: ast.ListComp, depth: int) -> Step:
        return self._comprehension(node.elt, node.generators, depth, node.col_offset + 1)

    def _generatorexp(self, node: ast.GeneratorExp, depth: int) -> Step:
        return self._comprehension(node.elt, node.generators, depth, node.col_offset + 1)

    def _comprehension(self, body: ast.expr, clauses: list[ast.comprehension], depth: int, column: int) -> Step:
        clause = clauses[0]
        targets = clause.target.elts if isinstance(clause.target, ast.Tuple) else [clause.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if len(clauses) != 1 or not names or len(names) != len(targets) or clause.is_async:
            raise ExpressionError("a comprehension has one `for name in list`", column)
        over = self.compile(clause.iter, depth)
        self.bound += names
        tests = [self.compile(test, depth) for test in clause.ifs]
        value = self.compile(body, depth)
        del self.bound[-len(names) :]
        self.builds = True
        return each_of(over, names, tests, value, column)

    def _call(self, node: ast.Call, depth: int) -> Step:
        column = node.col_offset + 1
        name = self._function_of(node.func, column)
        function = FUNCTIONS[name]
        if node.keywords:
            raise ExpressionError(f"{name}() takes its arguments by place, without names", column)
        if not function.fewest <= len(node.args) <= function.most:
            raise ExpressionError(f"{name}() takes {_arguments(function)}", column)
        steps, body = [self.compile(arg, depth) for arg in node.args], function.body

        def call(scope: Scope) -> Any:
            values = [step(scope) for step in steps]
            scope.burn(1 if function.small else 1 + sum(weight(value) for value in values))
            try:
                return number(body(scope, *values) if function.scoped else body(*values), column)
            except (TypeError, ValueError, OverflowError) as error:
                raise ExpressionError(f"{name}(): {error}", column) from None

        return call

    def _function_of(self, node: ast.expr, column: int) -> str:
        if isinstance(node, ast.Attribute):
            name, found = node.attr, node.attr in FUNCTIONS
            advice = f"write {name}(x) instead of x.{name}()" if found else "call a function, such as len(x)"
            raise ExpressionError(f"there are no methods; {advice}", column)
        if not isinstance(node, ast.Name):
            raise ExpressionError("only functions can be called, such as len(x)", column)
        if node.id in FUNCTIONS:
            return node.id
        known = f"functions are {', '.join(sorted(FUNCTIONS))}"
        raise ExpressionError(f"unknown function `{node.id}`; {_close(node.id, FUNCTIONS)}the {known}", column)


def _not(operand: Step) -> Step:
    def invert(scope: Scope) -> bool:
        scope.burn(1)
        return not operand(scope)

    return invert


def _arguments(function: Function) -> str:
    low, high = function.fewest, function.most
    return f"{low} to {high} arguments" if low < high else f"{low} argument{'s' if low > 1 else ''}"


def _close(name: str, known: Iterable[str]) -> str:
    found = get_close_matches(name.lower(), known, 1)
    return f"did you mean `{found[0]}`? " if found else ""
