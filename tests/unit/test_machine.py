"""The machine interprets every kind of node, and neither continue-as-new nor the order of results shows."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.agent.turn import TurnState
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from loom_dsl.machine import interpreter
from loom_dsl.machine.commands import (
    ActivityDone,
    ActivityFailed,
    Command,
    Drain,
    Drained,
    Failure,
    Finish,
    GoOn,
    Input,
    Proceed,
    RunActivity,
    Started,
    StartTimer,
    TimerFired,
    TurnEnded,
    Yielded,
)
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.state import MachineState, Token, natural
from loom_dsl.machine.tokens.deadlines import seconds_of
from loom_dsl.simulation.in_memory import Simulation
from tests.support.simulated import (
    JOB,
    SYSTEM,
    approvals,
    by_branch,
    chance,
    check_state,
    decision,
    drawn,
    drive,
    echo,
    of_type,
    plan_of,
    run,
    simulate,
)

DONE = {"end": "${nodes}"}
NOW = 1_000_000.0


def outputs(nodes: dict[str, Any], **how: Any) -> Any:
    """What each node of a graph gave."""
    others = {key: how.pop(key) for key in list(how) if key in ("inner", "innermost", "on_abort")}
    return run(plan_of({**nodes, "done": DONE}, **others), **how).result


def failure(nodes: dict[str, Any], **how: Any) -> tuple[str, str]:
    others = {key: how.pop(key) for key in list(how) if key in ("inner", "innermost", "on_abort")}
    found = run(plan_of(nodes, **others), **how).failure
    assert found is not None
    return found.code, found.message


class Driven:
    """A machine that is fed by hand, with everything that it commanded."""

    def __init__(self, plan: Plan, state: MachineState | None = None) -> None:
        self.machine = Machine(plan, state or MachineState(), JOB)
        self.commands: list[Command] = []
        self.now = NOW
        self.feed(Started(now=NOW))

    def feed(self, happened: Input) -> list[Command]:
        fresh = self.machine.feed(happened)
        self.commands += fresh
        return fresh

    def done(self, at: str, result: Any = None) -> list[Command]:
        return self.feed(ActivityDone(now=self.now, at=at, result=result))

    def failed(self, at: str, code: str = "broken") -> list[Command]:
        return self.feed(ActivityFailed(now=self.now, at=at, code=code, message="it broke"))

    def issued(self) -> list[str]:
        return [c.at for c in self.commands if isinstance(c, RunActivity) and not c.at.startswith("~")]

    def store(self) -> None:
        """Finish what belongs to no token, such as flushes."""
        while self.machine.side_work:
            for at in list(self.machine.side_work):
                self.done(at)

    def again(self) -> "Driven":
        raw = json.loads(json.dumps(self.machine.state.to_json()))
        return Driven(self.machine.plan, MachineState.from_json(raw))


# -- one kind of node after the other ----------------------------------------------------------------------------------


def test_an_activity_gets_its_mapped_arguments_and_its_result_is_kept() -> None:
    nodes = {
        "a": {"activity": "echo", "with": {"n": "${input.n}", "text": "n is ${input.n}"}, "next": "b"},
        "b": {"activity": "echo", "with": {"before": "${result.n}", "first": "${nodes.a.text}"}, "next": "done"},
    }
    assert outputs(nodes, input={"n": 3}) == {
        "a": {"n": 3, "text": "n is 3"},
        "b": {"before": 3, "first": "n is 3"},
    }


def test_an_activity_is_commanded_as_its_node_says() -> None:
    node = {
        "activity": "echo",
        "carrier": "${input.carrier}",
        "timeout": "${input.timeout}",
        "heartbeat": "5s",
        "retry": {"attempts": 7, "initial": "2s", "backoff": 3, "longest": "1m"},
        "next": "done",
    }
    plan = plan_of({"a": node, "done": DONE})
    driven = Driven(plan, MachineState(input={"carrier": "local", "timeout": "1m30s"}))
    (command,) = [c for c in driven.commands if isinstance(c, RunActivity)]
    assert (command.at, command.activity, command.carrier) == ("a#1", "echo", "local")
    assert (command.timeout, command.heartbeat, command.retry) == (90.0, 5.0, (7, 2.0, 3.0, 60.0))


def test_a_branch_takes_the_first_way_that_is_open_and_keeps_the_result() -> None:
    nodes = {
        "a": {"activity": "echo", "with": {"n": "${input.n}"}, "next": "choose"},
        "choose": {"next": [{"if": "result.n > 2", "to": "more"}, {"if": "result.n > 1", "to": "some"}, {"to": "few"}]},
        "more": {"end": "more than ${result.n - 1}"},
        "some": {"end": "some"},
        "few": {"end": "few"},
    }
    assert [run(plan_of(nodes), input={"n": n}).result for n in (3, 2, 1)] == ["more than 2", "some", "few"]


def test_a_map_gives_the_results_in_the_order_of_its_items() -> None:
    nodes = {
        "each": {"map": {"over": "input", "do": "inner"}, "next": "done"},
    }
    inner = {"a": {"activity": "echo", "with": {"item": "${item}", "index": "${index}"}, "next": "z"},
             "z": {"end": "${nodes.a.item * 10 + index}"}}  # fmt: skip
    for pick in range(6):
        sim = simulate(plan_of({**nodes, "done": DONE}, inner=inner), input=[5, 6, 7])
        while sim.step(pick):
            pass
        assert sim.outcome.result == {"each": [50, 61, 72]}


def test_a_map_over_nothing_gives_nothing() -> None:
    nodes = {"each": {"map": {"over": "[]", "do": "inner"}, "next": "done"}}
    assert outputs(nodes, inner={"z": {"end": 1}}) == {"each": []}


def test_an_end_gives_its_value_and_a_fail_its_code_message_and_details() -> None:
    assert run(plan_of({"a": {"end": {"n": "${input}", "x": [1]}}}), input=4).result == {"n": 4, "x": [1]}
    node = {"fail": {"code": "c_${input}", "message": "m", "details": {"n": "${input}"}}}
    found = run(plan_of({"a": node}), input=4).failure
    assert found == Failure(code="c_4", message="m", details={"n": 4})


def test_an_approval_waits_and_its_decision_is_its_result() -> None:
    nodes = {
        "ask": {"approval": {"request": {"n": "${input}"}, "choices": ["approve", "edit", "reject"]}, "next": "done"}
    }
    sim = simulate(plan_of({**nodes, "done": DONE}), input=4)
    drive(sim)
    assert not sim.outcome.over
    ((at, name),) = approvals(sim)
    assert at == "ask#1"
    (asked,) = of_type(sim.outcome, "approval_requested")
    assert (asked["approval_id"], asked["request"], asked["choices"]) == (name, {"n": 4}, ["approve", "edit", "reject"])
    sim.signal("loom.decision", decision(name, "edit", message="so"))
    drive(sim)
    assert sim.outcome.result == {"ask": {"choice": "edit", "by": "ada", "message": "so", "edited": {"edited": True}}}


def test_recurse_starts_the_next_turn_with_nothing_but_the_turn() -> None:
    nodes = {
        "a": {"activity": "echo", "with": {"seen": "${has(nodes, 'a')}", "n": "${turn.counter}"},
              "write": {"entries": "${turn.entries + 2}", "tool_calls": 3, "usage": {"prompt_tokens": 5},
                        "cost_microusd": 4}, "next": "b"},
        "b": {"next": [{"if": "turn.counter < 2", "to": "again"}, {"to": "done"}]},
        "again": {"recurse": {"policy": "history"}},
        "done": {"end": {"turn": "${turn}", "a": "${nodes.a}"}},
    }  # fmt: skip
    state = MachineState(turn=TurnState.initial(JOB, entries=10))
    outcome = Simulation(plan_of(nodes), state, {"echo": echo, **SYSTEM}, job=JOB).run()
    turn = outcome.result["turn"]
    assert outcome.result["a"] == {"seen": False, "n": 2}
    assert (turn["entries"], turn["tool_calls"], turn["cost_microusd"]) == (16, 9, 12)
    assert turn["usage"]["prompt_tokens"] == 15
    assert [at for at, _ in outcome.trace] == ["0/a#1", "1/a#1", "2/a#1"]


# -- edges -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch", "ends"), [({"broken": "c"}, "c"), ({"any": "c"}, "c"), ({"broken": "c", "any": "d"}, "c"),
                        ({"other": "c", "any": "d"}, "d")]
)  # fmt: skip
def test_a_failure_goes_where_catch_says_with_its_code(catch: dict[str, str], ends: str) -> None:
    nodes = {
        "a": {"activity": "fail", "catch": catch, "next": "z"},
        "z": {"end": "not here"},
        "c": {"end": {"at": "c", "result": "${result}"}},
        "d": {"end": {"at": "d", "result": "${result}"}},
    }
    assert run(plan_of(nodes)).result == {
        "at": ends,
        "result": {"ok": False, "code": "broken", "message": "it broke"},
    }


def test_a_failure_that_nobody_catches_fails_the_job_and_is_told() -> None:
    outcome = run(plan_of({"a": {"activity": "fail", "catch": {"other": "b"}, "next": "b"}, "b": {"end": None}}))
    why = "node `a`: it broke"
    assert outcome.failure == Failure(code="broken", message=why)
    assert of_type(outcome, "error") == [{"t": "error", "n": 0, "error": "broken", "message": why}]


@pytest.mark.parametrize(
    "node",
    [
        {"activity": "echo", "with": {"x": "${input.missing}"}},
        {"activity": "echo", "carrier": "${input.n}"},
        {"activity": "echo", "timeout": "${input.text}"},
        {"activity": "echo", "timeout": "${input.nothing}"},
        {"activity": "echo", "timeout": "${input.n - 3}"},
        {"activity": "echo", "timeout": "${input.huge}"},
        {"activity": "echo", "timeout": "${input.n * 0}"},
        {"activity": "echo", "next": [{"if": "result.missing", "to": "done"}]},
        {"activity": "echo", "next": [{"if": "false", "to": "done"}]},
        {"activity": "echo", "emit": {"progress": {"x": "${input.missing}"}}},
        {"map": {"over": "input.n", "do": "inner"}},
        {"map": {"over": "input.many", "do": "inner"}},
        {"map": {"over": "[1]", "do": "inner", "barrier": {"at": "z", "limit": "${input.text}"}}},
        {"map": {"over": "[1]", "do": "inner", "barrier": {"at": "z", "limit": 0}}},
        {"map": {"over": "[1]", "do": "inner", "barrier": {"at": "z", "exclusive": "item.missing"}}},
        {"map": {"over": "[1]", "do": "inner", "barrier": {"at": "z", "key": "run.id"}}},
        {"approval": {"request": "${input.missing}"}},
        {"approval": {"request": 1}, "deadline": {"after": "${input.text}", "to": "done"}},
        {"approval": {"request": 1}, "deadline": {"after": "${input.huge}", "to": "done"}},
        {"approval": {"request": 1}, "deadline": {"after": "${0 - 1}", "to": "done"}},
        {"recurse": {}},
        {"end": "${input.missing}"},
        {"fail": {"code": "${input.missing}"}},
        {"next": [{"if": "input.missing", "to": "done"}]},
    ],
)
def test_what_cannot_be_computed_fails_its_node_and_can_be_caught(node: dict[str, Any]) -> None:
    given = {"n": 3, "text": "soon", "nothing": None, "huge": 1e300, "many": list(range(20_001))}
    nodes = {
        "a": {"next": "done", **node, "catch": {"expression_error": "caught"}},
        "caught": {"end": "${result.code}"},
    }
    graph = plan_of({**nodes, "done": DONE}, inner={"z": {"end": 1}})
    assert run(graph, input=given).result == "expression_error"


@pytest.mark.parametrize(
    "write",
    [
        {"entries": "many"},
        {"entries": -1},
        {"usage": {"tokens": 1}},
        {"usage": 5},
        {"tool_calls": "many"},
        {"tool_calls": None},
        {"cost_microusd": -5},
        {"metadata": [1]},
        {"metadata": {"long": "x" * 20_000}},
    ],
)
def test_a_value_that_does_not_fit_the_turn_fails_the_node(write: dict[str, Any]) -> None:
    nodes = {"a": {"activity": "echo", "write": write, "catch": {"any": "caught"}, "next": "done"},
             "caught": {"end": "${turn}"}, "done": DONE}  # fmt: skip
    turn = TurnState.initial(JOB)
    driven = Driven(plan_of(nodes), MachineState(turn=turn))
    driven.done("a#1")
    assert driven.machine.state.turn == turn
    assert driven.machine.state.ending == ["finish", turn.model_dump(mode="json") | {"counter": 0, "cost_usd": 0.0}]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, None), ("never", None), (5, 5.0), (0, 0.0), (2.5, 2.5), ("4h", 14_400.0), ("1h30m", 5_400.0)],
)
def test_a_computed_time_is_seconds_a_duration_or_never(value: Any, seconds: float | None) -> None:
    assert seconds_of(value, "the time") == seconds


def test_the_deadline_of_an_approval_takes_its_edge_when_nobody_decides() -> None:
    nodes = {
        "ask": {"approval": {"request": 1}, "deadline": {"after": "1m", "to": "late"}, "next": "done"},
        "late": {"end": {"choice": "${result.choice}", "now": "${run.now}"}},
    }
    outcome = run(plan_of({**nodes, "done": DONE}), start=NOW)
    assert outcome.result == {"choice": "expired", "now": NOW + 60}


def test_a_deadline_survives_continue_as_new_as_a_time() -> None:
    nodes = {"ask": {"approval": {"request": 1}, "deadline": {"after": "1m", "to": "done"}, "next": "done"}}
    driven = Driven(plan_of({**nodes, "done": DONE}))
    driven.store()
    assert Drained() in driven.feed(Drain(now=NOW + 10))
    again = driven.again()
    assert [c for c in again.commands if isinstance(c, StartTimer)] == [StartTimer(at="ask#1", when=NOW + 60)]


def test_max_visits_leads_to_exhausted() -> None:
    nodes = {
        "a": {"activity": "echo", "with": {"n": "${get(get(nodes, 'a', {}), 'n', 0) + 1}"}, "max_visits": 3,
              "exhausted": "done", "next": "a"},
    }  # fmt: skip
    outcome = run(plan_of({**nodes, "done": DONE}))
    assert outcome.result == {"a": {"n": 3}}
    assert [at for at, _ in outcome.trace] == ["0/a#1", "0/a#2", "0/a#3"]


def test_max_visits_without_exhausted_fails_with_its_own_code() -> None:
    nodes = {"a": {"activity": "echo", "max_visits": 2, "next": "a"}}
    assert failure(nodes) == ("max_visits", "`a` was entered over 2 times")
    caught = {"a": {"activity": "echo", "max_visits": 2, "catch": {"max_visits": "b"}, "next": "a"}}
    assert run(plan_of({**caught, "b": {"end": "caught"}})).result == "caught"


def test_a_ring_of_exhausted_nodes_fails_instead_of_turning_for_ever() -> None:
    nodes = {
        "a": {"max_visits": 1, "exhausted": "b", "next": "b"},
        "b": {"max_visits": 1, "exhausted": "a", "next": "a"},
    }
    assert failure(nodes)[0] == "max_visits"
    assert failure({"a": {"max_visits": 1, "exhausted": "a", "next": "a"}})[0] == "max_visits"


@pytest.mark.parametrize(
    "nodes",
    [
        {"a": {"next": "b"}, "b": {"next": "a"}},
        {"a": {"next": "a"}},
        {"a": {"activity": "echo", "carrier": "nowhere", "catch": {"any": "a"}, "next": "a"}},
        {"a": {"max_visits": 1, "catch": {"any": "a"}, "next": "a"}},
        {"a": {"next": ["a", "b"]}, "b": {"next": "b"}},
    ],
)
def test_a_graph_that_only_goes_round_in_circles_ends(nodes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "MAX_STEPS", 5_000)
    assert failure(nodes) == ("endless_loop", "over 5000 nodes were entered while nothing happened outside")


def test_after_many_nodes_the_driver_gets_a_moment() -> None:
    body = {"add": {"set": {"n": 1}, "next": "z"}, "z": {"end": None}}
    document = {
        "name": "main",
        "state": {"n": {"type": "int", "reduce": "add"}},
        "nodes": {
            "a": {"loop": {"do": "body", "until": "index >= 1499", "max": 5000}, "next": "z"},
            "z": {"end": "${state.n}"},
        },
        "graphs": {"body": {"nodes": body}},
    }
    driven = Driven(Plan("main", {"main": Graph.model_validate(document)}, {}))
    moments = 0
    while any(isinstance(command, Yielded) for command in driven.commands):
        moments += 1
        driven.commands.clear()
        driven.feed(GoOn(now=NOW))
    assert moments > 2
    driven.store()
    assert driven.commands[-1] == Finish(result=1500)


# -- parallel branches -------------------------------------------------------------------------------------------------


def test_a_parallel_split_runs_every_branch_and_ends_when_the_last_one_has() -> None:
    nodes = {
        "a": {"next": ["b", "c"]},
        "b": {"activity": "echo", "next": "b2"},
        "b2": {"activity": "echo"},
        "c": {"activity": "echo"},
    }
    outcome = run(plan_of(nodes))
    assert sorted(outcome.trace) == [("0/b#1", "done"), ("0/b2#1", "done"), ("0/c#1", "done")]
    assert (outcome.over, outcome.result, outcome.failure) == (True, None, None)


def test_the_first_branch_that_reaches_a_terminating_end_ends_the_job_and_cancels_the_others() -> None:
    nodes = {
        "a": {"next": ["b", "c", "ask"]},
        "b": {"activity": "echo", "next": "z"},
        "z": {"end": "b was first", "terminate": True},
        "c": {"activity": "echo", "next": "y"},
        "y": {"end": "c was first", "terminate": True},
        "ask": {"approval": {"request": 1}, "next": "y"},
    }
    sim = simulate(plan_of(nodes))
    sim.step()
    drive(sim)
    assert sim.outcome.result == "b was first"
    assert [at for at, _ in sim.outcome.trace] == ["0/b#1"]
    assert [event["choice"] for event in of_type(sim.outcome, "approval_decided")] == ["cancelled"]


def test_a_job_ends_only_when_what_was_cancelled_has_reported() -> None:
    nodes = {"a": {"next": ["b", "c"]}, "b": {"activity": "x", "next": "z"}, "c": {"activity": "x"},
             "z": {"end": 1, "terminate": True}}  # fmt: skip
    driven = Driven(plan_of(nodes))
    driven.done("b#1")
    assert not any(isinstance(command, Finish) for command in driven.commands)
    driven.failed("c#1", "cancelled")
    driven.store()
    assert isinstance(driven.commands[-1], Finish)


@pytest.mark.parametrize("reports", [True, False])
def test_a_turn_ends_only_when_what_was_cancelled_has_reported(reports: bool) -> None:
    """Its name comes again in the next turn, where its late result would be taken for another's."""
    nodes = {
        "a": {"next": ["b", "c"]},
        "b": {"activity": "x", "next": "again"},
        "c": {"activity": "x", "next": "z"},
        "again": {"recurse": {}},
        "z": {"end": "${nodes.c}", "terminate": True},
    }
    driven = Driven(plan_of(nodes), MachineState(turn=TurnState.initial(JOB)))
    driven.done("b#1")
    assert not any(isinstance(command, TurnEnded) for command in driven.commands)
    if reports:
        driven.done("c#1", "late")
    else:
        driven.failed("c#1", "cancelled")
    assert isinstance(driven.commands[-1], TurnEnded)
    assert not driven.machine.in_flight()
    driven.feed(Proceed(now=NOW))
    assert driven.issued() == ["b#1", "c#1", "b#1", "c#1"]
    driven.done("c#1", "right")
    driven.failed("b#1", "cancelled")
    driven.store()
    assert isinstance(driven.commands[-1], Finish)
    assert driven.commands[-1].result == "right"


