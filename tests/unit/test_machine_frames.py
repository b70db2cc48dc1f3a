"""Graphs inside graphs: subgraphs and loops; their input and state; and how they are taken away."""

from typing import Any

import pytest

from loom_dsl.agent.run import check_id
from loom_dsl.machine.commands import Failure, StartChild
from loom_dsl.machine.state import MachineState
from loom_dsl.simulation.in_memory import Simulation
from tests.support.simulated import SYSTEM, plan_of, run
from tests.support.tokens import (
    DONE,
    ITEM,
    WAIT,
    Slow,
    begin,
    control,
    ended,
    finish,
    one,
    pass_time,
    plan,
    rest,
    running,
    work,
)

# -- what a graph has before it ------------------------------------------------------------------------

INPUTS: list[tuple[dict[str, Any], Any, Any]] = [
    ({"a": "int"}, {"a": 1}, {"a": 1}),
    ({"a": "float"}, {"a": 1}, {"a": 1}),
    ({"a": "any"}, {"a": None}, {"a": None}),
    ({"a": {"type": "int", "default": 7}}, {}, {"a": 7}),
    ({"a": {"type": "str", "optional": True}}, {}, {"a": None}),
    ({"a": {"type": "str", "optional": True}}, {"a": None}, {"a": None}),
    ({"a": {"type": "list", "default": []}}, None, {"a": []}),
]
WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"a": "int"}, {}, "needs `input.a` (int)"),
    ({"a": "int"}, None, "needs `input.a` (int)"),
    ({"a": "int"}, {"a": "1"}, "`input.a` of `main` is '1', not int"),
    ({"a": "int"}, {"a": True}, "not int"),
    ({"a": "bool"}, {"a": 1}, "not bool"),
    ({"a": "int"}, {"a": 1, "b": 2}, "is given b; its input has a"),
    ({"a": "int"}, [1], "something that is not a mapping"),
]


@pytest.mark.parametrize(("fields", "given", "taken"), INPUTS)
def test_input_is_what_is_declared_with_what_is_left_out(fields: Any, given: Any, taken: Any) -> None:
    assert run(plan({"z": {"end": "${input}"}}, input=fields), input=given).result == taken
    inner = {"input": fields, "nodes": {"z": {"end": "${input}"}}}
    outer = one({"graph": "inner", **({} if given is None else {"with": given})}, {"inner": inner})
    assert rest(begin(outer)).result == taken


@pytest.mark.parametrize(("fields", "given", "message"), WRONG)
def test_input_that_is_not_what_is_declared_fails_at_once(fields: Any, given: Any, message: str) -> None:
    outcome = run(plan({"z": {"end": "${input}"}}, input=fields), input=given)
    assert outcome.failure is not None
    assert outcome.failure.code == "invalid_input"
    assert message in outcome.failure.message


def test_input_of_a_graph_that_does_not_fit_can_be_caught() -> None:
    inner = {"input": {"a": "int"}, "nodes": {"z": DONE}}
    node = {"graph": "inner", "with": {"a": "text"}, "catch": {"expression_error": "caught"}}
    assert rest(begin(one(node, {"inner": inner}))).result == "expression_error"


@pytest.mark.parametrize("given", [{}, [], 0, False, "", {"a": 0}])
@pytest.mark.parametrize("steps", [None, 1])
def test_input_that_is_nothing_is_kept_through_every_run(given: Any, steps: int | None) -> None:
    sim = begin(plan({"a": work("b"), "b": work("z"), "z": {"end": "${input}"}}), input=given, steps_per_run=steps)
    assert rest(sim).result == given


def test_a_graph_has_the_input_around_it_unless_it_is_given_one() -> None:
    inner = {"nodes": {"z": {"end": "${input}"}}}
    assert rest(begin(one({"graph": "inner"}, {"inner": inner}), input={"a": 1})).result == {"a": 1}
    assert rest(begin(one({"graph": "inner", "with": {"b": 2}}, {"inner": inner}), input={"a": 1})).result == {"b": 2}


