"""What ``loom show --entries`` adds: the turns of a job, one after another, and every entry of its conversation."""

from collections.abc import Mapping, Sequence
from typing import Any

from loom_cli.commands.show.recursion import chain
from loom_cli.render.timeline import short_arguments
from loom_dsl.errors import NotFoundError
from loom_dsl.text.printable import clock, one_line
from loom_store.rows import Entry
from loom_store.transaction import Transaction
from loom_store.transcript import PRIVATE, given_in

TURN_HEADS = ("TURN", "ID", "STARTED", "TOKENS", "TOOLS")
ENTRY_HEADS = ("ENTRY", "TURN", "ROLE", "WHAT")
MAX_THOUGHT = 100
"""Characters of an answer's reasoning in the table; JSON has all of it."""


def conversation(tx: Transaction, row: Mapping[str, Any], turn: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Collect a job's turns as ``chain`` and its entries as ``conversation``, as JSON.

    Args:
        tx: Of the store that knows the job.
        row: The job's row.
        turn: Only this turn, from 1; None for all.

    Raises:
        NotFoundError: The job has no such turn.
    """
    job = row["job"]
    heads = [head for head in chain(tx, row) if turn is None or head["turn"] == turn]
    if turn is not None and not heads:
        raise NotFoundError(f"job {job} has no turn {turn}; `loom show {job} --entries` lists those that it has")
    own = [entry for entry in tx.read_entries(row["session"]) if entry.job == job]
    entries = [_entry(tx, entry) for entry in own if turn in (None, entry.turn + 1)]
    tools = {call["id"]: call["function"]["name"] for entry in entries for call in entry["tool_calls"]}
    for entry in entries:
        entry["tool"] = tools.get(entry["tool_call_id"])
    return {"chain": heads, "conversation": entries}


def turn_lines(chain: Sequence[Mapping[str, Any]], now: float) -> list[tuple[str, ...]]:
    """Give the rows of a table of turns."""
    return [
        (
            str(turn["turn"]),
            turn["turn_id"],
            clock(turn["started_at"], now),
            f"{turn['usage']['prompt_tokens']:,} in, {turn['usage']['completion_tokens']:,} out",
            one_line(", ".join(turn["tools"])) or "none",
        )
        for turn in chain
    ]


def entry_lines(entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Give the rows of a table of entries."""
    return [(str(entry["number"]), str(entry["turn"]), entry["role"], _what(entry)) for entry in entries]


def _entry(tx: Transaction, entry: Entry) -> dict[str, Any]:
    head = entry.head
    kept = head.get(PRIVATE) or {}
    content = tx.get_blob(entry.content_digest).decode("utf-8", "replace") if entry.content_digest else ""
    given = given_in(tx, head)
    return {
        "number": entry.seq,
        "turn": entry.turn + 1,
        "kind": entry.kind,
        "role": head.get("role") or f"{entry.kind} {head.get('note', '')}".strip(),
        "content": content,
        "reasoning": given.reasoning if given else "",
        "tool_calls": head.get("tool_calls") or [],
        "tool_call_id": head.get("tool_call_id"),
        "status": kept.get("status"),
        "code": kept.get("code"),
        "usage": kept.get("usage"),
    }


def _what(entry: Mapping[str, Any]) -> str:
    """An entry in one line: its text, what it calls, and of a result which tool's it is and what is wrong with it."""
    calls = [call["function"] for call in entry["tool_calls"]]
    asked = [f"→ {call['name']} {short_arguments(call['arguments'])}".rstrip() for call in calls]
    about = " ".join(str(entry[key]) for key in ("tool", "code") if entry[key])
    thought = f"(thought: {one_line(entry['reasoning'], MAX_THOUGHT)})" if entry["reasoning"] else ""
    return one_line(": ".join(filter(None, (about, "  ".join(filter(None, (entry["content"], *asked, thought)))))))
