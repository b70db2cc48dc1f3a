"""What may go: jobs that ended long ago, what only they used, and contents that nobody names any more."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, Table, and_, delete, exists, func, literal, or_, select, update

from loom_store.queries.base import Queries
from loom_store.queries.blobs import TOUCH_SECONDS, unpack
from loom_store.rows import to_millis
from loom_store.tables import (
    approvals,
    blobs,
    deliveries,
    effects,
    entries,
    events,
    jobs,
    marks,
    sessions,
    steps,
    streams,
)

_DIGEST: Final = re.compile(rb"[0-9a-f]{64}")
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many rows went, or would go.

    Attributes:
        blob_bytes: Bytes of the contents that went, before packing.
    """

    jobs: int
    sessions: int
    entries: int
    events: int
    effects: int
    approvals: int
    blobs: int
    blob_bytes: int


class RetentionQueries(Queries):
    """The part of a transaction that removes what is old."""

    def prune(self, before: datetime, dry_run: bool = False) -> Pruned:
        """Remove jobs that ended before a time, with their events, effects and approvals.

        A session goes with the last job that used it, unless it was forked. A content goes when no row and no other
        content names it and nobody has put it since `before`, nor since the oldest running job began: what a running
        job names may be known to Temporal only. The file keeps its size; the room is used again.

        Args:
            before: An aware time.
            dry_run: Count only.
        """
        with self._connection.begin_nested() as savepoint:
            pruned, digests = self._prune(to_millis(before))
            if dry_run:
                savepoint.rollback()
            else:
                self._after_commit(lambda: self._shared.blobs.drop(digests))
        return pruned

    def _prune(self, before: int) -> tuple[Pruned, list[str]]:
        old = select(jobs.c.id).where(jobs.c.ended_at < before)
        counted = self._scalar(
            select(func.count()).select_from(jobs).where(jobs.c.ended_at < before, jobs.c.created_at.is_not(None))
        )
        self._hand_up(before)
        tables = (events, effects, approvals, streams, deliveries, marks, steps)
        gone = {table.name: self._delete_of(table, old) for table in tables}
        told = {name: gone[name] for name in ("events", "effects", "approvals")}
        session_count, entry_count = self._prune_sessions(before)
        self._forget_jobs(before)
        self._jobs.clear()
        self._last_events.clear()
        digests, size = self._prune_blobs(before)
        of_blobs = {"blobs": len(digests), "blob_bytes": size}
        return Pruned(jobs=counted, sessions=session_count, entries=entry_count, **told, **of_blobs), digests

    def _hand_up(self, before: int) -> None:
        """Give the marks of content from outside to the next job above that stays: what a child told it, it has."""
        up = jobs.alias("up")
        line = (
            select(jobs.c.id.label("job"), jobs.c.above)
            .where(jobs.c.ended_at < before, jobs.c.above.is_not(None))
            .cte("line", recursive=True)
        )
        line = line.union(
            select(line.c.job, up.c.above).join_from(line, up, up.c.id == line.c.above).where(up.c.ended_at < before)
        )
        stays = or_(up.c.ended_at.is_(None), up.c.ended_at >= before)
        handed = (
            select(up.c.id, literal("earlier"), marks.c.value)
            .join_from(marks, line, line.c.job == marks.c.job)
            .join(up, up.c.id == line.c.above)
            .where(marks.c.kind.in_(("untrusted", "earlier")), stays)
        )
        columns = (marks.c.job, marks.c.kind, marks.c.value)
        self._execute(self._insert(marks).from_select(columns, handed).on_conflict_do_nothing())

    def _delete_of(self, table: Table, old: Select[Any]) -> int:
        return int(self._execute(delete(table).where(table.c.job.in_(old))).rowcount)

    def _prune_sessions(self, before: int) -> tuple[int, int]:
        """Remove sessions that only old jobs used; a fork goes before the session that it came from."""
        fork = sessions.alias("fork")
        alive = or_(jobs.c.ended_at.is_(None), jobs.c.ended_at >= before)
        old = jobs.c.ended_at < before
        wrote = and_(entries.c.session == sessions.c.id, entries.c.job == jobs.c.id)
        unused = select(sessions.c.id).where(
            or_(exists().where(jobs.c.session == sessions.c.name, old), exists().where(wrote, old)),
            ~exists().where(jobs.c.session == sessions.c.name, alive),
            ~exists().where(wrote, alive),
            ~exists().where(jobs.c.id == sessions.c.lease, alive),
            ~exists().where(fork.c.parent == sessions.c.id),
        )
        session_count = entry_count = 0
        while ids := list(self._execute(unused).scalars()):
            for part in _chunks(ids):
                entry_count += self._execute(delete(entries).where(entries.c.session.in_(part))).rowcount
                session_count += self._execute(delete(sessions).where(sessions.c.id.in_(part))).rowcount
        return session_count, entry_count

    def _forget_jobs(self, before: int) -> None:
        """Remove old jobs; of one whose entries are still read, keep the name and that it ended."""
        old = jobs.c.ended_at < before
        named = exists().where(entries.c.job == jobs.c.id)
        self._execute(delete(jobs).where(old, ~named))
        kept = {"id", "name", "ended_at"}
        empty = {column.name: None for column in jobs.c if column.name not in kept}
        self._execute(update(jobs).where(old).values(empty))

    def _prune_blobs(self, before: int) -> tuple[list[str], int]:
        oldest = self._scalar(select(func.min(jobs.c.created_at)).where(jobs.c.ended_at.is_(None)))
        # A content that is put again is stamped only when its stamp is older than this.
        limit = min(before, before if oldest is None else oldest - TOUCH_SECONDS * 1000) // 1000
        named = select(entries.c.id).where(entries.c.content == blobs.c.id)
        query = select(blobs.c.id, blobs.c.digest, blobs.c.size).where(blobs.c.put_at < limit, ~named.exists())
        candidates = {row.digest.hex(): (row.id, row.size) for row in self._execute(query)}
        self._keep_named(candidates)
        for part in _chunks([blob_id for blob_id, _ in candidates.values()]):
            self._execute(delete(blobs).where(blobs.c.id.in_(part)))
        return list(candidates), sum(size for _, size in candidates.values())

    def _keep_named(self, candidates: dict[str, tuple[int, int]]) -> None:
        """Take from the candidates all that something kept names, directly or through a content."""
        if not candidates:
            return
        spared: list[int] = []

        def keep(data: bytes) -> None:
            for match in _DIGEST.findall(data):
                if (found := candidates.pop(match.decode(), None)) is not None:
                    spared.append(found[0])

        for data in self._texts():
            keep(data)
        doomed = {blob_id for blob_id, _ in candidates.values()}
        for blob_id, body in self._stream(select(blobs.c.id, blobs.c.body)):
            if blob_id not in doomed:
                keep(unpack(body))
        # What has just been spared may name others: follow until nothing new is spared.
        while spared:
            part, spared[:] = spared[:_CHUNK], spared[_CHUNK:]
            for body in self._execute(select(blobs.c.body).where(blobs.c.id.in_(part))).scalars().all():
                keep(unpack(body))

    def _texts(self) -> Iterator[bytes]:
        """Give all text of all rows in which a digest may stand."""
        for column in (entries.c.head, events.c.body, approvals.c.body, approvals.c.decision, effects.c.note):
            for (packed,) in self._stream(select(column).where(column.is_not(None))):
                yield unpack(packed)
        for column in (effects.c.arguments, effects.c.result):
            for (raw,) in self._stream(select(column).where(column.is_not(None))):
                yield raw.hex().encode()
        for column in (marks.c.value, effects.c.images):
            for (value,) in self._stream(select(column).where(column.is_not(None))):
                yield value.encode()
        for row in self._stream(select(jobs.c.plan, jobs.c.agent, jobs.c.result, jobs.c.waiting, jobs.c.failed_at)):
            yield " ".join(text for text in row if text is not None).encode()

    def _stream(self, query: Select[Any]) -> Iterable[Any]:
        # Fetched in parts: all bodies at once would not fit in memory.
        return self._connection.execute(query.execution_options(yield_per=_CHUNK))


def _chunks(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]