def test_items_see_their_item_through_graphs_below_them() -> None:
    deep = {"nodes": {"w": work("z"), "z": {"end": "${[item, index, input.by]}"}}}
    each = {"nodes": {"g": {"graph": "deep", "next": "z"}, "z": DONE}}
    node = {"map": {"over": "['x', 'y']", "do": "each", "with": {"by": "${item + str(index)}"}}}
    expected = [["x", 0, "x0"], ["y", 1, "y1"]]
    assert rest(begin(one(node, {"deep": deep, "each": each}))).result == expected


# -- state -----------------------------------------------------------------------------------------------

REDUCERS: list[tuple[dict[str, Any], list[Any], Any]] = [
    ({"type": "any"}, [1, 2], 2),
    ({"type": "list", "reduce": "append"}, [1, [2]], [1, [2]]),
    ({"type": "list", "reduce": "extend"}, [[1], [2, 3]], [1, 2, 3]),
    ({"type": "int", "reduce": "add"}, [1, 2], 3),
    ({"type": "str", "reduce": "add", "default": ">"}, ["a", "b"], ">ab"),
    ({"type": "dict", "reduce": "merge"}, [{"a": 1}, {"a": 2, "b": 3}], {"a": 2, "b": 3}),
    ({"type": "int", "reduce": "min"}, [3, 1, 2], 1),
    ({"type": "int", "reduce": "max", "default": 5}, [3, 1], 5),
    ({"type": "float", "reduce": "max"}, [0.5, 1], 1),
]
MISFITS: list[tuple[dict[str, Any], Any, str]] = [
    ({"type": "int"}, "one", "is of the type int and cannot become 'one'"),
    ({"type": "int"}, True, "is of the type int"),
    ({"type": "bool"}, 1, "is of the type bool"),
    ({"type": "list", "reduce": "extend"}, 1, "cannot extend"),
    ({"type": "dict", "reduce": "merge"}, [1], "cannot merge"),
    ({"type": "int", "reduce": "add"}, "1", "cannot add"),
    ({"type": "int", "reduce": "add"}, True, "cannot add"),
    ({"type": "int", "reduce": "max", "default": 1}, "1", "cannot max"),
]


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize(("field", "values", "left"), REDUCERS)
def test_a_reducer_combines_what_is_written(field: Any, values: Any, left: Any, steps: int | None) -> None:
    nodes: dict[str, Any] = {"z": {"end": "${state.x}"}}
    for number in reversed(range(len(values))):
        follower = f"s{number + 1}" if number + 1 < len(values) else "z"
        nodes = {
            f"s{number}": {"set": {"x": f"${{input[{number}]}}"}, "next": f"w{number}"},
            f"w{number}": work(follower),
            **nodes,
        }
    assert rest(begin(plan(nodes, state={"x": field}), input=values, steps_per_run=steps)).result == left


@pytest.mark.parametrize(("field", "value", "message"), MISFITS)
def test_a_value_that_does_not_fit_a_field_fails_its_node_and_changes_nothing(
    field: Any, value: Any, message: str
) -> None:
    nodes = {
        "s": {"set": {"x": "${input}"}, "catch": {"expression_error": "c"}, "next": "z"},
        "c": {"end": "${[result.message, state.x]}"},
        "z": DONE,
    }
    said, left = run(plan(nodes, state={"x": field}), input=value).result
    assert message in said
    assert left == run(plan({"z": {"end": "${state.x}"}}, state={"x": field})).result


def test_graphs_inside_write_the_state_around_them_unless_they_have_a_field_of_that_name() -> None:
    inner = {
        "state": {"own": {"type": "int", "reduce": "add"}},
        "nodes": {"s": {"set": {"own": 1, "total": 10}, "next": "z"}, "z": {"end": "${state.own}"}},
    }
    state = {"own": {"type": "int", "default": 100}, "total": {"type": "int", "reduce": "add"}}
    node = {"map": {"over": "[1, 2, 3]", "do": "inner"}}
    nodes = {"n": {**node, "next": "z"}, "z": {"end": "${[nodes.n, state]}"}}
    assert run(plan(nodes, graphs={"inner": inner}, state=state)).result == [[1, 1, 1], {"own": 100, "total": 30}]


