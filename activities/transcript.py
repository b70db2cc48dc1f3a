"""Entries as the model reads them: their text, their size, and the calls in them."""

from collections import OrderedDict
from typing import Any

from loom_dsl.context import estimate_tokens
from loom_dsl.messages import render
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction

PRIVATE = "_loom"
"""Key of a head that is Loom's own and never sent."""
MOST_BYTES = 64 * 1024 * 1024
"""Characters of rendered messages that are kept in memory."""

Message = tuple[str, int, str]
"""A message as JSON, its estimated tokens and its role; for a note its text, 0 and ``note:`` with its name."""
NOTE = "note:"


class Transcript:
    """Renders entries once and keeps what was used last: entries never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, int], Message] = OrderedDict()
        self._heads: OrderedDict[tuple[str, int], dict[str, Any]] = OrderedDict()
        self._size = 0

    async def messages(self, session: str, end: int) -> list[Message]:
        """Give every message of a session up to `end`, by sequence."""
        found = {seq: message for seq in range(end) if (message := self._kept.get((session, seq))) is not None}
        if len(found) < end:
            start = next(seq for seq in range(end) if seq not in found)
            loaded = await self._store.read(lambda tx: _load(tx, session, start, end))
            for seq, message in loaded.items():
                self._keep((session, seq), message)
            found |= loaded
        return [found[seq] for seq in range(end)]

    def add(self, session: str, seq: int, head: dict[str, Any], content: str | None) -> None:
        """Keep an entry that was just stored, so that it need not be read again."""
        self._keep((session, seq), rendered(head, content))
        if head.get("tool_calls"):
            self._heads[session, seq] = head
            while len(self._heads) > 1_000:
                self._heads.popitem(last=False)

    async def head(self, session: str, seq: int) -> dict[str, Any]:
        """Give the head of one entry."""
        known = self._heads.get((session, seq))
        if known is None:
            known = (await self._store.read(lambda tx: tx.read_entries(session, seq, seq + 1)))[0].head
        return known

    def _keep(self, key: tuple[str, int], message: Message) -> None:
        if key not in self._kept:
            self._size += len(message[0])
        self._kept[key] = message
        while self._size > MOST_BYTES:
            self._size -= len(self._kept.popitem(last=False)[1][0])


def rendered(head: dict[str, Any], content: str | None, kind: str = "message") -> Message:
    """Write one entry as the model reads it."""
    if kind != "message":
        return content or "", 0, f"{NOTE}{head.get('note', '')}"
    text = render({key: value for key, value in head.items() if key != PRIVATE}, content)
    return text, estimate_tokens(text) + 4, head["role"]


def _load(tx: Transaction, session: str, start: int, end: int) -> dict[int, Message]:
    return {e.seq: rendered(e.head, _content(tx, e), e.kind) for e in tx.read_entries(session, start, end)}


def _content(tx: Transaction, entry: Entry) -> str | None:
    # Text that came from outside Loom may hold lone surrogates, which the store keeps and no model takes.
    return tx.get_blob(entry.content_digest).decode("utf-8", "replace") if entry.content_digest else None
