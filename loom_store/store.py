"""The store: one SQLite file, or one database on a PostgreSQL server, that every process of an installation opens."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from loom_dsl.errors import LoomError, NotAStore, StoreError, StoreMissing, StoreReadOnly
from loom_dsl.observe.webhooks import Endpoint
from loom_dsl.text.canonical import digest
from loom_dsl.text.redaction import Masked
from loom_store.cache import BlobCache, EntryCache
from loom_store.database import Database, database_at
from loom_store.engine import HEAD, Opened, current_revision, reader_engine, upgrade
from loom_store.location import Location, ServerLocation, parse_location
from loom_store.queries.base import MIB, Listener, Shared
from loom_store.queries.identity import Epoch
from loom_store.transaction import Transaction
from loom_store.writer import Writer

# Looking into a store without opening it: nothing is made, brought to this release's tables, or written.


Found = TypeVar("Found")


def look(place: str | os.PathLike[str], work: Callable[[Transaction], Found]) -> Found | None:
    """Run a function that reads the store at a place; None where there is no store of this release.

    Args:
        place: As for `Store.open`.
        work: As for `Store.read`.
    """
    location = parse_location(place)
    if isinstance(location, Location):
        engine, shared = reader_engine(location, Opened(), 1), Shared()
    else:
        engine, shared = database_at(location, create=False).reader(1), Shared(clock=None)
    try:
        with engine.connect() as connection, connection.begin():
            if current_revision(connection, location.shown) != HEAD:
                return None
            return work(Transaction(connection, shared))
    except (DBAPIError, NotAStore):
        return None
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server says of itself and of the database on it.

    Attributes:
        version: The server's release.
        revision: Which migration the store is at; None: there is no store yet.
        size: Bytes of the database.
        connections: How many the server takes at once.
        synchronous: How far a commit gets before it is answered, by the server's own setting.
        fsync: Whether the server waits for its disk at all.
    """

    version: str
    revision: str | None
    size: int
    connections: int
    synchronous: str
    fsync: bool


def look_at_server(location: ServerLocation) -> ServerState:
    """Ask a server what is to be known before a store on it is used.

    Raises:
        StoreUnreachable: It does not answer, or does not let us in.
        NotAStore: The database is another program's.
    """
    database = database_at(location, create=False)
    engine = database.reader(1)
    try:
        with engine.connect() as connection, connection.begin():
            revision = current_revision(connection, location.shown)
            row = connection.exec_driver_sql(
                "SELECT current_setting('server_version'), pg_database_size(current_database()), "
                "current_setting('max_connections')::int, current_setting('synchronous_commit'), "
                "current_setting('fsync') = 'on'"
            ).one()
            return ServerState(row[0], revision, *row[1:])
    except DBAPIError as error:
        raise database.explain(error) from error
    finally:
        engine.dispose()


# Writes that wait for the next one of the same work and share its transaction: one wait for the disk, not many.


Work = Callable[[Transaction], Any]
Waiting = tuple[int, Work]
"""A function that waits, and its place among those of its block."""


class Together:
    """What waits inside one `Store.together` block. It belongs to one event loop.

    Attributes:
        contents: Contents that are not stored yet, by digest.
    """

    def __init__(self, owner: object) -> None:
        self.owner: object | None = owner
        self.contents: dict[str, bytes] = {}
        self._works: list[Waiting] = []
        self._places = count()
        self._under_way: set[asyncio.Future[Any]] = set()

    @property
    def waits(self) -> bool:
        """Whether anything waits to be written."""
        return bool(self._works)

    def add(self, work: Work) -> None:
        """Let a function wait."""
        self._works.append((next(self._places), work))

    def joined(self, work: Work) -> tuple[Work, Sequence[Waiting]]:
        """Give a function that does all that waits and then `work`, and what it does before."""
        first = tuple(self._works)

        def all_of_it(tx: Transaction) -> Any:
            for _, each in first:
                each(tx)
            return work(tx)

        return all_of_it, first

    def follow(self, writing: "asyncio.Future[Any]", works: Sequence[Waiting]) -> None:
        """Have functions wait no more that a write takes along; again, if it fails, which undoes what they did."""

        def ended(done: "asyncio.Future[Any]") -> None:
            self._under_way.discard(done)
            if done.cancelled() or done.exception() is not None:
                # Each at its place: of two writes that fail, the first tells it first.
                self._works = sorted([*works, *self._works], key=itemgetter(0))

        del self._works[: len(works)]
        self._under_way.add(writing)
        writing.add_done_callback(ended)

    async def ended(self) -> None:
        """Wait until no write is under way that took others along."""
        while self._under_way:
            await asyncio.wait(set(self._under_way))


