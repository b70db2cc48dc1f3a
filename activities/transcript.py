"""Entries as the model reads them: their text, their size, and the calls in them."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from loom_dsl.context import estimate_tokens
from loom_dsl.messages import render
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction

PRIVATE = "_loom"
"""Key of a head that is Loom's own and never sent."""
MOST_KEPT = 20_000


class Transcript:
    """Renders entries once and keeps the text: entries never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, int], tuple[str, int, str]] = OrderedDict()

    async def messages(self, session: str, end: int) -> list[tuple[str, int, str]]:
        """Give (message as JSON, estimated tokens, role) of every message up to `end`, by sequence; notes are empty."""
        start = 0
        while start < end and (session, start) in self._kept:
            start += 1
        if start < end:
            await self._store.read(lambda tx: self._load(tx, session, start, end))
        return [self._kept[session, seq] for seq in range(end)]

    def _load(self, tx: Transaction, session: str, start: int, end: int) -> None:
        for entry in tx.read_entries(session, start, end):
            self._kept[session, entry.seq] = rendered(tx, entry)
        while len(self._kept) > MOST_KEPT + end:
            self._kept.popitem(last=False)


def rendered(tx: Transaction, entry: Entry) -> tuple[str, int, str]:
    """Give one entry as (message as JSON, estimated tokens, role)."""
    if entry.kind != "message":
        return "", 0, ""
    head = {key: value for key, value in entry.head.items() if key != PRIVATE}
    content = tx.get_blob(entry.content_digest).decode() if entry.content_digest else None
    text = render(head, content)
    return text, estimate_tokens(text) + 4, head["role"]


def head_of(entries: Sequence[Entry], seq: int) -> dict[str, Any]:
    """The head of the entry with this number."""
    head: dict[str, Any] = json.loads(next(e for e in entries if e.seq == seq).head_json)
    return head
