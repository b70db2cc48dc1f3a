"""How long things take to begin, and tools that run beside each other."""

import os
import statistics
import subprocess
import sys
import time

from benchmarks.report import Table, aim
from benchmarks.stand.contestants import LoomJobs, Stand
from benchmarks.stand.workload import Workload

NAPS = Workload(turns=1, tool="nap", width=10)
ONE = Workload(turns=1)
WORKLOADS = [NAPS, ONE]


async def measure_starts(stand: Stand, *, quick: bool) -> Table:
    """Measure the command line, the worker, a job's first event, and ten tools at once."""
    times = 2 if quick else 5
    table = Table("Starting, and ten tools at once", ["", "median", "largest", "aim"])
    _add(table, "`loom --help`, CPU seconds", [_help_cpu() for _ in range(times)], 0.3)
    ready = []
    for number in range(times):
        started = time.perf_counter()
        side = await stand.loom(f"start-{number}")
        ready.append(time.perf_counter() - started)
    _add(table, "worker ready, seconds (new store included)", ready, 3)
    jobs = LoomJobs(side, "per_turn")
    await jobs.run(ONE)
    _add(table, "first event after start, seconds", [await _first_event(jobs) for _ in range(times)], 0.5)
    naps = []
    for _ in range(times):
        started = time.perf_counter()
        await jobs.run(NAPS)
        naps.append(time.perf_counter() - started)
    _add(table, "ten 1-second read-only tools in one turn, seconds for the job", naps, 2)
    return table


def _add(table: Table, name: str, seconds: list[float], limit: float) -> None:
    median = statistics.median(seconds)
    table.rows.append([name, f"{median:.2f}", f"{max(seconds):.2f}", aim(median, limit, form=".1f")])


def _help_cpu() -> float:
    """Seconds of CPU that `loom --help` takes.

    Raises:
        RuntimeError: It fails.
    """
    code = "import sys; from loom_cli import main; sys.exit(main(['--help']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"`loom --help` failed: {said[-500:]}")
    return usage.ru_utime + usage.ru_stime


async def _first_event(jobs: LoomJobs) -> float:
    started = time.perf_counter()
    job = await jobs.start(ONE)
    async for _ in job.events():
        break
    taken = time.perf_counter() - started
    await job.result()
    return taken
