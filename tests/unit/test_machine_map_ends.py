"""When a map goes on: with all results, with enough of them, closed, completed, failed, or at once."""

from typing import Any

import pytest

from loom_dsl.machine.commands import Failure
from tests.support.tokens import (
    DONE,
    ITEM,
    Slow,
    begin,
    ended,
    event,
    finish,
    one,
    plan,
    rest,
    running,
    work,
)

# -- maps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize(("need", "rest_"), [(1, "cancel"), (2, "cancel"), (1, "ignore"), (2, "ignore"), (5, "cancel")])
def test_a_map_goes_on_with_the_first_results_that_suffice(order: Any, need: int, rest_: str) -> None:
    sim = begin(one({"map": {"over": "['a', 'b', 'c']", "do": "item", "need": need, "rest": rest_}}, {"item": ITEM}))
    enough = order[: min(need, 3)]
    for index in enough:
        assert "after#1" not in running(sim)
        finish(sim, f"n#1[{index}]/w#1")
    assert "after#1" in running(sim)
    assert len(running(sim)) == 1 + (3 - len(enough) if rest_ == "ignore" else 0)
    assert rest(sim).result == [["abc"[i], "w"] if i in enough else None for i in range(3)]


def test_items_that_had_not_begun_are_not_begun_when_enough_are_done() -> None:
    node = {"map": {"over": "[1, 2, 3]", "do": "item", "need": 1, "rest": "ignore", "window": 2}}
    sim = begin(one(node, {"item": ITEM}))
    finish(sim, "n#1[0]/w#1")
    assert sorted(running(sim)) == ["after#1", "n#1[1]/w#1"]
    finish(sim, "n#1[1]/w#1", "after")
    assert running(sim) == []
    assert rest(sim).result == [[1, "w"], None, None]


def test_an_item_that_nobody_hears_any_more_may_fail() -> None:
    choice = [{"if": "item == 'bad'", "to": "bad"}, {"to": "z"}]
    each = {"nodes": {"w": work(choice), "bad": {"fail": "bad"}, "z": DONE}}
    node = {"map": {"over": "['good', 'bad']", "do": "each", "need": 1, "rest": "ignore"}}
    sim = begin(one(node, {"each": each}))
    finish(sim, "n#1[0]/w#1", "n#1[1]/w#1", "after")
    assert rest(sim).failure is None
    assert sim.outcome.result == ["w", None]


def test_a_deadline_does_not_count_for_items_that_nobody_hears_any_more() -> None:
    node = {
        "map": {"over": "[1, 2]", "do": "item", "need": 1, "rest": "ignore"},
        "deadline": {"after": "1h", "to": "caught"},
    }
    sim = begin(one(node, {"item": ITEM}))
    assert list(sim.timers) == ["n#1"]
    finish(sim, "n#1[1]/w#1")
    assert sim.timers == {}
    assert rest(sim).result == [None, [2, "w"]]


def test_a_detached_map_keeps_the_job_until_its_items_are_done() -> None:
    sim = begin(one({"map": {"over": "[1, 2]", "do": "item", "detach": True}}, {"item": ITEM}))
    finish(sim, "after")
    assert not sim.outcome.over
    assert rest(sim).result is None
    assert len(ended(sim)) == 3


def test_a_detached_map_that_has_enough_cancels_the_rest() -> None:
    sim = begin(one({"map": {"over": "[1, 2]", "do": "item", "detach": True, "need": 1}}, {"item": ITEM}))
    finish(sim, "after", "n#1[1]/w#1")
    assert running(sim) == []
    assert rest(sim).failure is None
    assert ended(sim) == ["after#1", "n#1[1]/w#1"]


def test_an_item_of_a_detached_map_that_fails_fails_the_job_unless_it_is_caught() -> None:
    each = {"nodes": {"w": {"activity": "fail", "next": "z"}, "z": DONE}}
    node: dict[str, Any] = {"map": {"over": "[1]", "do": "each", "detach": True}}
    outcome = rest(begin(one(node, {"each": each})))
    assert outcome.failure == Failure(code="broken", message="node `w`, item 0 (1) of `n`: it broke")
    caught = rest(begin(one({**node, "catch": {"any": "caught"}}, {"each": each})))
    assert caught.failure is None


def test_a_node_before_a_map_keeps_its_earlier_result_for_those_who_have_it() -> None:
    nodes = {
        "s": {"next": {"times": 2, "to": "n"}},
        "n": {"map": {"over": "[1]", "do": "item", "detach": True}, "next": "after"},
        "after": {"activity": "echo", "with": {"got": "${result}"}, "next": "z"},
        "z": {"end": "${result.got}"},
    }
    assert rest(begin(plan(nodes, graphs={"item": ITEM}))).result is None


@pytest.mark.parametrize("steps", [None, 1])
def test_an_open_map_takes_items_until_it_is_closed(steps: int | None) -> None:
    node = {"map": {"over": "[]", "do": "item", "open": {"add": "more", "close": "no_more"}}}
    sim = begin(one(node, {"item": ITEM}), steps_per_run=steps)
    for number in (1, 2):
        assert event(sim, "more", number) == "recorded"
        finish(sim, f"n#1[{number - 1}]/w#1")
        assert not sim.outcome.over
    assert event(sim, "no_more") == "recorded"
    assert rest(sim).result == [[1, "w"], [2, "w"]]


