"""The entries of a conversation: appended, read, never changed."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import bindparam, insert, select

from loom_dsl.canonical import canonical_json
from loom_store.packing import pack_text, unpack_text
from loom_store.rows import Entry, EntryKind, EntryRange, NewEntry
from loom_store.scope import full_key, key_hash, shorten_key, storable
from loom_store.sessions import Sessions
from loom_store.tables import blobs, entries, jobs

_KINDS: Final[tuple[EntryKind, ...]] = ("message", "note")

_BY_KEY = (
    select(entries.c.seq, entries.c.size, entries.c.key, jobs.c.name)
    .join(jobs, jobs.c.id == entries.c.job)
    .where(entries.c.session == bindparam("session"), entries.c.key_hash == bindparam("hash"))
)
_ADD = insert(entries)
_RANGE = (
    select(
        entries.c.seq,
        entries.c.key,
        entries.c.kind,
        entries.c.head,
        blobs.c.digest,
        jobs.c.name,
        entries.c.turn,
    )
    .join(jobs, jobs.c.id == entries.c.job)
    .outerjoin(blobs, blobs.c.id == entries.c.content)
    .where(
        entries.c.session == bindparam("session"), entries.c.seq >= bindparam("first"), entries.c.seq < bindparam("end")
    )
    .order_by(entries.c.seq)
)
_NO_END: Final = 2**62


class Entries(Sessions):
    """The part of a transaction that deals with entries."""

    def append_entries(self, session: str, key: str, new: Sequence[NewEntry]) -> EntryRange:
        """Append entries in order, once per key: the same key gives the range of the first time.

        Raises:
            NotFoundError: There is no such session.
            ValueError: There is nothing to append, or a head is not plain JSON.
        """
        if not new:
            raise ValueError(f"no entries to append with the key {key!r}")
        row = self._require_session(session)
        key = storable(key)
        hashed = key_hash(key)
        for first, size, short, job in self._execute(_BY_KEY, {"session": row.id, "hash": hashed}):
            if full_key(short, job) == key:
                return EntryRange(first, first + size)
        first = self._next_seq(row)
        added = [self._add(row.id, first, n, key, hashed, entry, len(new)) for n, entry in enumerate(new)]
        self._after_commit(lambda: self._keep_if_held(row.id, added))
        return EntryRange(first, first + len(new))

    def read_entries(self, session: str, start: int = 0, end: int | None = None) -> list[Entry]:
        """Read the entries with ``start <= seq < end``; of a fork, the parent's first.

        Raises:
            NotFoundError: There is no such session.
        """
        row = self._require_session(session)
        limit = _NO_END if end is None else end
        pieces: list[list[Entry]] = []
        while limit > start:
            own_first = row.parent_end or 0
            pieces.append(self._own_entries(row.id, max(start, own_first), limit))
            limit = min(limit, own_first)
            if row.parent is None:
                break
            if limit > start:
                row = self._session_by_id(row.parent)
        return [entry for piece in reversed(pieces) for entry in piece]

    def _add(self, session: int, first: int, n: int, key: str, hashed: int, entry: NewEntry, size: int) -> Entry:
        blob_id, digest = (None, None)
        if entry.content is not None:
            blob_id, digest = self._put(entry.content.encode("utf-8", "surrogatepass"))
        head = canonical_json(dict(entry.head))
        values = {
            "session": session,
            "seq": first + n,
            "n": n,
            "size": size,
            "key_hash": hashed if n == 0 else None,
            "key": shorten_key(key, entry.job),
            "kind": _KINDS.index(entry.kind),
            "job": self._job_id(entry.job),
            "turn": entry.turn,
            "content": blob_id,
            "head": pack_text(head),
        }
        self._execute(_ADD, values)
        return Entry(first + n, key, entry.kind, head, digest, entry.job, entry.turn)

    def _keep_if_held(self, session: int, added: list[Entry]) -> None:
        """Extend what the cache holds; a session that nobody reads need not be in memory."""
        if self._shared.entries.holds(session):
            self._shared.entries.add(session, added)

    def _own_entries(self, session: int, start: int, end: int) -> list[Entry]:
        """Read from memory what is there, and from the file what lies before and behind it."""
        held = self._shared.entries.run(session)
        if not held:
            return self._load(session, start, end)
        first, last = held[0].seq, held[-1].seq
        before = self._load(session, start, first) if start < first else []
        after = self._load(session, last + 1, end) if end > last + 1 else []
        if not before and not after:
            return held[max(start - first, 0) : max(end - first, 0)]
        return [entry for entry in before + held + after if start <= entry.seq < end]

    def _load(self, session: int, start: int, end: int) -> list[Entry]:
        rows = self._execute(_RANGE, {"session": session, "first": start, "end": end})
        loaded = [_entry(row) for row in rows]
        if loaded:
            self._after_commit(lambda: self._shared.entries.add(session, loaded))
        return loaded


def _entry(row: Any) -> Entry:
    seq, short, kind, head, raw, job, turn = row
    digest = None if raw is None else raw.hex()
    return Entry(seq, full_key(short, job), _KINDS[kind], unpack_text(head), digest, job, turn)
