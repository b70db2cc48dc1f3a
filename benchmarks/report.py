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
        measured: When and of what, in one line.
    """

    title: str
    columns: Sequence[str] = ()
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    block: str = ""
    measured: str = ""

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
        for note in [*self.notes, self.measured]:
            lines += [note, ""] if note else []
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


def stamp() -> str:
    """Say when this is, at which commit, and how busy the machine is."""
    load = os.getloadavg()[0]
    return f"*Measured {datetime.now(UTC):%Y-%m-%d %H:%M} UTC at {_commit()}; load of the machine {load:.1f}.*"


def write(tables: Sequence[Table], *, path: Path = RESULTS) -> None:
    """Put results into a file, each in the place of the earlier one of the same title; the others stay."""
    earlier = path.read_text(encoding="utf-8").split("\n## ")[1:] if path.exists() else []
    sections = {text.partition("\n")[0]: f"## {text.strip()}\n" for text in earlier}
    sections |= {table.title: table.markdown() for table in tables}
    head = ["# Benchmark results", "", *machine(), ""]
    path.write_text("\n".join([*head, *sections.values()]), encoding="utf-8")


def machine() -> list[str]:
    """Say how the runs are made and on what."""
    return [
        f"- Written by `make bench` on {host()}",
        "- Where a machine is busy with other work, ratios within a round say more than times",
        "- Server: Temporal's dev server on an SQLite file, with the settings of `temporal-dev.yml` (tuned) or without "
        "(stock). The server, the scripted model, each worker and the driver are processes of their own.",
        "- (a) is the agent loop in plain asyncio, nothing kept. (b) is a hand-written Temporal workflow: a while "
        "loop, an activity for each model call and each tool call, the messages in its arguments, the SDK's default "
        "worker. Both use the same model adapter and the same tools as Loom.",
        "- A job of N turns: N turns with one tool call each, and the closing answer; times are divided by N. Medians "
        "over rounds in which the contestants take turns; a ratio is the median of the rounds' ratios. CPU is that of "
        "the worker and the server together, and suffers least from other work on the machine.",
    ]


def host() -> str:
    """Name the machine, and the versions of what is measured there."""
    memory = psutil.virtual_memory().total / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("temporalio", "pydantic", "SQLAlchemy", "openai"))
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {packages}"
    )


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
