"""Compensation: what was done is taken back, last first, when a job fails or is aborted; and what is told of it."""

from typing import Any

import pytest

from loom_dsl.errors import LoomError
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.state import MachineState
from tests.support.simulated import of_type
from tests.support.tokens import DONE, Slow, begin, control, event, finish, pass_time, plan, rest, work


class Undoing:
    """Takes back, and remembers what."""

    def __init__(self, *broken: str) -> None:
        self.calls: list[Any] = []
        self.broken = broken

    def __call__(self, command: RunActivity) -> None:
        self.calls.append(command.arguments.get("what"))
        if command.arguments.get("what") in self.broken:
            raise LoomError("it cannot be undone")


def does(key: str, then: str, what: Any = "", **more: Any) -> dict[str, Any]:
    """A node with a compensation."""
    return {key: work(then, compensate={"activity": "undo", "with": {"what": what or key}}, **more)}


def chain(*keys: str, last: Any) -> dict[str, Any]:
    """Nodes with compensations, one after the other."""
    nodes: dict[str, Any] = {}
    for key, then in zip(keys, [*keys[1:], "last"], strict=True):
        nodes |= does(key, then)
    return {**nodes, "last": last}


FAIL = {"fail": {"code": "sorry", "message": "no more"}}


def told(sim: Any) -> list[tuple[str, str]]:
    """What the failure, or the result of an aborted job, says of compensations."""
    failure = sim.outcome.failure
    given = failure.details if failure is not None else sim.outcome.result
    return [(entry["node"], entry["outcome"]) for entry in given["compensations"]]


@pytest.mark.parametrize("steps", [None, 1, 2])
@pytest.mark.parametrize("way", ["fail", "activity", "abort"])
def test_what_was_done_is_taken_back_last_first(way: str, steps: int | None) -> None:
    undo = Undoing()
    last = {"fail": FAIL, "activity": {"activity": "fail"}, "abort": {"event": "go", "next": "z"}}[way]
    nodes = {**chain("a", "b", "c", last=last), "z": DONE}
    sim = begin(plan(nodes), handlers={"undo": undo}, steps_per_run=steps)
    if way == "abort":
        sim.run()
        control(sim, "abort", reason="enough")
    outcome = rest(sim)
    assert undo.calls == ["c", "b", "a"]
    assert told(sim) == [("c#1", "undone"), ("b#1", "undone"), ("a#1", "undone")]
    if way == "abort":
        assert outcome.result["reason"] == "enough"
    else:
        assert outcome.failure is not None
        assert outcome.failure.code == {"fail": "sorry", "activity": "broken"}[way]
    assert [e["node"] for e in of_type(outcome, "compensating")] == ["c#1", "b#1", "a#1"]
    assert [e["outcome"] for e in of_type(outcome, "compensated")] == ["undone"] * 3
    assert sim.machine.state.undo == []


def test_nothing_is_taken_back_when_all_goes_well_or_a_failure_is_caught() -> None:
    undo = Undoing()
    nodes = chain("a", "b", last={"activity": "fail", "catch": {"broken": "z"}})
    outcome = rest(begin(plan({**nodes, "z": {"end": "well"}}), handlers={"undo": undo}))
    assert (outcome.result, undo.calls) == ("well", [])


def test_one_is_taken_back_after_the_other() -> None:
    sim = begin(plan(chain("a", "b", last=FAIL)), handlers={"undo": Undoing()})
    finish(sim, "a", "b")
    assert [given.at for given in sim.work] == ["~undo/b#1"]
    sim.step()
    assert [given.at for given in sim.work] == ["~undo/a#1"]


def test_what_fails_to_be_taken_back_is_told_and_the_rest_goes_on() -> None:
    undo = Undoing("b")
    sim = begin(plan(chain("a", "b", "c", last=FAIL)), handlers={"undo": undo})
    rest(sim)
    assert undo.calls == ["c", "b", "a"]
    assert told(sim) == [("c#1", "undone"), ("b#1", "failed"), ("a#1", "undone")]
    entry = sim.outcome.failure.details["compensations"][1]  # type: ignore[union-attr]
    assert "it cannot be undone" in entry["message"]


