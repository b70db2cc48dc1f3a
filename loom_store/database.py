"""What a store asks of the database that it is in. Two answer: SQLite, and a PostgreSQL server.

The tables, the questions and what a transaction guarantees are the same in both: write transactions run one after the
other, a read sees one moment, and what was acknowledged is there after a crash. Why so: docs/adr/0039-postgresql.md.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from loom_dsl.errors import LoomError
from loom_store.location import Location, ServerLocation


class Database(Protocol):
    """The database of one open store."""

    @property
    def shown(self) -> str:
        """Its place, as messages have it."""

    @property
    def path(self) -> Path | None:
        """Its file; None: it is on a server."""

    @property
    def log(self) -> Path | None:
        """The file that is to be synchronised after a durable commit; None: a commit needs no such thing."""

    @property
    def clock(self) -> Callable[[], float] | None:
        """Gives the time, in seconds since 1970; None: each transaction asks the server for it."""

    @property
    def patience(self) -> float:
        """Seconds for which what passes is tried again, before it is told."""

    @property
    def savepoints_are_dear(self) -> bool:
        """Whether functions that share a transaction do without, and are all done again when one of them fails."""

    def writer(self) -> Engine:
        """Make the engine whose transactions hold the store's one write lock from their beginning."""

    def reader(self, connections: int) -> Engine:
        """Make the engine whose transactions see one moment and cannot write."""

    @property
    def creates(self) -> bool:
        """Whether an empty one may be filled with the store's tables."""

    def prepare(self, reader: Engine) -> None:
        """Set what stays with the database."""

    def connected(self, connection: Connection) -> None:
        """Set what a connection for writing needs, before its first transaction."""

    def is_in_transaction(self, connection: Connection) -> bool:
        """Say whether a transaction is open and can go on."""

    def is_spoiled(self, connection: Connection) -> bool:
        """Say whether a connection is to be thrown away after a transaction that failed."""

    def token(self, connection: Connection) -> Any:
        """Name the transaction that is open, for `was_committed`."""

    def was_committed(self, token: Any) -> bool:
        """Say whether a transaction whose commit failed went through all the same.

        Raises:
            StoreError: It cannot be said.
        """

    def passes(self, error: DBAPIError) -> bool:
        """Say whether the same transaction is worth another try at once."""

    def explain(self, error: DBAPIError) -> LoomError:
        """Say in Loom's terms what the database complains about."""

    def check(self) -> None:
        """Look whether this is still the database that was opened.

        Raises:
            StoreLost: It is not.
            StoreReadOnly: It cannot be written any more.
        """

    def name(self, connection: Connection) -> str:
        """Name the database so that a copy of it, one restored, or a replica that was promoted has another name."""

    def heard(self) -> int:
        """Say when a worker was last heard here, whatever the store says, in milliseconds; 0: it was not noted."""

    def note_heard(self, millis: int) -> None:
        """Note beside the store when a worker was last heard."""

    def compact(self) -> None:
        """Give the room that is free back to the disk."""

    def dispose(self, *engines: Engine) -> None:
        """Close all connections."""


def database_at(location: Location | ServerLocation, *, create: bool) -> Database:
    """Open the database of a location.

    Args:
        location: Where it is.
        create: Make a file that is missing, or the tables in an empty database, which who looks after the server makes.

    Raises:
        StoreError: It is not there, or cannot be used.
        ConfigurationError: What it takes to speak to the server is not installed.
    """
    if isinstance(location, Location):
        from loom_store.sqlite import SqliteDatabase

        return SqliteDatabase(location, create=create)
    from loom_store.postgresql import PostgresDatabase

    return PostgresDatabase(location, create=create)