def test_a_flush_in_flight_is_not_lost_when_the_turn_ends() -> None:
    nodes = {"a": {"emit": {"warning": {"n": "${turn.counter}"}}, "next": "b"},
             "b": {"activity": "x", "next": "again"}, "again": {"recurse": {}}}  # fmt: skip
    driven = Driven(plan_of(nodes), MachineState(turn=TurnState.initial(JOB)))
    driven.machine.emit("warning", code="test")
    driven.feed(Drain(now=NOW))
    driven = Driven(driven.machine.plan, driven.machine.state)
    flushes = [c.at for c in driven.commands if isinstance(c, RunActivity) and c.at.startswith("~flush")]
    driven.done("b#1")
    for at in flushes:
        assert not any(isinstance(command, TurnEnded) for command in driven.commands)
        driven.done(at)
    assert isinstance(driven.commands[-1], TurnEnded)


def test_recursion_inside_a_map_is_refused() -> None:
    nodes = {"each": {"map": {"over": "[1]", "do": "inner"}, "next": "done"}, "done": DONE}
    driven = Driven(plan_of(nodes, inner={"r": {"recurse": {}}}), MachineState(turn=TurnState.initial(JOB)))
    driven.store()
    assert isinstance(driven.commands[-1], Failure)
    assert "recurses inside a map" in driven.commands[-1].message


