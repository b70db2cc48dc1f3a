"""After which turns a job may be forked, and what a fork knows of where it comes from."""

from typing import Any

import pytest

from loom_dsl.agent.fork import ForkPoint, Said, check_turn, turn_ends
from loom_dsl.errors import UserError

USER: dict[str, Any] = {"role": "user"}
TEXT: dict[str, Any] = {"role": "assistant"}
CALL: dict[str, Any] = {"role": "assistant", "tool_calls": [{"id": "c"}, {"id": "d"}]}
DONE: list[dict[str, Any]] = [{"role": "tool", "tool_call_id": "c"}, {"role": "tool", "tool_call_id": "d"}]


def conversation(*turns: list[dict[str, Any]], start: int = 0, first: int = 0) -> list[Said]:
    """A task, and what each turn wrote."""
    heads = [(first, head) for first, turn in enumerate(turns, first) for head in turn]
    task = Said(start, 0, USER, given=True)
    return [task, *(Said(seq, turn, head) for seq, (turn, head) in enumerate(heads, start + 1))]


ROUND = [CALL, *DONE]


@pytest.mark.parametrize(
    ("said", "latest", "over", "ends"),
    [
        pytest.param(conversation(), 0, False, [1], id="nothing was answered yet"),
        pytest.param(conversation(), 0, True, [1], id="the first model call failed"),
        pytest.param(conversation([CALL]), 0, False, [1], id="calls are under way"),
        pytest.param(conversation([CALL, DONE[0]]), 0, True, [1], id="a result is missing"),
        pytest.param(conversation(ROUND), 0, False, [1], id="the next turn has not begun"),
        pytest.param(conversation(ROUND), 1, False, [1, 4], id="the next turn has begun"),
        pytest.param(conversation(ROUND, [TEXT]), 1, False, [1, 4], id="an answer after which the turn may go on"),
        pytest.param(conversation(ROUND, [TEXT]), 1, True, [1, 4, 5], id="the job has ended"),
        pytest.param(conversation(ROUND, [USER, CALL]), 1, True, [1, 4], id="ended in the middle of a turn"),
        pytest.param(conversation(ROUND, [USER]), 1, True, [1, 4], id="ended before the turn's answer"),
        pytest.param(conversation(ROUND, [USER, *ROUND, USER], [TEXT]), 2, True, [1, 4, 9, 10], id="with messages"),
        pytest.param(conversation([], [TEXT]), 1, True, [1, 1, 2], id="a turn that says nothing"),
    ],
)
def test_a_turn_is_finished_when_its_calls_have_results_and_nothing_comes_after_them(
    said: list[Said], latest: int, over: bool, ends: list[int]
) -> None:
    assert turn_ends(said, first=0, start=0, latest=latest, over=over) == ends


def test_a_turn_whose_results_stand_for_nothing_is_not_finished() -> None:
    said = conversation(ROUND, [CALL])
    said += [Said(len(said) + n, 1, head, cut=True) for n, head in enumerate(DONE)]
    assert turn_ends(said, first=0, start=0, latest=1, over=True) == [1, 4]


def test_a_fork_counts_on_from_what_it_shares() -> None:
    assert turn_ends([], first=3, start=7, latest=0, over=True) == [7]
    said = conversation(ROUND, [TEXT], start=7, first=3)
    assert turn_ends(said, first=3, start=7, latest=4, over=True) == [8, 11, 12]


@pytest.mark.parametrize(
    ("turn", "finished", "over", "told"),
    [
        (
            3,
            2,
            True,
            "job j has finished 2 turns, so it cannot be forked at turn 3; give a turn from 0 to 2; 0 is",
        ),
        (2, 1, False, "job j runs, and has finished 1 turn so far, so it cannot be forked at turn 2"),
        (1, 0, False, "give 0, which is only its task"),
        (-1, 2, True, "give a turn from 0 to 2"),
    ],
)
def test_a_turn_that_is_not_finished_is_refused(turn: int, finished: int, over: bool, told: str) -> None:
    with pytest.raises(UserError) as refused:
        check_turn("j", turn, finished=finished, over=over)
    assert told in refused.value.message


def test_every_turn_from_the_task_to_the_last_one_is_taken() -> None:
    for turn in range(3):
        check_turn("j", turn, finished=2, over=False)


def test_a_point_comes_back_from_its_text_with_those_before_it() -> None:
    first = ForkPoint("a", 0, 1)
    second = ForkPoint("b", 4, 9, first)
    assert ForkPoint.read(second.text()) == second
    assert [one.job for one in second.line] == ["b", "a"]
