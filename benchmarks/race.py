"""Contestants doing the same job in turn, so that a busy moment of the machine hits all of them."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.stand import Contestant
from benchmarks.workload import Workload


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each round of one contestant, and those of the one that it is held against.

    Attributes:
        name: The contestant.
        seconds: One number a round.
        ratios: Each round's seconds over those of the reference in the same round.
    """

    name: str
    seconds: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the rounds, in seconds."""
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios to the reference."""
        return statistics.median(self.ratios)


async def race(
    contestants: Sequence[Contestant], reference: Contestant, workload: Workload, rounds: int, *, at_once: int = 1
) -> list[Times]:
    """Let every contestant do the same job, round after round, in an order that turns.

    Args:
        contestants: Who takes part; the reference is one of them.
        reference: Whom the ratios are to.
        workload: The job.
        rounds: How often.
        at_once: How many of the job at the same time.
    """
    taken: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for number in range(rounds):
        shift = number % len(contestants)
        for contestant in [*contestants[shift:], *contestants[:shift]]:
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(contestant.run(workload))
            taken[contestant.name].append(time.perf_counter() - started)
    held = taken[reference.name]
    return [
        Times(name, tuple(seconds), tuple(mine / theirs for mine, theirs in zip(seconds, held, strict=True)))
        for name, seconds in taken.items()
    ]
