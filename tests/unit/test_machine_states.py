"""The states of a run: the machine makes no change that the table has not, and a graph that asks for one fails."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.agent.states import STAYS, TRANSITIONS, RunState
from loom_dsl.errors import IllegalTransition
from tests.support.simulated import Agent, call, chance, check_states, drive, of_type, plan_of, run, simulate
from tests.support.tokens import control

ASKS = {"approval": {"request": {"tool": "x"}, "choices": ["approve"]}}
STATES = st.sampled_from(list(RunState))
NODES = st.lists(st.one_of(STATES, st.just("work"), st.just("ask")), max_size=5)
SEEDS = st.one_of(st.none(), st.integers(0, 1_000))
"""Of the order in which work ends; None: that in which it began, so that what observers are told comes in order too."""
CALLS = st.sampled_from(["read", "write", "ask_write", "deny", "write_broken"])


def in_order() -> int:
    """What began first ends first."""
    return 0


def graph_of(states: list[Any]) -> dict[str, Any]:
    """A row of nodes, each with its state, or with work, or with a question."""
    kinds: dict[str, Any] = {"work": {"activity": "echo"}, "ask": ASKS}
    nodes = {f"n{i}": {**kinds.get(s, {"state": str(s)}), "next": f"n{i + 1}"} for i, s in enumerate(states)}
    return {**nodes, f"n{len(states)}": {"end": 1}}


def illegal(states: list[RunState]) -> int | None:
    """The first node that asks for what the table has not; the number behind the last is the end."""
    now = RunState.RUNNING
    for index, new in enumerate(states):
        if new is not now and new not in STAYS.get(now, ()):
            if new not in TRANSITIONS[now]:
                return index
            now = new
    fits = now in (RunState.COMPLETED, RunState.AWAITING_HUMAN) or RunState.COMPLETED in TRANSITIONS[now]
    return None if fits else len(states)


@pytest.mark.parametrize("state", list(RunState))
def test_a_run_may_fail_in_every_state_so_that_a_defect_always_ends_it(state: RunState) -> None:
    assert state is RunState.FAILED or RunState.FAILED in {**TRANSITIONS[state], **STAYS.get(state, {})}


@pytest.mark.parametrize("state", list(RunState))
def test_no_change_is_made_and_left_out(state: RunState) -> None:
    assert not TRANSITIONS[state].keys() & STAYS.get(state, {}).keys()


@given(st.lists(STATES, max_size=4))
def test_a_graph_that_asks_for_what_the_table_has_not_fails_with_what_to_change(states: list[RunState]) -> None:
    outcome = run(plan_of(graph_of(states)))
    wrong = illegal(states)
    assert outcome.over
    check_states(outcome)
    if wrong is None:
        assert (outcome.failure, outcome.result) == (None, 1)
        return
    assert outcome.failure is not None
    assert outcome.failure.code == IllegalTransition.code
    if wrong < len(states):
        assert outcome.failure.message.endswith(f"change the `state` of the node `n{wrong}`")
        assert f"cannot become {states[wrong]}" in outcome.failure.message


@given(NODES, SEEDS, st.sampled_from([None, 1, 2]), st.booleans())
def test_whatever_states_its_nodes_have_a_graph_ends(
    states: list[Any], seed: int | None, steps: int | None, abort: bool
) -> None:
    sim = simulate(plan_of(graph_of(states)), steps_per_run=steps)
    sim.step()
    if abort and sim.machine.state.ending is None:
        control(sim, "abort", reason="enough")
    drive(sim, lambda at: "approve", in_order if seed is None else chance(seed))
    assert sim.outcome.over
    if seed is None:
        check_states(sim.outcome)
    failure = sim.outcome.failure
    assert failure is None or failure.code == IllegalTransition.code


@given(
    st.lists(st.lists(CALLS, max_size=3), max_size=4),
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["pause", "resume", "abort", "inject"])), max_size=3),
    st.sampled_from(["approve", "reject", "terminate", "expire"]),
    st.sampled_from([None, 1, 3]),
    SEEDS,
)
def test_an_agent_comes_to_no_change_that_the_table_has_not(
    turns: list[list[str]], controls: list[tuple[int, str]], choice: str, steps: int | None, seed: int | None
) -> None:
    names = [[call(10 * turn + i, name) for i, name in enumerate(calls)] for turn, calls in enumerate(turns)]
    agent, pick = Agent(names, steps_per_run=steps), in_order if seed is None else chance(seed)
    for moment, op in [*controls, (0, "resume")]:
        for _ in range(moment):
            agent.sim.step(pick())
        if agent.sim.machine.state.ending is None:
            control(agent.sim, op, **({"text": "go on"} if op == "inject" else {}))
    outcome = agent.run(lambda at: choice, pick)
    assert outcome.over
    assert outcome.failure is None or outcome.failure.code != IllegalTransition.code
    last = RunState(agent.sim.machine.state.run_state)
    assert last.is_final or last is RunState.IDLE
    if seed is None:
        check_states(outcome)
        assert [RunState(event["state"]) for event in of_type(outcome, "state")][-1:] in ([last], [])
