"""The limits of expressions grow with their data: every linear pass succeeds, and no expression takes over a bound."""

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.cost import fewest_steps
from loom_dsl.expr.expression import compile_expression
from loom_dsl.expr.functions import ALL_SPACES, FUNCTIONS
from loom_dsl.expr.values import FUEL, MAX_AT_ONCE, MAX_STEPS, METER, Meter
from loom_dsl.machine.kinds.maps import MAX_CHUNKED, MAX_ITEMS

NUMBERS, TEXTS, OBJECTS = (
    lambda count: [n * 7919 % count for n in range(count)],
    lambda count: [f"name {n % 97} of {count}" for n in range(count)],
    lambda count: [{"id": n, "ok": n % 3 == 0, "name": f"n{n}", "tags": ["a", n]} for n in range(count)],
)
PASSES: dict[str, Any] = {
    "result": NUMBERS,
    "sum(result)": NUMBERS,
    "min(result) + max(result)": NUMBERS,
    "len(result)": NUMBERS,
    "any(result)": NUMBERS,
    "all([x >= 0 for x in result])": NUMBERS,
    "sorted(result)": NUMBERS,
    "reversed(sorted(result))": NUMBERS,
    "unique(result)": NUMBERS,
    "first(sorted(unique(result)))": NUMBERS,
    "result[1:]": NUMBERS,
    "result + result": NUMBERS,
    "result == reversed(result)": NUMBERS,
    "7 in result": NUMBERS,
    "contains(result, -1)": NUMBERS,
    "[x * 2 + 1 for x in result if x % 2 == 0]": NUMBERS,
    "sum([round(x / 3, 2) + floor(x / 7) + ceil(x / 9) + abs(-x) for x in result])": NUMBERS,
    "[str(x) for x in result]": NUMBERS,
    "join([str(x) for x in result])": NUMBERS,
    "[int(float(str(x))) for x in result]": NUMBERS,
    "[[i, result[i]] for i in range(len(result))]": NUMBERS,
    "to_json(result)": NUMBERS,
    "from_json(to_json(result))": NUMBERS,
    "{'n': len(result), 'sum': sum(result), 'least': min(result), 'most': max(result)}": NUMBERS,
    "join(result, '\\n')": TEXTS,
    "sorted(result) == result": TEXTS,
    "split(join(result))": TEXTS,
    "split(join(result, ' '), 'n')": TEXTS,
    "[upper(lower(strip(x))) for x in result]": TEXTS,
    "[replace(x, 'name', 'n') for x in result if startswith(x, 'name') and not endswith(x, 'x')]": TEXTS,
    "[split(x)[1] for x in result]": TEXTS,
    "unique([x[:6] for x in result])": TEXTS,
    "[x.name for x in result if x.ok]": OBJECTS,
    "len([x for x in result if not x.ok]) > 3": OBJECTS,
    "sorted(result, 'name')": OBJECTS,
    "unique(result) == result": OBJECTS,
    "[{'id': x.id, 'name': x.name, 'good': x.ok, 'tag': first(x.tags), 'n': len(x.tags)} for x in result]": OBJECTS,
    "[merge(x, {'seen': true}) for x in result]": OBJECTS,
    "flatten([x.tags for x in result])": OBJECTS,
    "sum([x.id if x.ok else -x.id for x in result])": OBJECTS,
    "[get(x, ['tags', 0], 'none') for x in result if has(x, 'tags')]": OBJECTS,
    "flatten([keys(x) for x in result])": OBJECTS,
    "[to_json(x) for x in result]": OBJECTS,
    "[duration('1h30m') + x.id for x in result]": OBJECTS,
    "from_json(to_json([x.tags for x in result]))": OBJECTS,
}


@pytest.mark.parametrize("count", [MAX_ITEMS, MAX_CHUNKED])
@pytest.mark.parametrize("source", PASSES)
def test_a_linear_pass_over_the_results_of_any_map_succeeds(source: str, count: int) -> None:
    meter = Meter()
    value = compile_expression(source).evaluate({"result": PASSES[source](count), METER: meter})
    assert value is not None
    assert meter.used <= 100 * count, "more than what each item of the longest map may cost"


def test_every_function_that_goes_through_a_list_is_in_the_table_of_passes() -> None:
    sources = " ".join(PASSES)
    missing = {name for name in FUNCTIONS if f"{name}(" not in sources}
    assert missing == {"values", "items", "last", "bool"}, "these look at one object, or at the end of a list"


@pytest.mark.parametrize(
    "source",
    [
        "[[y for y in result] for x in result]",
        "[x for x in result if x in result]",
        "[sorted(result) for x in result]",
        "[result + [x] for x in result]",
        "[join([str(y) for y in result]) for x in result]",
        "[sum(result[:i]) for i in range(len(result))]",
        "[x for x in result if len([y for y in result if y == x]) > 1]",
        "[to_json(result) for x in result]",
    ],
)
def test_what_grows_faster_than_its_data_ends_at_the_bound(source: str) -> None:
    meter = Meter()
    with pytest.raises(ExpressionError, match="too much work"):
        compile_expression(source).evaluate({"result": NUMBERS(MAX_CHUNKED), METER: meter})
    assert meter.used <= MAX_STEPS