def test_commands_come_in_the_order_written() -> None:
    nodes = {"s": {"next": ["z", "m", "b"]}, "z": {"activity": "x"}, "b": {"activity": "x"},
             "m": {"map": {"over": "input", "do": "inner"}}}  # fmt: skip
    driven = Driven(
        plan_of(nodes, inner={"i": {"activity": "x", "next": "e"}, "e": {"end": 1}}),
        MachineState(input=list(range(12))),
    )
    items = [f"m#1[{index}]/i#1" for index in range(12)]
    # The items' graphs begin once the map has been entered, and by then what comes after it has begun, too.
    assert driven.issued() == ["z#1", "b#1", *items]
    assert sorted(["a#10", "a#9", "a#1[10]/b#1", "a#1[2]/b#1"], key=natural) == [
        "a#1[2]/b#1", "a#1[10]/b#1", "a#9", "a#10",
    ]  # fmt: skip


# -- what does not fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stray",
    [
        ActivityDone(now=NOW, at="a#2", result=1),
        ActivityDone(now=NOW, at="nowhere#1", result=1),
        ActivityDone(now=NOW, at="", result=1),
        ActivityDone(now=NOW, at="~flush#9", result=1),
        ActivityDone(now=NOW, at="ask#1", result={"choice": "approve"}),
        ActivityFailed(now=NOW, at="a#2", code="broken", message=""),
        ActivityFailed(now=NOW, at="ask#1", code="broken", message=""),
    ],
)
def test_a_stray_result_changes_nothing_and_is_told(stray: Input) -> None:
    nodes = {"s": {"next": ["a", "ask"]}, "a": {"activity": "x"}, "ask": {"approval": {"request": 1}, "next": "a"}}
    driven = Driven(plan_of(nodes))
    driven.done("~announce/ask#1")
    before = driven.machine.state.to_json()
    assert not [c for c in driven.feed(stray) if not (isinstance(c, RunActivity) and c.at.startswith("~flush"))]
    after = driven.machine.state.to_json()
    assert {**after, "out": 0, "fl": 0} == {**before, "out": 0, "fl": 0}
    told = [event for _, events in driven.machine.state.outbox.batches for event in events]
    assert [event["code"] for event in told if event["t"] == "warning"] == ["stray_result"]


