"""A store in an SQLite file."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from loom_dsl.errors import LoomError, NotAStore, StoreLocked, StoreMissing, StoreReadOnly
from loom_store.engine import (
    BUSY_SECONDS,
    Opened,
    is_in_transaction,
    reader_engine,
    run_outside,
    set_synchronous,
    store_error,
    writer_engine,
)
from loom_store.files import BESIDE, StoreFiles, is_write_protected
from loom_store.location import Location
from loom_store.queries.identity import file_name, heard_in, note_heard


class SqliteDatabase:
    """A `Database` that is a file. Its settings, errors and connections are those of `loom_store.engine`.

    Args:
        location: The file.
        create: Make it when it is missing.
    """

    clock: Callable[[], float] = time.time
    savepoints_are_dear = False
    creates = True  # a file that is missing was refused by now
    patience = 0.0  # SQLite waits for its lock by itself, and whatever else is wrong does not pass by itself

    def __init__(self, location: Location, *, create: bool) -> None:
        _ensure_file(location.path, create)
        self.path = location.path
        self.shown = location.shown
        self.log: Path | None = None
        if location.synchronous == "full":
            self.log = Path(f"{os.path.realpath(location.path)}-wal")
        self._location = location
        self._files = StoreFiles(location.path)
        self._opened = Opened()

    def writer(self) -> Engine:
        """Make the engine whose transactions take the write lock when they begin."""
        return writer_engine(self._location, self._opened)

    def reader(self, connections: int) -> Engine:
        """Make the engine whose transactions read one snapshot and cannot write."""
        return reader_engine(self._location, self._opened, connections)

    def prepare(self, reader: Engine) -> None:
        """Have the file in the journal mode WAL."""
        with reader.connect() as connection:
            journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        if journal != "wal":
            self._switch_to_wal()

    def connected(self, connection: Connection) -> None:
        """Let commits wait for no disk: the writer does, for many at once."""
        # Through the driver: SQLAlchemy would begin a transaction, inside which this has no effect.
        set_synchronous(connection, "normal")

    def is_in_transaction(self, connection: Connection) -> bool:
        """Say whether SQLite still has the transaction open: a full disk, for one, ends it by itself."""
        return is_in_transaction(connection)

    def is_spoiled(self, connection: Connection) -> bool:
        """Say whether a transaction is open that should have ended."""
        return connection.invalidated or is_in_transaction(connection)

    def token(self, connection: Connection) -> None:
        """Name nothing: a commit that fails has not gone through."""

    def was_committed(self, token: Any) -> bool:
        """Say that it was not."""
        return False

    def passes(self, error: DBAPIError) -> bool:
        """Say that nothing is worth another try at once."""
        return False

    def explain(self, error: DBAPIError) -> LoomError:
        """Say in Loom's terms what SQLite complains about."""
        return store_error(error, self._location)

    def check(self) -> None:
        """Look whether the files are still the ones that were opened, and can be written."""
        self._files.check()

    def name(self, connection: Connection) -> str:
        """Name the file."""
        return file_name(self.path)

    def heard(self) -> int:
        """Say when a worker was last heard in the file."""
        return heard_in(self.path)

    def note_heard(self, millis: int) -> None:
        """Note on the file when a worker was last heard in it."""
        note_heard(self.path, millis)

    def compact(self) -> None:
        """Rewrite the file, so writers wait; blocks the caller.

        Raises:
            StoreLocked: Another process reads or writes.
        """
        run_outside(self._location, "VACUUM")

    def dispose(self, *engines: Engine) -> None:
        """Close all connections, or leave them as they are where the files are gone."""
        if self._files.problem() is not None:
            return self._opened.abandon()
        for engine in engines:
            engine.dispose()

    def _switch_to_wal(self) -> None:
        """Set the journal mode, which stays with the file. SQLite does not wait for a lock here, so we do."""
        end = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return run_outside(self._location, "PRAGMA journal_mode = WAL")
            except StoreLocked:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


def _ensure_file(path: Path, create: bool) -> None:
    """Make sure that there is a file we may write, readable by its owner only if it is new."""
    if not path.exists() and not create:
        raise StoreMissing(f"there is no store at {path}; start a worker or a job first, or point LOOM_STORE at it")
    read_only = f"store {path}: the file or its directory {path.parent} cannot be written; change its permissions"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only a file that is new is opened here: to close one ends all locks that this process has on it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreReadOnly(f"{read_only} ({error.strerror})") from error
    if path.is_dir():
        raise NotAStore(f"store {path}: this is a directory; give a file in it, such as {path / 'loom.db'}")
    # WAL needs the directory too, and the two files that SQLite makes beside this one, with its mode.
    if not os.access(path.parent, os.W_OK):
        raise StoreReadOnly(read_only)
    for place in (path, *(path.with_name(path.name + suffix) for suffix in BESIDE)):
        if is_write_protected(place, os.R_OK | os.W_OK):
            raise StoreReadOnly(f"{read_only} ({place.name} is the one; `ls -l` and `lsattr` say why)")