def test_items_that_come_before_an_open_map_are_taken_when_it_begins() -> None:
    spec = {"over": "[0]", "do": "item", "open": {"add": "more", "close": "no_more"}}
    nodes = {"first": work("n"), "n": {"map": spec, "next": "z"}, "z": {"end": "${nodes.n}"}}
    sim = begin(plan(nodes, graphs={"item": ITEM}))
    assert [event(sim, "more", 1), event(sim, "no_more"), event(sim, "nothing")] == ["recorded", "recorded", "unknown"]
    assert rest(sim).result == [[0, "w"], [1, "w"]]


def test_a_closed_map_leaves_later_items_to_the_next_one() -> None:
    spec = {"over": "[0]", "do": "item", "open": {"add": "more", "close": "no_more"}}
    nodes = {
        "n": {"map": spec, "max_visits": 2, "exhausted": "z", "next": "n"},
        "z": {"end": "${nodes.n}"},
    }
    sim = begin(plan(nodes, graphs={"item": ITEM}))
    event(sim, "no_more")
    event(sim, "more", 1)
    finish(sim, "n#1[0]/w#1")
    assert sorted(running(sim)) == ["n#2[0]/w#1", "n#2[1]/w#1"]
    event(sim, "no_more")
    assert rest(sim).result == [[0, "w"], [1, "w"]]


@pytest.mark.parametrize("rest_", ["cancel", "ignore"])
@pytest.mark.parametrize("detach", [False, True])
def test_a_map_is_completed_with_the_results_that_there_are(rest_: str, detach: bool) -> None:
    spec = {"over": "['a', 'b']", "do": "item", "complete": "enough", "rest": rest_, "detach": detach}
    sim = begin(one({"map": spec}, {"item": ITEM}))
    finish(sim, "n#1[1]/w#1")
    assert event(sim, "enough") == "recorded"
    assert ("n#1[0]/w#1" in running(sim)) is (rest_ == "ignore")
    assert rest(sim).result == (None if detach else [None, ["b", "w"]])


def test_what_completed_one_map_says_nothing_about_the_next_visit_of_it() -> None:
    spec = {"over": "['a']", "do": "item", "complete": "enough", "rest": "ignore"}
    nodes = {"n": {"map": spec, "max_visits": 2, "exhausted": "z", "next": "n"}, "z": {"end": "${nodes.n}"}}
    sim = begin(plan(nodes, graphs={"item": ITEM}))
    event(sim, "enough")
    assert sorted(running(sim)) == ["n#1[0]/w#1", "n#2[0]/w#1"]
    event(sim, "enough")
    assert event(sim, "enough") == "recorded"  # kept for a map that may yet come
    finish(sim, "n#1[0]/w#1", "n#2[0]/w#1")
    assert rest(sim).result == [None]


def test_a_map_that_is_ending_takes_nothing_more() -> None:
    spec = {"over": "['a', 'b']", "do": "item", "complete": "enough", "open": {"add": "more", "close": "closed"}}
    sim = Slow(one({"map": spec}, {"item": ITEM}))
    event(sim, "enough")
    event(sim, "more", 3)
    assert sorted(sim.cancelled) == ["n#1[0]/w#1", "n#1[1]/w#1"] == sorted(running(sim))
    sim.report("n#1[0]/w#1")
    sim.report("n#1[1]/w#1", done=True)
    assert running(sim) == ["after#1"]
    assert rest(sim).result == [None, None]


@pytest.mark.parametrize(
    ("spec", "items"),
    [
        ({"over": "input", "do": "item", "done_when": "result[0] > 1"}, ["a", "b"]),
        ({"over": "input", "do": "item", "with": {"x": "${1 / item}"}}, [1, 0]),
        ({"over": "input", "do": "typed", "with": {"x": "${item}"}}, [1, "one"]),
    ],
)
def test_a_map_that_fails_half_way_takes_its_items_with_it(spec: Any, items: Any) -> None:
    typed = {"input": {"x": "int"}, "nodes": {"w": work("z"), "z": DONE}}
    node = {"map": spec, "catch": {"expression_error": "caught"}}
    sim = begin(one(node, {"item": ITEM, "typed": typed}), input=items)
    if running(sim):
        finish(sim, "n#1[0]/w#1")
    assert running(sim) == []
    assert rest(sim).result == "expression_error"
    assert sorted(sim.machine.state.frames) == [""]


def test_a_map_fails_when_the_last_of_its_cancelled_items_has_reported() -> None:
    each = {"nodes": {"w": work([{"if": "item == 1", "to": "bad"}, {"to": "z"}]), "bad": {"fail": "bad"}, "z": DONE}}
    node = {"map": {"over": "[1, 2, 3]", "do": "each"}, "catch": {"any": "caught"}}
    sim = Slow(one(node, {"each": each}))
    finish(sim, "n#1[0]/w#1")
    sim.report("n#1[1]/w#1", done=True)
    assert not sim.outcome.over
    sim.report("n#1[2]/w#1")
    assert rest(sim).result == "failed"
