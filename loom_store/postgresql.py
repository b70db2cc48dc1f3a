"""A store in a database on a PostgreSQL server.

A write transaction begins by taking the store's one write lock, an advisory one, as SQLite's `BEGIN IMMEDIATE` does;
what is written in it needs no other lock. A read is a transaction that sees one moment. The clock is the server's, read
when a transaction begins. Why so: docs/adr/0039-postgresql.md.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool, QueuePool

from loom_dsl.errors import (
    ConfigurationError,
    LoomError,
    StoreError,
    StoreLocked,
    StoreLost,
    StoreReadOnly,
    StoreUnreachable,
)
from loom_store.engine import BUSY_SECONDS
from loom_store.location import ServerLocation, passwords_in
from loom_store.queries.base import SERVER_CLOCK
from loom_store.tables import metadata

try:
    import psycopg
    from psycopg.pq import TransactionStatus
except ImportError as missing:  # pragma: no cover - tried on a wheel without it
    raise ConfigurationError(
        "a store on PostgreSQL needs the driver psycopg, which is not installed: install 'loom-dsl[postgres]'"
    ) from missing

PATIENCE: Final = 5.0
"""Seconds for which a lost connection is made again before who waits is told."""
_DOUBT_SECONDS: Final = 20.0
"""Seconds for which the server is asked what became of a commit that it did not answer."""
_IDLE_SECONDS: Final = 30
"""After so long without a word in the middle of a transaction the server ends it: who holds the write lock and is
stopped, or is on a machine that is gone, holds nobody up for longer."""
_DEFAULTS: Final = {
    "application_name": "loom",
    "client_encoding": "UTF8",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "target_session_attrs": "read-write",  # of several hosts the one that can be written
}
"""How we connect where the address does not say otherwise."""
_BEGIN_READ: Final = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT NULL, extract(epoch FROM clock_timestamp())::float8, NULL"
)
# One lock for each schema. The number of the transaction is what its outcome is asked by.
_BEGIN_WRITE: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
    "SELECT pg_advisory_xact_lock(hashtext('loom store'), hashtext(current_schema()::text)), "
    "extract(epoch FROM clock_timestamp())::float8, txid_current()"
)
_WRITER: Final = (
    f"SET lock_timeout = '{BUSY_SECONDS:g}s'; SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'; "
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)
# As careful as the server is told to be (it may wait for replicas), and never less than its own disk.
_FULL: Final = "SET synchronous_commit = 'on'"
_NORMAL: Final = "SET synchronous_commit = 'off'"
_TOKEN: Final = "loom_transaction"


class PostgresDatabase:
    """A `Database` on a server.

    Args:
        location: Where it is.
        create: Whether an empty database may be filled with the store's tables.

    Raises:
        ConfigurationError: The address is not one that the driver can read.
    """

    path: Path | None = None
    log: Path | None = None
    clock: Callable[[], float] | None = None
    savepoints_are_dear = True  # each is two questions over the network, of some six
    patience = PATIENCE

    def __init__(self, location: ServerLocation, *, create: bool) -> None:
        self.creates = create
        self.shown = location.shown
        self._synchronous = location.synchronous
        self._secrets = passwords_in(location.address)
        try:
            given = psycopg.conninfo.conninfo_to_dict(location.address)
        except psycopg.Error:
            # Its own words may have part of the password in them.
            raise ConfigurationError(
                f"store address {self.shown!r} cannot be read: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
                "with each of :/?#[]@% in name and password as %XX, and no option that libpq does not have"
            ) from None
        self._conninfo = location.address
        self._defaults = {name: value for name, value in _DEFAULTS.items() if name not in given}

    def writer(self) -> Engine:
        """Make the engine whose transactions hold the store's one write lock from their beginning."""
        return self._engine(self._connect_to_write, _BEGIN_WRITE, NullPool)

    def reader(self, connections: int) -> Engine:
        """Make the engine whose transactions see one moment and cannot write."""
        return self._engine(self._connect, _BEGIN_READ, QueuePool, pool_size=connections, max_overflow=0)

    def prepare(self, reader: Engine) -> None:
        """Set nothing."""

    def connected(self, connection: Connection) -> None:
        """Set nothing more."""

    def is_in_transaction(self, connection: Connection) -> bool:
        """Say whether a transaction is open and can go on."""
        return not connection.invalidated and _status(connection) == TransactionStatus.INTRANS

    def is_spoiled(self, connection: Connection) -> bool:
        """Say whether a connection is lost, or a transaction is open that should have ended."""
        return connection.invalidated or _status(connection) != TransactionStatus.IDLE

    def token(self, connection: Connection) -> Any:
        """Give the server's number of the transaction."""
        return connection.info[_TOKEN]

    def was_committed(self, token: Any) -> bool:
        """Ask the server what became of a transaction whose commit it did not answer.

        Raises:
            StoreError: It does not say.
        """
        end = time.monotonic() + _DOUBT_SECONDS
        while True:
            found = self._status_of(token)
            if found in ("committed", "aborted"):
                return found == "committed"
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        raise StoreUnreachable(
            f"store {self.shown}: the server was lost while it committed a write, and has not said since what became "
            "of it; it is written again, under the same key, once the server answers"
        )

    def passes(self, error: DBAPIError) -> bool:
        """Say whether a connection was lost, or could not be made, for a reason that passes; or two were in each
        other's way."""
        cause = error.orig
        if not isinstance(cause, psycopg.Error):
            return False
        if cause.sqlstate is None:
            return isinstance(cause, psycopg.OperationalError) and not _is_refused(str(cause))
        return cause.sqlstate in _PASSING or cause.sqlstate.startswith("08")

    def explain(self, error: DBAPIError) -> LoomError:
        """Say in Loom's terms what the server complains about, without a password."""
        cause = error.orig
        state = getattr(cause, "sqlstate", None)
        said = self._without_secrets(" ".join(str(cause).split("\n")[0].split()))
        if state is None or state in _PASSING or state.startswith("08"):
            return self._unreachable(str(cause), said)
        explain = _EXPLANATIONS.get(state)
        if explain is not None:
            return explain(self.shown, said)
        unknown = StoreError(f"store {self.shown}: {said}")
        unknown.passes = state[:2] in _OF_THE_MACHINE
        return unknown

    def check(self) -> None:
        """Find nothing: what is wrong with a server is told by what it is asked."""

    def name(self, connection: Connection) -> str:
        """Name the database: the cluster, its timeline, which a restore or a promotion begins, database and schema."""
        one = "SELECT has_function_privilege('pg_control_system()', 'execute')"
        cluster = ""
        if connection.exec_driver_sql(one).scalar():
            cluster = str(connection.exec_driver_sql("SELECT system_identifier FROM pg_control_system()").scalar())
        place = connection.exec_driver_sql(
            "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), oid, current_schema() "
            "FROM pg_catalog.pg_database WHERE datname = current_database()"
        ).one()
        return "/".join((cluster, *(str(part) for part in place)))

    def heard(self) -> int:
        """Give 0: a database that was put back has another name."""
        return 0

    def note_heard(self, millis: int) -> None:
        """Note nothing."""

    def compact(self) -> None:
        """Rewrite the tables, so readers and writers wait; blocks the caller.

        Raises:
            StoreLocked: Another process reads or writes.
        """
        engine = self.writer()
        try:
            with engine.connect() as connection:
                for table in metadata.sorted_tables:
                    _execute(connection, f'VACUUM (FULL, ANALYZE) "{table.name}"')
        except DBAPIError as error:
            raise self.explain(error) from error
        finally:
            engine.dispose()

    def dispose(self, *engines: Engine) -> None:
        """Close all connections."""
        for engine in engines:
            engine.dispose()

    def _connect(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(self._conninfo, autocommit=True, **self._defaults)  # type: ignore[arg-type]

    def _connect_to_write(self) -> "psycopg.Connection[Any]":
        """Bound how long a writer waits and may be silent, and say how far its commits must get."""
        driver = self._connect()
        try:
            driver.execute(_WRITER, prepare=False)
            if self._synchronous == "normal":
                driver.execute(_NORMAL)
            elif driver.execute("SHOW synchronous_commit").fetchone() == ("off",):
                driver.execute(_FULL)
        except BaseException:
            driver.close()
            raise
        return driver

    def _engine(self, connect: Callable[[], Any], begin: str, pool: type[Any], **options: Any) -> Engine:
        engine = create_engine(
            "postgresql+psycopg://", creator=connect, poolclass=pool, use_native_hstore=False, **options
        )

        # The driver is in autocommit, so that the kind of BEGIN is ours, and goes with the first question.
        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            _, seconds, connection.info[_TOKEN] = _execute(connection, begin, rows=True)
            begun = time.monotonic()
            connection.info[SERVER_CLOCK] = lambda: seconds + time.monotonic() - begun

        return engine

    def _status_of(self, token: Any) -> str | None:
        try:
            with self._connect() as connection:
                row = connection.execute("SELECT txid_status(%s::bigint)", (token,)).fetchone()
        except psycopg.errors.InvalidParameterValue:
            return "aborted"  # a server that took over, and never heard of it
        except psycopg.Error:
            return None
        return None if row is None else row[0]

    def _unreachable(self, text: str, said: str) -> LoomError:
        for words, do in _REFUSALS:
            if words in text:
                return StoreUnreachable(f"store {self.shown}: {said}; {do}")
        return StoreUnreachable(
            f"store {self.shown}: the server does not answer, or was lost ({said}); see that it runs, and that "
            "LOOM_STORE names its host and port. What waits for it goes on when it answers"
        )

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text


_PASSING: Final = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "57P01",  # the server is shut down
        "57P02",  # or has crashed
        "57P03",  # or is not up yet
        "25P03",  # it ended a transaction that was silent for too long
        "53300",  # it has no connection left
    }
)
_OF_THE_MACHINE: Final = frozenset({"53", "57", "58", "XX"})
"""Classes of errors of disk, memory and operators, which may pass; the others say that a statement is wrong."""
_REFUSALS: Final = (
    ("password authentication failed", "give LOOM_STORE the right user and password, or put it in ~/.pgpass"),
    ("no password supplied", "give LOOM_STORE a password, or put it in ~/.pgpass"),
    ("no pg_hba.conf entry", "let this host, user and database in by the server's pg_hba.conf"),
    ("authentication failed", "see to the server's pg_hba.conf, and to the user of LOOM_STORE"),
    ("certificate", "see to the sslmode and sslrootcert of LOOM_STORE"),
    ("does not exist", "make it (CREATE ROLE …, CREATE DATABASE loom), or put the right name into LOOM_STORE"),
    ("permission denied for database", "GRANT CONNECT, CREATE on it to the user of LOOM_STORE"),
)
"""What of the server's words says that it refuses us, and what to do."""


