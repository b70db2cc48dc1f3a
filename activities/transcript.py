"""Entries as the model reads them: their text, their size, and the calls in them."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from activities.runtime import Conversation
from activities.tool_images import image_parts, image_tokens
from loom_dsl.context import estimate_tokens
from loom_dsl.messages import render
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction

PRIVATE = "_loom"
"""Key of a head that is Loom's own and never sent."""
MASKED = "masked"
"""Under this name an answer's head lists the calls in whose arguments secrets were masked, by their places."""
MOST_BYTES = 64 * 1024 * 1024
"""Characters of rendered messages that are kept in memory."""

Message = tuple[str, int, str]
"""A message as JSON, its estimated tokens and its role; for a note its text, 0 and ``note:`` with its name."""
NOTE = "note:"


class Transcript:
    """Renders entries once and keeps what was used last: entries never change.

    They are kept by the session's number: a name may stand for another session once the first was pruned.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[int, int], Message] = OrderedDict()
        self._heads: OrderedDict[tuple[int, int], dict[str, Any]] = OrderedDict()
        self._size = 0

    async def messages(self, session: Conversation, end: int) -> list[Message]:
        """Give every message of a session up to `end`, by sequence."""
        number = session.number
        found = {seq: message for seq in range(end) if (message := self._kept.get((number, seq))) is not None}
        if len(found) < end:
            start = next(seq for seq in range(end) if seq not in found)
            loaded = await self._store.read(lambda tx: _load(tx, session.name, start, end))
            for seq, message in loaded.items():
                self._keep((number, seq), message)
            found |= loaded
        return [found[seq] for seq in range(end)]

    def add(self, session: Conversation, seq: int, head: dict[str, Any], content: str | None) -> None:
        """Keep an entry that was just stored, so that it need not be read again."""
        if images_in(head):
            return  # which are in the store only
        self._keep((session.number, seq), rendered(head, content))
        if head.get("tool_calls"):
            self._heads[session.number, seq] = head
            while len(self._heads) > 1_000:
                self._heads.popitem(last=False)

    async def head(self, session: Conversation, seq: int) -> dict[str, Any]:
        """Give the head of one entry."""
        known = self._heads.get((session.number, seq))
        if known is None:
            known = (await self._store.read(lambda tx: tx.read_entries(session.name, seq, seq + 1)))[0].head
        return known

    def _keep(self, key: tuple[int, int], message: Message) -> None:
        if key not in self._kept:
            self._size += len(message[0])
        self._kept[key] = message
        while self._size > MOST_BYTES:
            self._size -= len(self._kept.popitem(last=False)[1][0])


def tool_head(call: str, status: str, code: str, output: str = "") -> dict[str, Any]:
    """Write the head of the message that answers a call.

    Args:
        call: The call's id.
        status: How it went, ``success`` or otherwise.
        code: Why otherwise.
        output: Name of the whole output, where the message lacks some of it.
    """
    head: dict[str, Any] = {"role": "tool", "tool_call_id": call}
    if status != "success":
        head[PRIVATE] = {"status": status, "code": code}
    elif output:
        head[PRIVATE] = {"output": output}
    return head


def images_in(head: dict[str, Any]) -> list[dict[str, Any]]:
    """Give what stands in an entry for the images that belong to it."""
    found: list[dict[str, Any]] = head.get(PRIVATE, {}).get("images", [])
    return found


def rendered(head: dict[str, Any], content: str | None, kind: str = "message", parts: Sequence[Any] = ()) -> Message:
    """Write one entry as the model reads it, with the parts that carry its images."""
    if kind != "message":
        return content or "", 0, f"{NOTE}{head.get('note', '')}"
    shown = {key: value for key, value in head.items() if key != PRIVATE}
    if parts:
        text = render({**shown, "content": [{"type": "text", "text": content or ""}, *parts]}, None)
        return text, estimate_tokens(content or "") + image_tokens(images_in(head)) + 4, head["role"]
    text = render(shown, content)
    return text, estimate_tokens(text) + 4, head["role"]


def _load(tx: Transaction, session: str, start: int, end: int) -> dict[int, Message]:
    return {
        e.seq: rendered(e.head, _content(tx, e), e.kind, image_parts(tx, images_in(e.head)))
        for e in tx.read_entries(session, start, end)
    }


def _content(tx: Transaction, entry: Entry) -> str | None:
    # Text that came from outside Loom may hold lone surrogates, which the store keeps and no model takes.
    return tx.get_blob(entry.content_digest).decode("utf-8", "replace") if entry.content_digest else None
