"""``python -m benchmarks [NAME …] [--quick] [--full]``: measure, print, and write into RESULTS.md."""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.measurements import calls, confinement, graphs, language, policy, starting, waiting, weight, window
from benchmarks.measurements.speed import LANES, enter, run_lane
from benchmarks.report import RESULTS, Table, machine, stamp, write
from benchmarks.stand.contestants import Contestant, Stand
from benchmarks.stand.workload import script

Run = Callable[[Stand], Awaitable[Table]]
Alone = Callable[..., Table]
ALONE: dict[str, Alone] = {
    "language": language.measure_language,
    "policy": policy.measure_policy,
    "confinement": confinement.measure_confinement,
    "window": window.measure_window,
}
"""What needs no server."""
NAMES = (*LANES, "pipeline", "nodes", "graphs", "start", "bytes", "memory", "approvals", *ALONE, "model-call")


class Bench:
    """One run of the chosen benchmarks. Those that can share a server do, so that they are in the same conditions."""

    def __init__(self, names: list[str], *, quick: bool, full: bool, output: Path | None) -> None:
        self._names, self._quick, self._full, self._output = names, quick, full, output
        self._tables: list[Table] = []

    async def run(self, folder: Path) -> None:
        """Measure everything; what was measured before a failure is written too."""
        workloads = [w for lane in LANES.values() for w in lane.workloads]
        workloads += [w for part in (weight, starting, calls, waiting) for w in part.WORKLOADS]
        text = script(workloads)
        for stock in (False, True):
            lanes = [name for name in self._names if name in LANES and LANES[name].stock is stock]
            if lanes:
                async with Stand(folder / ("stock" if stock else "tuned"), text, stock=stock) as stand:
                    await self._race(stand, lanes)
        others: dict[str, Run] = {
            "pipeline": lambda stand: calls.measure_calls(stand, quick=self._quick),
            "nodes": lambda stand: graphs.measure_nodes(stand, quick=self._quick),
            "graphs": lambda stand: graphs.measure_graphs(stand, full=self._full, quick=self._quick),
            "start": lambda stand: starting.measure_starts(stand, quick=self._quick),
            "bytes": lambda stand: weight.weigh_bytes(stand, full=self._full),
            "memory": lambda stand: weight.weigh_memory(stand, full=self._full),
            "approvals": lambda stand: waiting.measure_waiting(stand, quick=self._quick),
        }
        for name in self._names:
            if name in others:
                async with Stand(folder / name, text) as stand:
                    await self._add(name, others[name](stand))
        for name in self._names:
            if name in ALONE:
                await self._add(name, asyncio.to_thread(ALONE[name], quick=self._quick))
        if "model-call" in self._names:
            await self._add("model-call", asyncio.to_thread(_model_call, self._quick))

    async def _race(self, stand: Stand, lanes: list[str]) -> None:
        who = list(dict.fromkeys(key for name in lanes for key in LANES[name].who))
        contestants: dict[str, Contestant] = await enter(stand, who)
        for name in lanes:
            await self._add(name, run_lane(stand, LANES[name], contestants, quick=self._quick))

    async def _add(self, name: str, measuring: Awaitable[Table]) -> None:
        started = time.perf_counter()
        try:
            table = await measuring
        except Exception as error:  # the others are still worth measuring
            table = Table(f"{name} failed", notes=[_said(error)])
        table.measured = stamp()
        self._tables.append(table)
        print(f"{table.markdown()}\n({time.perf_counter() - started:.0f} s)\n", flush=True)
        if self._output is not None:
            write(self._tables, path=self._output)


def _said(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _model_call(quick: bool) -> Table:
    command = [sys.executable, "-m", "benchmarks.measurements.model_call", "--times", "10" if quick else "50"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Table("A model call: client CPU (aim ≤ 5 ms at 200 messages)", block=done.stdout)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="two rounds each; nothing is written")
    parser.add_argument("--full", action="store_true", help="1,000 turns where 100 are the default")
    parser.add_argument("--output", type=Path, help=f"default: {RESULTS.name}, unless --quick")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    names = options.names or list(NAMES)
    output = options.output or (None if options.quick else RESULTS)
    print("\n".join(machine()), "", sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder:
        asyncio.run(Bench(names, quick=options.quick, full=options.full, output=output).run(Path(folder)))
    if output is not None:
        print(f"Written to {output}")
    sys.stdout.flush()
    os._exit(0)  # a process that used Temporal's native client may abort in the interpreter's own ending


if __name__ == "__main__":
    main()
