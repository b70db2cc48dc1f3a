"""Lists for people: jobs, approvals, and one job."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Any

from loom_cli.commands.show.conversation import ENTRY_HEADS, TURN_HEADS, entry_lines, turn_lines
from loom_cli.commands.show.recursion import PROFILE_HEADS, profile_lines
from loom_cli.render.approvals import outcome_of
from loom_cli.render.reports import draw_tree
from loom_cli.render.terminal import Terminal, cells, terminal_for
from loom_cli.render.text import duration, place, plural, size
from loom_client.edited_arguments import rules_in_words
from loom_client.effects import EffectRecord, unheard_line
from loom_client.server.workers import told_worker
from loom_dsl.agent.run import RunUsage
from loom_dsl.permissions.rules import parse_rule
from loom_dsl.text.confusables import revealed
from loom_dsl.text.printable import clock, moment_of, one_line
from loom_store.queries.approvals import KeptRule

MAX_WORKERS = 3
INDENT = "    "
"""Before the rows of a table of `show_job`."""
NARROWEST = 32
"""Columns that a long text needs beside the others of its table."""
HALTED = "halted"
"""Where a job stands that runs, and has steps that wait for a person."""
_COLOURS = {"completed": "green", "settled": "green", "failed": "red", "aborted": "red", "unknown": "red"}
_COLOURS |= {"lost": "red", "running": "cyan", "pending": "yellow"}


def show_jobs(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of jobs, the newest first."""
    paper = terminal_for(sys.stdout)
    if not rows:
        paper.line("no jobs")
        return
    now = time.time()
    lines = [
        (
            row["job"],
            _standing(row),
            row["agent"],
            clock(row["created_at"], now),
            duration((moment_of(row["ended_at"]) if row["ended_at"] else now) - moment_of(row["created_at"])),
            one_line(row["task"], 400),
        )
        for row in rows
    ]
    _table(paper, ("JOB", "STATUS", "AGENT", "STARTED", "TIME", "TASK"), lines)


def _standing(row: Mapping[str, Any]) -> str:
    """Say in a word or two where a job stands: its status, or that it is halted, and what keeps it from going on."""
    if row["ended_at"]:
        return str(row["status"])
    if row.get("halted"):
        return HALTED
    kept = next((word for name, word in (("paused_by", "paused"), ("waiting", "waits")) if row.get(name)), "")
    return f"{row['status']} ({kept})" if kept else str(row["status"])


