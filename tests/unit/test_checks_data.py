"""What expressions read, what nodes write, and what graphs are given is known before anything runs."""

import json
from typing import Any

import pytest

from loom_dsl.errors import Diagnostic
from loom_dsl.graph.checks.slots import Reference, read, type_of_text
from loom_dsl.graph.compiler import check_text

DONE: dict[str, Any] = {"end": None}


def found(nodes: dict[str, Any], **head: Any) -> list[Diagnostic]:
    document = {"loom": 1, "kind": "graph", "name": "g", **head, "nodes": {**nodes, "done": DONE}}
    return [finding for finding in check_text(json.dumps(document), "g.yaml")]


def codes(nodes: dict[str, Any], **head: Any) -> list[str]:
    return [finding.code for finding in found(nodes, **head)]


def work(to: Any = "done", **more: Any) -> dict[str, Any]:
    return {"activity": "a.work", "next": to, **more}


def reads(expression: str, **more: Any) -> dict[str, Any]:
    return work(**{"with": {"x": f"${{{expression}}}"}, **more})


# -- references ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("input.x", ""),
        ("input.y", "there is no `input.y` (the fields of `input` are x)"),
        ("input['y']", "there is no `input.y`"),
        ("get(input, 'y')", "there is no `input.y`"),
        ("input", ""),
        ("[i for i in input.x if i > 1]", ""),
        ("[input for input in run.remembered]", ""),
        ("run.job", "there is no `run.job` (the fields of `run` are id, now, aborted"),
        ("get(run, 'idd')", "there is no `run.idd` (did you mean `id`?)"),
        ("state.n", ""),
        ("state.m", "there is no `state.m` (the fields of `state` are n)"),
        ("[s for s in state.m]", "there is no `state.m`"),
        ("nodes.nowhere", "there is no node `nowhere` in this graph"),
        ("nodes.done", "`done` is of the kind `end` and has no result"),
        ("item", "`item` has no value here"),
        ("index + 1", "`index` has no value here"),
        ("turn.counter", "only the graph of an agent has turns"),
        ("limits.max_iterations", "only the graph of an agent has turns"),
        ("event.data", "the data of an event is the result of its node"),
        ("run.now", ""),
        ("result", ""),
    ],
)
def test_what_an_expression_reads_is_there(expression: str, message: str) -> None:
    state = {"n": {"type": "int", "default": 1}}
    use = {"first": reads("[input.x, state.n]", next="look"), "look": reads(expression)}
    told = found(use, input={"x": "any"}, state=state)
    assert [finding.code for finding in told] == (["L121"] if message else [])
    assert message in "".join(map(str, told))


def test_a_graph_with_turns_reads_its_turn_and_writes_it() -> None:
    nodes = {"a": reads("turn.counter", next="again", write={"entries": 3}), "again": {"recurse": {}}}
    assert (
        codes({**nodes, "a": {**nodes["a"], "next": [{"if": "turn.counter > 3", "to": "done"}, {"to": "again"}]}}) == []
    )
    wrong = {**nodes, "a": {**reads("turn.nothing", write={"entrys": 3}), "next": ["again", "done"]}}
    assert codes(wrong) == ["L121", "L121"]


@pytest.mark.parametrize(
    ("call", "ok"),
    [
        ({"map": {"over": "input.list", "do": "inner"}}, True),
        ({"loop": {"do": "inner", "until": "result", "max": 3}}, True),
        ({"graph": "inner"}, False),
    ],
)
def test_items_are_known_only_inside_maps_and_loops(call: dict[str, Any], ok: bool) -> None:
    inner = {"nodes": {"a": reads("item", next="b"), "b": {"end": "${index}"}}}
    told = codes({"call": {**call, "next": "done"}}, input={"list": "list"}, graphs={"inner": inner})
    assert told == ([] if ok else ["L121", "L121"])


