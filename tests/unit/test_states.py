import itertools

import pytest

from loom_dsl.agent.states import TRANSITIONS, RunState, mermaid, transition
from loom_dsl.errors import IllegalTransition

LEGAL = {
    ("idle", "preparing"),
    ("preparing", "model_running"),
    ("preparing", "failed"),
    ("preparing", "aborted"),
    ("model_running", "completed"),
    ("model_running", "tool_running"),
    ("model_running", "failed"),
    ("model_running", "aborted"),
    ("tool_running", "awaiting_human"),
    ("tool_running", "model_running"),
    ("tool_running", "failed"),
    ("tool_running", "aborted"),
    ("idle", "running"),
    ("running", "awaiting_human"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "aborted"),
    ("awaiting_human", "running"),
    ("awaiting_human", "tool_running"),
    ("awaiting_human", "model_running"),
    ("awaiting_human", "failed"),
    ("awaiting_human", "aborted"),
}


@pytest.mark.parametrize(("old", "new"), [p for p in itertools.product(RunState, RunState) if p[0] is not p[1]])
def test_only_the_documented_changes_are_legal(old: RunState, new: RunState) -> None:
    if (old.value, new.value) in LEGAL:
        assert transition(old, new) is new
    else:
        with pytest.raises(IllegalTransition, match=f"{old} cannot become {new}"):
            transition(old, new)


@pytest.mark.parametrize("state", list(RunState))
def test_staying_is_no_change_and_allowed(state: RunState) -> None:
    assert transition(state, state) is state


@pytest.mark.parametrize("state", list(RunState))
def test_every_state_is_in_the_table_and_has_a_phrase_of_its_own(state: RunState) -> None:
    assert state in TRANSITIONS
    assert state.phrase
    assert [other for other in RunState if other.phrase == state.phrase] == [state]


def test_the_ended_states_are_those_that_nothing_follows() -> None:
    assert {state.value for state in RunState if state.is_final} == {"completed", "failed", "aborted"}


def test_every_state_can_be_reached_and_can_end() -> None:
    def reachable(start: RunState) -> set[RunState]:
        seen, frontier = {start}, [start]
        while frontier:
            fresh = set(TRANSITIONS[frontier.pop()]) - seen
            seen |= fresh
            frontier += fresh
        return seen

    assert reachable(RunState.IDLE) == set(RunState)
    assert all(any(end.is_final for end in reachable(state)) for state in RunState)


def test_a_refusal_after_the_end_says_that_it_has_ended() -> None:
    with pytest.raises(IllegalTransition, match="because it has ended"):
        transition(RunState.COMPLETED, RunState.PREPARING)


def test_a_state_reads_from_its_stored_word() -> None:
    assert RunState("tool_running") is RunState.TOOL_RUNNING


def test_the_picture_has_an_arrow_for_every_change_and_no_other() -> None:
    arrows = [line.strip().split(":")[0].split(" --> ") for line in mermaid().splitlines()[1:]]

    assert {(a, b) for a, b in arrows if "[*]" not in (a, b)} == LEGAL
    assert {a for a, b in arrows if b == "[*]"} == {"completed", "failed", "aborted"}
    assert [b for a, b in arrows if a == "[*]"] == ["idle"]
