"""Whether a store holds together, and how many bytes it takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Connection, create_engine, func, select
from sqlalchemy.pool import NullPool

from loom_store.queries.blobs import unpack
from loom_store.store import Store
from loom_store.tables import blobs, entries, events, jobs, sessions
from loom_store.transaction import Transaction


def problems(tx: Transaction) -> list[str]:
    """Look for damage: of the file, of the contents, gaps in entries and events, names without a row."""
    findings: list[str] = []
    if tx._connection.dialect.name == "sqlite":
        lines = tx._connection.exec_driver_sql("PRAGMA quick_check(20)").scalars()
        findings = [f"the database file: {line}" for line in lines if line != "ok"]
    return [*findings, *_gaps(tx), *_dangling(tx), *_changed_contents(tx)]


def _gaps(tx: Transaction) -> list[str]:
    found: list[str] = []
    offsets = select(jobs.c.name, func.max(events.c.last).label("end"), func.sum(events.c.count).label("held"))
    for row in tx._execute(offsets.join(jobs, jobs.c.id == events.c.job).group_by(jobs.c.name)):
        if row.end != row.held:
            found.append(f"job {row.name}: {row.held} events, but the last offset is {row.end}")
    runs = select(
        sessions.c.name,
        func.coalesce(sessions.c.parent_end, 0).label("start"),
        func.max(entries.c.seq).label("last"),
        func.count().label("held"),
    ).join(entries, entries.c.session == sessions.c.id)
    for row in tx._execute(runs.group_by(sessions.c.id, sessions.c.name, sessions.c.parent_end)):
        if row.last - row.start + 1 != row.held:
            found.append(f"session {row.name}: {row.held} entries from {row.start} to {row.last}")
    return found


def _dangling(tx: Transaction) -> list[str]:
    place = select(entries.c.session, entries.c.seq)
    no_content = place.outerjoin(blobs, blobs.c.id == entries.c.content)
    no_content = no_content.where(entries.c.content.is_not(None), blobs.c.id.is_(None))
    no_job = place.outerjoin(jobs, jobs.c.id == entries.c.job).where(jobs.c.id.is_(None))
    found = [f"session number {s}, entry {n}: its content is gone" for s, n in tx._execute(no_content)]
    return found + [f"session number {s}, entry {n}: its job is gone" for s, n in tx._execute(no_job)]


def _changed_contents(tx: Transaction) -> list[str]:
    rows = tx._execute(select(blobs.c.digest, blobs.c.body))
    return [f"content {digest.hex()} is not what was put" for digest, body in rows if not _is_intact(digest, body)]


def _is_intact(digest: bytes, body: bytes) -> bool:
    try:
        return sha256(unpack(body)).digest() == digest
    except Exception:  # any failure to unpack is damage
        return False


@contextmanager
def beside(place: str) -> Iterator[Connection]:
    """Give a connection to a store's database that Loom knows nothing of; what is done there is committed."""
    url = place.replace("postgresql://", "postgresql+psycopg://") if "://" in place else f"sqlite:///{place}"
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a store: of each table with its indices, of the file, and of what in it is free."""

    tables: dict[str, int]
    file: int
    free: int

    @property
    def total(self) -> int:
        """Bytes of all tables."""
        return sum(self.tables.values())


def sizes(store: Store) -> Sizes:
    """Measure a store."""
    query = (
        "SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat s "
        "LEFT JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
    )
    engine = create_engine(f"sqlite:///{store.path}")
    with engine.connect() as connection:
        tables = {str(name): int(size) for name, size in connection.exec_driver_sql(query)}
        page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        free = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one() * page
    engine.dispose()
    return Sizes(tables, store.path.stat().st_size, free)
