"""Whether a store holds together."""

from collections import defaultdict
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError

from loom_store.queries.base import Scope
from loom_store.queries.blobs import unpack
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


# How many bytes a store takes, table by table.


@dataclass(frozen=True, slots=True)
class SizeReport:
    """Bytes of a store.

    Attributes:
        tables: Bytes of each table, its indices included.
        file: Bytes of the database file.
        wal: Bytes of the write-ahead log beside it.
        free: Bytes of the file that are free to be used again.
        exact: Whether `tables` counts pages; else it is estimated from the rows' lengths, without indices.
    """

    tables: dict[str, int]
    file: int
    wal: int
    free: int
    exact: bool

    @property
    def total(self) -> int:
        """Bytes of all tables."""
        return sum(self.tables.values())


def measure_sizes(engine: Engine, path: Path) -> SizeReport:
    """Measure a store.

    Raises:
        OSError: Its file is gone.
    """
    with engine.connect() as connection:
        try:
            tables, exact = _pages(connection), True
        except DBAPIError:  # an SQLite built without dbstat
            tables, exact = _lengths(connection), False
        page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        free = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one() * page
    wal = path.with_name(path.name + "-wal")
    return SizeReport(tables, path.stat().st_size, wal.stat().st_size if wal.exists() else 0, free, exact)


def _pages(connection: Connection) -> dict[str, int]:
    sizes: defaultdict[str, int] = defaultdict(int)
    query = (
        "SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat s "
        "LEFT JOIN sqlite_master m ON m.name = s.name GROUP BY s.name"
    )
    for table, size in connection.exec_driver_sql(query):
        sizes[table] += size
    return dict(sizes)


def _lengths(connection: Connection) -> dict[str, int]:
    sizes: dict[str, int] = {}
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for table in connection.exec_driver_sql(names).scalars().all():
        columns = [row[1] for row in connection.exec_driver_sql(f'PRAGMA table_info("{table}")')]
        lengths = " + ".join(f'coalesce(length("{column}"), 0)' for column in columns)
        sizes[table] = connection.exec_driver_sql(f'SELECT coalesce(sum({lengths}), 0) FROM "{table}"').scalar_one()
    return sizes
