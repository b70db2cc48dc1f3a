"""Whose fault a death is, and how a step runs after it: as tables."""

import pytest

from activities.lifecycle.deaths import DeathRules, StepHistory, course_of, death_told, judge, renewed, runs_singly

RULES = DeathRules(most=3, young=30.0, singly=2)


@pytest.mark.parametrize(
    ("others", "age", "expected"),
    [
        (0, 31.0, "counted"),
        (0, 30.0, "counted"),
        (0, None, "counted"),
        (0, 29.9, "suspected"),
        (0, 0.0, "suspected"),
        (1, 31.0, "suspected"),
        (9, None, "suspected"),
        (1, 1.0, "suspected"),
    ],
)
def test_a_death_counts_for_a_step_that_was_alone_in_a_worker_that_was_not_young(
    others: int, age: float | None, expected: str
) -> None:
    assert judge(others, age, RULES) == expected


@pytest.mark.parametrize(
    ("history", "course", "singly"),
    [
        (StepHistory(), "together", False),
        (StepHistory(suspected=1), "apart", False),
        (StepHistory(deaths=1), "apart", False),
        (StepHistory(unclear=True), "apart", False),
        (StepHistory(deaths=1, suspected=1), "apart", True),
        (StepHistory(suspected=2), "apart", True),
        (StepHistory(deaths=2), "apart", True),
        (StepHistory(suspected=100), "apart", True),
        (StepHistory(deaths=3), "halted", True),
        (StepHistory(deaths=4, suspected=1), "halted", True),
    ],
)
def test_a_history_says_how_a_step_runs(history: StepHistory, course: str, singly: bool) -> None:
    assert course_of(history, RULES) == course
    assert runs_singly(history, RULES) == singly


@pytest.mark.parametrize("history", [StepHistory(deaths=3), StepHistory(deaths=5, suspected=2)])
def test_who_resumes_a_step_counts_anew_and_does_not_trust_it(history: StepHistory) -> None:
    assert renewed(history).deaths == 0
    assert course_of(renewed(history), RULES) == "apart"


@pytest.mark.parametrize(
    ("others", "age", "words"),
    [(0, 60.0, "only this step (1 of 3)"), (0, 4.2, "4 s after its start"), (1, 60.0, "and another step"),
     (5, 4.0, "5 other steps")],
)  # fmt: skip
def test_it_is_told_why_a_death_counts_or_does_not(others: int, age: float, words: str) -> None:
    judgement = judge(others, age, RULES)
    assert words in death_told(judgement, others, age, 1, RULES)
