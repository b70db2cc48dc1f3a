"""The one thread that writes: queued functions share a transaction, and so one wait for the disk."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from loom_dsl.errors import LoomError, StoreError
from loom_store.engine import is_in_transaction
from loom_store.transaction import Transaction

# More would make the first wait for the last; at 64 the disk's share of each is already small.
_GROUP: Final = 64

Work = Callable[[Transaction], Any]


class Writer:
    """Runs functions in write transactions, in the order in which they come.

    Args:
        engine: Its transactions begin with the write lock.
        transaction: Makes a `Transaction` of a connection.
        explain: Turns the database's errors into Loom's.
    """

    def __init__(
        self,
        engine: Engine,
        transaction: Callable[[Connection], Transaction],
        explain: Callable[[DBAPIError], LoomError],
    ) -> None:
        self._engine = engine
        self._transaction = transaction
        self._explain = explain
        self._connection: Connection | None = None
        self._queue: queue.SimpleQueue[tuple[Work, Future[Any]] | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        # A daemon: a program that forgets to close its store still ends, and SQLite forgives being cut off.
        self._thread = threading.Thread(target=self._run, name="loom-store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> Future[Any]:
        """Queue a function. Cancelling the future before its turn leaves it out; after that it runs to its end.

        Raises:
            StoreError: The store is closed.
        """
        future: Future[Any] = Future()
        with self._closing:
            if self._closed:
                raise StoreError("the store is closed; open it again to write")
            self._queue.put((work, future))
        return future

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
            ready = [(work, future) for work, future in group if future.set_running_or_notify_cancel()]
            if ready:
                self._settle(ready)
            # Results must not live on in this frame until the next write.
            del group, ready
        if self._connection is not None:
            self._connection.close()

    def _next_group(self) -> tuple[list[tuple[Work, Future[Any]]], bool]:
        group: list[tuple[Work, Future[Any]]] = []
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

    def _settle(self, group: list[tuple[Work, Future[Any]]]) -> None:
        try:
            outcomes = self._commit([work for work, _ in group])
        except DBAPIError as error:
            reason = self._explain(error)
            reason.__cause__ = error
            outcomes = [(None, reason)] * len(group)
        except BaseException as error:  # handed to those who wait; the thread must live
            outcomes = [(None, error)] * len(group)
        for (_, future), (result, failure) in zip(group, outcomes, strict=True):
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)

    def _commit(self, group: list[Work]) -> list[tuple[Any, BaseException | None]]:
        if self._connection is None:
            self._connection = self._engine.connect()
        connection = self._connection
        try:
            with connection.begin():
                # Alone, a function needs no savepoint: its failure ends the transaction and reaches its caller.
                if len(group) == 1:
                    transaction = self._transaction(connection)
                    done = [(transaction, group[0](transaction))]
                    outcomes: list[tuple[Any, BaseException | None]] = [(done[0][1], None)]
                    transactions = [transaction]
                else:
                    transactions, outcomes = self._savepoints(connection, group)
        except BaseException:
            if connection.invalidated or is_in_transaction(connection):
                connection.invalidate()
                self._connection = None
            raise
        for transaction in transactions:
            transaction.committed()
        return outcomes

    def _savepoints(
        self, connection: Connection, group: list[Work]
    ) -> tuple[list[Transaction], list[tuple[Any, BaseException | None]]]:
        transactions: list[Transaction] = []
        outcomes: list[tuple[Any, BaseException | None]] = []
        for work in group:
            transaction = self._transaction(connection)
            try:
                with connection.begin_nested():
                    result = work(transaction)
            except Exception as error:
                # A full disk rolls everything back by itself: what the others did is gone with it.
                if not is_in_transaction(connection):
                    raise
                outcomes.append((None, self._explain(error) if isinstance(error, DBAPIError) else error))
            else:
                transactions.append(transaction)
                outcomes.append((result, None))
        return transactions, outcomes
