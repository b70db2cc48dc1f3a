"""Writes what the nightly lane did into `tests/NIGHTLY.md`: a plug-in of pytest, for ``-p tests.support.nightly``.

Nothing else runs that lane, so the file is committed. It is written only for a run of the whole lane.
"""

import time
from pathlib import Path

import pytest

from benchmarks.report import host, stamp

REPORT = Path(__file__).resolve().parents[1] / "NIGHTLY.md"
SLOWEST = 20
_COUNTED = ("passed", "failed", "error", "skipped")
_began = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Write the report, unless a part of the lane was chosen or the run was broken off."""
    if is_whole(config) and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        stats: dict[str, list[pytest.TestReport]] = terminalreporter.stats
        REPORT.write_text(report(stats, time.monotonic() - _began), encoding="utf-8")


def is_whole(config: pytest.Config) -> bool:
    """Say whether all tests of the lane were asked for."""
    chosen = [config.getoption(name) for name in ("keyword", "lf", "deselect", "collectonly")]
    return not any(chosen) and [Path(given).resolve() for given in config.args] == [REPORT.parent]


def report(stats: dict[str, list[pytest.TestReport]], seconds: float) -> str:
    """Tell of a run.

    Args:
        stats: What pytest counted, by its word for it.
        seconds: How long all of it took.

    Returns:
        A page of Markdown.
    """
    seen = {name: stats.get(name, []) for name in _COUNTED}
    counts = ", ".join(f"{len(found)} {name}" for name, found in seen.items() if found)
    wrong = [f"- failed: `{one.nodeid}`" for one in (*seen["failed"], *seen["error"])]
    slow = sorted(seen["passed"], key=lambda one: one.duration, reverse=True)[:SLOWEST]
    rows = [f"| {one.duration:.0f} | `{one.nodeid.removeprefix('tests/')}` |" for one in slow]
    lines = [
        "# The nightly lane",
        "",
        f"- Written by `make nightly` on {host()}",
        f"- {counts} in {seconds / 60:.0f} minutes",
        *wrong,
        "",
        stamp(),
        "",
        "| seconds | the slowest |",
        "|---:|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"
