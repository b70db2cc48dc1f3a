"""Contestants doing the same job in turn, so that a busy moment of the machine hits all of them."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import psutil

from benchmarks.stand.workload import Workload


class Racer(Protocol):
    """Somebody who does jobs.

    Attributes:
        name: What tells it from the others.
        pid: The process that does the work.
    """

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int: ...

    async def run(self, workload: Workload) -> None:
        """Do one job."""


@dataclass(slots=True)
class Times:
    """What one contestant took, a number for each round.

    Attributes:
        seconds: From start to result.
        cpu: Seconds of CPU of the process that does the work (a worker, or the driver for a plain loop) and of the
            server. Other work on the machine changes them less than it changes `seconds`.
    """

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the rounds, in seconds."""
        return statistics.median(self.seconds)

    def ratios(self, other: "Times") -> list[float]:
        """Give each round's seconds over those of another contestant in the same round."""
        return [mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True)]


async def race(
    contestants: Sequence[Racer], workload: Workload, rounds: int, *, server: int, at_once: int = 1
) -> dict[str, Times]:
    """Let every contestant do the same job, round after round, in an order that turns.

    Args:
        contestants: Who takes part.
        workload: The job.
        rounds: How often.
        server: The process of the Temporal server.
        at_once: How many of the job at the same time.
    """
    times = {contestant.name: Times() for contestant in contestants}
    for number in range(rounds):
        shift = number % len(contestants)
        for contestant in [*contestants[shift:], *contestants[:shift]]:
            processes = [psutil.Process(pid) for pid in (contestant.pid, server)]
            cpu, started = _cpu(processes), time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(contestant.run(workload))
            times[contestant.name].seconds.append(time.perf_counter() - started)
            times[contestant.name].cpu.append(_cpu(processes) - cpu)
    return times


def _cpu(processes: Sequence[psutil.Process]) -> float:
    taken = [process.cpu_times() for process in processes]
    return sum(float(part.user + part.system) for part in taken)