WAITING: ContextVar[Together | None] = ContextVar("waiting", default=None)
"""The block in which the running task is."""


T = TypeVar("T")

READERS: Final = 4
"""Connections of a process for reading; one more is for writing."""
_PAUSE: Final = 0.05
"""Seconds between two tries of what passes."""
_LOG = logging.getLogger(__name__)


class Store:
    """Sessions, contents, events, effects, approvals and jobs, in one database.

    One object serves a whole process: any thread and any event loop may use it. Open it with `Store.open`.

    Attributes:
        path: The file; None: the store is on a server.
        place: The file or the server's address, as messages have it: without a password.
        id: The store's id: made once, the same for every process that has it open, and for a copy of it.
    """

    id: str

    def __init__(self, database: Database, shared: Shared) -> None:
        self.path: Path | None = database.path
        self.place: str = database.shown
        self._database = database
        self._shared = shared
        self._read_engine = database.reader(READERS)
        self._write_engine = database.writer()
        try:
            self._prepare()
        except BaseException:
            self._dispose()
            raise
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="loom-store-reader")
        self._writer = Writer(self._write_engine, self._transaction, database, self._connected_again)
        self._closed = False

    @classmethod
    def open(
        cls,
        path_or_url: str | os.PathLike[str],
        create: bool = True,
        *,
        synchronous: str | None = None,
        blob_cache_bytes: int = 64 * MIB,
        entry_cache_bytes: int = 64 * MIB,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Open a store and bring it to this release's tables.

        Args:
            path_or_url: A path, ``sqlite:///PATH`` or ``postgresql://…``; ``?synchronous=normal`` may follow.
            create: Make the file (mode 0600) and its directory (0700) when they are missing.
            synchronous: ``full`` (default): a write is on the disk when it returns. ``normal``: the last writes may
                be lost when the machine stops, not when a process does.
            blob_cache_bytes: How much content to keep in memory.
            entry_cache_bytes: How much of the sessions' entries to keep in memory.
            clock: Seconds since 1970; None: the machine's clock, and of a server that of the server.

        Raises:
            StoreMissing: There is no file, or nothing in the database, and `create` is False.
            StoreReadOnly: The file or its directory cannot be written.
            StoreTooNew: A newer release has written it.
            StoreTooOld: A release has written it whose tables this one cannot bring up to date.
            StoreLocked: Another process has held the write lock for too long.
            StoreError: It is not a store.
            ConfigurationError: The address is not one of a store.
        """
        database = database_at(parse_location(path_or_url, synchronous), create=create)
        shared = Shared(BlobCache(blob_cache_bytes), EntryCache(entry_cache_bytes), clock or database.clock)
        return cls(database, shared)

    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run a function in a write transaction; when this returns, its writes are durable.

        The function is a plain one, quick, and touches nothing but its transaction. Its exception passes through and
        undoes what it did. Functions that wait at the same time share one commit, and none undoes another's. When the
        caller is cancelled, the function either has not begun and is left out, or runs to its end.

        Args:
            work: Gets the transaction; its result is returned.
            durable: False: do not wait for the disk. The write may be lost when the machine (not a process) stops
                before the next durable one: right for streamed text, which is told again.

        Raises:
            StoreLocked: Another process has held the write lock for too long. Nothing was written.
            StoreError: The database failed. Nothing was written.
        """
        waiting = self._waiting()
        if waiting is None or not waiting.waits:
            return cast(T, await asyncio.wrap_future(self._writer.submit(work, durable)))
        joined, others = waiting.joined(work)
        writing = asyncio.wrap_future(self._writer.submit(joined, True))
        waiting.follow(writing, others)
        return cast(T, await asyncio.shield(writing))

    def note(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a write that does not wait for the disk, also inside of `together`, and nobody need wait for it.

        It outlives this process, not the machine: right for what other processes are to find when this one dies. What
        is queued when the store is closed is written.

        Raises:
            StoreError: The store is closed.
        """
        return cast("Future[T]", self._writer.submit(work, durable=False))

    @contextlib.asynccontextmanager
    async def together(self) -> AsyncIterator[Together]:
        """Let what is given to `write_later` in this block wait for the next write there, at the latest for its end.

        For work of which nobody outside learns before the block has ended: what waits is lost when the process is,
        and when the block ends with an exception. Reading in the block writes first what waits.
        """
        waiting = Together(self)
        token = WAITING.set(waiting)
        try:
            yield waiting
            await self.settle()
        finally:
            WAITING.reset(token)
            waiting.owner = None  # a task that outlives the block does not wait any more

    async def write_later(self, work: Callable[[Transaction], object]) -> None:
        """Write with the next write of the `together` block that the caller is in; outside of one, at once.

        Args:
            work: As for `write`. Doing it twice must be as doing it once.
        """
        waiting = self._waiting()
        if waiting is None:
            await self.write(work)
        else:
            waiting.add(work)

    async def put_later(self, data: bytes) -> str:
        """Keep a content as `write_later` would, and give its digest. `cached_blob` has it at once."""
        waiting = self._waiting()
        if waiting is None:
            return await self.write(lambda tx: tx.put_blob(data))
        name = digest(data)
        waiting.contents[name] = data
        waiting.add(lambda tx: tx.put_blob(data))
        return name

    async def settle(self) -> None:
        """Write what waits in the `together` block that the caller is in."""
        waiting = self._waiting()
        if waiting is None:
            return
        await waiting.ended()
        while waiting.waits:  # also what came while this was written
            await self.write(lambda tx: None)
            await waiting.ended()

    def write_sync(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Do as `write` does, and block the calling thread."""
        return cast(T, self._writer.submit(work, durable).result())

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run a function that sees one moment of the store and cannot write."""
        await self.settle()
        return await asyncio.wrap_future(self._submit_read(lambda: self._read(work)))

    def read_sync(self, work: Callable[[Transaction], T]) -> T:
        """Do as `read` does, and block the calling thread."""
        return self._submit_read(lambda: self._read(work)).result()

    def cached_blob(self, name: str) -> bytes | None:
        """Give a content if it is in memory, without waiting."""
        waiting = self._waiting()
        kept = waiting.contents.get(name) if waiting else None
        return self._shared.blobs.get(name) if kept is None else kept

    async def content(self, name: str) -> bytes:
        """Give a content by its digest, from memory where it is there.

        Raises:
            BlobMissing: The store does not hold it.
        """
        kept = self.cached_blob(name)
        return await self.read(lambda tx: tx.get_blob(name)) if kept is None else kept

    def subscribe(self, endpoints: Sequence[Endpoint], wake: Callable[[str, str], None]) -> None:
        """Write down what webhooks are told, in the transactions that this object runs from now on.

        Args:
            endpoints: Who is told.
            wake: Called with a job and an endpoint's name after a commit with something for it, on the store's thread.
        """
        self._shared.webhooks.endpoints, self._shared.webhooks.wake = tuple(endpoints), wake

    def mask_with(self, mask: Callable[[str], Masked]) -> None:
        """Mask secrets in events, questions, decisions and the audit trail that this object writes from now on."""
        self._shared.masking.text = mask

    def listen(self, heard: Listener) -> None:
        """Tell somebody in this process of new events of the machine, each once, after the commit that has it.

        Args:
            heard: Called on the store's thread, so it must be quick, and must not fail.
        """
        self._shared.listeners.append(heard)

    def note_heard(self) -> None:
        """Note on the file itself that a worker lives, so that an older content in the same file is noticed."""
        if self._shared.clock is not None:
            self._database.note_heard(round(self._shared.clock() * 1000))

    def check(self) -> None:
        """Look whether the store's files are still the ones that were opened, and can be written.

        Every read and write looks too; this is for who does neither for a time.

        Raises:
            StoreLost: One was deleted, replaced or cut off.
            StoreReadOnly: One cannot be written any more.
        """
        self._database.check()

    def compact(self) -> None:
        """Give the room that `prune` freed back to the disk. Rewrites the file, so writers wait; blocks the caller.

        Raises:
            StoreLocked: Another process reads or writes; try again when it does not.
        """
        self._database.compact()

    @property
    def closed(self) -> bool:
        """Whether it was closed: nothing is written any more."""
        return self._closed

    def close(self) -> None:
        """Finish what is queued and close the file. Closing again changes nothing."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        self._readers.shutdown()
        self._dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _waiting(self) -> Together | None:
        waiting = WAITING.get()
        return waiting if waiting is not None and waiting.owner is self else None

    def _prepare(self) -> None:
        try:
            with self._read_engine.connect() as connection:
                revision = current_revision(connection, self.place)
            self._database.prepare(self._read_engine)
            if revision is None and not self._database.creates:
                raise StoreMissing(
                    f"there is no store in {self.place}; start a worker or a job first, or point LOOM_STORE at it"
                )
            if revision != HEAD:
                upgrade(self._write_engine, self.place)
            self._settle_identity()
        except DBAPIError as error:
            raise self._explain(error) from error

    def _settle_identity(self) -> None:
        """Learn the store's id, or make it; and begin an epoch if this is not the database that the store was in."""
        heard, begun = self._database.heard(), None
        with self._read_engine.connect() as connection, connection.begin():
            name, transaction = self._database.name(connection), self._transaction(connection)
            self.id, settled = transaction.store_id(), transaction.is_settled(name, heard)
        if not settled:
            with self._write_engine.connect() as connection, connection.begin():
                name, transaction = self._database.name(connection), self._transaction(connection)
                begun = transaction.settle_identity(name, heard)
                self.id = transaction.store_id()
        if begun is not None:
            self._database.note_heard(0)
            _LOG.warning(
                "store %s (id %s): %s, so epoch %d begins: calls of before it that the store does not know of may have "
                "been made",
                *(self.place, self.id, begun.why, begun.number),
            )

    def _connected_again(self) -> None:
        """Look whether another server answers under the same address: a replica that was promoted, or a restore."""
        if self.path is None:
            self._settle_identity()

    @property
    def epoch(self) -> Epoch:
        """The store's present epoch. Blocks the calling thread."""
        return self.read_sync(lambda tx: tx.epoch())

    def _submit_read(self, call: Callable[[], T]) -> Future[T]:
        try:
            return self._readers.submit(call)
        except RuntimeError as error:  # what the executor says after its shutdown
            raise StoreError("the store is closed; open it again to read") from error

    def _read(self, work: Callable[[Transaction], T]) -> T:
        end: float | None = None
        while True:
            self._database.check()
            try:
                with self._read_engine.connect() as connection, connection.begin():
                    transaction = self._transaction(connection)
                    result = work(transaction)
                break
            except DBAPIError as error:
                reason = self._explain(error)
                if isinstance(reason, StoreReadOnly):
                    reason = StoreError("a function given to Store.read wrote; give it to Store.write")
                end = time.monotonic() + self._database.patience if end is None else end
                if not self._database.passes(error) or time.monotonic() > end:
                    raise reason from error
            time.sleep(_PAUSE)
        transaction.committed()
        return result

    def _transaction(self, connection: Connection) -> Transaction:
        return Transaction(connection, self._shared)

    def _explain(self, error: DBAPIError) -> LoomError:
        return self._database.explain(error)

    def _dispose(self) -> None:
        self._database.dispose(self._read_engine, self._write_engine)
