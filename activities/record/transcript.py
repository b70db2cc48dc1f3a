"""Entries as the model reads them: their text, their size, and the calls in them."""

import base64
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from activities.record.job_store import Conversation
from loom_dsl.agent.turn import Usage
from loom_dsl.tools.context import Image, ToolOutput
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_store.transcript import PRIVATE, Message, images_in, rendered

# Images that tools return: kept in the store, named in the conversation, and sent to the model beside the text.


def images_of(result: Any) -> Sequence[Image]:
    """Give the images in what a tool's function returned."""
    if isinstance(result, Image):
        return (result,)
    return result.images if isinstance(result, ToolOutput) else ()


def put_images(tx: Transaction, images: Sequence[Image]) -> list[dict[str, Any]]:
    """Keep images, and give what stands for them in the history and in the conversation."""
    return [{"digest": tx.put_blob(i.data), "type": i.media_type, "size": len(i.data)} for i in images]


def image_parts(tx: Transaction, kept: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give the parts of a message that carry the images, in the form of the OpenAI API."""
    data = [(image["type"], base64.b64encode(tx.get_blob(image["digest"])).decode()) for image in kept]
    return [{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{text}"}} for kind, text in data]


MASKED = "masked"
"""Under this name an answer's head lists the calls in whose arguments secrets were masked, by their places."""
WASTED = "wasted"
"""Under this name an answer's head has the tokens of the attempts that were lost before it."""
MAX_BYTES = 64 * 1024 * 1024
"""Characters of rendered messages that are kept in memory."""


def wasted_in(entries: Iterable[Entry], job: str) -> Usage:
    """Add up what was wasted for the answers of a job."""
    kept: Iterable[dict[str, Any]] = (entry.head.get(PRIVATE) or {} for entry in entries if entry.job == job)
    return sum((Usage(**one[WASTED]) for one in kept if WASTED in one), Usage())


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
        while self._size > MAX_BYTES:
            self._size -= len(self._kept.popitem(last=False)[1][0])


def _load(tx: Transaction, session: str, start: int, end: int) -> dict[int, Message]:
    return {
        e.seq: rendered(e.head, _content(tx, e), e.kind, image_parts(tx, images_in(e.head)))
        for e in tx.read_entries(session, start, end)
    }


def _content(tx: Transaction, entry: Entry) -> str | None:
    # Text that came from outside Loom may hold lone surrogates, which the store keeps and no model takes.
    return tx.get_blob(entry.content_digest).decode("utf-8", "replace") if entry.content_digest else None
