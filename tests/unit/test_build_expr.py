"""Expressions written in Python are the text of a document, and mean what they mean in Python."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import ROOTS, compile_expression
from loom_dsl.expr.functions import FUNCTIONS
from loom_dsl.expr.template import compile_template
from loom_dsl.graph.builder import functions
from loom_dsl.graph.builder.expressions import (
    Expr,
    R,
    agent,
    event,
    index,
    input,
    item,
    limits,
    literal,
    nodes,
    run,
    source_of,
    state,
    turn,
)
from loom_dsl.graph.builder.functions import (
    abs_,
    all_,
    any_,
    bool_,
    collect,
    contains,
    endswith,
    float_,
    get,
    has,
    if_,
    in_,
    int_,
    join,
    keys,
    len_,
    lower,
    max_,
    min_,
    name,
    not_in,
    round_,
    sorted_,
    split,
    startswith,
    str_,
    strip,
    sum_,
    upper,
    values,
)

call = name("call")


class Choice(StrEnum):
    YES = "yes"


TEXTS: list[tuple[Any, str]] = [
    (R, "result"),
    (R.passed == True, "result.passed == true"),  # noqa: E712
    (R.cost != None, "result.cost != null"),  # noqa: E711
    (R["passed"], "result.passed"),
    (R["a b"].c, "result['a b'].c"),
    (R["class"], "result['class']"),
    (R["__x"], "result['__x']"),
    (R[0][-1], "result[0][-1]"),
    (R[index], "result[index]"),
    (R[1:][: input.n], "result[1:][:input.n]"),
    (nodes.tests.failures, "nodes.tests.failures"),
    (R.choice == "approve", "result.choice == 'approve'"),
    (R.choice == Choice.YES, "result.choice == 'yes'"),
    (R.text == "it's", 'result.text == "it\'s"'),
    (R.text == "it's \"so\"", "result.text == 'it\\x27s \"so\"'"),
    ("a\n\\" + R.text, "'a\\n\\\\' + result.text"),
    ((R.a > 1) & (R.b < 2) & R.c, "result.a > 1 and result.b < 2 and result.c"),
    (R.a & (R.b & R.c), "result.a and result.b and result.c"),
    ((R.a | R.b) & R.c, "(result.a or result.b) and result.c"),
    (R.a | R.b & R.c, "result.a or result.b and result.c"),
    (~(R.a == 1), "not result.a == 1"),
    (~R.a == 1, "(not result.a) == 1"),
    (~(R.a | R.b), "not (result.a or result.b)"),
    ((R.a < 1) == (R.b < 1), "(result.a < 1) == (result.b < 1)"),
    (R.a - (R.b - 1), "result.a - (result.b - 1)"),
    (R.a - R.b - 1, "result.a - result.b - 1"),
    (1 - R.a * -R.b, "1 - result.a * -result.b"),
    ((1 + R.a) * 2, "(1 + result.a) * 2"),
    (-(R.a + 1), "-(result.a + 1)"),
    (7 // R.a % 4 / R.b, "7 // result.a % 4 / result.b"),
    (True & R.a, "true and result.a"),
    (False | R.a, "false or result.a"),
    ((R.a + R.b).c, "(result.a + result.b).c"),
    (literal(-1)[0], "(-1)[0]"),
    (if_(R.ok, "yes", R.other) + "!", "('yes' if result.ok else result.other) + '!'"),
    (if_(R.ok, if_(R.a, 1, 2), if_(R.b, 3, 4)), "(1 if result.a else 2) if result.ok else 3 if result.b else 4"),
    (in_(R.choice, ["a", "b"]), "result.choice in ['a', 'b']"),
    (not_in("x", R.tags) & True, "'x' not in result.tags and true"),
    (len_(R.calls) == 0, "len(result.calls) == 0"),
    (any_(collect(call.name == "rm", each=call, of=R.calls)), "any([call.name == 'rm' for call in result.calls])"),
    (collect({"n": call.n}, each=call, of=R, where=call.ok), "[{'n': call.n} for call in result if call.ok]"),
    (get(nodes, "ask"), "get(nodes, 'ask')"),
    (get(nodes, "ask", {"a": [R.x, None]}), "get(nodes, 'ask', {'a': [result.x, null]})"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_an_expression_has_this_text(expression: Expr, text: str) -> None:
    assert source_of(expression) == text
    assert str(expression) == f"${{{text}}}"
    compile_expression(text, ROOTS | {"call"})


def test_in_a_string_an_expression_is_a_hole() -> None:
    assert f"Merge {input.repo}#{input.pr}?" == "Merge ${input.repo}#${input.pr}?"
    assert compile_template(f"{item.n + 1} of {len_(R)}").evaluate({"item": {"n": 1}, "result": [1, 2]}) == "2 of 2"


def test_every_root_of_the_language_is_there() -> None:
    roots = (input, state, nodes, R, item, index, event, turn, limits, agent, run)
    assert {source_of(root) for root in roots} == ROOTS


CALLS: list[tuple[Expr, Any]] = [
    (len_(input.list), 3),
    (any_(input.list), True),
    (all_([1, 0]), False),
    (sum_(input.list), 6),
    (min_(input.list), 1),
    (max_(4, input.n, 5), 7),
    (sorted_(["b", "a"]), ["a", "b"]),
    (abs_(-input.n), 7),
    (round_(2.567, 1), 2.6),
    (int_("12"), 12),
    (float_("1.5"), 1.5),
    (str_(input.n), "7"),
    (bool_(input.list), True),
    (get(input, "nothing", 5), 5),
    (has(input, "n"), True),
    (contains(input.text, "ell"), True),
    (keys({"b": 1, "a": 2}), ["a", "b"]),
    (values({"b": 1, "a": 2}), [2, 1]),
    (lower(input.text), "hello"),
    (upper(input.text), "HELLO"),
    (strip(" a "), "a"),
    (startswith(input.text, "He"), True),
    (endswith(input.text, "x"), False),
    (split("a,b", ","), ["a", "b"]),
    (join(["a", "b"]), "a, b"),
    (sorted_([{"n": 2}, {"n": 1}], "n"), [{"n": 1}, {"n": 2}]),
    (functions.reversed_(input.list), [3, 2, 1]),
    (functions.unique([1, 1.0, "a"]), [1, "a"]),
    (functions.flatten([input.list, [4]]), [1, 2, 3, 4]),
    (functions.first(input.list), 1),
    (functions.first([], 0), 0),
    (functions.last(input.list), 3),
    (functions.last([], input.n), 7),
    (functions.range_(2), [0, 1]),
    (functions.range_(5, input.n), [5, 6]),
    (round_(2.5), 2),
    (functions.floor(2.9), 2),
    (functions.ceil(2.1), 3),
    (functions.items({"b": 1, "a": 2}), [["a", 2], ["b", 1]]),
    (functions.merge({"a": 1}, {"a": 2}), {"a": 2}),
    (functions.replace(input.text, "l", "L"), "HeLLo"),
    (split(" a  b"), ["a", "b"]),
    (functions.to_json(input.list), "[1,2,3]"),
    (functions.from_json("[1]"), [1]),
    (functions.duration("5m"), 300),
    (in_("n", input), True),
    (not_in(9, input.list), True),
    (if_(input.n > 3, "big", "small"), "big"),
    (collect(call * 2, each=call, of=input.list, where=call > 1), [4, 6]),
]  # fmt: skip
NAMES = {"input": {"list": [1, 2, 3], "n": 7, "text": "Hello"}}


@pytest.mark.parametrize(("expression", "value"), CALLS, ids=[source_of(expression) for expression, _ in CALLS])
def test_a_function_gives_this(expression: Expr, value: Any) -> None:
    assert compile_expression(source_of(expression)).evaluate(NAMES) == value


def test_every_function_of_the_language_is_there_and_tried() -> None:
    tried = {source_of(expression).partition("(")[0] for expression, _ in CALLS}
    assert tried >= FUNCTIONS.keys()
    assert all(hasattr(functions, name) or hasattr(functions, f"{name}_") for name in FUNCTIONS)


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: bool(R.a), "with & [|] ~ instead of and, or, not"),
    (lambda: R.a and R.b, "with & [|] ~ instead of and, or, not"),
    (lambda: not R.a, "with & [|] ~ instead of and, or, not"),
    (lambda: 1 < R.a < 3, "with & [|] ~ instead of and, or, not"),
    (lambda: R.a == 1 & R.b == 2, "each comparison in parentheses"),
    (lambda: 1 if R.a else 2, "choose with if_"),
    (lambda: "x" in R.tags, "use in_"),
    (lambda: list(R.tags), "use collect"),
    (lambda: [x for x in R.tags], "use collect"),
    (lambda: len(R.tags), "use len_"),
    (lambda: f"{R.cost:.2f}", "`:.2f` could format"),
    (lambda: R[::2], "a slice has no step"),
    (lambda: R.a == {1, 2}, "is not a JSON value"),
    (lambda: R.a == {1: 2}, "the key 1 is not text"),
    (lambda: R.a < float("inf"), "out of range"),
    (lambda: R.a < 2**63, "out of range"),
    (lambda: R.a == f"x {R.b}", "is not filled; join the parts with [+]"),
    (lambda: name("item"), "means something else"),
    (lambda: name("for"), "means something else"),
    (lambda: name("a b"), "is not a name"),
    (lambda: source_of(True), "True is not an expression"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_what_python_would_compute_too_early_is_refused_with_advice(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        mistake()


def test_an_expression_is_no_key_and_has_no_private_attributes() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(R)
    with pytest.raises(AttributeError, match=r"write \['_x'\]"):
        R._x  # noqa: B018
    assert repr(R.a + 1) == "Expr('result.a + 1')"


def test_text_with_a_hole_is_taken_as_it_is_if_one_says_so() -> None:
    assert compile_expression(source_of(literal("${HOME}") == input.n)).evaluate({"input": {"n": "${HOME}"}}) is True
    assert compile_template(str(literal("${HOME}"))).evaluate({}) == "${HOME}"


def json_values(leaves: int) -> st.SearchStrategy[Any]:
    numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    odd = st.text(st.sampled_from("'\"\\{}$&| \n\ud800é!"), max_size=8)
    scalars = st.none() | st.booleans() | numbers | st.text(max_size=8) | odd
    inner = st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=4), scalars, max_size=3)
    return scalars | inner | st.dictionaries(st.text(max_size=4), inner, max_size=leaves)


@given(json_values(2))
def test_a_literal_means_itself_in_an_expression_and_in_text(value: Any) -> None:
    for found in (
        compile_expression(source_of(literal(value))).evaluate({}),
        compile_template(str(literal(value))).evaluate({}),
    ):
        assert repr(found) == repr(value)
