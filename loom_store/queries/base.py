"""What all methods of a transaction stand on: the connection, the caches, and integers for long names."""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Executable, Select, Table, bindparam, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

from loom_dsl.observe.webhooks import Endpoint
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.redaction import Masked
from loom_store.cache import BlobCache, EntryCache
from loom_store.tables import jobs

MIB: Final = 1024 * 1024

_FIND_JOB = select(jobs.c.id, jobs.c.created_at).where(jobs.c.name == bindparam("job_name"))
_NEW_JOB = insert(jobs).values(name=bindparam("name"))

SERVER_CLOCK: Final = "loom_clock"
"""Where a connection to a server has the clock of its transaction, among what is known of it."""
_INSERTS: Final[Mapping[str, Callable[[Table], "sqlite.Insert | postgresql.Insert"]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}

Listener = Callable[[Mapping[str, Any]], None]
"""Told of an event, on the store's thread; it must not fail."""


@dataclass(slots=True)
class Webhooks:
    """Which webhooks this process writes down.

    Attributes:
        endpoints: Who is told of events.
        wake: Called with a job and an endpoint when something is to be delivered; on the store's thread.
    """

    endpoints: Sequence[Endpoint] = ()
    wake: Callable[[str, str], None] = lambda job, endpoint: None


@dataclass(slots=True)
class Masking:
    """How secrets are masked in what this process writes down for people to read.

    Attributes:
        text: Masks a text. A process that runs no steps knows no secrets, and takes what it writes for masked.
    """

    text: Callable[[str], Masked] = Masked


@dataclass(frozen=True, slots=True)
class Shared:
    """What the transactions of one open store share."""

    blobs: BlobCache = field(default_factory=lambda: BlobCache(64 * MIB))
    entries: EntryCache = field(default_factory=lambda: EntryCache(64 * MIB))
    clock: Callable[[], float] | None = time.time
    """Seconds since 1970; None: each transaction has the time of the server that it runs on."""
    webhooks: Webhooks = field(default_factory=Webhooks)
    masking: Masking = field(default_factory=Masking)
    listeners: list[Listener] = field(default_factory=list)


class KnownJob(NamedTuple):
    """A job as a transaction has met it: the integer that stands for it, and whether it is written down."""

    id: int
    is_created: bool


class Queries:
    """One transaction's means. Used on the thread that runs the transaction, and not after it."""

    def __init__(self, connection: Connection, shared: Shared) -> None:
        self._connection = connection
        self._shared = shared
        self._clock = shared.clock or connection.info[SERVER_CLOCK]
        self._jobs: dict[str, KnownJob] = {}
        self._last_events: dict[int, int] = {}
        """By job: the offset of its newest event."""
        self._on_commit: list[Callable[[], None]] = []

    def committed(self) -> None:
        """Do what had to wait until the transaction was durable."""
        for act in self._on_commit:
            act()

    def tell(self, event: Mapping[str, Any]) -> None:
        """Tell who listens of an event that is new, once it is durable; `job` in it names its job."""
        for heard in self._shared.listeners:
            self._after_commit(partial(heard, event))

    def masked(self, value: Any) -> Any:
        """Give a JSON value without secrets: what is written down of it, and what it is known again by."""
        text = canonical_json(value)
        masked = self._mask(text)
        return value if masked == text else _each_text(_read_again(masked, value), self._mask)

    def _told(self, value: object) -> Masked:
        """Give the JSON of what people read later: the one way to it masks."""
        return Masked(canonical_json(self.masked(value)))

    def _mask(self, text: str) -> Masked:
        return self._shared.masking.text(text)

    def _after_commit(self, act: Callable[[], None]) -> None:
        self._on_commit.append(act)

    def _execute(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Any:
        return self._connection.execute(statement, values)

    def _scalar(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Any:
        return self._connection.execute(statement, values).scalar()

    def _first(self, question: Select[Any], values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Give the first row of a question that is asked many times a turn, or None.

        Through the driver: SQLite answers it in one microsecond, and SQLAlchemy would make 25 of that.
        """
        row: tuple[Any, ...] | None = self._driven(question, values).fetchone()
        return row

    def _driven(self, statement: Executable, values: Mapping[str, Any]) -> Any:
        """Do through the driver what is done many times a turn. All values of the statement are parameters."""
        text, names, fixed = _prepared(statement)
        driver = self._connection.connection.dbapi_connection
        if not isinstance(driver, sqlite3.Connection):
            # A server is asked over a socket: what SQLAlchemy takes for it is the least of it.
            return self._connection.execute(statement, values)
        given = [values.get(name, fixed.get(name)) for name in names]
        try:
            return driver.execute(text, given)
        except sqlite3.Error as error:
            raise DBAPIError(text, given, error) from error

    def _insert(self, table: Table) -> "sqlite.Insert | postgresql.Insert":
        """Begin a statement that says itself what to do where there is such a row already."""
        return _INSERTS[self._connection.dialect.name](table)

    def now(self) -> float:
        """Give the time by the clock that leases go by, in seconds since 1970."""
        return self._clock()

    def _millis(self) -> int:
        return round(self._clock() * 1000)

    def _seconds(self) -> int:
        return int(self._clock())

    def _known_job(self, name: str) -> KnownJob | None:
        known = self._jobs.get(name)
        if known is None:
            found = self._first(_FIND_JOB, {"job_name": name})
            if found is not None:
                known = self._jobs[name] = KnownJob(found[0], found[1] is not None)
        return known

    def _find_job(self, name: str) -> int | None:
        """Give the integer that stands for a job, or None when the store has never heard of it."""
        known = self._known_job(name)
        return None if known is None else known.id

    def _job_id(self, name: str) -> int:
        """Give the integer that stands for a job, a new one if need be."""
        known = self._find_job(name)
        if known is None:
            known = int(self._execute(_NEW_JOB, {"name": name}).inserted_primary_key[0])
            self._jobs[name] = KnownJob(known, False)
        return known


def _read_again(masked: str, value: Any) -> Any:
    """Read masked JSON: there a value stands beside its name. Where a mask took a quote with it, the value is left."""
    try:
        return json.loads(masked)
    except ValueError:
        return value


def _each_text(value: Any, mask: Callable[[str], Masked]) -> Any:
    """Mask every text of a JSON value, the names in it too."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {mask(str(name)): _each_text(part, mask) for name, part in value.items()}
    return [_each_text(part, mask) for part in value] if isinstance(value, list | tuple) else value


@cache
def _prepared(statement: Executable) -> tuple[str, Sequence[str], Mapping[str, Any]]:
    """Give a statement as SQLite takes it: its text, its parameters in order, and the values that are part of it."""
    assert isinstance(statement, ClauseElement)
    compiled = statement.compile(dialect=sqlite.dialect())
    assert isinstance(compiled, SQLCompiler)
    return str(compiled), compiled.positiontup or (), compiled.params


def key_hash(key: str) -> int:
    """Give the signed 64-bit number by which a key is found."""
    return int.from_bytes(sha256(key.encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True)


def shorten_key(key: str, job: str) -> str:
    """Leave out the job's name, with which most keys begin: ``/rest``; a key that begins with / or = gets a =."""
    if key.startswith(job + "/"):
        return key[len(job) :]
    return "=" + key if key[:1] in ("/", "=") else key


def full_key(short: str, job: str) -> str:
    """Undo `shorten_key`."""
    if short[:1] == "/":
        return job + short
    return short[1:] if short[:1] == "=" else short


def storable(text: str) -> str:
    """Give text as a database takes it: a lone surrogate or a NUL, which a model can send, is written as its escape."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