def test_a_timer_that_fits_nothing_changes_nothing() -> None:
    driven = Driven(plan_of({"a": {"activity": "x", "next": "b"}, "b": {"end": 1}}))
    before = driven.machine.state.to_json()
    for at in ("a#1", "ask#1", ""):
        assert driven.feed(TimerFired(now=NOW, at=at)) == []
    assert driven.machine.state.to_json() == before


def test_time_never_goes_back() -> None:
    driven = Driven(plan_of({"a": {"activity": "x", "next": "b"}, "b": {"end": "${run.now}"}}))
    driven.feed(TimerFired(now=NOW + 5, at=""))
    driven.feed(ActivityDone(now=NOW - 5, at="a#1", result=None))
    driven.now = NOW - 5
    driven.store()
    assert driven.commands[-1] == Finish(result=NOW + 5)


@pytest.mark.parametrize("value", [False, 0, "", [], {}, None])
def test_a_result_that_is_empty_survives_continue_as_new(value: Any) -> None:
    token = Token("a#1", "", "a", value=value)
    assert Token.from_json(json.loads(json.dumps(token.to_json()))) == token


def test_a_token_keeps_the_result_that_it_came_with_when_the_node_runs_again() -> None:
    """Held by a drain, the first token would otherwise see what the second visit gave."""
    nodes = {"s": {"next": ["x", "x"]}, "x": {"activity": "x", "next": "y"},
             "y": {"activity": "x", "with": {"saw": "${result}"}}}  # fmt: skip
    driven = Driven(plan_of(nodes))
    driven.feed(Drain(now=NOW))
    driven.done("x#1", "one")
    driven.done("x#2", "two")
    assert isinstance(driven.commands[-1], Drained)
    again = driven.again()
    saw = {c.at: c.arguments for c in again.commands if isinstance(c, RunActivity)}
    assert saw == {"y#1": {"saw": "one"}, "y#2": {"saw": "two"}}


