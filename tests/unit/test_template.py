"""Values with expressions in them: alone they keep their type, in text they are written out."""

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import ExpressionError
from loom_dsl.expr.template import compile_template, escaped
from loom_dsl.graph.dump import to_yaml
from loom_dsl.graph.graph import Graph

NAMES = {"input": {"n": 3, "who": "Ada", "list": [1, None], "map": {"b": 1, "a": True}}, "index": 1}


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("plain", "plain"),
        ("", ""),
        (5, 5),
        (None, None),
        (True, True),
        ("${input.n}", 3),
        ("${ input.n }", 3),
        ("${input.list}", [1, None]),
        ("${null}", None),
        ("n=${input.n}", "n=3"),
        ("${input.n}${input.n}", "33"),
        ("${input.n} ", "3 "),
        ("${input.who} has ${input.list} and ${input.map}", 'Ada has [1,null] and {"a":true,"b":1}'),
        ("${true}, ${null}, ${1.5}", "true, null, 1.5"),
        ("${'}'}", "}"),
        ('${"${"}', "${"),
        ("${{'a': input.n}}", {"a": 3}),
        ("${get({'a': 1}, 'a')}!", "1!"),
        ("${{'a': {'b': {'c': {'}': index}}}}}", {"a": {"b": {"c": {"}": 1}}}}),
        ("x${{'a': {'b': {'c': {'d': {'e': {'{': index}}}}}}}", 'x{"a":{"b":{"c":{"d":{"e":{"{":1}}}}}}'),
        ("${[{'k': {'v': x}} for x in input.list]}", [{"k": {"v": 1}}, {"k": {"v": None}}]),
        ('${{"a": "}", \'b\': "\\"}"}}', {"a": "}", "b": '"}'}),
        ("$${input.n}", "${input.n}"),
        ("$${", "${"),
        ("$$${input.n}", "$3"),
        ("$$$${input.n}", "$${input.n}"),
        ("$$$$${input.n}", "$$3"),
        ("${input.n}$${x}$${input.n}${input.n}", "3${x}${input.n}3"),
        ("${'$'}${input.n}", "$3"),
        ("${'$${'}", "$${"),
        ("$${env:HOME}", "${env:HOME}"),
        ("a $${secret:TOKEN}", "a ${secret:TOKEN}"),
        ("$$ $$x $$} {$$ $$", "$$ $$x $$} {$$ $$"),
        ("${'it\\'s'} ${{'a': 'it\\'s'}}", 'it\'s {"a":"it\'s"}'),
        ("$ {input} $input {input} $$", "$ {input} $input {input} $$"),
        ("${env:HOME}", "${env:HOME}"),
        ("${secret:TOKEN}", "${secret:TOKEN}"),
        (["${input.n}", {"k": "${input.who}"}], [3, {"k": "Ada"}]),
        ({"${input.n}": 1}, {"${input.n}": 1}),
        ({"a": {"b": ["${index}", 1, None]}}, {"a": {"b": [1, 1, None]}}),
    ],
)
def test_a_template_is_filled_like_this(value: Any, filled: Any) -> None:
    found = compile_template(value).evaluate(NAMES)
    assert found == filled
    assert type(found) is type(filled)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${input.n", "is not closed"),
        ("a ${", "is not closed"),
        ("${input.n} and ${", "is not closed"),
        ("${'a}", "is not closed"),
        ("${{'a': 1}", "write `[$][$]{` for the characters"),
        ("$${ and ${", "is not closed"),
        ("${}", "the expression is empty"),
        ("${nope}", "unknown name `nope`"),
        ("${1 +}", "is not an expression"),
        ("a ${env:HOME}", "is not an expression"),
        ("${secret:A}${secret:B}", "is not an expression"),
        ({"a": ["${nope}"]}, "unknown name `nope`"),
    ],
)
def test_a_wrong_template_is_refused_before_it_is_used(value: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=message.replace("`", "[`]")):
        compile_template(value)


def test_every_expression_of_a_template_is_known() -> None:
    template = compile_template({"a": "${input.n} ${index}", "b": ["${input.who}", "${env:X}"]})
    assert [expression.source for expression in template.expressions] == ["input.n", "index", "input.who"]


def test_a_value_that_json_cannot_say_is_not_put_into_text() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (float("nan"), deep):
        with pytest.raises(ExpressionError, match="cannot be written"):
            compile_template("x ${input}").evaluate({"input": value})


@given(st.recursive(st.none() | st.integers() | st.text("ab${}'\" "), lambda inner: st.lists(inner, max_size=3)))
def test_whatever_the_value_only_an_expression_error_comes_out(value: Any) -> None:
    with contextlib.suppress(ExpressionError):
        compile_template(value).evaluate(NAMES)


@given(st.text().filter(lambda text: "${" not in text))
def test_text_without_an_expression_stays_as_it_is(text: str) -> None:
    assert compile_template(text).evaluate(NAMES) == text


@given(st.text("$${}a'") | st.text())
def test_any_text_can_be_escaped(text: str) -> None:
    assert compile_template(escaped(text)).evaluate({}) == text


@given(st.text("${}a\"' \n"))
def test_an_escaped_text_stays_as_it_is_when_a_graph_is_written_and_read(text: str) -> None:
    head = {"loom": 1, "kind": "graph", "name": "escapes", "start": "out"}
    written = to_yaml(Graph.model_validate({**head, "nodes": {"out": {"end": {"is": escaped(text)}}}}))
    graph = validate_model(load_document(written, "test.yaml", kinds=("graph",)), Graph)
    assert to_yaml(graph) == written
    assert compile_template(graph.dump()["nodes"]["out"]["end"]).evaluate({}) == {"is": text}


def test_braces_stand_as_deep_as_the_language_allows() -> None:
    value: Any = 1
    for _ in range(50):
        value = {"a": value}
    assert compile_template(f"${{{value}}}").evaluate({}) == value
    assert compile_template(f"x ${{{value}}}").evaluate({}).count("{") == 50


@pytest.mark.parametrize("piece", ["$${", "$$$", "${", "${'a", "${{x}", '${"', "${(", "${{}{}", "${'a'"])
def test_a_text_of_openings_is_read_in_linear_time(piece: str) -> None:
    """Compared with itself, so that a slow machine does not matter."""

    def seconds(times: int) -> float:
        text, best = piece * times, 1e9
        for _ in range(3):
            began = time.process_time()
            with contextlib.suppress(ExpressionError):
                compile_template(text)
            best = min(best, time.process_time() - began)
        return best

    assert seconds(32_000) < 40 * seconds(2_000) + 0.5