def test_a_field_that_no_graph_has_fails_the_node_that_writes_it() -> None:
    outcome = run(plan({"s": {"set": {"x": 1}, "next": "z"}, "z": DONE}))
    assert outcome.failure is not None
    assert outcome.failure.message == "`s` writes `x`, which the graph's `state` does not have"


# -- loops -----------------------------------------------------------------------------------------------

LOOPS: list[tuple[dict[str, Any], Any, int]] = [
    ({"until": "result >= 3", "max": 10}, 3, 3),
    ({"until": "true", "max": 10}, 1, 1),
    ({"while": "index < 2", "max": 10}, 2, 2),
    ({"while": "result == null or result < 4", "max": 10}, 4, 4),
    ({"while": "false", "max": 10}, None, 0),
    ({"until": "index == 2", "max": 3}, 3, 3),
]


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize(("spec", "result", "rounds"), LOOPS)
def test_a_loop_goes_round_until_its_condition_says_so(spec: Any, result: Any, rounds: int, steps: int | None) -> None:
    body = {"nodes": {"w": work("z"), "z": {"end": "${get(input, 'from', 0) + index + 1}"}}}
    sim = begin(one({"loop": {"do": "body", **spec}}, {"body": body}), input={}, steps_per_run=steps)
    assert rest(sim).result == result
    assert [at for at in ended(sim) if "/" in at] == [f"n#1[{index}]/w#1" for index in range(rounds)]


def test_a_round_has_the_result_of_the_one_before() -> None:
    body = {"nodes": {"z": {"end": "${(item or 1) * 2}"}}}
    assert rest(begin(one({"loop": {"do": "body", "until": "index == 4", "max": 9}}, {"body": body}))).result == 32


@pytest.mark.parametrize("spec", [{"until": "false"}, {"while": "true"}])
def test_a_loop_that_needs_more_rounds_than_it_may_have_fails(spec: Any) -> None:
    node = {"loop": {"do": "body", "max": 3, **spec}, "catch": {"max_rounds": "caught"}}
    sim = begin(one(node, {"body": {"nodes": {"w": work("z"), "z": DONE}}}))
    assert rest(sim).result == "max_rounds"
    assert len(ended(sim)) == 3


def test_a_round_that_fails_fails_the_loop() -> None:
    body = {"nodes": {"w": {"activity": "fail", "next": "z"}, "z": DONE}}
    node = {"loop": {"do": "body", "until": "false", "max": 3}, "catch": {"broken": "caught"}}
    assert rest(begin(one(node, {"body": body}))).result == "broken"


# -- recursion ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize(("deep", "code"), [(1, None), (9, None), (10, "expression_error")])
def test_a_graph_runs_itself_as_deep_as_it_may(deep: int, code: str | None, steps: int | None) -> None:
    nodes = {
        "s": {"next": [{"if": "input > 0", "to": "w"}, {"to": "z"}]},
        "w": work("again"),
        "again": {"graph": "main", "with": "${input - 1}", "next": "z"},
        "z": {"end": "${input}"},
    }
    outcome = rest(begin(plan(nodes), input=deep, steps_per_run=steps))
    assert (outcome.failure and outcome.failure.code) == code
    if code:
        assert outcome.failure is not None
        assert "stands 10 times inside itself" in outcome.failure.message


# -- taking away ---------------------------------------------------------------------------------------------

NESTED: dict[str, Any] = {
    "inner": {"nodes": {"m": {"map": {"over": "[1, 2]", "do": "item"}, "next": "z"}, "z": DONE}},
    "item": ITEM,
    "wait": WAIT,
}


@pytest.mark.parametrize(
    "node",
    [
        {"graph": "inner"},
        {"map": {"over": "[1, 2]", "do": "inner"}},
        {"loop": {"do": "inner", "until": "true", "max": 3}},
        {"activity": "name"},
        {"graph": "wait"},
        {"event": "go"},
    ],
)
@pytest.mark.parametrize("slowly", [False, True])
def test_a_deadline_takes_away_all_that_a_node_runs(node: dict[str, Any], slowly: bool) -> None:
    given = one({**node, "deadline": {"after": "90s", "to": "caught"}}, NESTED)
    sim = Slow(given) if slowly else begin(given)
    pass_time(sim)
    assert sim.now == 1_700_000_090.0
    for at in list(getattr(sim, "cancelled", ())):
        assert not sim.outcome.over
        sim.report(at)  # type: ignore[attr-defined]
    assert rest(sim).result == "deadline"
    assert [key for key in sim.machine.state.frames if key] == []