def test_the_result_of_a_node_is_there_when_it_is_taken_back() -> None:
    undo = Undoing()
    nodes = {**does("a", "last", "${result + '!'}"), "last": FAIL}
    rest(begin(plan(nodes), handlers={"undo": undo}))
    assert undo.calls == ["a!"]


@pytest.mark.parametrize(("what", "calls", "outcome"), [("${result + '!'}", [], "unknown"), ("x", ["x"], "undone")])
def test_a_node_that_was_cancelled_is_taken_back_if_that_needs_no_result(
    what: str, calls: list[str], outcome: str
) -> None:
    undo = Undoing()
    sim = cancelled(what, undo)
    sim.report("a#1")
    rest(sim)
    assert undo.calls == calls
    assert told(sim) == [("a#1", outcome)]
    assert "known" in sim.outcome.failure.details["compensations"][0]["message"]  # type: ignore[union-attr]


def test_a_node_that_was_done_before_it_could_be_cancelled_is_taken_back_with_its_result() -> None:
    undo = Undoing()
    sim = cancelled("${result + '!'}", undo)
    sim.report("a#1", done=True)
    rest(sim)
    assert undo.calls == ["late!"]
    assert sim.outcome.failure.details["compensations"] == [{"node": "a#1", "outcome": "undone"}]  # type: ignore[union-attr]


def cancelled(what: str, undo: Undoing) -> Slow:
    """A job that fails while `a` runs, which is therefore cancelled."""
    nodes = {"fork": {"next": ["a", "b"]}, **does("a", "z", what), "b": work("last"), "last": FAIL, "z": DONE}
    sim = Slow(plan(nodes))
    sim.handlers["undo"] = undo  # type: ignore[index]
    finish(sim, "b")
    return sim


def test_a_node_that_failed_is_taken_back_too() -> None:
    undo = Undoing()
    nodes = {
        "a": {"activity": "fail", "compensate": {"activity": "undo", "with": {"what": "a"}}, "next": "z"},
        "z": DONE,
    }
    sim = begin(plan(nodes), handlers={"undo": undo})
    rest(sim)
    assert (undo.calls, told(sim)) == (["a"], [("a#1", "undone")])


def test_nodes_in_maps_loops_and_graphs_are_taken_back_each() -> None:
    undo = Undoing()
    item = {"nodes": {**does("w", "z", "${item}"), "z": DONE}}
    nodes = {
        "m": {"map": {"over": "['x', 'y']", "do": "item"}, "next": "l"},
        "l": {"loop": {"do": "item", "until": "index == 1", "max": 3}, "next": "g"},
        "g": {"graph": "one", "next": "last"},
        "last": FAIL,
    }
    one = {"nodes": {**does("w", "z", "g"), "z": DONE}}
    sim = begin(plan(nodes, graphs={"item": item, "one": one}), handlers={"undo": undo})
    finish(sim, "m#1[1]/w#1", "m#1[0]/w#1")
    rest(sim)
    assert undo.calls == ["g", "w", None, "y", "x"]


def test_the_node_that_runs_a_graph_may_take_it_back_as_a_whole() -> None:
    undo = Undoing()
    compensate = {"activity": "undo", "with": {"what": "${result}"}}
    nodes = {
        "m": {"map": {"over": "['x', 'y']", "do": "item"}, "compensate": compensate, "next": "last"},
        "last": FAIL,
    }
    item = {"nodes": {"w": work("z"), "z": {"end": "${item}"}}}
    rest(begin(plan(nodes, graphs={"item": item}), handlers={"undo": undo}))
    assert undo.calls == [["x", "y"]]


