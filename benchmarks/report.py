"""What is printed and written: tables, the date and the machine."""

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "RESULTS.md"


@dataclass(slots=True)
class Table:
    """Some results.

    Attributes:
        title: What was measured.
        columns: Heads of the columns.
        rows: One text a column.
        notes: Paragraphs below the table.
        block: Output of another program, shown as it is.
    """

    title: str
    columns: Sequence[str] = ()
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    block: str = ""

    def markdown(self) -> str:
        """Write the table in Markdown, aligned."""
        lines = [f"## {self.title}", ""]
        if self.columns:
            widths = [max(len(row[i]) for row in [self.columns, *self.rows]) for i in range(len(self.columns))]
            lines.append(_line(self.columns, widths))
            lines.append("|" + "|".join("-" * (width + 2) for width in widths) + "|")
            lines += [_line(row, widths) for row in self.rows]
            lines.append("")
        if self.block:
            lines += ["```", self.block.strip(), "```", ""]
        for note in self.notes:
            lines += [note, ""]
        return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cells[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)),
    ]
    return "| " + " | ".join(padded) + " |"


def aim(value: float, limit: float, *, least: bool = False, form: str = ".2f") -> str:
    """Write what is aimed at and whether it is met: `≤ 1.20 ✓`."""
    met = value >= limit if least else value <= limit
    return f"{'≥' if least else '≤'} {limit:{form}} {'✓' if met else '✗'}"


def write(tables: Sequence[Table], *, path: Path = RESULTS, command: str) -> None:
    """Write a run's results over those of the run before."""
    head = ["# Benchmark results", "", *machine(command), ""]
    path.write_text("\n".join(head) + "\n" + "\n".join(table.markdown() for table in tables), encoding="utf-8")


def machine(command: str) -> list[str]:
    """Say when, how and on what the run was made."""
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    memory = psutil.virtual_memory().total / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("temporalio", "pydantic", "SQLAlchemy", "openai"))
    return [
        f"- Written by `{command}` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}",
        f"- {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}; "
        f"load at the end {load}: other work runs on this machine, so ratios within a round say more than times",
        f"- Python {platform.python_version()}, {packages}",
        "- Server: Temporal's dev server on an SQLite file, with the settings of `temporal-dev.yml` (tuned) or without "
        "(stock). The server, the scripted model, each worker and the driver are processes of their own.",
        "- (a) is the agent loop in plain asyncio, nothing kept. (b) is a hand-written Temporal workflow: a while "
        "loop, an activity for each model call and each tool call, the messages in its arguments, the SDK's default "
        "worker. Both use the same model adapter and the same tools as Loom.",
        "- A job of N turns: N turns with one tool call each, and the closing answer; times are divided by N. Medians "
        "over rounds in which the contestants take turns; a ratio is the median of the rounds' ratios. CPU is that of "
        "the worker and the server together, and suffers least from other work on the machine.",
    ]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=RESULTS.parent, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
