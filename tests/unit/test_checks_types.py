"""Of which type a value is that a node reads from elsewhere is known before anything runs."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from loom_dsl.errors import Diagnostic, ExpressionError
from loom_dsl.expr.expression import compile_expression
from loom_dsl.graph.checks.unit import Contract
from loom_dsl.graph.compiler import check_text

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
    assert (told.code, told.message) == ("L126", "`nodes.a` is a list, and `b` reads the field `name` of it")


@pytest.mark.parametrize(
    ("field", "advice"),
    [("int", "reduce: add"), ("list", "reduce: extend"), ("any", "reduce: append"), ("bool", "a list with")],
)
def test_the_reducer_that_is_proposed_is_one_that_the_field_can_have(field: str, advice: str) -> None:
    writers = {key: {**work("unknown", "j"), "write": {"x": "${result}"}} for key in "ab"}
    nodes = {"s": {"next": ["a", "b"]}, **writers, "j": {"join": "all", "next": "e"}}
    nodes["e"] = {"next": [{"if": "state.x == null", "to": "done"}, {"to": "done"}]}
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
        "b": {"next": [{"if": "state.n == null", "to": "done"}, {"to": "done"}]},
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


FIELDS: dict[str, Any] = {"who": "str", "n": "int", "l": "list", "d": "dict", "yes": "bool", "all": "any"}
STATE: dict[str, Any] = {"note": "str", "seen": {"type": "list", "default": []}}


VALUES: dict[str, Any] = {
    "input": {"who": "Ada", "n": 3, "l": [{"name": "x"}], "d": {"x": 1}, "yes": True, "all": {"x": {"y": 1}}},
    "state": {"note": "x", "seen": []},
    "nodes": {
        "price": {"amount": 1.5, "note": "n"},
        "text": "some",
        "judge": {"answer": "good", "usage": {"tokens": 1}},
        "met": {"judge": {"answer": "good"}, "other": "some"},
    },
}


def computed(expression: str) -> list[Diagnostic]:
    """What is told of an expression that reads inputs, state and the results of functions, an agent and a join."""
    nodes = {
        "price": {**work("price", "text"), "write": {"note": "x", "seen": []}},
        "text": work("text", "both"),
        "both": {"next": ["judge", "other"]},
        "judge": {"agent": "r", "with": {"task": "x"}, "next": "met"},
        "other": work("text", "met"),
        "met": {"join": "all", "next": "use"},
        "use": {**work("unknown"), "with": {"x": f"${{{expression}}}", "y": "${state.note}${state.seen}"}},
    }
    return found(nodes, input=FIELDS, state=STATE, agents={"r": {"model": "m", "instructions": "x"}})


@pytest.mark.parametrize(
    ("expression", "code", "said"),
    [
        ("nodes.text.length", "L126", "`nodes.text` is text, and `use` reads the field `length` of it"),
        ("nodes.price.note.x", "L126", "`nodes.price.note` is text or null, and `use` reads the field `x`"),
        ("nodes.price['note']['x']", "L126", "is text or null, and `use` reads the field `x`"),
        ("nodes.judge.answer.text", "L126", "`nodes.judge.answer` is text"),
        ("nodes.met.other.text", "L126", "`nodes.met.other` is text"),
        ("input.who.name", "L126", "`input.who` is text"),
        ("state.note.name", "L126", "`state.note` is text or null"),
        ("upper(input.who).name", "L126", "`upper(input.who)` is text"),
        ("input.n[0]", "L126", "`input.n` is a number, which has no items"),
        ("nodes.text + 1", "L123", "`nodes.text + 1` computes with text and a number, which always fails"),
        ("input.n + ' items'", "L123", "computes with a number and text"),
        ("nodes.price.amount + nodes.judge.answer", "L123", "computes with a number and text"),
        ("input.who * 2", "L123", "computes with text and a number"),
        ("input.l + input.who", "L123", "computes with a list and text"),
        ("input.yes + 1", "L123", "computes with true or false and a number"),
        ("[x + 1 for x in input.l] + 'x'", "L123", "computes with a list and text"),
        ("len(input.who) > '3'", "L123", "compares a number with text, which always fails"),
        ("input.d < 3", "L123", "compares an object with a number, which always fails"),
        ("input.n in input.n", "L123", "looks into a number, which always fails"),
        ("[x for x in input.who]", "L123", "`input.who` is text, and a list is made from the items of a list"),
        ("[x for x in input.d]", "L123", "`input.d` is an object"),
        ("input.n == '3'", "L131", "compares a number with text, so it is always the same"),
        ("nodes.judge.answer != 1", "L131", "compares text with a number, so it is always the same"),
    ],
)
def test_what_cannot_be_computed_with_these_types_is_told(expression: str, code: str, said: str) -> None:
    (told,) = computed(expression)
    assert (told.code, said in told.message) == (code, True), told
    if code != "L131":
        with pytest.raises(ExpressionError):
            compile_expression(expression).evaluate(VALUES)


@pytest.mark.parametrize(
    "expression",
    [
        "len(nodes.text)",
        "nodes.price.note",
        "nodes.price.amount + 1",
        "nodes.judge.usage.tokens",
        "nodes.judge.answer[:20] + input.who",
        "nodes.met.judge.answer",
        "input.all.x.y + 1",
        "input.d.x + 1",
        "input.l[0].name",
        "[x.name for x in input.l]",
        "[input.name for input in input.l]",
        "(input.n if input.yes else input.who) == 'x'",
        "(input.n or 2) / 3",
        "input.n + 1.5",
        "input.l + [1]",
        "state.note == null",
        "state.note + 'x'",
        "input.yes < 2",
        "'a' in input.d",
        "get(nodes.text, 'x', 1) + 1",
        "nodes.text.x if has(nodes.text, 'x') else 0",
        "str(input.n) + input.who",
        "int(input.who) + 1",
        "max(input.n, 2) + 1",
    ],
)
def test_what_may_be_computed_is_not_complained_of(expression: str) -> None:
    assert computed(expression) == []
    compile_expression(expression).evaluate({**VALUES, "input": {**VALUES["input"], "who": "12"}})


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ("input.who.length", "write `len(input.who)`"),
        ("input.l.size", "write `len(input.l)`"),
        ("input.l.name", "read `input.l` itself, or an item of it"),
        ("input.n + 'x'", "write str(…) around what is no text"),
        ("input.who - 1", "compute with numbers, such as int(…) gives"),
        ("[x for x in input.d]", "write keys(…), values(…) or items(…)"),
    ],
)
def test_what_to_write_instead_is_said(expression: str, fix: str) -> None:
    assert [told.fix for told in computed(expression)] == [fix]


@pytest.mark.parametrize(
    ("need", "fix"),
    [
        ("len(input.l) / 2", "divide with `//`"),
        ("input.who", "give it a whole number, such as len(…)"),
        ("len(input.l) // 2", ""),
        ("input.n - 1", ""),
        ("input.all", ""),
    ],
)
def test_a_count_is_a_whole_number(need: str, fix: str) -> None:
    call = {"over": "input.l", "do": "one", "need": f"${{{need}}}"}
    told = found({"m": {"map": call, "next": "done"}}, input=FIELDS, graphs={"one": {"nodes": {"z": {"end": 1}}}})
    assert [(one.code, one.fix) for one in told] == ([("L123", fix)] if fix else [])


@pytest.mark.parametrize(
    ("node", "read", "code"),
    [
        ({"graph": "part"}, "nodes.a.size + 'x'", "L123"),
        ({"graph": "part"}, "nodes.a.deep.word + 1", "L123"),
        ({"graph": "part"}, "nodes.a.deep.word.length", "L126"),
        ({"graph": "part"}, "nodes.a.text.length", "L126"),
        ({"graph": "part"}, "nodes.a + 1", "L123"),
        ({"graph": "part"}, "nodes.a.size + 1", ""),
        ({"graph": "part"}, "nodes.a.some + 1", ""),
        ({"graph": "two"}, "nodes.a.v + 1", ""),
        ({"graph": "two"}, "nodes.a.v.x", "L126"),
        ({"loop": {"do": "part", "until": "result.size > 2", "max": 3}}, "nodes.a.size + 'x'", "L123"),
        ({"loop": {"do": "part", "while": "index < 2", "max": 3}}, "nodes.a == null", ""),
        ({"loop": {"do": "part", "until": "index == 2", "max": 3}}, "nodes.a == null", "L131"),
        ({"set": {"s": "x${input.n}"}}, "nodes.a.s + 1", "L123"),
        ({"set": {"s": "x"}}, "nodes.a.s + 'y'", ""),
        ({"graph": "again"}, "nodes.a.x.y", ""),
    ],
)
def test_what_the_ends_of_a_graph_give_has_types(node: dict[str, Any], read: str, code: str) -> None:
    end = {"size": 1, "deep": {"word": "${upper('x')}"}, "text": "${nodes.w}", "some": "${input.all}"}
    graphs = {
        "part": {"input": {"all": "any"}, "nodes": {"w": work("text", "z"), "z": {"end": end}}},
        "two": {
            "input": {"n": "int"},
            "nodes": {
                "c": {"next": [{"if": "input.n > 1", "to": "y"}, {"to": "z"}]},
                "y": {"end": {"v": 1}},
                "z": {"end": {"v": "x"}},
            },
        },
        "again": {
            "input": {"n": "int"},
            "nodes": {
                "c": {"next": [{"if": "input.n > 1", "to": "z"}, {"to": "more"}]},
                "more": {"graph": "again", "with": {"n": 2}, "next": "y"},
                "y": {"end": "${nodes.more}"},
                "z": {"end": {"x": {"y": 1}}},
            },
        },
    }
    used = {name: graph for name, graph in graphs.items() if name in json.dumps(node)}
    nodes = {"a": {**node, "next": "b"}, "b": {"activity": "a:unknown", "with": {"x": f"${{{read}}}"}, "next": "done"}}
    state = {"state": {"s": "str"}} if "set" in node else {}
    told = found(nodes, input={"n": "int", "all": "any"}, graphs=used, **state)
    assert [one.code for one in told if one.code != "L124"] == ([code] if code else [])


def test_ends_that_cannot_be_read_may_give_anything() -> None:
    part = {"nodes": {"c": {"next": ["y", "z"]}, "y": {"end": {"v": 1}}, "z": {"end": {"v": "x"}, "mistake": 1}}}
    nodes = {"a": {"graph": "part", "next": "b"}, "b": {**work("unknown"), "with": {"x": "${nodes.a.v + 'x'}"}}}
    assert [one.code for one in found(nodes, graphs={"part": part})] == ["L002"]


def test_results_that_are_made_of_one_another_are_looked_at_once() -> None:
    """Two nodes in a circle, a chain of a thousand, and graphs in graphs with two ends each: all come to an end."""
    again = [{"if": "state.s == 1", "to": "c"}, {"to": "done"}]
    circle: dict[str, Any] = {
        "c": {"set": {"s": "${nodes.d.s}"}, "next": "d"},
        "d": {"set": {"s": "${nodes.c.s}"}, "max_visits": 2, "next": again},
    }
    assert [one.code for one in found(circle, state={"s": "any"})] == ["L122"]
    chain: dict[str, Any] = {"n0": {"set": {"s": "x"}, "next": "n1"}}
    chain |= {f"n{i}": {"set": {"s": f"${{nodes.n{i - 1}.s}}"}, "next": f"n{i + 1}"} for i in range(1, 1000)}
    chain["n1000"] = {"next": [{"if": "state.s + nodes.n999.s == 'x'", "to": "done"}, {"to": "done"}]}
    assert found(chain, state={"s": "any"}) == []
    graphs: dict[str, Any] = {}
    for i in range(60):
        inner = {"graph": f"g{i + 1}", "next": "c"} if i < 59 else work("unknown", "c")
        ends = {"y": {"end": {"v": "${nodes.a.v}"}}, "z": {"end": {"v": "${nodes.a.v}"}}}
        choice = {"c": {"next": [{"if": "run.aborted", "to": "y"}, {"to": "z"}]}}
        graphs[f"g{i}"] = {"nodes": {"a": inner, **choice, **ends}}
    nodes = {"a": {"graph": "g0", "next": "b"}, "b": {**work("unknown"), "with": {"x": "${nodes.a.v + 'x'}"}}}
    assert found(nodes, graphs=graphs) == []
