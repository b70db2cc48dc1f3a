"""What observers of a graph are told of its nodes, and how the place of a failure is named."""

from typing import Any

import pytest

from loom_dsl.authoring.overlay import overlay_of_events
from loom_dsl.machine.commands import ActivityDone, Failure, Input, RunActivity, Started
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.payloads import activity_argument, fingerprint
from loom_dsl.machine.state import MachineState
from tests.support.simulated import simulate
from tests.support.tokens import begin, plan, rest

TIME = "at"


def told(outcome: Any) -> list[tuple[Any, ...]]:
    """What was told of nodes: type, node, and what it is or how it went."""
    wanted = [event for event in outcome.events if event["t"].startswith("node_")]
    return [
        (event["t"].removeprefix("node_"), event["node"], event.get("outcome") or event["kind"]) for event in wanted
    ]


def test_nodes_that_take_time_tell_that_they_begin_and_how_they_end() -> None:
    nodes = {
        "a": {"activity": "echo", "next": "pick"},
        "pick": {"next": "sub"},
        "sub": {"graph": "inner", "next": "z"},
        "z": {"end": "${result}"},
    }
    inner = {"nodes": {"w": {"activity": "fail", "catch": {"any": "e"}, "next": "e"}, "e": {"end": 1}}}
    outcome = rest(simulate(plan(nodes, graphs={"inner": inner})))
    assert told(outcome) == [
        ("start", "a#1", "activity"),
        ("end", "a#1", "done"),
        ("start", "sub#1", "graph"),
        ("start", "sub#1[0]/w#1", "activity"),
        ("end", "sub#1[0]/w#1", "failed"),
        ("end", "sub#1", "done"),
    ]
    (caught,) = (event for event in outcome.events if event.get("outcome") == "failed")
    assert (caught["code"], caught["message"], caught["to"]) == ("broken", "it broke", "e")


def test_what_is_taken_away_is_told_and_so_is_what_is_waited_for() -> None:
    nodes: dict[str, Any] = {
        "r": {"race": ["w", "t", "a"]},
        "w": {"event": "go", "next": "z"},
        "t": {"timer": {"after": "1h"}, "next": "z"},
        "a": {"activity": "name", "next": "z"},
        "z": {"end": "${result}"},
    }
    outcome = rest(begin(plan(nodes)))
    assert {("end", "w#1", "cancelled"), ("end", "t#1", "cancelled"), ("end", "a#1", "done")} <= set(told(outcome))
    started = {event["node"]: event for event in outcome.events if event["t"] == "node_start"}
    assert started["w#1"]["event"] == "go"
    assert started["t#1"]["until"] == started["t#1"][TIME] + 3600


def test_a_map_tells_how_many_items_it_has() -> None:
    item = {"nodes": {"w": {"activity": "name", "next": "z"}, "z": {"end": "${result}"}}}
    nodes = {"n": {"map": {"over": "[1, 2, 3]", "do": "item"}, "next": "z"}, "z": {"end": "${result}"}}
    outcome = rest(begin(plan(nodes, graphs={"item": item})))
    first = next(event for event in outcome.events if event["t"] == "node_start")
    assert (first["node"], first["items"]) == ("n#1", 3)
    assert told(outcome)[-1] == ("end", "n#1", "done")


BROKEN = {"nodes": {"w": {"activity": "fail", "next": "z"}, "z": {"end": "${result}"}}}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"activity": "fail"}, "node `n`: it broke"),
        ({"map": {"over": "['x', 'y']", "do": "g"}}, "node `w`, item 0 ('x') of `n`: it broke"),
        ({"map": {"over": "[{'a': 1}]", "do": "g"}}, "node `w`, item 0 of `n`: it broke"),
        ({"map": {"over": "[7]", "do": "g", "first": 30}}, "node `w`, item 30 (7) of `n`: it broke"),
        ({"loop": {"do": "g", "max": 3, "until": "result == 1"}}, "node `w`, round 1 of `n`: it broke"),
        ({"graph": "g"}, "node `w`, in `n`: it broke"),
    ],
)
def test_a_failure_that_leaves_its_graph_names_its_place(node: dict[str, Any], message: str) -> None:
    given = plan({"n": {**node, "next": "z"}, "z": {"end": "${result}"}}, graphs={"g": BROKEN})
    assert rest(simulate(given)).failure == Failure(code="broken", message=message)


