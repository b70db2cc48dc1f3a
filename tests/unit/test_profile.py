"""What each turn of a job took, from its events."""

from typing import Any

import pytest

from loom_dsl.agent.turn import turn_id
from loom_dsl.observe.events import decode
from loom_dsl.observe.profile import Level, ToolDone, profile

Raw = dict[str, Any]


def levels(*raw: Raw, end: float = 100.0) -> list[Level]:
    return profile((decode("j", offset, event) for offset, event in enumerate(raw, 1)), end)


def begins(turn: int, at: float) -> Raw:
    return {"t": "iteration_start", "n": turn, "at": at}


def test_a_turn_lasts_from_its_model_call_to_the_next_ones_and_the_last_one_to_the_end() -> None:
    first, second = levels(
        begins(0, 10.0),
        {"t": "llm_start", "n": 0, "at": 10.25},
        {"t": "llm_finish", "n": 0, "ms": 1500, "at": 11.0},
        {"t": "tool_result", "n": 0, "tool": "glob", "status": "success", "ms": 250, "at": 11.0},
        {"t": "tool_result", "n": 0, "tool": "grep", "status": "error", "code": "denied", "at": 11.0},
        begins(1, 12.0),
        {"t": "llm_start", "n": 1, "at": 12.5},
        end=13.0,
    )
    assert (first.started, first.seconds, first.model_seconds, first.tool_seconds) == (10.25, 2.25, 1.5, 0.25)
    assert first.tools == [
        ToolDone(tool="glob", status="success", seconds=0.25),
        ToolDone(tool="grep", status="error", code="denied"),
    ]
    assert (first.turn_id, first.parent_turn_id, first.depth) == (turn_id("j", 0), None, 0)
    assert (second.turn_id, second.parent_turn_id, second.depth) == (turn_id("j", 1), first.turn_id, 1)
    assert (second.seconds, second.model_seconds, second.tools) == (0.5, None, [])


def test_several_model_calls_of_one_turn_add_up_and_its_beginning_is_that_of_the_first() -> None:
    (level,) = levels(
        begins(0, 10.0),
        {"t": "llm_start", "n": 0, "at": 10.5},
        {"t": "llm_finish", "n": 0, "ms": 400, "at": 11.0},
        {"t": "llm_start", "n": 0, "at": 12.5},
        {"t": "llm_finish", "n": 0, "ms": 600, "at": 13.0},
        end=14.0,
    )
    assert (level.started, level.model_seconds) == (10.5, 1.0)


def test_a_turn_has_what_its_compressions_left() -> None:
    sizes = {"messages_before": 9, "messages_after": 4, "tokens_before": 4645, "tokens_after": 1289}
    first, second = levels(
        begins(0, 10.0), begins(1, 11.0), {"t": "compression_applied", "n": 1, "at": 11.0, **sizes}, end=12.0
    )
    assert (first.compressions, second.compressions) == ([], [sizes])


def test_a_turn_that_compresses_first_begins_with_that() -> None:
    first, second = levels(
        begins(0, 10.0),
        {"t": "llm_start", "n": 0, "at": 10.5},
        {"t": "llm_finish", "n": 0, "ms": 400, "at": 11.0},
        begins(1, 11.0),
        {"t": "compression_applied", "n": 1, "at": 41.5, "ms": 30_000},
        {"t": "llm_start", "n": 1, "at": 41.75},
        {"t": "compression_applied", "n": 1, "at": 51.5, "ms": 1_000},
        end=52.0,
    )
    assert (first.seconds, second.started, second.seconds) == (1.0, 11.5, 40.5)


def asked(name: str, at: float) -> Raw:
    return {"t": "approval_requested", "n": 0, "approval_id": name, "at": at}


def decided(name: str, at: float) -> Raw:
    return {"t": "approval_decided", "n": 0, "approval_id": name, "at": at}


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ([asked("a", 10), decided("a", 40)], 30),
        ([asked("a", 10), asked("b", 20), decided("a", 30), decided("b", 50)], 40),
        ([asked("a", 10), decided("a", 20), asked("b", 50), decided("b", 60)], 20),
        ([asked("a", 10)], 90),
        ([asked("a", 10), asked("b", 20), decided("b", 30)], 90),
        ([decided("of nobody", 20), asked("a", 10), decided("a", 5)], 0),
    ],
    ids=["one", "two at once", "one after another", "still open", "one still open", "clocks that differ"],
)
def test_a_turn_waits_while_any_of_its_questions_is_open(events: list[Raw], seconds: float) -> None:
    (level,) = levels(begins(0, 5.0), *events)
    assert level.waited_seconds == seconds


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    assert [level.seconds for level in levels(begins(0, 50.0), begins(1, 20.0), end=10.0)] == [0.0, 0.0]


def test_a_fork_begins_at_its_own_turn_and_a_graph_has_none() -> None:
    (level,) = levels({"t": "state", "n": 0, "at": 1.0}, {**begins(3, 10.0), "p": "t-of-another"}, end=11.0)
    assert (level.turn, level.depth, level.parent_turn_id) == (3, 3, "t-of-another")
    assert levels({"t": "node_start", "n": 0, "node": "a#1", "kind": "llm"}) == []


def test_what_an_older_release_did_not_note_is_left_out() -> None:
    (level,) = levels(begins(0, 10.0), {"t": "llm_start", "n": 0}, {"t": "llm_finish", "n": 0, "content": "x"})
    assert (level.started, level.model_seconds) == (10.0, None)
