"""The end of the demo: the report, the figures, and where to look next."""

import asyncio
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from demo.place import Checkout
from loom_cli.render.terminal import Terminal
from loom_cli.render.text import plural, size
from loom_client.client import Loom
from loom_dsl.agent.run import RunResult
from loom_dsl.text.printable import visible

if TYPE_CHECKING:
    from demo.scene import Scene


MAX_REPORT_LINES = 40


@dataclass(frozen=True, slots=True)
class History:
    """What Temporal keeps of a job.

    Attributes:
        runs: Its Temporal runs.
        events: Events of the longest.
        size: Bytes of the largest.
    """

    runs: int
    events: int
    size: int


async def print_summary(
    paper: Terminal, scene: "Scene", loom: Loom, result: RunResult, *, scripted: bool, seconds: float
) -> None:
    """Print everything after the job's end."""
    _print_report(paper, scene.place)
    _heading(paper, "How it went")
    for name, text in [
        ("turns", _turns(result, await _history(loom, result.run_id, result.recursion_stats.max_depth + 1))),
        ("usage", _usage(result, scripted)),
        ("kills", _kills(scene)),
        *[("effect", text) for text in await _effects(loom, scene.place, result.run_id)],
        ("in all", f"{seconds:.0f} s"),
    ]:
        paper.line(f"{name:<8}{text}", hang=8)
    _heading(paper, "Where to look next")
    for line in _next(scene.place, result.run_id):
        paper.line(line, hang=4)
    paper.flush()


def _heading(paper: Terminal, text: str) -> None:
    paper.line()
    paper.line(text, "bold")


def _print_report(paper: Terminal, place: Checkout) -> None:
    _heading(paper, f"The report, {place.short(place.report)}")
    if not place.report.exists():
        paper.line("  it was not written")
        return
    lines = visible(place.report.read_text(encoding="utf-8", errors="replace")).splitlines()
    for line in lines[:MAX_REPORT_LINES]:
        paper.line(line, prefix="  " if line else "", hang=2)
    if len(lines) > MAX_REPORT_LINES:
        paper.line(f"  ... {len(lines) - MAX_REPORT_LINES} more lines", "dim")


def _turns(result: RunResult, history: History) -> str:
    stats = result.recursion_stats
    return (
        f"{plural(stats.max_depth + 1, 'turn')}, {plural(len(stats.recursion_events), 'recursion')}, each one a fresh "
        f"Temporal run: {plural(history.runs, 'run')}, the longest with {plural(history.events, 'event')} "
        f"and {size(history.size)}B of history"
    )


def _usage(result: RunResult, scripted: bool) -> str:
    usage = result.usage
    cost = f"${usage.cost_usd:.4f}" if usage.cost_usd else "cost unknown (the model has no listed price)"
    if scripted and usage.cost_usd:
        cost += " at the price of the model that the agent names (the script costs nothing)"
    wasted = usage.wasted.prompt_tokens + usage.wasted.completion_tokens
    lost = f", {wasted:,} more in attempts that were lost" if wasted else ""
    return (
        f"{plural(usage.model_calls, 'model call')}, {plural(usage.tool_calls, 'tool call')}, "
        f"{usage.prompt_tokens:,} tokens in and {usage.completion_tokens:,} out{lost}; {cost}"
    )


def _kills(scene: "Scene") -> str:
    if not scene.recoveries:
        return "none: the job ran no tool that takes long, and asked for nothing"
    times = " and ".join(f"{seconds:.1f} s" for seconds in scene.recoveries)
    return f"{plural(len(scene.recoveries), 'worker')} killed; the job's next event came after {times}"


async def _effects(loom: Loom, place: Checkout, job: str) -> list[str]:
    """Say what the ledger holds, and what the world does."""
    told = [f"{effect.tool}: {effect.status}" for effect in await loom.store.read(lambda tx: tx.effects(job))]
    if not told:
        return []
    notes = len(place.board.read_text(encoding="utf-8").splitlines()) if place.board.exists() else 0
    return [f"{', '.join(told)} in the ledger; {place.short(place.board)} holds {plural(notes, 'note')}"]


async def _history(loom: Loom, job: str, expected: int) -> History:
    """Ask the server about the runs of a job; its index may lag behind for a moment."""
    runs = []
    for _ in range(20):
        runs = [run async for run in loom.client.list_workflows(f"WorkflowId = '{job}'")]
        if len(runs) >= expected and all(run.close_time for run in runs):
            break
        await asyncio.sleep(0.1)
    lengths = [run.history_length for run in runs]
    sizes = [run.raw_info.history_size_bytes for run in runs]
    return History(len(runs), max(lengths, default=0), max(sizes, default=0))


def _next(place: Checkout, job: str) -> list[str]:
    loom, store = _command(place), place.short(place.folder / "loom.db")
    server = place.short(place.folder / "temporal.db")
    return [
        f"  {loom} show {job} --entries --store {store}",
        "    every turn, entry and effect of this job",
        f"  {loom} dev --no-worker --db {server}",
        "    the job's Temporal runs, in Temporal's own web console",
        f"  {loom} graph loom.tt",
        "    one turn of an agent, drawn; examples/researcher.yaml is the agent of this demo",
        f"  {loom} init hello",
        "    a first agent of your own, in five minutes",
    ]


def _command(place: Checkout) -> str:
    """How a reader at the checkout's top calls ``loom``: it may be in a virtual environment that is not active."""
    beside = Path(sys.executable).parent / "loom"
    if shutil.which("loom") is not None or not beside.exists():
        return "loom"
    return place.short(beside) if beside.is_relative_to(place.checkout) else str(beside)
