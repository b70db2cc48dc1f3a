"""What ``loom show --tree`` and ``--profile`` add: the recursion as a tree, and what each level of it took."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loom_cli.render.text import duration
from loom_dsl.agent.messages import NOT_COMPRESSED, SUMMARY
from loom_dsl.observe.events import decode
from loom_dsl.observe.profile import Level, profile
from loom_dsl.text.printable import moment_of
from loom_store.rows import from_millis, to_millis
from loom_store.transaction import Transaction
from loom_store.transcript import PRIVATE

PROFILE_HEADS = ("TURN", "DEPTH", "TIME", "MODEL", "TOOLS", "WAITED", "IN", "OUT", "CALLS")
SPANS = ("", "model_", "tool_", "waited_")
MAX_CHILDREN = 200
"""Jobs below one that its tree shows; of more, those that began first, and it is marked as `cut`."""


def chain(tx: Transaction, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Collect the turns of a job that have begun, as JSON: names, times in seconds, tokens, and the tools asked for.

    Args:
        tx: Of the store that knows the job.
        row: The job's row.
    """
    return _heads(tx, row, _levels(tx, row))


def recursion_tree(tx: Transaction, row: Mapping[str, Any]) -> dict[str, Any]:
    """Collect a job's turns with what each called, and its child jobs below the turns that started them, as JSON.

    Args:
        tx: Of the store that knows the job.
        row: The job's row.
    """
    below: dict[str, list[dict[str, Any]]] = {}
    found = tx.jobs_below(row["job"], limit=MAX_CHILDREN + 1)
    for child in found[:MAX_CHILDREN]:
        below.setdefault(tx.job_above(child["job"]) or "", []).append(child)
    return {**_tree(tx, row, below), "cut": len(found) > MAX_CHILDREN}


def profile_lines(turns: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Give the rows of a table of what turns took, and one for all of them."""
    rows = [(str(turn["turn"]), str(turn["depth"]), turn) for turn in turns]
    if len(turns) > 1:
        rows.append(("all", "", _all(turns)))
    return [
        (
            number,
            depth,
            *(_span(turn[f"{what}seconds"]) for what in SPANS),
            f"{turn['usage']['prompt_tokens']:,}",
            f"{turn['usage']['completion_tokens']:,}",
            str(len(turn["tools"])),
        )
        for number, depth, turn in rows
    ]


def _heads(tx: Transaction, row: Mapping[str, Any], levels: Iterable[Level]) -> list[dict[str, Any]]:
    own: dict[int, list[Mapping[str, Any]]] = {}
    for entry in tx.read_entries(row["session"]):
        if entry.job == row["job"]:
            own.setdefault(entry.turn, []).append(entry.head)
    heads = []
    for level in levels:
        said = own.get(level.turn, ())
        heads.append(
            {
                "turn": level.turn + 1,
                "turn_id": level.turn_id,
                "parent_turn_id": level.parent_turn_id,
                "depth": level.depth,
                "started_at": from_millis(to_millis(level.started)),
                "seconds": round(level.seconds, 3),
                "model_seconds": level.model_seconds,
                "tool_seconds": round(level.tool_seconds, 3),
                "waited_seconds": round(level.waited_seconds, 3),
                "usage": _added(_usage(head) for head in said),
                "tools": [call["function"]["name"] for head in said for call in head.get("tool_calls") or ()],
            }
        )
    return heads


def _all(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sums = {f"{what}seconds": sum(turn[f"{what}seconds"] or 0.0 for turn in turns) for what in SPANS}
    tools = [tool for turn in turns for tool in turn["tools"]]
    return {**sums, "usage": _added(turn["usage"] for turn in turns), "tools": tools}


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _tree(tx: Transaction, row: Mapping[str, Any], below: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    job = row["job"]
    children = [(_turn_of(job, child["job"]), _tree(tx, child, below)) for child in below.get(job, ())]
    levels = _levels(tx, row)
    heads = _heads(tx, row, levels)
    for head, level in zip(heads, levels, strict=True):
        head["tools"] = [
            {"tool": one.tool, "status": one.status, "code": one.code, "seconds": one.seconds} for one in level.tools
        ]
        head["compressions"] = level.compressions
        head["children"] = [tree for turn, tree in children if turn == level.turn]
    begun = {level.turn for level in levels}
    return {
        **{name: row[name] for name in ("job", "agent", "status", "created_at", "ended_at")},
        "turns": heads,
        "children": [tree for turn, tree in children if turn not in begun],
    }


def _turn_of(job: str, child: str) -> int | None:
    """The turn of an agent's job that started a child, which is a part of the child's id."""
    number = child.removeprefix(f"{job}.").partition(".")[0]
    return int(number) if child.startswith(f"{job}.") and number.isdecimal() else None


def _levels(tx: Transaction, row: Mapping[str, Any]) -> list[Level]:
    ended = row["ended_at"]
    events = (decode(row["job"], offset, raw) for offset, raw in tx.each_event(row["job"], timed=True))
    return profile(events, moment_of(ended) if ended else time.time())


def _usage(head: Mapping[str, Any]) -> Mapping[str, int]:
    """The tokens of the answer that an entry is, or of the calls for a summary, be there one or not."""
    kept = head["told"] if head.get("note") in (SUMMARY, NOT_COMPRESSED) else head.get(PRIVATE)
    return (kept or {}).get("usage") or {}


def _added(usages: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0}
    for usage in usages:
        total = {name: count + usage.get(name, 0) for name, count in total.items()}
    return total
