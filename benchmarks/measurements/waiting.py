"""Many jobs that wait for a human: what they weigh, and how long a decision takes among them."""

import asyncio
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import psutil

from benchmarks.report import Table, aim
from benchmarks.stand.contestants import HandWritten, LoomJobs, LoomSide, Stand
from benchmarks.stand.workload import Workload
from loom_client.job import Job

APPROVAL = Workload(turns=1, tool="change")
WORKLOADS = [APPROVAL]
AT_ONCE = 10
"""Jobs that are being started at the same time."""
SAMPLE = 30
"""Decisions of which the time is taken, one after the other."""
PATIENCE = 900.0
"""Seconds after which something is broken."""
KIB, MIB = 1024, 1024 * 1024
HEADS = ["", "waiting", "worker, MB", "KB a job", "start, ms", "list, ms", "answer, ms", "most", "end, ms", "most"]
RUNNING = "WorkflowType = 'bench.gate' AND ExecutionStatus = 'Running'"


class Waiting(Protocol):
    """Jobs that wait."""

    name: str
    pid: int

    async def start(self) -> None:
        """Start one more."""

    async def listed(self) -> Sequence[Any]:
        """All that wait."""

    async def decide(self, asked: Any) -> Callable[[], Awaitable[object]]:
        """Decide one and wait for the answer; gives how to wait for the job's end."""


class Gates:
    """A hand-written workflow that waits for an update, then runs one activity."""

    name = "(b) hand-written workflow"

    def __init__(self, other: HandWritten) -> None:
        self._client, self.pid, self._names = other.client, other.pid, dict[str, None]()

    async def start(self) -> None:
        name = f"gate-{secrets.token_hex(5)}"
        await self._client.start_workflow("bench.gate", id=name, task_queue="loop")
        # An answer means that its first task is done and it waits.
        await self._client.get_workflow_handle(name).query("waits")
        self._names[name] = None

    async def listed(self) -> list[str]:
        running = [found.id async for found in self._client.list_workflows(RUNNING)]
        return [name for name in running if name in self._names]  # what the server lists may be a moment old

    async def decide(self, asked: str) -> Callable[[], Awaitable[object]]:
        del self._names[asked]
        handle = self._client.get_workflow_handle(asked)
        await handle.execute_update("decide", "approve")
        return handle.result


class Approvals:
    """Jobs of Loom that ask before a tool call."""

    name = "Loom"

    def __init__(self, side: LoomSide) -> None:
        self._side, self._jobs, self.pid = side, LoomJobs(side, "per_turn"), side.process.pid
        self._started: dict[str, Job] = {}

    async def start(self) -> None:
        job = await self._jobs.start(APPROVAL)
        self._started[job.id] = job
        async for event in job.events():
            if event.type == "approval_requested":
                return

    async def listed(self) -> list[dict[str, Any]]:
        return [{"job": asked.job, "id": asked.id} for asked in await self._side.loom.approvals()]

    async def decide(self, asked: dict[str, Any]) -> Callable[[], Awaitable[object]]:
        job = self._started[asked.job]
        await job.decide(asked.id, "approve", by="bench")
        return job.result


async def measure_waiting(stand: Stand, *, quick: bool) -> Table:
    """Let more and more jobs wait, and each time decide some of them."""
    table = Table("1,000 jobs that wait for an approval", HEADS)
    steps = (0, 20, 60) if quick else (0, 100, 1_000)
    everybody: list[Waiting] = [Gates(await stand.hand_written()), Approvals(await stand.loom("waiting"))]
    for who in everybody:
        await _more(who, 1)
        (await (await who.decide((await who.listed())[0]))())  # fills caches
    answers: dict[str, list[float]] = {who.name: [] for who in everybody}
    rests = {who.name: _resident(who) for who in everybody}
    for step in steps:
        for who in everybody:
            started, count = time.perf_counter(), step + SAMPLE - len(await who.listed())
            await _more(who, count)
            each = (time.perf_counter() - started) / count
            resident = _resident(who)
            heavy = (resident - rests[who.name]) / (step + SAMPLE) / KIB
            listing, answered, ended = await _decided(who)
            answers[who.name].append(statistics.median(answered))
            row = [
                f"{resident / MIB:.0f}",
                f"{heavy:.0f}" if step else "",
                f"{each * 1000:.0f}",
                f"{listing * 1000:.1f}",
            ]
            table.rows.append([who.name, f"{step:,}", *row, *_times(answered), *_times(ended)])
    for name, medians in answers.items():
        growth = medians[-1] / medians[0]
        table.notes.append(
            f"{name}: with {steps[-1]:,} waiting, a decision is answered in {growth:.2f} × the time that it takes "
            f"alone, aim {aim(growth, 1.25)}."
        )
    table.notes.append(
        f"Waiting: besides the {SAMPLE} that are decided, one after the other. Start: {AT_ONCE} at a time, until the "
        "question is there. List: all that wait. Answer: from sending the decision to its answer (an update). End: to "
        "the job's result; for Loom a tool call with its effect and the closing model call, for (b) one activity. "
        "Medians."
    )
    return table


async def _more(who: Waiting, count: int) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def start() -> None:
        async with gate:
            await who.start()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(start())


async def _decided(who: Waiting) -> tuple[float, list[float], list[float]]:
    """Decide some, spread over all that wait: seconds of listing, of each answer, and until each end."""
    listings = []
    for _ in range(5):
        began = time.perf_counter()
        found = await who.listed()
        listings.append(time.perf_counter() - began)
    answered, ended = [], []
    async with asyncio.timeout(PATIENCE):
        for number in range(SAMPLE):
            began = time.perf_counter()
            end = await who.decide(found[number * len(found) // SAMPLE])
            answered.append(time.perf_counter() - began)
            await end()
            ended.append(time.perf_counter() - began)
    return statistics.median(listings), answered, ended


def _times(seconds: Sequence[float]) -> list[str]:
    return [f"{statistics.median(seconds) * 1000:.0f}", f"{max(seconds) * 1000:.0f}"]


def _resident(who: Waiting) -> int:
    return int(psutil.Process(who.pid).memory_info().rss)
