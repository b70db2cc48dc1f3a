"""What confining a command costs, against the same command started plainly."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.report import Table
from loom_tools.sandbox.order import Means
from loom_tools.sandbox.run import LAUNCHER, run_confined
from loom_tools.sandbox.settings import lacking, order_of

SHELL = ["/bin/bash", "--noprofile", "--norc", "-c"]
MAX_SECONDS = 120.0
COMPUTING = "n=0; while [ $n -lt 50000 ]; do n=$((n+1)); done"
FILES = "for n in $(seq 500); do echo $n > f$n; done; cat f* > all; rm f*"
PROCESSES = "for n in $(seq 100); do /bin/true; done"
PYTHON = f"{os.path.realpath(sys.executable)} -c 'import json'"
OUTPUT = "head -c 2000000 /dev/zero | tr '\\0' x"
MANY = 10_000
"""Files of the larger working directory: what is to be protected is looked for in all of it."""


def measure_confinement(*, quick: bool) -> Table:
    """Measure commands in each of the ways that this machine offers, in turn with the plain ones."""
    table = Table("Commands: confined and not", ["", "plain, ms", "confined, ms", "to plain", "no namespaces, ms"])
    means = LAUNCHER.means()
    if missing := lacking(means):
        table.notes.append(f"Not measured: this machine lacks {' and '.join(missing)}.")
        return table
    rounds = 3 if quick else 11
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small"), Path(folder, "large")
        for place in (small, large):
            place.mkdir()
        for number in range(MANY):
            within = large / f"d{number // 100}"
            within.mkdir(exist_ok=True)
            (within / f"f{number}").touch()
        for what, command, place in (
            ("nothing: `true`", "true", small),
            (f"nothing, in a directory of {MANY:,} files", "true", large),
            ("50,000 steps of a loop in bash", COMPUTING, small),
            ("500 files written, read and removed", FILES, small),
            ("100 processes, one after the other", PROCESSES, small),
            ("Python started", PYTHON, small),
            ("2 MB of output", OUTPUT, small),
        ):
            table.rows.append(_row(what, command, place, means, rounds))
    LAUNCHER.close()
    namespaces = "with namespaces" if means.namespaces else "without namespaces, which this machine does not offer"
    table.notes.append(
        f"Confined: Landlock (version {means.landlock}), seccomp, {namespaces}. Plain: `subprocess.run` of the same "
        "shell. Medians; the ratio is the median of the rounds' ratios."
    )
    return table


def _row(what: str, command: str, place: Path, means: Means, rounds: int) -> list[str]:
    ways: list[Callable[[], None]] = [lambda: _plain(command, place), lambda: _confined(command, place, means)]
    if means.namespaces:
        ways.append(lambda: _confined(command, place, replace(means, namespaces=False)))
    times: list[list[float]] = []
    for number in range(rounds + 1):
        turned = [(index + number) % len(ways) for index in range(len(ways))]  # who goes first must not matter
        taken = {index: _seconds(ways[index]) for index in turned}
        times.append([taken[index] for index in range(len(ways))])
    kept = times[1:]  # the first fills caches
    medians = [statistics.median(taken[index] for taken in kept) * 1000 for index in range(len(ways))]
    ratio = statistics.median(taken[1] / taken[0] for taken in kept)
    other = f"{medians[2]:.1f}" if len(medians) > 2 else ""
    return [what, f"{medians[0]:.1f}", f"{medians[1]:.1f}", f"{ratio:.2f}", other]


def _plain(command: str, place: Path) -> None:
    done = subprocess.run([*SHELL, command], cwd=place, capture_output=True, timeout=MAX_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{command!r} ended with {done.returncode}: {done.stderr[-300:]!r}")


def _confined(command: str, place: Path, means: Means) -> None:
    order = order_of([*SHELL, command], place, means, {"HOME": "/nonexistent"}, cpu=MAX_SECONDS)
    ended = run_confined(order, timeout=MAX_SECONDS)
    if ended.status:
        raise RuntimeError(f"{command!r}, confined, ended with {ended.status}: {ended.output[-300:]}")


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