def _is_refused(text: str) -> bool:
    return any(words in text for words, _ in _REFUSALS)


def _locked(shown: str, said: str) -> LoomError:
    return StoreLocked(
        f"store {shown}: another process has held the write lock for over {BUSY_SECONDS:g} s; "
        "try again, or look for a process that hangs (loom doctor)"
    )


def _forbidden(shown: str, said: str) -> LoomError:
    return StoreReadOnly(f"store {shown}: {said}; GRANT the user of LOOM_STORE all on the database and its schema")


def _full(shown: str, said: str) -> LoomError:
    return StoreError(f"store {shown}: the server's disk is full; free some space, or run loom prune, and try again")


def _gone(shown: str, said: str) -> LoomError:
    return StoreLost(
        f"the store {shown} was lost while this process had it open: {said}; put it back, and start again: jobs go on "
        "where they stood as soon as a worker has their store"
    )


_EXPLANATIONS: Final[dict[str, Callable[[str, str], LoomError]]] = {
    "55P03": _locked,
    "42501": _forbidden,
    "25006": _forbidden,
    "53100": _full,
    "42P01": _gone,
    "3D000": _gone,
}


def _execute(connection: Connection, statements: str, *, rows: bool = False) -> tuple[Any, ...]:
    """Run statements through the driver, in one message; the row of the last one."""
    try:
        cursor = _driver(connection).execute(statements, prepare=False)
        if not rows:
            return ()
        while cursor.nextset():
            pass
        return tuple(cursor.fetchone() or ())
    except psycopg.Error as error:
        raise _wrapped(connection, statements, error) from error


def _wrapped(connection: Connection, statement: str, error: "psycopg.Error") -> DBAPIError:
    lost = _driver(connection).closed
    if lost:
        connection.invalidate(error)
    return OperationalError(statement, None, error, connection_invalidated=lost)


def _driver(connection: Connection) -> "psycopg.Connection[Any]":
    driver = connection.connection.dbapi_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def _status(connection: Connection) -> TransactionStatus:
    return _driver(connection).info.transaction_status