def _headline(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Say where a job stands, with the causes of what is halted in it; and in which colour."""
    standing = _standing(summary)
    if standing != HALTED:
        return standing, _COLOURS.get(summary["status"], "")
    causes = dict.fromkeys(one_line(str(step.get("cause") or ""), 80) for step in summary["halted"])
    told = ", ".join(filter(None, causes))
    return f"{HALTED} ({told})" if told else HALTED, "yellow"


def show_table(heads: Sequence[str], lines: Sequence[Sequence[str]], empty: str) -> None:
    """Print a table, or what to say when it has no lines."""
    paper = terminal_for(sys.stdout)
    if lines:
        _table(paper, heads, lines)
    else:
        paper.line(empty)


def show_rules(rules: Sequence[KeptRule]) -> None:
    """Print the rules that approvers kept, with what each is about."""
    paper = terminal_for(sys.stdout)
    if not rules:
        paper.line("no rules are kept")
    for rule in rules:
        gone = f"  taken back by {one_line(rule.revoked_by or '', 80)}" if rule.revoked_at else ""
        paper.line(f"{rule.id}  {revealed(one_line(rule.rule, 300))}{gone}", "bold", hang=4)
        if rule.arguments or parse_rule(rule.rule).arguments:
            paper.line(f"    only as it was approved: {revealed(one_line(rule.summary, 300))}", hang=6)
        kept = f"kept by {one_line(rule.kept_by, 80) or 'somebody'} at {clock(rule.kept_at, time.time())}"
        paper.line(f"    answers what asks by {asked_by(rule.asked_by)}", "dim", hang=6)
        paper.line(f"    for {rule.agent} in {one_line(rule.workdir, 300)}; {kept}", "dim", hang=6)
    paper.flush()


def show_job(summary: Mapping[str, Any]) -> None:
    """Print what `loom_cli.commands.show.summary.summarise` found."""
    paper, now = terminal_for(sys.stdout), time.time()
    standing, colour = _headline(summary)
    paper.line(f"{summary['job']}  {standing}", f"bold {colour}".strip())
    for name, text in _facts(summary, now):
        paper.line(f"  {name:<10} {one_line(text, 600)}", hang=13)
    _listed(paper, "halted", ("STEP", "CAUSE", "SINCE", "WHAT"), _halted(summary, now))
    _listed(paper, "waits", ("STEP", "CAUSE", "SINCE", "TRIES", "AGAIN", "WHAT"), _outages(summary, now))
    _listed(paper, "todo", ("STATUS", "WHAT"), [(item["status"], item["text"]) for item in summary["todo"]])
    _listed(paper, "effects", ("TURN", "TOOL", "STATUS", "BEGUN", "NOTE"), _effects(summary["effects"], now))
    _listed(paper, "remembered", ("FOR", "WHAT", "ASKED BY", "CALL"), _remembered(summary["approvals"]))
    if summary["graph"]:
        _listed(paper, "kept outputs", ("NODE", "RESULTS", "SIZE", "READ IT WITH"), _outputs(summary))
        _listed(paper, "taken back", ("NODE", "OUTCOME", "NOTE"), _taken_back(summary["result"]))
        _listed(paper, "approvals", ("NODE", "STATUS", "ID", "WHAT"), _questions(summary["approvals"]))
    else:
        _listed(paper, "approvals", ("TURN", "TOOL", "STATUS", "ID", "WHAT"), _approvals(summary["approvals"]))
    _listed(paper, "child jobs", ("JOB", "STATUS", "TIME", "AGENT"), _children(summary["children"], now))
    for child in summary["children"]:
        _listed(paper, f"approvals of {child['job']}", ("NODE", "STATUS", "ID", "WHAT"), _questions(child["approvals"]))
    _cut(paper, "turns", TURN_HEADS, turn_lines(summary.get("chain", ()), now))
    _cut(paper, "entries", ENTRY_HEADS, entry_lines(summary.get("conversation", ())))
    _cut(paper, "profile", PROFILE_HEADS, profile_lines(summary.get("profile", ())))
    if "tree" in summary:
        paper.line("  tree")
        draw_tree(paper, summary["tree"], "    ")
    paper.flush()


def _facts(summary: Mapping[str, Any], now: float) -> Iterable[tuple[str, str]]:
    started, ended = moment_of(summary["created_at"]), summary["ended_at"]
    span = duration((moment_of(ended) if ended else now) - started)
    if summary["graph"]:
        yield from _graph_facts(summary, now)
        return
    usage = RunUsage.model_validate(summary["usage"])
    cost = f", ${usage.cost_usd:.4f}" if usage.cost_usd else ""
    yield from _stands(summary, now)
    yield "task", summary["task"]
    yield "agent", f"{summary['agent']}, plan {summary['plan'][:12]}"
    yield "directory", summary["workdir"]
    yield "session", summary["session"]
    if origin := summary["forked_from"]:
        yield (
            "forked",
            f"from {origin['job']} at turn {origin['turn']}; effects up to there: `loom effects {origin['job']}`",
        )
    yield "started", f"{clock(started, now)}, {span}{'' if ended else ' ago'}"
    kept = f"{plural(summary['entries'], 'entry', 'entries')}, {plural(summary['events'], 'event')}"
    yield "turns", f"{plural(summary['turns'], 'turn')}, {kept}"
    yield "calls", f"{plural(usage.model_calls, 'model call')}, {plural(usage.tool_calls, 'tool call')}"
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    yield "tokens", f"{usage.prompt_tokens:,} in{cached}, {usage.completion_tokens:,} out{cost}"
    if usage.wasted.total_tokens:
        yield "wasted", f"{usage.wasted.total_tokens:,} tokens of answers that were lost and asked for again"
    yield from _end(summary, "answer")


def _stands(summary: Mapping[str, Any], now: float) -> Iterable[tuple[str, str]]:
    """Where it stands: why it waits and for whom, or when it ended."""
    ended = summary["ended_at"]
    if not ended or summary["status"] == "lost":
        yield "why", summary["why"]
    if not ended and summary["workers"]:
        shown = "; ".join(map(told_worker, summary["workers"][:MAX_WORKERS]))
        yield "workers", shown + (" …" if len(summary["workers"]) > MAX_WORKERS else "")
    if ended:
        yield "ended", clock(ended, now)


def _graph_facts(summary: Mapping[str, Any], now: float) -> Iterable[tuple[str, str]]:
    """What is told of a job of a graph, which has neither turns nor a conversation."""
    started, ended = moment_of(summary["created_at"]), summary["ended_at"]
    span = duration((moment_of(ended) if ended else now) - started)
    yield from _stands(summary, now)
    if summary["task"]:
        yield "input", summary["task"]
    yield "graph", f"{summary['agent']}, plan {summary['plan'][:12]}"
    yield "directory", summary["workdir"]
    if origin := summary["forked_from"]:
        yield "forked", f"from {origin['job']} where it failed; what that did: `loom watch {origin['job']}`"
    yield "started", f"{clock(started, now)}, {span}{'' if ended else ' ago'}"
    yield "events", f"{summary['events']:,}"
    yield from _end(summary, "result")


def _end(summary: Mapping[str, Any], what: str) -> Iterable[tuple[str, str]]:
    error = (summary["result"] or {}).get("error")
    if error:
        yield "error", f"{error['code']}: {error['message']}"
    if summary["go_on"]:
        yield "go on", summary["go_on"]
    if summary["ended_at"] and summary["status"] == "completed":
        yield what, f"`loom result {summary['job']}` prints it"


def _outputs(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What the job kept when an expression failed over it."""
    lines: list[tuple[str, ...]] = []
    for kept in summary["outputs"]:
        count = ""
        if "items" in kept:
            whole = kept["done"] == kept["items"]
            count = f"{kept['items']:,}" if whole else f"{kept['done']:,} of {kept['items']:,}"
        name = place(kept["node"])
        lines.append((name, count, size(kept["size"]), f"loom show {summary['job']} --node {quote(name)}"))
    return lines


def _taken_back(result: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """What became of each effect that the failed or aborted job was to take back."""
    rows = (result or {}).get("compensations") or ()
    return [(place(row["node"]), row["outcome"], one_line(row.get("message", ""), 300)) for row in rows]


def _halted(row: Mapping[str, Any], now: float) -> list[tuple[str, ...]]:
    """What each halted step waits for, and what a person is to do."""
    if row["ended_at"]:
        return []
    return [
        (place(str(step["at"])), step["cause"], _clock(step, "since", now), _told(step)) for step in row["halted"] or ()
    ]


def _outages(row: Mapping[str, Any], now: float) -> list[tuple[str, ...]]:
    if row["ended_at"]:
        return []
    return [
        (
            place(str(step["at"])),
            step["cause"],
            _clock(step, "since", now),
            str(step.get("tries", "")),
            _clock(step, "next_at", now),
            one_line(str(step.get("message") or ""), 300),
        )
        for step in row["waiting"] or ()
    ]


def _clock(step: Mapping[str, Any], name: str, now: float) -> str:
    return "" if step.get(name) is None else clock(step[name], now)


def _told(step: Mapping[str, Any]) -> str:
    said = (one_line(str(step.get(name) or ""), 300).removesuffix(".") for name in ("message", "action"))
    return "; ".join(filter(None, said))


def _effects(effects: Sequence[EffectRecord], now: float) -> list[tuple[str, ...]]:
    return [
        (
            str(effect.turn + 1),
            effect.tool,
            effect.state,
            clock(effect.begun_at, now),
            one_line(unheard_line(effect, now) or effect.note or (effect.undone and effect.undone.note) or "", 200),
        )
        for effect in effects
    ]


def _approvals(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [(str(row["turn"] + 1), row["tool"], outcome_of(row), row["id"], _what(row)) for row in rows]


def _remembered(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """What approvers allowed to run again in the job, and for whose questions."""
    return [
        ("this job" if row["remember"] == "job" else "later jobs", rules, asked_by(row["details"].get("asked_by", ())),
         row["summary"])
        for row in rows
        if row.get("remember") and (rules := rules_in_words(row["details"].get("rules")))
    ]  # fmt: skip


def asked_by(askers: Iterable[str]) -> str:
    """Name those who ask, for people."""
    words = {"agent": "the agent's own rules", "parent": "a job above", "untrusted": "the check of untrusted content"}
    named = (str(asker).partition(":")[0] for asker in askers)
    return ", ".join(dict.fromkeys(words.get(name, f"the {name}'s policy") for name in named)) or "nobody"


def _what(row: Mapping[str, Any]) -> str:
    """What was asked, and why it was."""
    return f"{row['summary']}; {row['reason']}" if row.get("reason") else row["summary"]


def _questions(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [(row["tool"] or place(row["node"]), outcome_of(row), row["id"], _what(row)) for row in rows]


def _children(rows: Sequence[Mapping[str, Any]], now: float) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for row in rows:
        span = (moment_of(row["ended_at"]) if row["ended_at"] else now) - moment_of(row["created_at"])
        status = "halted" if row.get("halted") else "waits for approval" if row["approvals"] else row["status"]
        error = f"  {row['error']['code']}: {row['error']['message']}" if row["error"] else ""
        lines.append((row["job"], status, duration(span), row["agent"] + error))
    return lines


def _listed(paper: Terminal, what: str, heads: Sequence[str], lines: Sequence[tuple[str, ...]]) -> None:
    """Print a table under its name: the whole of each value, the last one wrapped below where it begins."""
    if not lines:
        return
    paper.line(f"  {what}")
    shown = _visible(lines)
    widths = _widths(heads, shown)
    hang = len(INDENT) + sum(widths) + 2 * len(widths)
    room = paper.columns() - 1 - hang
    beside = room >= min(NARROWEST, max(cells(row[-1]) for row in (heads, *shown)))
    for row, style in ((heads, "dim"), *((line, "") for line in shown)):
        front = INDENT + _front(row, widths)
        if beside:
            paper.line(f"{front}  {row[-1]}".rstrip(), style, hang=hang)
        else:  # the columns leave no room for a text: it stands below them
            paper.line(front.rstrip(), style, hang=len(INDENT) + 2)
            paper.line(f"{INDENT}  {row[-1]}".rstrip(), style, hang=len(INDENT) + 2)


def _cut(paper: Terminal, what: str, heads: Sequence[str], lines: Sequence[tuple[str, ...]]) -> None:
    """Print a table of what is long under its name, a line for each row."""
    if lines:
        paper.line(f"  {what}")
        _table(paper, heads, lines, INDENT)


def _table(paper: Terminal, heads: Sequence[str], lines: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print columns as wide as their longest value; the last one is cut at the width."""
    shown = _visible(lines)
    widths = _widths(heads, shown)
    room = paper.columns() - 1 - len(indent) - sum(widths) - 2 * len(widths)
    for row, style in ((heads, "dim"), *((line, "") for line in shown)):
        front = _front(row, widths)
        # A program that reads this through a pipe wants the whole value, a person one line.
        last = one_line(row[-1], max(10, room)) if paper.stream.isatty() else row[-1]
        text = f"{indent}{front}  {last}".rstrip()
        paper.stream.write(paper.styled(text, style) + "\n")
    paper.flush()


def _visible(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[revealed(one_line(value)) for value in line] for line in lines]


def _widths(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[int]:
    """Give the width of every column but the last."""
    return [max(cells(row[i]) for row in (heads, *lines)) for i in range(len(heads) - 1)]


def _front(row: Sequence[str], widths: Sequence[int]) -> str:
    """Give all but the last value of a row, in their columns."""
    return "  ".join(value + " " * (wide - cells(value)) for value, wide in zip(row, widths, strict=False))
