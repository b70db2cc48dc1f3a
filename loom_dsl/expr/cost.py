"""The fewest steps that an expression can take over lists of which only the lengths are known."""

import ast
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from loom_dsl.expr.functions import FUNCTIONS
from loom_dsl.expr.values import WORDS

LengthOf = Callable[[tuple[str, ...]], int]
"""The length of the list or object at a path such as ``("nodes", "each")``; 0 where it is not known."""
_SAME_LENGTH = frozenset({"sorted", "reversed", "items", "keys", "values"})
_DEEP = {"sorted": 2, "min": 2, "max": 2, "unique": 4, "to_json": 4}
"""Functions that look at everything inside their first argument: steps for each item of it, besides the one."""


_WORDS = frozenset((word,) for word in WORDS)


class Cost(NamedTuple):
    """What is known of a part of an expression: fewest steps, and the length of its value where that is sure."""

    steps: int
    length: int = 0


def fewest_steps(source: str, length_of: LengthOf) -> int:
    """Give a number of steps that the expression takes at least, whatever is in the lists.

    What a condition may leave out is not counted.
    """
    return _Walk(length_of).cost(_parsed(source), frozenset()).steps


@lru_cache(maxsize=1024)
def _parsed(source: str) -> ast.expr:
    return ast.parse(source.strip(), mode="eval").body


class _Walk:
    def __init__(self, length_of: LengthOf) -> None:
        self.length_of = length_of

    def cost(self, node: ast.AST, bound: frozenset[str]) -> Cost:
        """The cost of one part."""
        path = _path(node, bound)
        if path in _WORDS:
            return Cost(0)
        if path:
            return Cost(len(path), self.length_of(path))
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._each(node, bound)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node.func.id, node.args, bound)
        return self._operator(node, bound)

    def _operator(self, node: ast.AST, bound: frozenset[str]) -> Cost:
        match node:
            case ast.IfExp(test=test, body=body, orelse=other):
                yes, no = self.cost(body, bound), self.cost(other, bound)
                steps = 1 + self.cost(test, bound).steps + min(yes.steps, no.steps)
                return Cost(steps, min(yes.length, no.length))
            case ast.BoolOp(values=values):
                return Cost(1 + self.cost(values[0], bound).steps)
            case ast.Compare():
                return self._compare(node, bound)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                one, other_one = self.cost(left, bound), self.cost(right, bound)
                length = one.length + other_one.length
                return Cost(1 + one.steps + other_one.steps + length, length)
            case _:
                return self._rest(node, bound)

    def _rest(self, node: ast.AST, bound: frozenset[str]) -> Cost:
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        own = 0 if isinstance(node, ast.Constant | ast.Slice) else 1
        length = len(parts) if isinstance(node, ast.List) else 0
        return Cost(own + sum(self.cost(part, bound).steps for part in parts), length)

    def _compare(self, node: ast.Compare, bound: frozenset[str]) -> Cost:
        left, right = self.cost(node.left, bound), self.cost(node.comparators[0], bound)
        looks = 1 + right.length if isinstance(node.ops[0], ast.In | ast.NotIn) else 1
        return Cost(left.steps + right.steps + looks)

    def _each(self, node: ast.ListComp | ast.GeneratorExp, bound: frozenset[str]) -> Cost:
        clause = node.generators[0]
        over = self.cost(clause.iter, bound)
        inner = bound | {name.id for name in ast.walk(clause.target) if isinstance(name, ast.Name)}
        first = self.cost(clause.ifs[0] if clause.ifs else node.elt, inner)
        each = 1 + len(clause.ifs) + first.steps
        return Cost(over.steps + over.length * each, 0 if clause.ifs else over.length)

    def _call(self, name: str, arguments: list[ast.expr], bound: frozenset[str]) -> Cost:
        given = [self.cost(argument, bound) for argument in arguments]
        first = given[0].length if given else 0
        steps = 1 + sum(one.steps for one in given) + first * _DEEP.get(name, 0)
        if not FUNCTIONS[name].small:
            steps += sum(one.length for one in given)
        return Cost(steps, self._length(name, arguments, first, bound))

    def _length(self, name: str, arguments: list[ast.expr], first: int, bound: frozenset[str]) -> int:
        if name == "range" and len(arguments) == 1:
            return self._number(arguments[0], bound)
        if name == "get" and len(arguments) > 1 and isinstance(arguments[1], ast.Constant):
            path, key = _path(arguments[0], bound), arguments[1].value
            return self.length_of((*path, key)) if path and isinstance(key, str) else 0
        return first if name in _SAME_LENGTH else 0

    def _number(self, node: ast.expr, bound: frozenset[str]) -> int:
        """A whole number that is written out, or the length of something."""
        match node:
            case ast.Constant(value=int(number)):
                return max(0, number)
            case ast.Call(func=ast.Name(id="len"), args=[one]):
                return self.cost(one, bound).length
            case _:
                return 0


def _path(node: ast.AST, bound: frozenset[str]) -> tuple[str, ...]:
    """The root and the keys of a path whose keys are written out; empty for everything else."""
    keys: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            keys.append(node.attr)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            keys.append(node.slice.value)
        else:
            return ()
        node = node.value
    return (node.id, *reversed(keys)) if isinstance(node, ast.Name) and node.id not in bound else ()