def test_a_failure_that_its_node_catches_is_in_its_own_words() -> None:
    nodes = {"n": {"activity": "fail", "catch": {"any": "z"}, "next": "z"}, "z": {"end": "${result.message}"}}
    assert rest(simulate(plan(nodes))).result == "it broke"


def test_what_a_user_says_in_a_fail_node_stays_as_it_is() -> None:
    nodes = {"n": {"fail": {"code": "left", "message": "nobody wants it"}}}
    assert rest(simulate(plan(nodes))).failure == Failure(code="left", message="nobody wants it")


def test_the_last_events_of_a_graph_take_its_result_along() -> None:
    given = plan({"n": {"activity": "name", "next": "z"}, "z": {"end": {"x": "${result}"}}})
    sim = begin(given)
    while not any(work.arguments.get("result") for work in sim.work):
        assert sim.step(0)
    (last,) = sim.work
    assert (last.activity, last.arguments["result"]) == (
        "loom.events.flush",
        {"job": "job", "status": "completed", "result": {"x": "n"}},
    )


def test_an_execution_is_the_same_whenever_its_events_happened() -> None:
    def argument(moment: float, outcome: str) -> dict[str, Any]:
        event = {"t": "node_end", "n": 0, "node": "a#1", "outcome": outcome, TIME: moment}
        return activity_argument(RunActivity(at="b#1", activity="x", arguments={}, events=[[0, [event]]]), None)

    assert fingerprint(argument(1.0, "done")) == fingerprint(argument(2.0, "done"))
    assert fingerprint(argument(1.0, "done")) != fingerprint(argument(1.0, "failed"))


def test_the_events_of_a_job_tell_which_way_it_went() -> None:
    nodes = {
        "a": {"activity": "name", "next": "pick"},
        "pick": {"next": [{"if": "result == 'a'", "to": "n"}, {"to": "z"}]},
        "n": {"map": {"over": "[1, 2]", "do": "g"}, "next": "z"},
        "z": {"end": "${result}"},
    }
    given = plan(nodes, graphs={"g": BROKEN})
    overlay = overlay_of_events(given, rest(begin(given)).events)
    assert overlay.visits == {"main": {"a": 1, "pick": 1, "n": 1}, "main/g": {"w": 2}}
    assert overlay.words("main", "n") == ["1 visit", "1 failed"]
    assert overlay_of_events(given, [{"t": "node_start"}, {"t": "state", "visits": {"b": 1}}]).visits == {"main": {}}


def _fed(machine: Machine, happened: Input) -> list[tuple[str, list[str]]]:
    """What is begun: each activity with the nodes whose ends it takes along."""
    found = []
    for command in machine.feed(happened):
        if isinstance(command, RunActivity):
            events = [event for _, batch in command.events for event in batch]
            found.append((command.at, [event["node"] for event in events if event["t"] == "node_end"]))
    return found


def test_the_end_of_a_branch_is_told_while_others_are_at_work() -> None:
    names = ("a", "b", "c", "d")
    branches = {key: {"activity": "x", "next": "j"} for key in names[:3]}
    nodes = {"s": {"next": list(names)}, **branches, "d": {"activity": "x", "next": "e"}}
    nodes |= {"e": {"activity": "x", "next": "j"}, "j": {"join": "all", "next": "z"}, "z": {"end": 1}}
    machine = Machine(plan(nodes), MachineState(), "job")
    assert _fed(machine, Started(now=1.0)) == [(f"{key}#1", []) for key in names]
    assert _fed(machine, ActivityDone(now=2.0, at="a#1", result=1)) == [("~flush#1", ["a#1"])]
    # What happens while that is stored goes together, with whatever begins first.
    assert _fed(machine, ActivityDone(now=2.1, at="b#1", result=1)) == []
    assert _fed(machine, ActivityDone(now=2.2, at="d#1", result=1)) == [("e#1", ["b#1", "d#1"])]
    assert _fed(machine, ActivityDone(now=2.3, at="c#1", result=1)) == []
    assert _fed(machine, ActivityDone(now=2.4, at="~flush#1", result=None)) == [("~flush#2", ["c#1"])]
