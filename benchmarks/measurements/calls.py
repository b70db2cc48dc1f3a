"""What a tool call costs on its way through the pipeline, by where it runs and what is kept of it."""

import json
import secrets
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report import Table
from benchmarks.stand.contestants import HandWritten, LoomJobs, LoomSide, Stand
from benchmarks.stand.race import race
from benchmarks.stand.tools import TOOLS
from benchmarks.stand.workload import Workload
from loom_dsl.tools.tool import validate_arguments

FEW, MANY = 2, 42
"""Calls in a turn. What one costs is what the others add, so the turn itself is not counted."""
WAYS = {
    "lookup": "local (read-only, `quick`)",
    "fetch": "remote (read-only)",
    "post": "remote, with its effect in the ledger",
}
WORKLOADS = [Workload(turns=1, tool=tool, width=width) for tool in WAYS for width in (FEW, MANY)]


class FanOut:
    """Activities of a hand-written workflow, so many at once."""

    def __init__(self, other: HandWritten, at_once: int) -> None:
        self._other, self._at_once, self.pid = other, at_once, other.pid

    async def calls(self, width: int) -> None:
        """Run so many."""
        client, name = self._other.client, f"calls-{secrets.token_hex(5)}"
        await client.execute_workflow("bench.map", args=[width, self._at_once], id=name, task_queue="loop")


class ToolCalls:
    """Calls of one tool in one turn of a job, so many at once."""

    def __init__(self, side: LoomSide, tool: str, at_once: int) -> None:
        self._jobs, self._tool, self._at_once, self.pid = LoomJobs(side, "per_turn"), tool, at_once, side.process.pid

    async def calls(self, width: int) -> None:
        """Run so many.

        Raises:
            RuntimeError: The job did not do what it was to do.
        """
        workload = Workload(turns=1, tool=self._tool, width=width)
        result = await (await self._jobs.start(workload, max_concurrency=self._at_once)).result()
        if result.status != "completed" or result.usage.tool_calls != width:
            raise RuntimeError(f"{self._tool}: {result.status} after {result.usage.tool_calls} calls: {result.error}")


@dataclass(frozen=True)
class Wide:
    """A contestant of a race: someone, with so many calls."""

    name: str
    who: FanOut | ToolCalls
    width: int

    @property
    def pid(self) -> int:
        """The worker's process."""
        return self.who.pid

    async def run(self, workload: Workload) -> None:
        """Do it; the number of calls is this contestant's own."""
        await self.who.calls(self.width)


async def measure_calls(stand: Stand, *, quick: bool) -> Table:
    """Measure calls one after the other and ten at once, in turn with activities of a hand-written workflow."""
    table = Table("Pipeline: what a tool call adds", ["", "ms each", "to (b)", "CPU ms each", "CPU to (b)"])
    other, side = await stand.hand_written(), await stand.loom("calls")
    table.rows.append(["(a) arguments validated, function called", f"{_plain() * 1000:.3f}", "", "", ""])
    for at_once in (1, 10):
        how = "one after the other" if at_once == 1 else f"{at_once} at once"
        base = f"(b) an activity each, {how}"
        entered: dict[str, FanOut | ToolCalls] = {base: FanOut(other, at_once)}
        entered |= {f"Loom, {what}, {how}": ToolCalls(side, tool, at_once) for tool, what in WAYS.items()}
        racing = [Wide(f"{name} {width}", who, width) for name, who in entered.items() for width in (FEW, MANY)]
        await race(racing, WORKLOADS[0], 1, server=stand.server_pid)  # fills caches
        times = await race(racing, WORKLOADS[0], 2 if quick else 5, server=stand.server_pid)
        seconds, cpu = (
            {
                name: _added(getattr(times[f"{name} {FEW}"], kind), getattr(times[f"{name} {MANY}"], kind))
                for name in entered
            }
            for kind in ("seconds", "cpu")
        )
        table.rows += [[name, *_cells(seconds, name, base), *_cells(cpu, name, base)] for name in entered]
    table.notes.append(
        f"What {MANY} calls in one turn take beyond {FEW}, divided by {MANY - FEW}. Each call goes through discover, "
        "validate, authorize, check_cancel, execute and format; its result is masked and stored, and its events are "
        "told. Tools that change something run one after the other in any case. CPU: of the worker and the server."
    )
    return table


def _plain() -> float:
    """Seconds of a call without anything around it."""
    raw, times = json.dumps({"key": "0.1", "size": 40}), 2_000
    began = time.perf_counter()
    for _ in range(times):
        TOOLS["lookup"].function(**validate_arguments(TOOLS["lookup"], raw))
    return (time.perf_counter() - began) / times


def _added(few: Sequence[float], many: Sequence[float]) -> list[float]:
    """What each call beyond the few added, a number for each round."""
    return [(more - less) / (MANY - FEW) for less, more in zip(few, many, strict=True)]


def _cells(by_name: dict[str, list[float]], name: str, base: str) -> list[str]:
    mine, theirs = by_name[name], by_name[base]
    ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
    return [f"{statistics.median(mine) * 1000:.1f}", f"{ratio:.2f}"]
