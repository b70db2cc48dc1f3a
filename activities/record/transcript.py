"""Entries as the model reads them: their text, their size, and the calls in them."""

import base64
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from activities.record.job_store import Conversation
from loom_dsl.agent.messages import render
from loom_dsl.agent.provider_fields import ProviderFields, SendBack
from loom_dsl.agent.turn import Usage
from loom_dsl.tools.context import Image, ToolOutput
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_store.transcript import PRIVATE, Message, given_in, images_in, rendered, sized

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


@dataclass(frozen=True, slots=True)
class _Kept:
    """A message as every model may read it, and what its provider gave with it."""

    message: Message
    given: ProviderFields | None = None

    @property
    def size(self) -> int:
        """Characters that it takes in memory, roughly."""
        return len(self.message[0]) + (len(self.given.dump()) if self.given else 0)


class Transcript:
    """Renders entries once and keeps what was used last: entries never change.

    They are kept by the session's number: a name may stand for another session once the first was pruned.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[int, int], _Kept] = OrderedDict()
        self._sent: OrderedDict[tuple[int, int, SendBack], Message] = OrderedDict()
        """Messages that go back to a provider otherwise than they are kept."""
        self._heads: OrderedDict[tuple[int, int], dict[str, Any]] = OrderedDict()
        self._size = self._sent_size = 0

    async def messages(self, session: Conversation, end: int, to: SendBack | None = None) -> list[Message]:
        """Give every message of a session up to `end`, by sequence.

        Args:
            session: The session.
            end: Where its part ends.
            to: Who reads them: what that provider gave with a message goes back with it. None: nobody's fields.
        """
        number = session.number
        found = {seq: kept for seq in range(end) if (kept := self._kept.get((number, seq))) is not None}
        if len(found) < end:
            start = next(seq for seq in range(end) if seq not in found)
            loaded = await self._store.read(lambda tx: _load(tx, session.name, start, end))
            for seq, kept in loaded.items():
                self._keep((number, seq), kept)
            found |= loaded
        if to is None:
            return [found[seq].message for seq in range(end)]
        return [self._as_sent((number, seq, to), found[seq]) for seq in range(end)]

    def add(
        self,
        session: Conversation,
        seq: int,
        head: dict[str, Any],
        content: str | None,
        given: ProviderFields | None = None,
    ) -> None:
        """Keep an entry that was just stored, so that it need not be read again."""
        if images_in(head):
            return  # which are in the store only
        self._keep((session.number, seq), _Kept(rendered(head, content), given))
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

    def _as_sent(self, key: tuple[int, int, SendBack], kept: _Kept) -> Message:
        text, _, role = kept.message
        to = key[2]
        if role != "assistant" or not (to.takes(kept.given) or to.fills):
            return kept.message
        if (known := self._sent.get(key)) is not None:
            self._sent.move_to_end(key)
            return known
        message = json.loads(text)
        sent = to.message(message, kept.given)
        written = kept.message if sent == message else sized(render(sent, None), role)
        self._sent[key] = written
        self._sent_size += len(written[0])
        while self._sent_size > MAX_BYTES:
            self._sent_size -= len(self._sent.popitem(last=False)[1][0])
        return written

    def _keep(self, key: tuple[int, int], kept: _Kept) -> None:
        if key not in self._kept:
            self._size += kept.size
        self._kept[key] = kept
        while self._size > MAX_BYTES:
            self._size -= self._kept.popitem(last=False)[1].size


def _load(tx: Transaction, session: str, start: int, end: int) -> dict[int, _Kept]:
    return {entry.seq: _kept(tx, entry) for entry in tx.read_entries(session, start, end)}


def _kept(tx: Transaction, entry: Entry) -> _Kept:
    head = entry.head
    message = rendered(head, _content(tx, entry), entry.kind, image_parts(tx, images_in(head)))
    return _Kept(message, given_in(tx, head))


def _content(tx: Transaction, entry: Entry) -> str | None:
    # Text that came from outside Loom may hold lone surrogates, which the store keeps and no model takes.
    return tx.get_blob(entry.content_digest).decode("utf-8", "replace") if entry.content_digest else None
