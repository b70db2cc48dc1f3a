"""Random expressions, each beside the value that Python gives for the same operators."""

import operator
from collections.abc import Callable
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from loom_dsl.expr.expression import compile_expression
from loom_dsl.expr.template import compile_template
from loom_dsl.graph.builder.expressions import input, literal, source_of
from loom_dsl.graph.builder.functions import collect, if_, in_, len_, name, not_in

GIVEN: dict[str, Any] = {
    "a": 3,
    "b": -2,
    "c": 0.5,
    "t": "Ada",
    "u": "it's {x}",
    "l": [1, 2, 3],
    "yes": True,
    "no": False,
}
Pair = tuple[Any, Any]
LEAVES: dict[type, st.SearchStrategy[Pair]] = {
    int: st.sampled_from("abc").map(lambda key: (input[key], GIVEN[key])) | st.integers(-9, 9).map(lambda n: (n, n)),
    str: st.sampled_from("tu").map(lambda key: (input[key], GIVEN[key])) | st.text(max_size=3).map(lambda t: (t, t)),
    bool: st.sampled_from(("yes", "no")).map(lambda key: (input[key], GIVEN[key]))
    | st.booleans().map(lambda x: (x, x)),
    list: st.just((input.l, GIVEN["l"])) | st.lists(st.integers(0, 3), max_size=3).map(lambda v: (v, v)),
}  # fmt: skip
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod)
ORDER = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
BOTH = {operator.and_: lambda a, b: a and b, operator.or_: lambda a, b: a or b}
ITEM = name("x")


@st.composite
def pairs(draw: st.DrawFn, kind: type, depth: int) -> Pair:
    if depth == 0:
        return draw(LEAVES[kind])

    def of(kind: type) -> Pair:
        return draw(pairs(kind, draw(st.integers(0, depth - 1))))

    way = draw(st.integers(0, 5))
    if way == 0:
        return draw(LEAVES[kind])
    if way == 1:
        (test, holds), (yes, one), (no, other) = of(bool), of(kind), of(kind)
        return if_(test, yes, no), one if holds else other
    return WAYS[kind](draw, way, of)


def _number(draw: st.DrawFn, way: int, of: Callable[[type], Pair]) -> Pair:
    (a, x), (b, y) = of(int), of(int)
    if way == 2:
        return -literal(a), -x
    if way == 3:
        e, v = of(list)
        return len_(e), len(v)
    apply = draw(st.sampled_from(ARITHMETIC))
    assume(apply in ARITHMETIC[:3] or y != 0)
    value = apply(x, y)
    assume(abs(value) < 1e15)
    return apply(literal(a), b) if way == 4 else apply(a, literal(b)), value


def _text(draw: st.DrawFn, way: int, of: Callable[[type], Pair]) -> Pair:
    (a, x), (b, y) = of(str), of(str)
    if way == 2:
        low, high = draw(st.integers(-3, 3)), draw(st.none() | st.integers(-3, 3))
        return literal(a)[low:high], x[low:high]
    return (literal(a) + b if way == 3 else a + literal(b)), x + y


def _truth(draw: st.DrawFn, way: int, of: Callable[[type], Pair]) -> Pair:
    kind = draw(st.sampled_from([int, str]))
    (a, x), (b, y) = of(kind), of(kind)
    (c, p), (d, q) = of(bool), of(bool)
    if way == 2:
        return ~literal(c), not p
    if way == 3:
        e, v = of(list)
        n, m = of(int)
        return (in_(n, e), m in v) if p else (not_in(n, e), m not in v)
    if way == 4:
        apply = draw(st.sampled_from(ORDER))
        return apply(literal(a), b), apply(x, y)
    both = draw(st.sampled_from(list(BOTH)))
    return both(c, literal(d)), BOTH[both](p, q)


def _list(draw: st.DrawFn, way: int, of: Callable[[type], Pair]) -> Pair:
    (e, v), (f, w) = of(list), of(list)
    n, m = of(int)
    if way == 2:
        return collect(ITEM + n, each=ITEM, of=e, where=ITEM > 1), [x + m for x in v if x > 1]
    if way == 3:
        return literal([n, n]), [m, m]
    if way == 4:
        return literal(e)[1:], v[1:]
    return literal(e) + f, v + w


WAYS = {int: _number, str: _text, bool: _truth, list: _list}


@given(st.sampled_from(list(WAYS)).flatmap(lambda kind: pairs(kind, 4)))
def test_an_expression_gives_what_python_gives(pair: Pair) -> None:
    expression, value = literal(pair[0]), pair[1]
    assume(len(source_of(expression)) < 2_000)
    assert compile_expression(source_of(expression)).evaluate({"input": GIVEN}) == value
    assert compile_template(str(expression)).evaluate({"input": GIVEN}) == value