def test_nothing_is_issued_while_draining_and_everything_afterwards() -> None:
    nodes = {"a": {"activity": "x", "next": ["b", "c"]}, "b": {"activity": "x"}, "c": {"activity": "x"}}
    driven = Driven(plan_of(nodes))
    driven.feed(Drain(now=NOW))
    driven.done("a#1")
    assert driven.issued() == ["a#1"]
    again = driven.again()
    assert again.issued() == ["b#1", "c#1"]


def test_an_ending_that_falls_into_a_drain_is_finished_by_the_next_run() -> None:
    driven = Driven(plan_of({"a": {"activity": "fail", "next": "b"}, "b": {"end": 1}}))
    driven.feed(Drain(now=NOW))
    driven.failed("a#1")
    assert isinstance(driven.commands[-1], Drained)
    again = driven.again()
    again.store()
    assert again.commands[-1] == Failure(code="broken", message="node `a`: it broke")


# -- laws over random graphs -------------------------------------------------------------------------------------------


class Writer:
    """Writes a random graph from choices, block by block, so that every run of it ends."""

    def __init__(self, choose: Any) -> None:
        self.choose, self.graphs, self.count = choose, dict[str, dict[str, Any]](), 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def write(self, graph: str, depth: int) -> None:
        nodes: dict[str, Any] = {}
        self.graphs[graph] = nodes
        last = self.name("end")
        start = self.block(nodes, last, depth)
        nodes[last] = {"end": {"result": "${result}", "kept": "${len(nodes)}"}}
        if start != next(iter(nodes)):
            self.graphs[graph] = {start: nodes[start], **nodes}

    def block(self, nodes: dict[str, Any], after: str, depth: int) -> str:
        """Write some nodes that lead to `after`; give the first."""
        kinds = ["act", "ask", "caught"] if depth == 0 else ["act", "choice", "loop", "map", "ask", "caught"]
        for _ in range(self.choose(3) + 1):
            after = getattr(self, kinds[self.choose(len(kinds))])(nodes, after, depth - 1)
        return after

    def act(self, nodes: dict[str, Any], after: str, depth: int) -> str:
        key = self.name("act")
        nodes[key] = {"activity": "work", "with": {"saw": "${result}"}, "next": after}
        return key

    def caught(self, nodes: dict[str, Any], after: str, depth: int) -> str:
        key = self.name("caught")
        nodes[key] = {"activity": "fail", "catch": {"any": after}, "next": after}
        return key

    def choice(self, nodes: dict[str, Any], after: str, depth: int) -> str:
        key, head = self.name("choose"), self.name("act")
        ways = [{"if": "result.n % 2 == 0", "to": self.block(nodes, after, depth)},
                {"to": self.block(nodes, after, depth)}]  # fmt: skip
        nodes[key] = {"next": ways}
        nodes[head] = {"activity": "work", "next": key}
        return head

    def loop(self, nodes: dict[str, Any], after: str, depth: int) -> str:
        head = self.name("loop")
        nodes[head] = {"max_visits": self.choose(3) + 1, "exhausted": after}
        nodes[head]["next"] = self.block(nodes, head, depth)
        return head

    def map(self, nodes: dict[str, Any], after: str, depth: int) -> str:
        key, inner = self.name("map"), self.name("g")
        self.write(inner, depth)
        spec: dict[str, Any] = {"over": f"[{', '.join(str(n) for n in range(self.choose(4)))}]", "do": inner}
        spec["window"] = self.choose(3) + 1
        if self.choose(2):
            at = sorted(self.graphs[inner])[self.choose(len(self.graphs[inner]))]
            spec["barrier"] = {"at": at, "limit": self.choose(2) + 1, "exclusive": "item % 2 == 1"}
        nodes[key] = {"map": spec, "next": after}
        return key

    def ask(self, nodes: dict[str, Any], after: str, depth: int) -> str:
        key = self.name("ask")
        nodes[key] = {"approval": {"request": {"saw": "${result}"}}, "deadline": {"after": "1m", "to": after},
                      "next": after}  # fmt: skip
        return key


