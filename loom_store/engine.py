"""SQLite as Loom wants it: connections with their settings, and SQLite's errors as Loom's."""

import ctypes
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from loom_dsl.errors import LoomError, NotAStore, StoreError, StoreLocked, StoreReadOnly, StoreTooNew, StoreTooOld
from loom_store.location import Location, Synchronous

if TYPE_CHECKING:
    from alembic.config import Config


BUSY_SECONDS: Final = 5.0
"""How long a process waits for another one's write before it says `StoreLocked`."""

# A checkpoint every 4 MB costs one commit in some hundred a few milliseconds; the log is cut back to 8 MB after it.
_SETTINGS: Final = ("PRAGMA wal_autocheckpoint = 1000", "PRAGMA journal_size_limit = 8388608")


class Opened:
    """The connections that engines have made."""

    def __init__(self) -> None:
        self._made: list[sqlite3.Connection] = []

    def add(self, connection: sqlite3.Connection) -> None:
        """Take note of a connection."""
        self._made = [other for other in self._made if not _is_closed(other)] + [connection]

    def abandon(self) -> None:
        """Leave all to the end of the process: closed in order, they would touch files that are not there any more."""
        for connection in self._made:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.in_transaction  # noqa: B018 - a closed one says that it is
    except sqlite3.ProgrammingError:
        return True
    return False


def writer_engine(location: Location, opened: Opened) -> Engine:
    """Make the engine whose transactions take the write lock when they begin."""
    return _engine(location, opened, "BEGIN IMMEDIATE", [], NullPool)


def reader_engine(location: Location, opened: Opened, readers: int) -> Engine:
    """Make the engine whose transactions read one snapshot and cannot write."""
    return _engine(location, opened, "BEGIN", ["PRAGMA query_only = ON"], QueuePool, pool_size=readers, max_overflow=0)


def _engine(
    location: Location, opened: Opened, begin: str, settings: list[str], pool: type[Any], **options: Any
) -> Engine:
    def connect() -> sqlite3.Connection:
        # mode=rw: a store is created on purpose (Store.open), never by a connection that finds no file.
        connection = sqlite3.connect(
            f"{location.path.as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        for statement in (*_SETTINGS, *settings):
            connection.execute(statement)
        opened.add(connection)
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=pool, **options)

    # The driver is in autocommit, so that the kind of BEGIN is ours.
    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def is_in_transaction(connection: Connection) -> bool:
    """Say whether SQLite still has the transaction open: a full disk, for one, ends it by itself."""
    driver = connection.connection.dbapi_connection
    return isinstance(driver, sqlite3.Connection) and driver.in_transaction


def run_outside(location: Location, statement: str) -> None:
    """Run a statement that SQLite takes only outside a transaction, on a connection of its own.

    Raises:
        LoomError: As `store_error` says.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(location.path, timeout=BUSY_SECONDS, isolation_level=None)
        connection.execute(statement)
    except sqlite3.Error as error:
        raise store_error(error, location) from error
    finally:
        if connection is not None:
            connection.close()


def set_synchronous(connection: Connection, mode: Synchronous) -> None:
    """Choose what a commit waits for. Only outside a transaction."""
    driver = connection.connection.dbapi_connection
    if driver is not None:
        driver.cursor().execute(f"PRAGMA synchronous = {mode}")


def store_error(error: DBAPIError | sqlite3.Error, location: Location) -> LoomError:
    """Say in Loom's terms what SQLite complains about."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    number = (getattr(cause, "sqlite_errorcode", None) or 0) & 0xFF
    explain = _EXPLANATIONS.get(number)
    if explain is not None:
        return explain(location)
    unknown = StoreError(f"store {location.path}: {cause}")
    unknown.passes = number in _OF_THE_MACHINE
    return unknown


def _locked(location: Location) -> LoomError:
    return StoreLocked(
        f"store {location.path}: another process has held the write lock for over {BUSY_SECONDS:g} s; "
        "try again, or look for a process that hangs (loom doctor)"
    )


def _read_only(location: Location) -> LoomError:
    return StoreReadOnly(
        f"store {location.path}: the file or its directory {location.path.parent} cannot be written; "
        "change its permissions, or point LOOM_STORE at another file"
    )


