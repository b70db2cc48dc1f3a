"""Expressions give what Python gives, refuse everything else by name and place, and never run away."""

import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loom_dsl.errors import ExpressionError
from loom_dsl.expr import MAX_SOURCE, ROOTS, compile_expression
from loom_dsl.expr_functions import FUNCTIONS, SCOPED
from loom_dsl.expr_values import FUEL, VOLUME

NAMES: dict[str, Any] = {
    "input": {"n": 3, "name": "Ada", "tags": ["x", "y"], "empty": [], "deep": {"er": {"est": 1.5}}, "none": None},
    "nodes": {"model": {"calls": [{"name": "a", "safe": True}, {"name": "b", "safe": False}], "ok": True}},
    "item": {"key": None, "if": 1},
    "index": 2,
    "state": "x" * 600_000,
    "event": list(range(5_000)),
}


def value_of(source: str, names: dict[str, Any] | None = None) -> Any:
    return compile_expression(source).evaluate(NAMES if names is None else names)


def outcome_of(source: str) -> tuple[Any, ExpressionError | None]:
    try:
        return value_of(source), None
    except ExpressionError as error:
        return None, error


def refusal_of(source: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        value_of(source)
    return caught.value


VALUES: list[tuple[str, Any]] = [
    ("1", 1),
    ("-2.5", -2.5),
    ("'a' \"b\"", "ab"),
    ("true", True),
    ("False", False),
    ("null", None),
    ("None", None),
    ("input.n", 3),
    ("  input.n  ", 3),
    ('input["name"]', "Ada"),
    ("input.deep.er.est", 1.5),
    ("input.tags[-1]", "y"),
    ("input.tags[:1]", ["x"]),
    ("input.name[1:]", "da"),
    ("item['if']", 1),
    ("nodes.model.calls[1].name", "b"),
    ("1 + 2 * 3 - 4", 3),
    ("7 // 2 + 7 % 4", 6),
    ("7 / 2", 3.5),
    ("'a' + 'b'", "ab"),
    ("[1] + [2]", [1, 2]),
    ("1 < 2 <= 2 != 3", True),
    ("1 == 1.0", True),
    ("true == 1", False),
    ("[true] == [1]", False),
    ("{'a': [1, {'b': 2}]} == {'a': [1.0, {'b': 2}]}", True),
    ("[1, 2] == [1, 3]", False),
    ("{'a': 1} == {'b': 1}", False),
    ("null == false", False),
    ("1 in [true]", False),
    ("'x' in input.tags", True),
    ("'z' not in input.tags", True),
    ("'n' in input", True),
    ("'Ad' in input.name", True),
    ("not input.none", True),
    ("input.none or 'b'", "b"),
    ("input.n and input.name", "Ada"),
    ("false and input.missing", False),
    ("'yes' if input.n > 2 else input.missing", "yes"),
    ("[call.name for call in nodes.model.calls if not call.safe]", ["b"]),
    ("[input for input in [1, 2]]", [1, 2]),
    ("any(call.safe for call in nodes.model.calls)", True),
    ("all([])", True),
    ("{'a': index, 'b': [index]}", {"a": 2, "b": [2]}),
    ("len(input.tags) + len(input.name) + len(input)", 11),
    ("sum([1, 2.5])", 3.5),
    ("min(3, 1, 2) + max([1, 5])", 6),
    ("sorted(['b', 'a'])", ["a", "b"]),
    ("abs(-3) + round(2.6) + round(2.55, 1)", 8.5),
    ("int('12') + int(2.9) + float('1.5')", 15.5),
    ("str(1) + str(true) + str(null) + str(1.5) + str('a')", "1truenull1.5a"),
    ("bool('')", False),
    ("get(input, 'missing')", None),
    ("get(input, 'missing', 7)", 7),
    ("get(input.tags, 1)", "y"),
    ("get(input.tags, 9, 'none')", "none"),
    ("get(input.tags, true)", None),
    ("get(null, 'a', 1)", 1),
    ("has(input, 'n') and not has(input, 'm') and not has(null, 'n')", True),
    ("contains('abc', 'b') and contains([1], 1) and contains({'k': 1}, 'k')", True),
    ("contains([1], true)", False),
    ("keys({'b': 1, 'a': 2}) + values({'b': 1, 'a': 2})", ["a", "b", 2, 1]),
    ("lower('A') + upper('b') + strip(' c ')", "aBc"),
    ("startswith('ab', 'a') and endswith('ab', 'b')", True),
    ("split('a,b', ',')", ["a", "b"]),
    ("split('a b', '')", ["a", "b"]),
    ("join([1, 'a', null])", "1, a, null"),
    ("join(['a', 'b'], '')", "ab"),
]


@pytest.mark.parametrize(("source", "value"), VALUES)
def test_an_expression_has_this_value(source: str, value: Any) -> None:
    found = value_of(source)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("source", "message", "column"),
    [
        ("", "the expression is empty", 1),
        ("   ", "the expression is empty", 1),
        ("input.n )", "is not an expression", 9),
        ("(\n 1 +\n )", "is not an expression", 9),
        ("input.n &&  true", "write `and` instead of `&&`", 9),
        ("input.n || true", "write `or` instead of `||`", 9),
        ("!input.n", "write `not` instead of `!`", 1),
        ("foo", "unknown name `foo`; the names are agent,", 1),
        ("   foo", "unknown name `foo`", 4),
        ("'é' + foo", "unknown name `foo`", 7),
        ("[\n  'é',\n  foo]", "unknown name `foo`", 12),
        ("[x for x in input.tags] + x", "unknown name `x`", 27),
        ("turn.counter", "`turn` has no value here", 1),
        ("input.m", "there is no `m`; use has() or get()", 1),
        ("1 + input.name.first", "cannot read `.first` of text", 5),
        ("input[0]", "cannot index an object with a number", 1),
        ("input.tags['a']", "cannot index a list with text", 1),
        ("input.tags[true]", "cannot index a list with true or false", 1),
        ("input.n[0]", "cannot index a number", 1),
        ("input.tags[7]", "there is no [7] in a list", 1),
        ("input['q']", "there is no ['q'] in an object", 1),
        ("input[1:]", "cannot slice an object", 1),
        ("input.tags['a':]", "cannot slice a list", 1),
        ("input.tags[::2]", "a slice has no step", 1),
        ("1 + 'a'", "cannot combine a number and text", 1),
        ("true + 1", "cannot combine true or false and a number", 1),
        ("'%d' % 5", "cannot combine text and a number", 1),
        ("'a' * 3", "cannot combine text and a number", 1),
        ("[1] * 3", "cannot combine a list and a number", 1),
        ("-'a'", "cannot negate text", 1),
        ("1 < 'a'", "cannot compare a number with text", 1),
        ("1 in 2", "cannot compare a number with a number", 1),
        ("1 in 'a'", "cannot compare a number with text", 1),
        ("1 / 0", "division by zero", 1),
        ("1 % 0", "division by zero", 1),
        ("1 is 1", "use == or !=", 1),
        ("2 ** 3", "`**` is not an operator", 1),
        ("1 << 2", "is not an operator", 1),
        ("~1", "not part of the expression language", 1),
        ("+1", "not part of the expression language", 1),
        ("[x for x in 5]", "cannot go through a number", 1),
        ("[a for a in [1] for b in [2]]", "one `for name in list`", 1),
        ("[a for a, b in [[1, 2]]]", "one `for name in list`", 1),
        ("{input.name: 1}", "the keys of an object are plain text", 1),
        ("{**input}", "the keys of an object are plain text", 1),
        ("nope(1)", "unknown function `nope`; the functions are abs,", 1),
        ("len()", "len() takes 1 to 1 arguments", 1),
        ("len(input, x=1)", "without names", 1),
        ("len(5)", "len(): needs text or a list or an object", 1),
        ("sum(['a'])", "sum(): needs a number", 1),
        ("int('1x')", "int(): text that is not a number", 1),
        ("float(null)", "float(): needs a number or text", 1),
        ("round(1, '2')", "round(): needs a number", 1),
        ("min([])", "min():", 1),
        ("join([[1]])", "join(): needs text", 1),
        ("contains(5, 1)", "contains(): needs a list", 1),
        ("sorted([1, 'a'])", "sorted():", 1),
        ("1e400", "the number is out of range", 1),
        ("9223372036854775809", "the number is out of range", 1),
        ("9e18 * 9e299", "the number is out of range", 1),
        ("9000000000000000000 + 9000000000000000000", "the number is out of range", 1),
        ("1 + float('nan')", "the number is out of range", 5),
        ("float('-Infinity')", "the number is out of range", 1),
        ("int(1e300)", "the number is out of range", 1),
        ("sum([1e308, 1e308])", "the number is out of range", 1),
    ],
)
def test_a_wrong_expression_is_refused_with_its_place(source: str, message: str, column: int) -> None:
    error = refusal_of(source)
    assert message in error.message
    assert error.column == column