@st.composite
def random_plans(draw: st.DrawFn) -> Plan:
    writer = Writer(lambda below: draw(st.integers(0, below - 1)))
    writer.write("main", 2)
    graphs = dict(writer.graphs)
    return plan_of(graphs.pop("main"), **graphs)


def work(command: RunActivity) -> Any:
    return {"n": drawn(command.at, 7), "saw": command.arguments.get("saw")}


def choice_at(at: str) -> str:
    return ("approve", "reject", "expire")[drawn(at, 3)]


def told(plan: Plan, seed: int | None, steps: int | None) -> Any:
    """What a run comes to: result, trace by branch, decisions."""
    pick = chance(seed) if seed is not None else lambda: 0
    sim = simulate(plan, handlers={"work": work}, steps_per_run=steps)
    drive(sim, choice_at, pick)
    assert sim.outcome.over
    decided = sorted((event["approval_id"], event["choice"]) for event in of_type(sim.outcome, "approval_decided"))
    return sim.outcome.result, sim.outcome.failure, by_branch(sim.outcome), decided


@given(random_plans(), st.integers(0, 10_000))
def test_neither_continue_as_new_nor_the_order_of_results_changes_what_a_graph_does(plan: Plan, seed: int) -> None:
    expected = told(plan, None, None)
    for steps in (None, 4, 1):
        assert told(plan, None, steps) == expected
        assert told(plan, seed, steps) == expected


