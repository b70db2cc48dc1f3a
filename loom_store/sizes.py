"""How many bytes a store takes, table by table."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError


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
