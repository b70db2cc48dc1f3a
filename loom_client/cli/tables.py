"""Lists for people: jobs, approvals, and one job."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loom_client.render.approvals import preview_lines, request_lines
from loom_client.render.flow import cells
from loom_client.render.paper import Paper, paper_for
from loom_client.render.text import clock, duration, moment_of, one_line, plural
from loom_dsl.run import RunUsage
from loom_store.store import Store

_COLOURS = {"completed": "green", "settled": "green", "failed": "red", "aborted": "red", "unknown": "red"}
_COLOURS |= {"running": "cyan", "pending": "yellow"}


def show_jobs(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of jobs, the newest first."""
    paper = paper_for(sys.stdout)
    if not rows:
        paper.line("no jobs")
        return
    now = time.time()
    lines = [
        (
            row["job"],
            f"{row['status']} (paused)" if row["paused_by"] and not row["ended_at"] else row["status"],
            row["agent"],
            clock(row["created_at"], now),
            duration((moment_of(row["ended_at"]) if row["ended_at"] else now) - moment_of(row["created_at"])),
            one_line(row["task"], 400),
        )
        for row in rows
    ]
    _table(paper, ("JOB", "STATUS", "AGENT", "STARTED", "TIME", "TASK"), lines)


def show_approvals(rows: Sequence[Mapping[str, Any]], store: Store, every: bool) -> None:
    """Print approvals, those that wait with what is asked and how to decide."""
    paper = paper_for(sys.stdout)
    if not rows:
        paper.line("no approvals" if every else "no approval waits")
    now = time.time()
    for row in rows:
        head = f"{row['id']}  job {row['job']}  {row['tool']}  since {clock(row['created_at'], now)}"
        paper.line(head + ("" if row["status"] == "pending" else f"  {_outcome(row)}"), "bold", hang=2)
        request = {**row["details"], "summary": row["summary"], "reason": row["reason"]}
        for text, style in request_lines(request, row["expires_at"] if row["status"] == "pending" else None, now):
            paper.line(text, style, hang=4)
        if row["status"] == "pending":
            preview = row["details"].get("preview")
            if preview:
                text = store.read_sync(lambda tx, name=preview: tx.get_blob(name).decode("utf-8", "replace"))  # type: ignore[misc]
                for line, style in preview_lines(text, 12):
                    paper.line(line, style)
            paper.line(f"  loom approve {row['job']} {row['id']}")
    paper.flush()


def show_job(summary: Mapping[str, Any]) -> None:
    """Print what `loom_client.cli.summary.summarise` found."""
    paper, now = paper_for(sys.stdout), time.time()
    colour = _COLOURS.get(summary["status"], "")
    paper.line(f"{summary['job']}  {summary['status']}", f"bold {colour}".strip())
    for name, text in _facts(summary, now):
        paper.line(f"  {name:<10} {one_line(text, 600)}", hang=11)
    _listed(paper, "effects", ("TURN", "TOOL", "STATUS", "BEGUN", "NOTE"), _effects(summary["effects"], now))
    _listed(paper, "approvals", ("TURN", "TOOL", "STATUS", "ID", "WHAT"), _approvals(summary["approvals"]))
    paper.flush()


def _facts(summary: Mapping[str, Any], now: float) -> Iterable[tuple[str, str]]:
    started, ended = moment_of(summary["created_at"]), summary["ended_at"]
    span = duration((moment_of(ended) if ended else now) - started)
    usage = RunUsage.model_validate(summary["usage"])
    cost = f", ${usage.cost_usd:.4f}" if usage.cost_usd else ""
    yield "why" if not ended else "ended", summary["why"] if not ended else clock(ended, now)
    yield "task", summary["task"]
    yield "agent", f"{summary['agent']}, plan {summary['plan'][:12]}"
    yield "directory", summary["workdir"]
    yield "session", summary["session"]
    yield "started", f"{clock(started, now)}, {span}{'' if ended else ' ago'}"
    kept = f"{plural(summary['entries'], 'entry', 'entries')}, {plural(summary['events'], 'event')}"
    yield "turns", f"{plural(summary['turns'], 'turn')}, {kept}"
    yield "calls", f"{plural(usage.model_calls, 'model call')}, {plural(usage.tool_calls, 'tool call')}"
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    yield "tokens", f"{usage.prompt_tokens:,} in{cached}, {usage.completion_tokens:,} out{cost}"
    error = (summary["result"] or {}).get("error")
    if error:
        yield "error", f"{error['code']}: {error['message']}"
    if ended and summary["status"] == "completed":
        yield "answer", f"`loom result {summary['job']}` prints it"


def _effects(effects: Sequence[Mapping[str, Any]], now: float) -> list[tuple[str, ...]]:
    return [
        (
            str(effect["turn"] + 1),
            effect["tool"],
            effect["status"],
            clock(effect["begun_at"], now),
            one_line(effect["note"] or "", 200),
        )
        for effect in effects
    ]


def _approvals(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [(str(row["turn"] + 1), row["tool"], _outcome(row), row["id"], row["summary"]) for row in rows]


def _outcome(row: Mapping[str, Any]) -> str:
    by = f" by {row['by']}" if row.get("by") else ""
    return f"{row['status']}{by}"


def _listed(paper: Paper, what: str, heads: Sequence[str], lines: Sequence[tuple[str, ...]]) -> None:
    if lines:
        paper.line(f"  {what}")
        _table(paper, heads, lines, "    ")


def _table(paper: Paper, heads: Sequence[str], lines: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print columns as wide as their longest value; the last one is cut at the width."""
    shown = [[one_line(value) for value in line] for line in lines]
    widths = [max(cells(row[i]) for row in (heads, *shown)) for i in range(len(heads) - 1)]
    room = paper.columns() - 1 - len(indent) - sum(widths) - 2 * len(widths)
    for row, style in ((heads, "dim"), *((line, "") for line in shown)):
        front = "  ".join(value + " " * (wide - cells(value)) for value, wide in zip(row, widths, strict=False))
        # A program that reads this through a pipe wants the whole value, a person one line.
        last = one_line(row[-1], max(10, room)) if paper.stream.isatty() else row[-1]
        text = f"{indent}{front}  {last}".rstrip()
        paper.stream.write(paper.styled(text, style) + "\n")
    paper.flush()
