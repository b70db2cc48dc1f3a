"""Conversations: which there are, and which job may write in one."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, insert, select, update

from loom_dsl.errors import ConflictError, NotFoundError, SessionBusy
from loom_dsl.text.canonical import canonical_json
from loom_store.queries.base import full_key, key_hash, shorten_key, storable
from loom_store.queries.blobs import BlobQueries, pack_text, unpack_text
from loom_store.rows import Entry, EntryKind, EntryRange, NewEntry
from loom_store.tables import blobs, entries, jobs, sessions

_SELECT = select(sessions.c.id, sessions.c.parent, sessions.c.parent_end, sessions.c.lease)
_FIND = _SELECT.where(sessions.c.name == bindparam("name"))
_BY_ID = _SELECT.where(sessions.c.id == bindparam("session_id"))
_ADD = insert(sessions)
_LAST = select(entries.c.seq).where(entries.c.session == bindparam("session")).order_by(entries.c.seq.desc()).limit(1)
_LEASE = update(sessions).where(sessions.c.id == bindparam("session_id")).values(lease=bindparam("job"))
_HOLDER = select(jobs.c.name, jobs.c.ended_at).where(jobs.c.id == bindparam("job"))


class SessionRow(NamedTuple):
    """A session as its table holds it."""

    id: int
    parent: int | None
    parent_end: int | None
    lease: int | None


class SessionQueries(BlobQueries):
    """The part of a transaction that deals with sessions and their leases."""

    def create_session(
        self, session: str, *, job: str | None = None, parent: str | None = None, parent_entry: int | None = None
    ) -> None:
        """Create a session, or find it there. Without a parent, a session that was forked is found too.

        Args:
            session: Its id.
            job: A job that takes the lease at once.
            parent: The session that it is forked from.
            parent_entry: The fork sees the parent's entries with a smaller ``seq`` (the ``end`` of a range) and
                counts on from here. Default: all that the parent has now.

        Raises:
            ConflictError: The session is there and has another parent.
            NotFoundError: There is no such parent, or it has not that many entries.
            SessionBusy: The session is there, and another running job has its lease.
        """
        origin = self._origin(parent, parent_entry) if parent is not None else None
        found = self._find_session(session)
        if found is None:
            parent_id, parent_end = origin or (None, None)
            row = {"name": session, "parent": parent_id, "parent_end": parent_end, "created_at": self._millis()}
            self._execute(_ADD, row)
        elif origin is not None and not _same_origin(found, origin, exact=parent_entry is not None):
            raise ConflictError(f"session {session!r} exists already and was not forked there; take another id")
        if job is not None:
            self.acquire_lease(session, job)

    def session_exists(self, session: str) -> bool:
        """Say whether there is such a session."""
        return self._find_session(session) is not None

    def acquire_lease(self, session: str, job: str) -> None:
        """Let a job write in a session. Asking again is fine; a job that has ended holds nothing.

        Raises:
            SessionBusy: Another job that has not ended has the lease.
            NotFoundError: There is no such session.
        """
        row = self._require_session(session)
        job_id = self._job_id(job)
        if row.lease == job_id:
            return
        if row.lease is not None:
            holder = self._execute(_HOLDER, {"job": row.lease}).first()
            if holder is not None and holder.ended_at is None:
                raise SessionBusy(
                    f"session {session!r} is in use by job {holder.name!r}; wait for it, abort it, or fork the session",
                    holder=holder.name,
                )
        self._execute(_LEASE, {"session_id": row.id, "job": job_id})

    def session_number(self, session: str) -> int | None:
        """Give the integer that stands for a session, or None. It is never given to another one, also after a prune."""
        row = self._find_session(session)
        return None if row is None else row.id

    def _find_session(self, name: str) -> SessionRow | None:
        row = self._first(_FIND, {"name": name})
        return None if row is None else SessionRow(*row)

    def _require_session(self, name: str) -> SessionRow:
        row = self._find_session(name)
        if row is None:
            raise NotFoundError(f"there is no session {name!r} in this store; create it first")
        return row

    def _session_by_id(self, session_id: int) -> SessionRow:
        return SessionRow(*self._execute(_BY_ID, {"session_id": session_id}).one())

    def _next_seq(self, row: SessionRow) -> int:
        last = self._first(_LAST, {"session": row.id})
        return int(last[0]) + 1 if last else row.parent_end or 0

    def _origin(self, parent: str, parent_entry: int | None) -> tuple[int, int]:
        row = self._require_session(parent)
        end = self._next_seq(row)
        if parent_entry is not None and not 0 <= parent_entry <= end:
            raise NotFoundError(f"session {parent!r} has {end} entries; it cannot be forked at {parent_entry}")
        return row.id, end if parent_entry is None else parent_entry


def _same_origin(found: SessionRow, origin: tuple[int, int], *, exact: bool) -> bool:
    # Without a given place, "all the parent has now" was another place the first time.
    return found.parent == origin[0] and (not exact or found.parent_end == origin[1])


# The entries of a conversation: appended, read, never changed.


_KINDS: Final[tuple[EntryKind, ...]] = ("message", "note")

_BY_KEY = (
    select(entries.c.seq, entries.c.size, entries.c.key, jobs.c.name)
    .join(jobs, jobs.c.id == entries.c.job)
    .where(entries.c.session == bindparam("session"), entries.c.key_hash == bindparam("hash"))
)
_ADD_ENTRY = insert(entries)
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


class EntryQueries(SessionQueries):
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
        self._execute(_ADD_ENTRY, values)
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