def test_a_graph_inside_reads_the_input_that_it_is_given() -> None:
    inner = {"nodes": {"a": reads("input.x", next="b"), "b": DONE}}
    given = {"call": {"graph": "inner", "with": {"x": 1}, "next": "done"}}
    assert codes(given, graphs={"inner": inner}) == []
    assert codes({"call": {**given["call"], "with": {"y": 1}}}, graphs={"inner": inner}) == ["L121"]
    assert codes({"call": {"graph": "inner", "next": "done"}}, input={"x": "any"}, graphs={"inner": inner}) == []


def test_a_graph_inside_sees_the_state_around_it_unless_it_has_its_own() -> None:
    inner: dict[str, Any] = {"nodes": {"a": {"set": {"n": 1}, "next": "b"}, "b": {"end": "${state.n}"}}}
    call = {"call": {"graph": "inner", "next": "done"}}
    assert codes(call, state={"n": "int"}, graphs={"inner": inner}) == []
    own = {**inner, "state": {"k": "int"}}
    told = codes(call, state={"n": "int"}, graphs={"inner": own})
    assert sorted(told) == ["L121", "L124"]  # it can write `n`, but reads only its own


# -- results that may not be there -----------------------------------------------------------------------

BOTH = {
    "both": {"next": ["a", "b"]},
    "a": work("meet"),
    "b": work("meet"),
    "meet": {"join": "all", "next": "look"},
    "look": reads("nodes.a"),
}


@pytest.mark.parametrize(
    ("nodes", "sure"),
    [
        ({"a": work("look"), "look": reads("nodes.a")}, True),
        (BOTH, True),
        ({**BOTH, "meet": {"join": {"need": 1}, "next": "look"}}, False),
        ({**BOTH, "meet": {"join": "taken", "next": "look"}}, False),
        ({**BOTH, "b": reads("nodes.a", next="meet")}, False),
        ({"a": work("look", catch={"any": "look"}), "look": reads("nodes.a")}, False),
        ({"a": work("look", catch={"any": "done"}), "look": reads("nodes.a")}, True),
        ({"a": work("look", deadline={"after": "1h", "to": "look"}), "look": reads("nodes.a")}, False),
        (
            {
                "a": {"approval": "?", "deadline": {"after": "1h", "to": "look"}, "next": "look"},
                "look": reads("nodes.a"),
            },
            True,
        ),
        ({"a": reads("nodes.a")}, False),
        ({"a": work([{"if": "nodes.a.ok", "to": "done"}, {"to": "look"}]), "look": reads("result")}, True),
        ({"a": work(write={"n": "${nodes.a}"})}, True),
        (
            {
                "a": work("look", max_visits=2, exhausted="look"),
                "look": work([{"if": "nodes.a.ok", "to": "a"}, {"to": "done"}]),
            },
            False,
        ),
        (
            {
                "x": {"next": [{"if": "run.aborted", "to": "a"}, {"to": "look"}]},
                "a": work("look"),
                "look": reads("nodes.a"),
            },
            False,
        ),
        (
            {
                "x": {"next": [{"if": "run.aborted", "to": "a"}, {"to": "look"}]},
                "a": work("look"),
                "look": reads("get(nodes, 'a', {})"),
            },
            True,
        ),
        (
            {
                "x": {"next": [{"if": "run.aborted", "to": "a"}, {"to": "look"}]},
                "a": work("look"),
                "look": reads("nodes.a.ok if has(nodes, 'a') else null"),
            },
            True,
        ),
        (
            {
                "x": {"next": [{"if": "run.aborted", "to": "a"}, {"to": "look"}]},
                "a": work("look"),
                "look": reads("nodes.a.ok if has(nodes.a, 'ok') else null"),
            },
            False,
        ),
    ],
)
def test_a_result_is_read_only_where_it_is_sure(nodes: dict[str, Any], sure: bool) -> None:
    state = {"n": "any"}
    told = [finding.code for finding in found(nodes, state=state) if finding.code != "L124"]
    assert told == ([] if sure else ["L122"])


