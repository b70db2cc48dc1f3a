"""The control-flow patterns in memory: the same result and the same trace, however it goes."""

from collections.abc import Callable

import pytest

from tests.support.patterns import SCENARIOS, InMemory, names
from tests.support.simulated import chance, check_states

ORDERS: dict[str, Callable[[], Callable[[], int]]] = {
    "first": lambda: lambda: 0,
    "last": lambda: lambda: -1,
    **{f"chance {seed}": lambda seed=seed: chance(seed) for seed in range(4)},  # type: ignore[misc]
}


def test_every_pattern_has_an_example_and_a_scenario() -> None:
    assert [int(name[:2]) for name in names()] == list(range(1, 44))
    assert sorted(SCENARIOS) == names()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("steps", [None, 4, 1])
@pytest.mark.parametrize("name", names())
def test_a_pattern_comes_to_the_same(name: str, steps: int | None, order: str) -> None:
    scenario = SCENARIOS[name]
    sim = InMemory(name, scenario, steps, ORDERS[order]())
    sim.play()
    assert sim.outcome.failure is None
    assert sim.outcome.over, f"it stands still: {sorted(sim.machine.state.tokens)}"
    assert sim.outcome.result == scenario.result
    assert sim.trace() == sorted(scenario.trace.split())
    check_states(sim.outcome)


ALONE = {
    "17-interleaved-parallel-routing": ("blood_taken#1", "blood_explained#1", "eyes_tested#1"),
    "39-critical-section": ("debit#1[0]/", "credit#1[0]/"),
    "40-interleaved-routing": ("fuelled#1", "cleaned#1", "loaded#1"),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ALONE)
def test_what_must_not_overlap_never_runs_together(name: str, order: str) -> None:
    sim = InMemory(name, SCENARIOS[name], None, ORDERS[order]())
    sim.play()
    for together in sim.together:
        assert len([part for part in ALONE[name] if any(at.startswith(part) for at in together)]) <= 1


def test_parallel_branches_do_run_together() -> None:
    sim = InMemory("03-synchronization", SCENARIOS["03-synchronization"], None)
    sim.play()
    assert {"billed#1", "shipped#1"} in sim.together