@pytest.mark.parametrize("rest_", ["ignore", "cancel"])
def test_a_map_that_had_enough_is_taken_back_with_what_it_gave(rest_: str) -> None:
    undo = Undoing()
    spec = {"over": "['x', 'y']", "do": "item", "need": 1, "rest": rest_}
    compensate = {"activity": "undo", "with": {"what": "${result}"}}
    nodes = {"m": {"map": spec, "compensate": compensate, "next": "last"}, "last": FAIL}
    item = {"nodes": {"w": work("z"), "z": {"end": "${item}"}}}
    sim = begin(plan(nodes, graphs={"item": item}), handlers={"undo": undo})
    finish(sim, "m#1[1]/w#1")
    rest(sim)
    assert undo.calls == [[None, "y"]]


def test_every_visit_is_taken_back() -> None:
    undo = Undoing()
    nodes = {**does("a", "a", "${run.id}", max_visits=3, exhausted="last"), "last": FAIL}
    sim = begin(plan(nodes), handlers={"undo": undo})
    rest(sim)
    assert told(sim) == [("a#3", "undone"), ("a#2", "undone"), ("a#1", "undone")]


def test_an_abort_takes_back_also_what_the_way_of_the_abort_has_done() -> None:
    undo = Undoing()
    nodes = {**does("a", "w"), "w": {"event": "go", "next": "z"}, **does("settle", "z"), "z": {"end": {"kept": 1}}}
    sim = begin(plan(nodes, on_abort="settle"), handlers={"undo": undo})
    finish(sim, "a")
    control(sim, "abort")
    assert rest(sim).result["kept"] == 1
    assert undo.calls == ["settle", "a"]


def test_an_expired_deadline_leaves_the_compensation_for_a_later_failure() -> None:
    undo = Undoing()
    nodes = {**does("a", "z", deadline={"after": "1h", "to": "last"}), "last": FAIL, "z": DONE}
    sim = begin(plan(nodes), handlers={"undo": undo})
    pass_time(sim)
    rest(sim)
    assert (undo.calls, told(sim)) == (["a"], [("a#1", "undone")])


def test_functions_of_users_take_back_by_the_activity_that_calls_them() -> None:
    compensate = {"activity": "shop:refund", "with": {"id": 1}, "timeout": "5m", "retry": {"attempts": 7}}
    machine = Machine(plan({"a": work("last", compensate=compensate), "last": FAIL}), MachineState(), "job")
    sim = begin(machine.plan)
    finish(sim, "a")
    (command,) = sim.work
    assert isinstance(command, RunActivity)
    assert command.activity == "loom.function.call"
    assert command.arguments == {"function": "shop:refund", "with": {"id": 1}, "timeout": 300.0}
    assert (command.timeout, command.retry) == (300.0, (7, 1.0, 2.0, 60.0))


def test_details_of_a_failure_and_compensations_are_told_together() -> None:
    details = {**FAIL["fail"], "details": {"why": "rain"}}
    sim = begin(plan(chain("a", last={"fail": details})), handlers={"undo": Undoing()})
    rest(sim)
    assert sim.outcome.failure is not None
    assert sim.outcome.failure.details == {"why": "rain", "compensations": [{"node": "a#1", "outcome": "undone"}]}


def test_the_job_counts_as_failed_only_when_all_is_taken_back() -> None:
    sim = begin(plan(chain("a", last=FAIL)), handlers={"undo": Undoing()})
    finish(sim, "a")
    assert sim.machine.state.run_state == "running"
    rest(sim)
    assert [e["state"] for e in of_type(sim.outcome, "state")] == ["running", "failed"]


def test_an_event_or_an_abort_while_things_are_taken_back_changes_nothing() -> None:
    undo = Undoing()
    sim = begin(plan(chain("a", "b", last=FAIL)), handlers={"undo": undo})
    finish(sim, "a", "b")
    control(sim, "abort")
    assert event(sim, "go") == "ended"
    assert rest(sim).failure is not None
    assert undo.calls == ["b", "a"]


# -- child jobs --------------------------------------------------------------------------------------------------