def test_a_way_that_begins_with_an_abort_has_no_results() -> None:
    nodes = {"a": work(), "gone": reads("nodes.a")}
    assert codes(nodes, on_abort="gone") == ["L122"]


# -- types -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "ok"),
    [
        ("int", 3, True),
        ("int", 3.5, False),
        ("int", True, False),
        ("float", 3, True),
        ("str", "x", True),
        ("str", "n=${len(run.id)}", True),
        ("str", "${len(run.id)}", False),
        ("int", "${len(run.id)}", True),
        ("int", "${len(run.id) + 1}", True),
        ("bool", "${run.now > 3}", True),
        ("str", "${run.now > 3}", False),
        ("list", "${[1, 2]}", True),
        ("dict", "${[1, 2]}", False),
        ("list", "${run.id}", True),
        ("any", {}, True),
        ("int", None, True),
        ({"type": "list", "reduce": "append"}, 3, True),
        ({"type": "list", "reduce": "extend"}, 3, False),
        ({"type": "list", "reduce": "extend"}, [3], True),
        ({"type": "int", "reduce": "add"}, "x", False),
        ({"type": "dict", "reduce": "merge"}, [], False),
        ({"type": "float", "reduce": "max"}, 3, True),
    ],
)
def test_a_written_value_is_of_the_type_of_its_field(field: Any, value: Any, ok: bool) -> None:
    told = codes({"a": {"set": {"f": value}, "next": "b"}, "b": {"end": "${state.f}"}, "c": DONE}, state={"f": field})
    assert [code for code in told if code != "L104"] == ([] if ok else ["L123"])


@pytest.mark.parametrize(
    ("group", "field", "ok"),
    [
        ("input", {"type": "int", "default": 3}, True),
        ("input", {"type": "int", "default": "3"}, False),
        ("input", {"type": "str", "default": "${x}"}, True),
        ("state", {"type": "list", "default": {}}, False),
        ("state", {"type": "str", "reduce": "extend"}, False),
        ("state", {"type": "int", "reduce": "merge"}, False),
        ("state", {"type": "list", "reduce": "append"}, True),
    ],
)
def test_a_default_and_a_reducer_fit_the_type(group: str, field: dict[str, Any], ok: bool) -> None:
    assert codes({"a": reads(f"{group}.f")}, **{group: {"f": field}}) == ([] if ok else ["L123"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": 1}, ""),
        ({"x": "${run.now}", "y": "t"}, ""),
        ({"x": 1, "z": 2}, "`call` gives `z`, which the input of `inner` does not have"),
        ({"y": "t"}, "`call` runs `inner` without `x`"),
        ({"x": "one"}, "`x` of `inner` is int, and `call` gives 'one' (text)"),
        ({"x": None}, "`x` of `inner` is int, and `call` gives null (null)"),
        (None, "`call` runs `inner` without `x`"),
    ],
)
def test_a_graph_is_given_what_its_input_declares(given: Any, message: str) -> None:
    inner = {
        "input": {"x": "int", "y": {"type": "str", "optional": True}},
        "nodes": {"a": {"end": "${[input.x, input.y]}"}},
    }
    call = {"graph": "inner", "next": "done", **({"with": given} if given is not None else {})}
    told = found({"call": call}, graphs={"inner": inner})
    assert [finding.code for finding in told] == (["L123"] if message else [])
    assert message in "".join(map(str, told))


# -- parallel writers ------------------------------------------------------------------------------------


def writers(join: Any, **more: Any) -> dict[str, Any]:
    nodes = {
        "both": {"next": ["a", "b"]},
        "a": work("meet", write={"f": "${result}"}),
        "b": work("meet"),
        "meet": {"join": join, "next": "look"},
        "look": reads("state.f", write={"f": "${result}"}),
    }
    return {**nodes, **more}


