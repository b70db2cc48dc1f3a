"""Approvals for people: those that wait, in a list, and what one lets run, before it is decided."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loom_cli.render.approvals import (
    FOLLOWING,
    how_to_approve,
    outcome_of,
    preview_lines,
    request_lines,
    waiting_lines,
)
from loom_cli.render.terminal import Terminal, terminal_for
from loom_cli.render.text import place
from loom_dsl.errors import BlobMissing
from loom_dsl.text.printable import clock
from loom_store.store import Store
from loom_store.transaction import Transaction

MAX_LINES = 40
"""Lines of a preview or of arguments that are shown before a decision."""


def show_approvals(rows: Sequence[Mapping[str, Any]], store: Store, every: bool) -> None:
    """Print approvals, those that wait with what is asked and how to decide."""
    paper = terminal_for(sys.stdout)
    if not rows:
        paper.line("no approvals" if every else "no approval waits")
    now = time.time()
    for row in rows:
        show_request(paper, row, now)
        if row["status"] == "pending":
            _preview(paper, row, store, 12)
            paper.line(f"  loom approvals {row['id']}  (all that runs)", "dim")
            paper.line(f"  {how_to_approve(row['job'], row['id'], row['choices'])}")
    paper.flush()


def show_call(row: Mapping[str, Any], store: Store, edited: Mapping[str, Any] | None = None) -> None:
    """Print what an approval lets run: the summary, and the preview, or the arguments where there is none.

    Args:
        row: The approval.
        store: Where its preview and its arguments are.
        edited: Other arguments that are to be used.
    """
    paper = terminal_for(sys.stdout)
    show_request(paper, row, time.time())
    if not _preview(paper, row, store, MAX_LINES) and row["arguments_digest"]:
        _content(paper, store, row)
    if edited is not None:
        paper.line("  with other arguments:")
        _lines(paper, json.dumps(edited, indent=2, ensure_ascii=False), 0, "")
    paper.flush()


def show_request(paper: Terminal, row: Mapping[str, Any], now: float) -> None:
    """Print what an approval says: what is asked, why, until when, who has answered, or what became of it."""
    pending = row["status"] == "pending"
    head = f"{row['id']}  job {row['job']}  {row['tool'] or place(row['node'])}  since {clock(row['created_at'], now)}"
    paper.line(head + ("" if pending else f"  {outcome_of(row)}"), "bold", hang=2)
    request = {**row["details"], "summary": row["summary"], "reason": row["reason"], "policy": row["policy"]}
    for text, style in request_lines(request, row["expires_at"] if pending else None, now):
        paper.line(text, style, follow=FOLLOWING)
    for text, style in waiting_lines(row["job"], row["details"].get("changes", ())) if pending else ():
        paper.line(text, style, follow=FOLLOWING)


def _preview(paper: Terminal, row: Mapping[str, Any], store: Store, most: int) -> bool:
    name = row["details"].get("preview")
    if not name:
        return False
    _lines(paper, _text(store, name), most, row["id"])
    return True


def _content(paper: Terminal, store: Store, row: Mapping[str, Any]) -> None:
    """Print an approval's arguments. A graph can name there what are none, and then asks all the same."""
    try:
        text = _text(store, row["arguments_digest"])
    except BlobMissing:
        paper.line("  its content is not in this store")
        return
    with contextlib.suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    _lines(paper, text, MAX_LINES, row["id"])


def _lines(paper: Terminal, text: str, most: int, approval: str) -> None:
    for line, style in preview_lines(text, most, approval):
        paper.line(line, style, follow=FOLLOWING)


def _text(store: Store, name: str) -> str:
    """A content as it is; who prints it makes visible what hides in it."""
    return store.read_sync(lambda tx: tx.get_blob(name).decode("utf-8", "replace"))


# All of an approval: what it says, what it would change, and the arguments that run, uncut.


def contents(tx: Transaction, row: Mapping[str, Any]) -> dict[str, Any]:
    """Give what an approval only names: the `preview`, and the `content`, its arguments; None where it has none.

    Of one that was decided with other arguments, `edited_content` are those, where a call has run with them.
    """
    found = {
        "preview": _argument_text(tx, row["details"].get("preview")),
        "content": _value(_argument_text(tx, row["arguments_digest"])),
    }
    if row.get("edited"):
        found["edited_content"] = _value(_argument_text(tx, row["edited"]))
    return found


def show_whole(row: Mapping[str, Any], store: Store) -> None:
    """Print all of an approval."""
    paper, now = terminal_for(sys.stdout), time.time()
    found = store.read_sync(lambda tx: contents(tx, row))
    show_request(paper, row, now)
    if found["preview"] is not None:
        paper.line("  what it would change, as it was when it was asked:")
        _write(paper, found["preview"])
    if row["arguments_digest"]:
        paper.line(f"  arguments {row['arguments_digest']}:")
        _arguments(paper, found["content"])
    if row.get("edited"):
        paper.line(f"  runs with {row['edited']}:")
        _arguments(paper, found["edited_content"])
    paper.flush()


def _arguments(paper: Terminal, arguments: Any) -> None:
    if arguments is None:
        paper.line("    (their content is not in this store)", "dim")
    elif not isinstance(arguments, dict):
        _write(paper, json.dumps(arguments, indent=2, ensure_ascii=False))
    else:
        for name, value in arguments.items():
            _write(paper, "\n".join(_argument(name, value)))


def _argument(name: str, value: Any) -> Iterator[str]:
    """A text of several lines is written as lines, each after a bar; every other value is written as JSON."""
    key = json.dumps(name, ensure_ascii=False)
    if not isinstance(value, str) or "\n" not in value:
        yield f"{key}: {json.dumps(value, indent=2, ensure_ascii=False)}"
        return
    lines = value.split("\n")
    ended = not lines[-1]
    count = len(lines) - ended
    yield f"{key}: {count} line{'s' if count != 1 else ''}{'' if ended else ', the last one without a line end'}"
    yield from (f"| {line}" for line in (lines[:-1] if ended else lines))


def _write(paper: Terminal, text: str) -> None:
    for line, style in preview_lines(text):
        paper.line(line, style, follow=FOLLOWING)


def _argument_text(tx: Transaction, name: object) -> str | None:
    if not isinstance(name, str) or not name:
        return None
    try:
        return tx.get_blob(name).decode("utf-8", "replace")
    except BlobMissing:
        return None


def _value(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a graph can name there what are no arguments
        return text
