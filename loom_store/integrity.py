"""Whether a store holds together."""

from hashlib import sha256
from typing import Final

from sqlalchemy import func, select

from loom_store.packing import unpack
from loom_store.scope import Scope
from loom_store.tables import blobs, entries, events, jobs, sessions

_SHOWN: Final = 20


class Integrity(Scope):
    """The part of a transaction that checks the store."""

    def check_integrity(self) -> list[str]:
        """Look for damage: of the file, of the contents, gaps in entries and events, names without a row.

        Returns:
            A sentence for each finding, at most 20 of a kind; empty when all is well.
        """
        findings = [
            f"the database file: {line}"
            for (line,) in self._connection.exec_driver_sql("PRAGMA quick_check(20)")
            if line != "ok"
        ]
        return findings + self._gaps() + self._dangling() + self._changed_contents()

    def _gaps(self) -> list[str]:
        found: list[str] = []
        offsets = select(events.c.job, func.max(events.c.last).label("end"), func.sum(events.c.count).label("held"))
        for row in self._execute(offsets.group_by(events.c.job)):
            if row.end != row.held:
                found.append(f"job {self._job_name(row.job)}: {row.held} events, but the last offset is {row.end}")
        runs = select(
            sessions.c.name,
            func.coalesce(sessions.c.parent_end, 0).label("start"),
            func.max(entries.c.seq).label("last"),
            func.count().label("held"),
        ).join(entries, entries.c.session == sessions.c.id)
        for row in self._execute(runs.group_by(sessions.c.id)):
            if row.last - row.start + 1 != row.held:
                found.append(f"session {row.name}: {row.held} entries from {row.start} to {row.last}")
        return found[:_SHOWN]

    def _dangling(self) -> list[str]:
        no_content = (
            select(entries.c.session, entries.c.seq)
            .outerjoin(blobs, blobs.c.id == entries.c.content)
            .where(entries.c.content.is_not(None), blobs.c.id.is_(None))
        )
        no_job = (
            select(entries.c.session, entries.c.seq)
            .outerjoin(jobs, jobs.c.id == entries.c.job)
            .where(jobs.c.id.is_(None))
        )
        found = [f"session number {s}, entry {n}: its content is gone" for s, n in self._execute(no_content)]
        found += [f"session number {s}, entry {n}: its job is gone" for s, n in self._execute(no_job)]
        return found[:_SHOWN]

    def _changed_contents(self) -> list[str]:
        found: list[str] = []
        query = select(blobs.c.digest, blobs.c.body)
        for digest, body in self._connection.execution_options(yield_per=200).execute(query):
            try:
                intact = sha256(unpack(body)).digest() == digest
            except Exception:  # any failure to unpack is damage
                intact = False
            if not intact:
                found.append(f"content {digest.hex()} is not what was put")
        return found[:_SHOWN]