PART: dict[str, Any] = {"nodes": {**does("inside", "second"), **does("second", "z"), "z": {"end": "part"}}}


def with_child(last: Any, part: Any = None, **more: Any) -> Any:
    """A graph with a child job between two nodes that can be taken back."""
    nodes = {**does("before", "part"), "part": {"graph": "part", "child": True, "next": "after", **more}}
    return plan({**nodes, **does("after", "last"), "last": last, "z": DONE}, graphs={"part": part or PART})


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize("way", ["fail", "abort"])
def test_what_a_child_job_did_is_taken_back_when_the_job_above_it_fails_later(way: str, steps: int | None) -> None:
    undo = Undoing("second")
    last = FAIL if way == "fail" else {"event": "go", "next": "z"}
    own = {"compensate": {"activity": "undo", "with": {"what": "part"}}}
    sim = begin(with_child(last, **own), handlers={"undo": undo}, steps_per_run=steps)
    if way == "abort":
        sim.run()
        control(sim, "abort", reason="enough")
    rest(sim)
    assert undo.calls == ["after", "second", "inside", "part", "before"]
    assert told(sim) == [
        ("after#1", "undone"),
        ("part#1/second#1", "failed"),
        ("part#1/inside#1", "undone"),
        ("part#1", "undone"),
        ("before#1", "undone"),
    ]


def test_what_a_child_of_a_child_did_is_taken_back_too() -> None:
    undo = Undoing()
    part = {"nodes": {"deeper": {"graph": "deep", "child": True, "next": "z"}, "z": {"end": "part"}}}
    deep = {"nodes": {**does("deep", "z"), "z": {"end": 1}}}
    nodes = {"part": {"graph": "part", "child": True, "next": "last"}, "last": FAIL}
    sim = begin(plan(nodes, graphs={"part": part, "deep": deep}), handlers={"undo": undo})
    rest(sim)
    assert told(sim) == [("part#1/deeper#1/deep#1", "undone")]


def test_a_child_job_that_fails_takes_back_what_it_did_itself_and_once() -> None:
    undo = Undoing()
    part = {"nodes": {**does("inside", "last"), "last": FAIL}}
    caught = with_child(FAIL, part, catch={"sorry": "after"})
    rest(begin(caught, handlers={"undo": undo}))
    assert undo.calls == ["inside", "after", "before"]


def test_what_is_too_large_to_be_handed_up_is_told_as_not_undone() -> None:
    undo = Undoing()
    large = {"nodes": {**does("inside", "z", what="x" * 300_000), "z": {"end": "part"}}}
    sim = begin(with_child(FAIL, large), handlers={"undo": undo})
    rest(sim)
    assert undo.calls == ["after", "before"]
    assert told(sim)[1] == ("part#1/inside#1", "unknown")
    assert sim.outcome.failure is not None
    assert "too large" in sim.outcome.failure.details["compensations"][1]["message"]


def test_more_than_can_be_kept_fails_the_node_and_is_still_taken_back() -> None:
    undo = Undoing()
    inner = {"nodes": {**does("w", "z"), "z": {"end": 1}}}
    part = {"nodes": {"m": {"map": {"over": "input.items", "do": "inner", "with": {}}, "next": "z"}, "z": {"end": 1}}}
    nodes = {
        "m": {"map": {"over": "[0, 1, 2]", "do": "part_of"}, "next": "z"},
        "z": DONE,
    }
    each = {"part": {"graph": "part", "child": True, "with": {"items": "${[n for n in range(400)]}"}, "next": "z"}}
    graphs = {"part": part, "inner": inner, "part_of": {"nodes": {**each, "z": DONE}}}
    sim = begin(plan(nodes, graphs=graphs), handlers={"undo": undo})
    outcome = rest(sim)
    assert outcome.failure is not None
    assert "over 1000 nodes of this job would have to be taken back" in outcome.failure.message
    assert len(undo.calls) == 1_200