@given(random_plans(), st.integers(0, 10_000))
def test_a_pause_at_any_step_changes_nothing_but_the_time(plan: Plan, seed: int) -> None:
    expected = told(plan, None, None)
    sim = simulate(plan, handlers={"work": work}, steps_per_run=3)
    pick = chance(seed)
    while not sim.outcome.over:
        if pick() % 3 == 0:
            sim.signal("loom.control", {"op": "pause"})
            while sim.work:
                sim.step(pick())
            check_state(sim.machine.state)
            sim.signal("loom.control", {"op": "resume"})
        open_ = [(at, name) for at, name in approvals(sim) if choice_at(at) != "expire"]
        if open_ and not sim.work:
            sim.signal("loom.decision", decision(open_[0][1], choice_at(open_[0][0])))
        elif not sim.step(pick()):
            break
    decided = sorted((event["approval_id"], event["choice"]) for event in of_type(sim.outcome, "approval_decided"))
    assert (sim.outcome.result, sim.outcome.failure, by_branch(sim.outcome), decided) == expected


def test_a_wide_map_with_a_barrier_is_worked_on_item_by_item() -> None:
    barrier = {"at": "a", "limit": 400, "exclusive": "item % 100 == 99", "key": "null"}
    nodes = {"each": {"map": {"over": "input", "do": "inner", "window": 400, "barrier": barrier}, "next": "done"}}
    inner = {"a": {"activity": "echo", "next": "z"}, "z": {"end": "${item}"}}
    plan = plan_of({**nodes, "done": {"end": "${nodes.each}"}}, inner=inner)
    assert run(plan, input=list(range(400))).result == list(range(400))