@pytest.mark.parametrize(
    ("source", "read", "most"),
    [
        ("[1 for x in range(9999)] + [1 for x in range(9999)]", None, FUEL),
        ("[input.n for x in range(99999)]", {"n": 1}, 2 * FUEL),
        ("[input for x in range(99999)]", [1, 2, 3], 5 * FUEL),
        ("[input for x in range(99999)]", "four", 6 * FUEL),
        ("[input for x in range(999999)]", ["ab", {"c": [1]}], 8 * FUEL),
        ("[input for x in range(9999999)]", list(range(200)), MAX_STEPS),
        ("[input.a + input.b for x in range(99999)]", {"a": 1, "b": 1, "much": list(range(200))}, 3 * FUEL),
    ],
)
def test_the_limit_grows_with_what_is_read_and_with_nothing_else(source: str, read: Any, most: int) -> None:
    meter = Meter()
    with pytest.raises(ExpressionError, match=rf"over {most:,} steps"):
        compile_expression(source).evaluate({"input": read, "nodes": list(range(999)), METER: meter})
    assert meter.used <= most


@pytest.mark.parametrize(
    "source",
    [
        "range(input.n)",
        "[x for x in range(input.n)]",
        "replace(input.text, 'a', input.text)",
        "join(input.list, input.text)",
        "from_json(input.json)",
        "split(input.text, 'a')",
        "split(input.blank)",
        "input.list + input.list",
        "items(input.object)",
        "merge(input.object, input.object)",
        "upper(input.text)",
        "strip(input.text)",
        "input.text[1:]",
        "to_json(input.list)",
        "unique(input.list)",
    ],
)
def test_work_is_paid_for_before_it_is_done(source: str) -> None:
    """With hardly any steps left nothing is made: what it costs shows in the memory."""
    text = "a" * 1_000_000
    read = {
        "n": 10_000_000,
        "text": text,
        "blank": "a " * 500_000,
        "json": f"[{','.join('0' * 300_000)}]",
        "list": [1] * 300_000,
        "object": {str(n): n for n in range(200_000)},
    }
    expression = compile_expression(source)
    tracemalloc.start()
    try:
        with pytest.raises(ExpressionError, match=r"too much work|too long"):
            expression.evaluate({"input": read, METER: Meter(MAX_AT_ONCE - 100)})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_words_are_counted_by_every_space_that_python_knows() -> None:
    assert all(character.isspace() for character in ALL_SPACES)
    for number in range(0x11000):
        if chr(number).isspace():
            assert chr(number) in ALL_SPACES


PARTS = st.sampled_from(["result", "nodes.b", "x", "1", "range(len(result))", "[1, 2]", "get(nodes, 'b')"])


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(parts, parts).map(lambda two: f"[{two[0]} for x in {two[1]}]"),
        st.tuples(parts, parts, parts).map(lambda three: f"[{three[0]} for x in {three[1]} if {three[2]}]"),
        st.tuples(st.sampled_from(["sorted", "unique", "sum", "len", "reversed", "to_json", "max", "any"]), parts).map(
            lambda two: f"{two[0]}({two[1]})"
        ),
        st.tuples(parts, st.sampled_from(["+", "==", "in", "and", "or", "<"]), parts).map(
            lambda three: f"({' '.join(three)})"
        ),
        st.tuples(parts, parts, parts).map(lambda three: f"({three[0]} if {three[1]} else {three[2]})"),
        st.tuples(parts, parts).map(lambda two: f"{{'a': {two[0]}, 'b': [{two[1]}]}}"),
        parts.map(lambda one: f"{one}[1:]"),
        parts.map(lambda one: f"flatten([{one}, {one}])"),
    )


@given(st.recursive(PARTS, _larger, max_leaves=8), st.integers(0, 12), st.integers(0, 5))
def test_an_expression_never_takes_fewer_steps_than_are_told_beforehand(source: str, count: int, other: int) -> None:
    meter = Meter()
    names = {"result": list(range(count)), "nodes": {"b": list(range(other))}, METER: meter}
    lengths = {("result",): count, ("nodes", "b"): other}
    with suppress(ExpressionError):
        expression = compile_expression(source)
        told = fewest_steps(source, lambda path: lengths.get(path, 0))
        expression.evaluate(names)
        assert told <= meter.used


def test_what_is_told_beforehand_is_nearly_what_it_takes() -> None:
    names = {"result": NUMBERS(300)}
    for source in ("[[y for y in result] for x in result]", "[x for x in result if x in result]", "sorted(result)"):
        meter = Meter()
        compile_expression(source).evaluate({**names, METER: meter})
        told = fewest_steps(source, lambda path: 300 if path == ("result",) else 0)
        assert meter.used / 2.5 < told <= meter.used