@pytest.mark.parametrize(
    ("nodes", "ok"),
    [
        (writers("all"), True),
        (writers("taken"), True),
        (writers({"need": 1}), False),
        (writers({"need": 1, "rest": "cancel"}), True),
        (writers("all", b=work("meet", write={"f": 1})), False),
        (writers("all", b={"set": {"f": 1}, "next": "meet"}), False),
        (writers("all", both={"next": [{"if": "run.aborted", "to": "a"}, {"to": "b"}]}, meet={"next": "look"}), True),
        (writers("all", both={"next": {"times": 3, "to": "a"}}, meet={"join": {"threads": 3}, "next": "look"}), False),
    ],
)
def test_parallel_writers_need_a_reducer(nodes: dict[str, Any], ok: bool) -> None:
    def told(**field: Any) -> set[str]:
        return set(codes(nodes, state={"f": {"type": "any", **field}})) - {"L104"}

    assert told() == (set() if ok else {"L120"})
    assert told(reduce="append") == set()


def test_items_of_a_map_that_write_a_field_around_it_need_a_reducer() -> None:
    inner = {"nodes": {"a": work("b", write={"f": "${result}"}), "b": DONE}}
    call = {"map": {"over": "input.list", "do": "inner"}, "next": "look"}
    head = {"input": {"list": "list"}, "graphs": {"inner": inner}}
    nodes = {"call": call, "look": reads("state.f")}
    assert codes(nodes, state={"f": "any"}, **head) == ["L120"]
    assert codes(nodes, state={"f": {"type": "list", "reduce": "append"}}, **head) == []
    one = {**nodes, "call": {**call, "map": {**call["map"], "window": 1}}}  # type: ignore[dict-item]
    assert codes(one, state={"f": "any"}, **head) == []


# -- what is never used ------------------------------------------------------------------------------------


def test_graphs_agents_and_answers_that_nothing_uses_are_told() -> None:
    lost = {"nodes": {"a": DONE}}
    agent = {"model": "m"}
    llm = {"llm": {"model": "m", "prompt": "Hello"}, "next": "done"}
    assert codes({"say": llm}, graphs={"lost": lost}, agents={"nobody": agent}) == ["L124", "L124", "L124"]
    assert codes({"say": {**llm, "next": "use"}, "use": reads("result.text")}) == []
    assert codes({"say": {**llm, "next": "go"}, "go": {"next": "use"}, "use": reads("nodes.say.text")}) == []


# -- reading an expression -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "paths", "type_name"),
    [
        ("nodes.a.b", [("nodes", "a", "b")], None),
        ("nodes['a'].b[0].c", [("nodes", "a", "b")], None),
        ("nodes[input.n].x", [("nodes",), ("input", "n")], None),
        ("len(state.x) + 1", [("state", "x")], "number"),
        ("'a' + input.x", [("input", "x")], "str"),
        ("input.a and input.b", [("input", "a"), ("input", "b")], None),
        ("not input.a", [("input", "a")], "bool"),
        ("1 if input.a else 2", [("input", "a")], "int"),
        ("1 if input.a else 'x'", [("input", "a")], None),
        ("true", [], "bool"),
        ("{'a': item}", [("item",)], "dict"),
        ("[nodes.x for nodes in input.l]", [("input", "l")], "list"),
    ],
)
def test_the_paths_and_the_type_of_an_expression_are_read(source: str, paths: list[Any], type_name: str | None) -> None:
    reading = read(source)
    assert [reference.path for reference in reading.references] == paths
    assert reading.type == type_name


def test_what_an_expression_asks_for_itself_is_soft() -> None:
    assert read("get(nodes, 'a')").references == (Reference(("nodes", "a"), soft=True),)
    assert all(reference.soft for reference in read("has(nodes, 'a') and nodes.a.ok").references)
    assert not any(reference.soft for reference in read("get(nodes.a, input.k)").references)


@pytest.mark.parametrize(
    ("text", "type_name"),
    [("plain", "str"), ("${1 + 2}", "number"), ("${1}${2}", "str"), ("${input}", None), ("${", "str"), ("", "str")],
)
def test_the_type_of_a_text_is_that_of_its_expression(text: str, type_name: str | None) -> None:
    assert type_of_text(text) == type_name
