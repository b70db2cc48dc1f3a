"""The one thread that writes: queued functions share a transaction, and one beside it waits for the disk.

SQLite holds its write lock while a commit waits for the disk, and other processes see nothing of it until then. So a
commit does not wait (`synchronous = normal`): it is seen at once, and who asked for more is told when the log has been
synchronised, by one wait for all that were committed meanwhile. A checkpoint synchronises log and file by itself before
the log is begun anew.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from loom_dsl.errors import StoreError
from loom_store.database import Database
from loom_store.transaction import Transaction

# More would make the first wait for the last; at 64 the disk's share of each is already small.
_GROUP: Final = 64
_PAUSE: Final = 0.05
"""Seconds between two tries of what passes."""

Work = Callable[[Transaction], Any]
Outcome = tuple[Any, BaseException | None]


Committed = tuple[Future[Any], Any]
"""Who waits for the disk, and what it is told then."""


@dataclass(frozen=True, slots=True)
class _Queued:
    work: Work
    durable: bool
    future: Future[Any] = field(default_factory=Future)


class _OneFailed(Exception):
    """One of several functions failed that shared a transaction without savepoints."""


class Writer:
    """Runs functions in write transactions, in the order in which they come.

    Args:
        engine: Its transactions begin with the write lock.
        transaction: Makes a `Transaction` of a connection.
        database: Where it writes.
        connected: Called when a connection was made anew, after an earlier one was lost.
    """

    def __init__(
        self,
        engine: Engine,
        transaction: Callable[[Connection], Transaction],
        database: Database,
        connected: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._transaction = transaction
        self._database = database
        self._disk = None if database.log is None else _Disk(database.log)
        self._connection: Connection | None = None
        self._connected_again = connected
        self._was_connected = False
        self._queue: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        # A daemon: a program that forgets to close its store still ends, and SQLite forgives being cut off.
        self._thread = threading.Thread(target=self._run, name="loom-store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work, durable: bool) -> Future[Any]:
        """Queue a function. Cancelling the future before its turn leaves it out; after that it runs to its end.

        Raises:
            StoreError: The store is closed, or a write function calls this.
        """
        if threading.current_thread() is self._thread:
            raise StoreError("a write function cannot start another write; use the transaction that it was given")
        queued = _Queued(work, durable)
        with self._closing:
            if self._closed:
                raise StoreError("the store is closed; open it again to write")
            self._queue.put(queued)
        return queued.future

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        open_ = True
        while open_:
            group, open_ = self._next_group()
            ready = [queued for queued in group if queued.future.set_running_or_notify_cancel()]
            if ready:
                self._settle(ready)
            # Results must not live on in this frame until the next write.
            del group, ready
        if self._disk is not None:
            self._disk.close()
        if self._connection is not None:
            # Where the files are gone, whoever made this leaves all connections as they are.
            with contextlib.suppress(StoreError):
                self._database.check()
                self._connection.close()

    def _next_group(self) -> tuple[list[_Queued], bool]:
        group: list[_Queued] = []
        item = self._queue.get()
        while item is not None:
            group.append(item)
            if len(group) == _GROUP:
                return group, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _settle(self, group: list[_Queued]) -> None:
        try:
            outcomes = self._patiently(group)
        except DBAPIError as error:
            reason = self._database.explain(error)
            reason.__cause__ = error
            outcomes = [(None, reason)] * len(group)
        except BaseException as error:  # handed to those who wait; the thread must live
            outcomes = [(None, error)] * len(group)
        waiting: list[Committed] = []
        for queued, (result, failure) in zip(group, outcomes, strict=True):
            if failure is not None:
                queued.future.set_exception(failure)
            elif queued.durable and self._disk is not None:
                waiting.append((queued.future, result))
            else:
                queued.future.set_result(result)
        if waiting and self._disk is not None:
            self._disk.wait(waiting)

    def _patiently(self, group: list[_Queued]) -> list[Outcome]:
        """Commit a group; again while what prevents it passes: then nothing of it was written."""
        end: float | None = None
        savepoints = not self._database.savepoints_are_dear
        while True:
            try:
                return self._commit(group, savepoints)
            except _OneFailed:
                savepoints = True
                continue
            except DBAPIError as error:
                end = time.monotonic() + self._database.patience if end is None else end
                if not self._database.passes(error) or time.monotonic() > end:
                    raise
            time.sleep(_PAUSE)

    def _commit(self, group: list[_Queued], savepoints: bool) -> list[Outcome]:
        self._database.check()
        connection = self._connected()
        token, all_ran = None, False
        try:
            with connection.begin():
                token = self._database.token(connection)
                if len(group) == 1:
                    # Alone, a function needs no savepoint: its failure ends the transaction and reaches its caller.
                    transactions, outcomes = self._run_alone(connection, group)
                else:
                    run = self._run_in_savepoints if savepoints else self._run_together
                    transactions, outcomes = run(connection, group)
                self._database.check()  # once more: nothing is to go into a file that nobody will find
                all_ran = True
        except BaseException as error:
            if self._database.is_spoiled(connection):
                connection.invalidate()
                self._connection = None
            # What went wrong after all functions had run, went wrong in the commit itself.
            if not (all_ran and isinstance(error, DBAPIError) and self._database.was_committed(token)):
                raise
        for transaction in transactions:
            transaction.committed()
        return outcomes

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._database.connected(self._connection)
            if self._was_connected:
                self._connected_again()
            self._was_connected = True
        return self._connection

    def _run_alone(self, connection: Connection, group: list[_Queued]) -> tuple[list[Transaction], list[Outcome]]:
        transaction = self._transaction(connection)
        return [transaction], [(group[0].work(transaction), None)]

    def _run_together(self, connection: Connection, group: list[_Queued]) -> tuple[list[Transaction], list[Outcome]]:
        """Run functions one after the other, as if none would fail.

        Raises:
            _OneFailed: One did.
        """
        done: list[tuple[Transaction, Outcome]] = []
        for queued in group:
            transaction = self._transaction(connection)
            try:
                done.append((transaction, (queued.work(transaction), None)))
            except BaseException as error:
                if isinstance(error, DBAPIError) and self._database.passes(error):
                    raise
                raise _OneFailed from error
        return [transaction for transaction, _ in done], [outcome for _, outcome in done]

    def _run_in_savepoints(
        self, connection: Connection, group: list[_Queued]
    ) -> tuple[list[Transaction], list[Outcome]]:
        transactions: list[Transaction] = []
        outcomes: list[Outcome] = []
        for queued in group:
            transaction = self._transaction(connection)
            try:
                with connection.begin_nested():
                    result = queued.work(transaction)
            except BaseException as error:  # even this must not undo what the others did
                # A full disk rolls everything back by itself: what the others did is gone with it.
                if not self._database.is_in_transaction(connection):
                    raise
                outcomes.append((None, self._database.explain(error) if isinstance(error, DBAPIError) else error))
            else:
                transactions.append(transaction)
                outcomes.append((result, None))
        return transactions, outcomes


class _Disk:
    """Waits for the disk, for all that was committed since it did so last.

    Args:
        log: SQLite's log, which has every commit that is not in the file yet.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._queue: queue.SimpleQueue[list[Committed] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="loom-store-disk", daemon=True)
        self._thread.start()

    def wait(self, committed: list[Committed]) -> None:
        """Tell who waits when what they committed is on the disk."""
        self._queue.put(committed)

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        open_ = True
        while open_:
            committed, open_ = self._next()
            if committed:
                failure = self._synchronise()
                for future, result in committed:
                    if failure is None:
                        future.set_result(result)
                    else:
                        future.set_exception(failure)
            del committed

    def _next(self) -> tuple[list[Committed], bool]:
        committed: list[Committed] = []
        item = self._queue.get()
        while item is not None:
            committed += item
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return committed, True
        return committed, False

    def _synchronise(self) -> StoreError | None:
        try:
            # Opened anew: SQLite makes another log when it has closed the last connection to this one.
            number = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _to_disk(number)
            finally:
                os.close(number)
        except OSError as error:
            return StoreError(f"store {self._log}: it cannot be said that a write is on the disk: {error.strerror}")
        return None


_to_disk: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
