"""Approvals for people: those that wait, in a list, and what one lets run, before it is decided."""

import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from loom_client.render.approvals import (
    FOLLOWING,
    how_to_approve,
    preview_lines,
    request_lines,
    signed_with,
    waiting_lines,
)
from loom_client.render.paper import Paper, paper_for
from loom_client.render.text import clock, place
from loom_dsl.errors import BlobMissing
from loom_store.store import Store

MOST_LINES = 40
"""Lines of a preview or of arguments that are shown before a decision."""


def show_approvals(rows: Sequence[Mapping[str, Any]], store: Store, every: bool) -> None:
    """Print approvals, those that wait with what is asked and how to decide."""
    paper = paper_for(sys.stdout)
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
    paper = paper_for(sys.stdout)
    show_request(paper, row, time.time())
    if not _preview(paper, row, store, MOST_LINES) and row["arguments_digest"]:
        _content(paper, store, row)
    if edited is not None:
        paper.line("  with other arguments:")
        _lines(paper, json.dumps(edited, indent=2, ensure_ascii=False), 0, "")
    paper.flush()


def show_request(paper: Paper, row: Mapping[str, Any], now: float) -> None:
    """Print what an approval says: what is asked, why, until when, who has answered, or what became of it."""
    pending = row["status"] == "pending"
    head = f"{row['id']}  job {row['job']}  {row['tool'] or place(row['node'])}  since {clock(row['created_at'], now)}"
    paper.line(head + ("" if pending else f"  {outcome_of(row)}"), "bold", hang=2)
    request = {**row["details"], "summary": row["summary"], "reason": row["reason"], "policy": row["policy"]}
    for text, style in request_lines(request, row["expires_at"] if pending else None, now):
        paper.line(text, style, follow=FOLLOWING)
    for text, style in waiting_lines(row["job"], row["details"].get("changes", ())) if pending else ():
        paper.line(text, style, follow=FOLLOWING)


def _preview(paper: Paper, row: Mapping[str, Any], store: Store, most: int) -> bool:
    name = row["details"].get("preview")
    if not name:
        return False
    _lines(paper, _text(store, name), most, row["id"])
    return True


def _content(paper: Paper, store: Store, row: Mapping[str, Any]) -> None:
    """Print an approval's arguments. A graph can name there what are none, and then asks all the same."""
    try:
        text = _text(store, row["arguments_digest"])
    except BlobMissing:
        paper.line("  its content is not in this store")
        return
    with contextlib.suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    _lines(paper, text, MOST_LINES, row["id"])


def _lines(paper: Paper, text: str, most: int, approval: str) -> None:
    for line, style in preview_lines(text, most, approval):
        paper.line(line, style, follow=FOLLOWING)


def _text(store: Store, name: str) -> str:
    """A content as it is; who prints it makes visible what hides in it."""
    return store.read_sync(lambda tx: tx.get_blob(name).decode("utf-8", "replace"))


def outcome_of(row: Mapping[str, Any]) -> str:
    """Say in a few words how an approval ended, by whom, and by which keys."""
    by = f" by {row['by']}" if row.get("by") else ""
    more = ", allowed" if row.get("allowed") else ""
    to = f" to {row['edited'][:12]}" if row.get("edited") else ""
    return f"{row['status']}{more}{to}{by}{signed_with(row)}"