@pytest.mark.parametrize("node", [{"graph": "inner"}, {"map": {"over": "[1]", "do": "inner"}}])
def test_a_deadline_that_is_kept_does_nothing(node: dict[str, Any]) -> None:
    sim = begin(one({**node, "deadline": {"after": "90s", "to": "caught"}}, NESTED))
    finish(sim, "w", "w")
    assert sim.timers == {}
    assert rest(sim).failure is None


def test_a_graph_that_ends_early_waits_for_what_it_cancels() -> None:
    inner = {
        "nodes": {
            "fork": {"next": ["a", "m"]},
            "a": work("stop"),
            "m": {"map": {"over": "[1, 2]", "do": "item"}, "next": "stop"},
            "stop": {"end": "early", "terminate": True},
        }
    }
    sim = Slow(one({"graph": "inner"}, {**NESTED, "inner": inner}))
    finish(sim, "a")
    assert running(sim) == ["n#1[0]/m#1[0]/w#1", "n#1[0]/m#1[1]/w#1"]
    sim.report("n#1[0]/m#1[0]/w#1")
    assert "after#1" not in running(sim)
    sim.report("n#1[0]/m#1[1]/w#1", done=True)
    assert rest(sim).result == "early"


def test_a_race_in_a_graph_may_be_won_while_the_loser_only_waits() -> None:
    inner = {
        "nodes": {
            "r": {"race": ["a", "b"]},
            "a": work("z"),
            "b": {"graph": "wait", "next": "z"},
            "z": DONE,
        }
    }
    sim = begin(one({"graph": "inner"}, {**NESTED, "inner": inner}))
    finish(sim, "a")
    assert rest(sim).result == "a"


@pytest.mark.parametrize("op", ["abort", "fail"])
def test_whatever_runs_at_whatever_depth_is_cancelled_at_the_end(op: str) -> None:
    nodes = {
        "fork": {"next": ["n", "x"]},
        "n": {"map": {"over": "[1, 2]", "do": "inner"}, "next": "z"},
        "x": work("bad"),
        "bad": {"fail": {"code": "bad", "message": "bad"}},
        "z": DONE,
    }
    sim = Slow(plan(nodes, graphs=NESTED))
    control(sim, "abort") if op == "abort" else finish(sim, "x")
    assert len(sim.cancelled) == (5 if op == "abort" else 4)
    for at in list(sim.cancelled):
        assert not sim.outcome.over
        sim.report(at)
    assert rest(sim).failure == (None if op == "abort" else Failure(code="bad", message="bad"))


@pytest.mark.parametrize("job", ["job", "j" * 150])
def test_a_job_deep_below_a_job_with_a_long_id_has_an_id_of_its_own(job: str) -> None:
    inner: dict[str, Any] = {"split": {"next": ["one", "two"]}, "done": {"end": None}}
    inner |= {name: {"graph": "leaf", "child": True, "next": "done"} for name in ("one", "two")}
    graphs: dict[str, Any] = {"g0": inner, "leaf": {"done": {"end": None}}}
    for number in range(1, 12):
        graphs[f"g{number}"] = {"in": {"graph": f"g{number - 1}", "next": "done"}, "done": {"end": None}}
    whole = plan_of({"top": {"graph": "g11", "next": "done"}, "done": {"end": None}}, **graphs)
    ids = [
        work.child for work in Simulation(whole, MachineState(), SYSTEM, job=job).work if isinstance(work, StartChild)
    ]
    assert len(set(ids)) == 2
    for name in ids:
        check_id("job", f"s-{name}")
        assert name.startswith(f"{job}.")
    if job == "job":
        assert ids[0] == "job.top.1.0" + ".in.1.0" * 11 + ".one.1"
