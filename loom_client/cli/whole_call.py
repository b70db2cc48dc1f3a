"""All of an approval: what it says, what it would change, and the arguments that run, uncut."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from loom_client.cli.asked import show_request
from loom_client.render.approvals import FOLLOWING, preview_lines
from loom_client.render.paper import Paper, paper_for
from loom_dsl.errors import BlobMissing
from loom_store.store import Store
from loom_store.transaction import Transaction


def contents(tx: Transaction, row: Mapping[str, Any]) -> dict[str, Any]:
    """Give what an approval only names: the `preview`, and the `content`, its arguments; None where it has none.

    Of one that was decided with other arguments, `edited_content` are those, where a call has run with them.
    """
    found = {
        "preview": _text(tx, row["details"].get("preview")),
        "content": _value(_text(tx, row["arguments_digest"])),
    }
    if row.get("edited"):
        found["edited_content"] = _value(_text(tx, row["edited"]))
    return found


def show_whole(row: Mapping[str, Any], store: Store) -> None:
    """Print all of an approval."""
    paper, now = paper_for(sys.stdout), time.time()
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


def _arguments(paper: Paper, arguments: Any) -> None:
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


def _write(paper: Paper, text: str) -> None:
    for line, style in preview_lines(text):
        paper.line(line, style, follow=FOLLOWING)


def _text(tx: Transaction, name: object) -> str | None:
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