def _cannot_open(location: Location) -> LoomError:
    directory = location.path.parent
    if directory.is_dir() and not os.access(directory, os.W_OK):
        return _read_only(location)
    return StoreError(
        f"store {location.path}: the file cannot be opened; is it a file, and are there free descriptors?"
    )


def _full(location: Location) -> LoomError:
    return StoreError(f"store {location.path}: the disk is full; free some space, or run loom prune, and try again")


def _not_a_store(location: Location) -> LoomError:
    return NotAStore(f"store {location.path}: this is not an SQLite database; point LOOM_STORE at another file")


def _corrupt(location: Location) -> LoomError:
    return StoreError(
        f"store {location.path}: the file is damaged; keep a copy, and try: sqlite3 {location.path} .recover"
    )


_OF_THE_MACHINE: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL})
"""Errors of disk and memory, which may pass; the others say that a statement is wrong, and will be again."""
_EXPLANATIONS: Final[dict[int, Callable[[Location], LoomError]]] = {
    sqlite3.SQLITE_BUSY: _locked,
    sqlite3.SQLITE_LOCKED: _locked,
    sqlite3.SQLITE_READONLY: _read_only,
    sqlite3.SQLITE_PERM: _read_only,
    sqlite3.SQLITE_CANTOPEN: _cannot_open,
    sqlite3.SQLITE_FULL: _full,
    sqlite3.SQLITE_NOTADB: _not_a_store,
    sqlite3.SQLITE_CORRUPT: _corrupt,
}


# Bringing a store's file to this release's tables, once, whoever comes first.


FIRST: Final = "0010"
"""The oldest migration that there is: a store that lacks it cannot be brought up to date."""
HEAD: Final = "0010"
"""The newest migration; `tests/store` compares both with the migrations themselves."""

VERSION_TABLE: Final = "loom_version"

# Alembic keeps its context in module globals.
_ALEMBIC = threading.Lock()


_TABLES: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()",
}


def current_revision(connection: Connection, shown: str) -> str | None:
    """Read which migration the database is at; None for an empty one.

    Args:
        connection: To the database.
        shown: Its place, for messages.

    Raises:
        NotAStore: It has tables of another program.
    """
    dialect = connection.dialect.name
    tables = {name for (name,) in connection.exec_driver_sql(_TABLES[dialect])}
    if VERSION_TABLE in tables:
        revision = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
        return None if revision is None else str(revision)
    if tables:
        what, do = _ANOTHERS[dialect]
        raise NotAStore(f"store {shown}: {what} belongs to another program; {do}")
    return None


_ANOTHERS: Final = {
    "sqlite": ("this SQLite file", "point LOOM_STORE at another file"),
    "postgresql": (
        "what is in this database",
        "make a database of its own for Loom (CREATE DATABASE loom), and point LOOM_STORE at it",
    ),
}


def upgrade(engine: Engine, shown: str) -> None:
    """Run the migrations that are missing, in one transaction that holds the store's write lock.

    Raises:
        StoreTooNew: The store is at a migration that this release does not know.
        StoreTooOld: The store's migrations end before the first one of this release.
    """
    # Imported here: a store that is up to date, the usual case, opens without Alembic (0.1 s).
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    with _ALEMBIC, engine.connect() as connection, connection.begin():
        # Read again under the lock: another process may have been quicker.
        revision = current_revision(connection, shown)
        if revision == HEAD:
            return
        config = alembic_config(connection)
        if revision is not None:
            scripts = ScriptDirectory.from_config(config)
            if revision < FIRST:
                raise StoreTooOld(
                    f"store {shown} is at migration {revision}, and this release of Loom begins with {FIRST}: "
                    "let its jobs end under the release that wrote it, then move the file away, or point LOOM_STORE "
                    "at another one, and Loom makes a new store"
                )
            try:
                scripts.get_revision(revision)
            except CommandError as error:
                raise StoreTooNew(
                    f"store {shown} is at migration {revision}, which this release of Loom does not know "
                    f"(its newest is {HEAD}): upgrade Loom, or point LOOM_STORE at another file"
                ) from error
        command.upgrade(config, HEAD)


def alembic_config(connection: Connection) -> "Config":
    """Make Alembic's configuration for an open connection: no ini file, so that it works from a wheel."""
    from alembic.config import Config

    config = Config()
    scripts = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