def twins(levels: int, leaf: str = "1") -> str:
    """A list of 2 ** levels leaves, if it were written down."""
    text = f"[{leaf}]"
    for _ in range(levels):
        text = f"[[a, a] for a in {text}]"
    return text


@pytest.mark.parametrize(
    "source",
    [
        "input.__class__",
        "().__class__.__bases__",
        "''.join(['a'])",
        "input.get('n')",
        "input.tags.append(1)",
        "lambda: 1",
        "(lambda x: x)(1)",
        "f'{input}'",
        "b'bytes'",
        "1j",
        "...",
        "{1, 2}",
        "(1, 2)",
        "{k: 1 for k in input.tags}",
        "{k for k in input.tags}",
        "[*input.tags]",
        "len(*input.tags)",
        "(y := 1)",
        "await input",
        "[x async for x in input.tags]",
        "yield 1",
        "__import__('os')",
        "eval('1')",
        "exec('1')",
        "open('/etc/passwd')",
        "getattr(input, 'n')",
        "len.__globals__",
        "input; 1",
        "import os",
        "input = 1",
        "input.tags[0:1, 1]",
        "1 @ 2",
        "\x00",
        "'\ud800'",
        "іnput.n",  # a Cyrillic letter
        "ⅿin(1, 2) + nope",
        "(" * 300 + "1" + ")" * 300,
        "-" * 1_900 + "1",
        "not " * 400 + "1",
        "[" * 90 + "]" * 90,
        "input" + ".deep" * 300,
        "1" + " + 1" * 400,
        "1 if " * 300 + "1" + " else 1" * 300,
        "'" + "a" * MAX_SOURCE + "'",
        "[x for x in event if [y for y in event]]",
        "[[y for y in event] for x in event]",
        "[x for x in event if x in event]",
        "[event for x in event] == [event for x in event]",
        "sorted([event for x in event])",
        "max([event for x in event])",
        "contains([event for x in event], [event])",
        "[state + state for x in event]",
        "[lower(state) for x in event]",
        "state + state + state",
        "split(state, 'x')",
        "join([state for x in event])",
        "join([state[:9000] for x in event])",
        "join(event, state[:5000])",
        "[state for x in event]",
        "{'a': [event for x in event]}",
        twins(40),
        f"{twins(25)} == {twins(25)}",
        f"{twins(25)} < {twins(25, '2')}",
        f"sorted([{twins(25)}, {twins(25)}])",
        f"{twins(25)} in [{twins(25)}]",
    ],
)
def test_a_hostile_expression_ends_soon_and_small(source: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ExpressionError):
            value_of(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_an_error_never_repeats_a_large_value() -> None:
    for source in ("input[state]", "float(state)", "int(state)", "state < 1", "state.x"):
        error = refusal_of(source)
        assert len(error.message) < 200


def test_letters_that_only_look_different_are_one_name() -> None:
    assert value_of("ｉｎｐｕｔ.n") == 3
    assert set(compile_expression("ｉｎｐｕｔ.n").references) == {("input",), ("input", "n")}


def test_a_key_like_a_pythons_own_is_only_a_key() -> None:
    assert value_of("input['__class__']", {"input": {"__class__": 1}}) == 1


def test_values_that_are_nested_beyond_all_sense_are_refused_or_read_but_never_break() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    names = {"input": deep, "state": deep}
    for source in ("input == state", "[input]", "sorted(input)", "input < state", "contains(input, state)"):
        with pytest.raises(ExpressionError):
            value_of(source, names)


def test_references_name_every_path_that_is_read() -> None:
    expression = compile_expression("[c.name for c in nodes.model.calls] + get(input, 'x') and limits.n")
    read = set(expression.references)
    assert {("nodes", "model", "calls"), ("input",), ("limits", "n")} <= read
    assert not any(path[0] == "c" for path in read)


def test_what_an_expression_builds_is_bounded_but_what_it_reads_is_not() -> None:
    large = {"input": [[1] * 1_000 for _ in range(VOLUME // 1_000 + 1)]}
    assert value_of("input", large) is large["input"]
    with pytest.raises(ExpressionError, match="too large"):
        value_of("[input]", large)


def test_the_work_is_counted_in_steps() -> None:
    def numbers(count: int) -> dict[str, Any]:
        return {"input": list(range(count))}

    assert value_of("[1 for x in input]", numbers(FUEL - 1)) == [1] * (FUEL - 1)
    with pytest.raises(ExpressionError, match=f"over {FUEL} steps"):
        value_of("[1 for x in input]", numbers(FUEL))


def test_every_function_is_in_the_table_of_values() -> None:
    sources = " ".join(source for source, _ in VALUES)
    assert [name for name in FUNCTIONS if f"{name}(" not in sources] == []
    assert FUNCTIONS.keys() >= SCOPED


WORDS = [
    *sorted(ROOTS), *FUNCTIONS, "x", "y", "for", "in", "if", "else", "not", "and", "or", "is", "lambda", "[", "]", "(",
    ")", "{", "}", ".", ",", ":", "+", "-", "*", "**", "//", "%", "/", "==", "<", ">=", "!=", "!", "0", "1",
    "9999999999", "1e308", "'a'", "'é\\n'", '"', "n", "tags", "name", "__class__", "\n", " ", "#", "\\",
    "\x0c", "é", "ª",
]  # fmt: skip


@given(st.one_of(st.text(max_size=80), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
@example("[x for x in input . tags ]")
@example("(\x0c1\n+nope)")
@settings(max_examples=300, deadline=None)
def test_whatever_the_text_only_an_expression_error_comes_out(source: str) -> None:
    _, error = outcome_of(source)
    if error is not None:
        assert error.message
        assert error.column is None or 1 <= error.column <= len(source) + 2


NUMBERS = st.deferred(
    lambda: st.one_of(
        st.integers(-9, 99).map(lambda n: f"({n})"),
        st.floats(-9, 9).map(lambda x: f"({x!r})"),
        st.just("index"),
        st.tuples(NUMBERS, st.sampled_from(["+", "-", "*", "/", "//", "%"]), NUMBERS).map(
            lambda p: f"({p[0]} {p[1]} {p[2]})"
        ),
        st.tuples(NUMBERS, TRUTHS, NUMBERS).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        LISTS.map(lambda items: f"len({items})"),
        LISTS.map(lambda items: f"sum({items})"),
        st.tuples(LISTS, st.integers(-3, 3)).map(lambda p: f"{p[0]}[{p[1]}]"),
        NUMBERS.map(lambda n: f"abs({n})"),
    )
)
TEXTS = st.deferred(
    lambda: st.one_of(
        st.text("abé'\"\\ ", max_size=4).map(repr),
        st.tuples(TEXTS, TEXTS).map(lambda p: f"({p[0]} + {p[1]})"),
        st.tuples(TEXTS, st.integers(-2, 2), st.integers(-2, 2)).map(lambda p: f"{p[0]}[{p[1]}:{p[2]}]"),
    )
)
TRUTHS = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["True", "False"]),
        st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS, NUMBERS).map(
            lambda p: f"({p[0]} {p[1]} {p[2]} {p[1]} {p[3]})"
        ),
        st.tuples(TEXTS, st.sampled_from(["<", "==", "in", "not in"]), TEXTS).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(NUMBERS, LISTS).map(lambda p: f"({p[0]} in {p[1]})"),
        st.tuples(TRUTHS, st.sampled_from(["and", "or"]), TRUTHS).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        TRUTHS.map(lambda t: f"(not {t})"),
        st.tuples(LISTS, LISTS).map(lambda p: f"({p[0]} == {p[1]})"),
        LISTS.map(lambda items: f"any(x > 2 for x in {items})"),
    )
)
LISTS = st.deferred(
    lambda: st.one_of(
        st.lists(NUMBERS, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.tuples(LISTS, LISTS).map(lambda p: f"({p[0]} + {p[1]})"),
        st.tuples(LISTS, NUMBERS).map(lambda p: f"[x for x in {p[0]} if x >= {p[1]}]"),
        LISTS.map(lambda items: f"[x + 1 for x in {items}]"),
        LISTS.map(lambda items: f"sorted({items})"),
    )
)


@given(st.one_of(NUMBERS, TEXTS, TRUTHS, LISTS))
@settings(max_examples=200, deadline=None)
def test_where_python_has_an_answer_it_is_the_same(source: str) -> None:
    try:
        expected = eval(source, {"index": 2})  # the strategy writes only what both languages have
    except (ArithmeticError, IndexError):
        refusal_of(source)
        return
    found, error = outcome_of(source)
    if error is not None:
        assert re.search("nested over|characters long|out of range", error.message)
    else:
        assert found == expected
        assert type(found) is type(expected)
