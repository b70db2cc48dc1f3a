"""Whose fault it is that a worker died, and how a step that may be at fault is run again.

A worker that dies says nothing, so each step notes that it begins. Whoever comes after finds the notes of a process
that is gone. A step that ran alone ended its worker; of several any may have, so they are suspects. A worker that dies
right after its start is a bad release, and no step's fault.
"""

from dataclasses import dataclass
from typing import Literal

Judgement = Literal["counted", "suspected"]
Course = Literal["together", "apart", "halted"]
"""How a step runs: in the worker beside the others; its users' code in a process of its own, and what is Loom's one
suspect at a time; or not before a person has looked at it."""


@dataclass(frozen=True, slots=True)
class DeathRules:
    """What deaths mean.

    Attributes:
        most: Counted deaths after which a step is halted.
        young: Seconds from a worker's start within which its death is no step's fault.
        silent: Seconds after which a worker on another machine that has said nothing is gone.
        singly: Deaths of workers, counted or not, after which a step of Loom's own waits for the other suspects. Most
            are killed from outside, with many steps under way, and these must not stand in line for it.
    """

    most: int = 3
    young: float = 30.0
    silent: float = 20.0
    singly: int = 5


DEATH_RULES = DeathRules()


@dataclass(frozen=True, slots=True)
class StepHistory:
    """What earlier attempts at a step left behind.

    Attributes:
        deaths: Processes that died while they had this step alone.
        suspected: Workers that died while they had this step and others, or were too young.
        unclear: It cannot be told whether the process of the attempt before this one is gone.
    """

    deaths: int = 0
    suspected: int = 0
    unclear: bool = False


def judge(others: int, age: float | None, rules: DeathRules) -> Judgement:
    """Say whether the death of a worker counts for a step that it had begun.

    Args:
        others: How many other steps it had begun.
        age: Seconds for which it had run; None: not known.
        rules: What deaths mean.
    """
    return "counted" if others == 0 and (age is None or age >= rules.young) else "suspected"


def course_of(history: StepHistory, rules: DeathRules) -> Course:
    """Say how to run a step with this history."""
    if history.deaths >= rules.most:
        return "halted"
    return "apart" if history.deaths or history.suspected or history.unclear else "together"


def runs_singly(history: StepHistory, rules: DeathRules) -> bool:
    """Whether a step of Loom's own, which nothing can run apart, has to wait for the other suspects."""
    return history.deaths + history.suspected >= rules.singly


def renewed(history: StepHistory) -> StepHistory:
    """What is left of a history when a step is halted: who resumes it begins counting anew, and trusts it no more."""
    return StepHistory(suspected=max(1, history.suspected))


def death_told(judgement: Judgement, others: int, age: float | None, deaths: int, rules: DeathRules) -> str:
    """Say in a sentence what a worker's death means for a step.

    Args:
        judgement: As `judge` gave it.
        others: How many other steps the worker had begun.
        age: Seconds for which it had run; None: not known.
        deaths: Those that count by now.
        rules: What deaths mean.
    """
    apart = "users' code of this step runs in a process of its own now"
    if judgement == "counted":
        return f"a worker died while it had only this step ({deaths} of {rules.most}); {apart}"
    if others:
        with_them = "another step" if others == 1 else f"{others} other steps"
        return f"a worker died while it had this step and {with_them}, so it is not known which one did it; {apart}"
    return f"a worker died {age or 0:.0f} s after its start while it had this step, which does not count; {apart}"
