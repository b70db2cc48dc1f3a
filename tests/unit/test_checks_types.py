"""Of which type a value is that a node reads from elsewhere is known before anything runs."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from loom_dsl.checks_unit import Contract
from loom_dsl.compile import check_text
from loom_dsl.diagnostic import Diagnostic

TEXT, LIST, NUMBER = {"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "integer"}
PRICE = {"type": "object", "properties": {"amount": {"type": "number"}, "note": {"anyOf": [TEXT, {"type": "null"}]}}}
RESULTS: Mapping[str, dict[str, Any]] = {"text": TEXT, "list": LIST, "number": NUMBER, "price": PRICE}


def contracts(what: str, name: str) -> Contract | None:
    """Functions named after what they give; each takes a text `t`, a number `n` and a list `l`."""
    arguments = {"type": "object", "properties": {"t": TEXT, "n": {"type": "number"}, "l": LIST}}
    return Contract(arguments, RESULTS.get(name.partition(":")[2])) if what == "activity" else None


def found(nodes: dict[str, Any], **head: Any) -> list[Diagnostic]:
    document = {"loom": 1, "kind": "graph", "name": "g", **head, "nodes": {**nodes, "done": {"end": None}}}
    return check_text(json.dumps(document), "g.yaml", contracts=contracts)


def work(gives: str, to: Any = "done", **given: str) -> dict[str, Any]:
    return {"activity": f"a:{gives}", "with": given, "next": to}


@pytest.mark.parametrize(
    ("gives", "read", "into", "what"),
    [
        ("text", "nodes.a", "n", "text"),
        ("list", "nodes.a", "t", "a list"),
        ("number", "nodes.a", "t", "a number"),
        ("price", "nodes.a", "t", "an object"),
        ("price", "nodes.a.amount", "t", "a number"),
        ("price", "nodes.a['note']", "n", "text or null"),
        ("text", "input.who", "n", "text"),
        ("text", "input.many", "t", "a list"),
    ],
)
def test_a_value_of_another_type_is_told_where_it_is_given(gives: str, read: str, into: str, what: str) -> None:
    nodes = {"a": work(gives, "b"), "b": work("text", **{into: f"${{{read}}}"})}
    (told,) = found(nodes, input={"who": "str", "many": "list"})
    assert told.code == "L152"
    assert told.message.endswith(f"and this is always {what}")


@pytest.mark.parametrize(
    ("gives", "read", "into"),
    [
        ("text", "nodes.a", "t"),
        ("number", "nodes.a", "n"),
        ("price", "nodes.a.note", "t"),
        ("price", "nodes.a.amount", "n"),
        ("unknown", "nodes.a", "n"),
        ("unknown", "nodes.a.x", "n"),
        ("list", "nodes.a[0]", "t"),
        ("list", "len(nodes.a)", "n"),
        ("text", "input.maybe", "t"),
        ("text", "input.all", "n"),
    ],
)
def test_a_value_that_may_fit_is_not_complained_of(gives: str, read: str, into: str) -> None:
    nodes = {"a": work(gives, "b"), "b": work("text", **{into: f"${{{read}}}"})}
    assert found(nodes, input={"maybe": {"type": "str", "optional": True}, "all": "any"}) == []


@pytest.mark.parametrize(
    ("condition", "code"), [("input.n", "L132"), ("result", "L132"), ("input.sure", ""), ("nodes.a == 1", "")]
)
def test_a_condition_that_is_a_number_is_told(condition: str, code: str) -> None:
    nodes = {"a": work("number", [{"if": condition, "to": "done"}, {"to": "done"}])}
    assert [one.code for one in found(nodes, input={"n": "int", "sure": "bool"})] == ([code] if code else [])


@pytest.mark.parametrize(("over", "code"), [("input.n", "L123"), ("input.l", ""), ("nodes.a", "L123")])
def test_a_map_over_what_is_no_list_is_told(over: str, code: str) -> None:
    nodes = {"a": work("price", "m"), "m": {"map": {"over": over, "do": "one"}, "next": "done"}}
    told = found(nodes, input={"n": "int", "l": "list"}, graphs={"one": {"nodes": {"z": {"end": 1}}}})
    assert [one.code for one in told] == ([code] if code else [])


def test_what_a_map_gives_each_item_is_computed_with_the_item() -> None:
    one = {"input": {"n": "int", "i": "int"}, "nodes": {"z": {"end": "${input.n + input.i}"}}}
    call = {"over": "[1, 2]", "do": "one", "with": {"n": "${item}", "i": "${index}"}}
    assert found({"m": {"map": call, "next": "done"}}, graphs={"one": one}) == []
    call = {**call, "with": {"n": "${input.who}", "i": 1}}
    (told,) = found({"m": {"map": call, "next": "done"}}, graphs={"one": one}, input={"who": "str"})
    assert (told.code, told.message) == ("L123", "`n` of `one` is int, and `m` gives text")


def test_a_field_of_what_has_no_fields_is_told() -> None:
    nodes = {"a": work("list", "b"), "b": work("text", t="${nodes.a.name}")}
    (told,) = found(nodes)
    assert (told.code, told.message) == ("L126", "the result of `a` is a list, and `b` reads a field of it")


@pytest.mark.parametrize(
    ("field", "advice"),
    [("int", "reduce: add"), ("list", "reduce: extend"), ("any", "reduce: append"), ("bool", "a list with")],
)
def test_the_reducer_that_is_proposed_is_one_that_the_field_can_have(field: str, advice: str) -> None:
    writers = {key: {**work("unknown", "j"), "write": {"x": "${result}"}} for key in "ab"}
    nodes = {"s": {"next": ["a", "b"]}, **writers, "j": {"join": "all", "next": "e"}}
    nodes["e"] = {"next": [{"if": "state.x == 1", "to": "done"}, {"to": "done"}]}
    (told,) = found(nodes, state={"x": field})
    assert told.code == "L120"
    assert advice in told.fix
    reducer = advice.removeprefix("reduce: ")
    assert field == "bool" or found(nodes, state={"x": {"type": field, "reduce": reducer}}) == []


@pytest.mark.parametrize(
    ("field", "value", "ok"),
    [
        ("int", "${state.n + 1}", False),
        ("str", "${state.n + 'x'}", False),
        ({"type": "int", "default": 0}, "${state.n + 1}", True),
        ({"type": "int", "reduce": "add"}, "${state.n + 1}", True),
        ("list", "${state.n + [1]}", True),
        ("int", "${(state.n if state.n != null else 0) + 1}", True),
        ("int", "${input.k}", True),
    ],
)
def test_a_count_that_begins_at_nothing_is_told(field: Any, value: str, ok: bool) -> None:
    nodes = {
        "a": {"set": {"n": value}, "next": "b"},
        "b": {"next": [{"if": "state.n == 3", "to": "done"}, {"to": "done"}]},
    }
    told = found(nodes, state={"n": field}, input={"k": "int"})
    assert [one.code for one in told] == ([] if ok else ["L123"])
    if not ok:
        assert "give it a default" in told[0].fix


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"prompt": "x"}, "prompt"),
        ({"Task": "x"}, "Task"),
        ({"taks": "x"}, "taks"),
        ({"instructions": "x", "rows": [1]}, "instructions"),
        ({"task": "x", "prompt": "y"}, ""),
        ({"question": "x"}, ""),
        ({"input": "x", "rows": [1]}, ""),
    ],
)
def test_a_task_by_another_name_is_told(given: dict[str, Any], named: str) -> None:
    nodes = {"a": {"agent": "r", "with": given, "next": "done"}}
    told = found(nodes, agents={"r": {"model": "m", "instructions": "x"}})
    assert [(one.code, one.message.split("`")[3]) for one in told] == ([("L153", named)] if named else [])
