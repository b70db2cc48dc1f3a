"""What only a store on a server can meet: lost connections, a server that is killed, passwords, too many clients."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from loom_dsl.errors import ConfigurationError, LoomError, NotAStore, StoreLocked, StoreMissing, StoreUnreachable
from loom_store.engine import VERSION_TABLE
from loom_store.location import ServerLocation, parse_location, shown_place
from loom_store.store import READERS, Store, look, look_at_server
from loom_store.tables import metadata
from loom_store.transaction import Transaction
from tests.support import postgres
from tests.support.ports import own_port
from tests.support.stores import beside, problems
from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(postgres_address: Callable[[str], str]) -> Iterator[str]:
    """Where a test's store is: here always on the server."""
    with postgres.database(postgres_address, postgres.TEMPLATE) as made:
        yield made


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place) as opened:
        yield opened


def tell(tx: Transaction, key: str) -> tuple[int, int]:
    return tx.append_events("j", key, [{"key": key}])


def told(store: Store) -> list[str]:
    return [event["key"] for _, event in store.read_sync(lambda tx: tx.read_events("j", limit=10**6))]


def test_the_migrations_lead_to_the_tables(place: str) -> None:
    Store.open(place).close()
    with beside(place) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
        partial = connection.exec_driver_sql(
            "SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%% WHERE %%'"
        ).scalar()
    indices = [index for table in metadata.tables.values() for index in table.indexes]
    assert partial == sum(index.dialect_options["postgresql"]["where"] is not None for index in indices) > 0


def test_processes_that_open_an_empty_database_at_once_migrate_it_once(postgres_address: Callable[[str], str]) -> None:
    with postgres.database(postgres_address) as empty:

        def open_and_tell(key: str) -> str:
            with Store.open(empty) as store:
                store.write_sync(lambda tx: tell(tx, key))
                return store.id

        with ThreadPoolExecutor(4) as pool:
            ids = set(pool.map(open_and_tell, "abcd"))
        assert len(ids) == 1
        with Store.open(empty) as store:
            assert sorted(told(store)) == ["a", "b", "c", "d"]
            assert store.epoch.number == 1


def test_a_database_of_another_program_is_named_and_left_as_it_is(postgres_address: Callable[[str], str]) -> None:
    with postgres.database(postgres_address) as theirs:
        with beside(theirs) as connection:
            connection.exec_driver_sql("CREATE TABLE theirs (x int)")
        with pytest.raises(NotAStore, match=r"what is in this database belongs to another program; make a database"):
            Store.open(theirs)
        with beside(theirs) as connection:
            assert (
                connection.exec_driver_sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").scalar() == 1
            )


def test_two_stores_in_two_schemas_of_one_database_are_two(place: str) -> None:
    with beside(place) as connection:
        connection.exec_driver_sql("CREATE SCHEMA second")
    with Store.open(place) as first, Store.open(f"{place}?options=-csearch_path%3Dsecond") as second:
        assert first.id != second.id
        first.write_sync(lambda tx: tell(tx, "a"))
        assert (told(first), told(second)) == (["a"], [])


def test_a_copy_of_the_database_begins_an_epoch(postgres_address: Callable[[str], str], place: str) -> None:
    with Store.open(place) as store:
        known = store.id
        assert store.epoch.number == 1
    with (
        postgres.database(postgres_address, template=place.rpartition("/")[2]) as copy,
        Store.open(copy) as copied,
    ):
        assert (copied.id, copied.epoch.number) == (known, 2)
        assert "a copy, a restore or a replica" in copied.epoch.why


def test_a_lock_that_another_process_keeps_is_told_and_passes(store: Store, place: str) -> None:
    store.write_sync(lambda tx: tell(tx, "before"))
    with psycopg.connect(place) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(hashtext('loom store'), hashtext(current_schema()::text))")
        with pytest.raises(StoreLocked, match="another process has held the write lock") as caught:
            store.write_sync(lambda tx: tell(tx, "lost"))
        assert caught.value.retryable
        assert told(store) == ["before"]
    assert store.write_sync(lambda tx: tell(tx, "after")) == (2, 1)


def terminate(place: str) -> None:
    """End all other connections, as an administrator, a proxy or a failover does."""
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_connections_that_were_lost_are_made_again_and_nobody_hears_of_it(store: Store, place: str) -> None:
    store.write_sync(lambda tx: tell(tx, "before"))
    with ThreadPoolExecutor(READERS) as pool:
        assert list(pool.map(lambda _: len(told(store)), range(20))) == [1] * 20
    terminate(place)
    store.write_sync(lambda tx: tell(tx, "after"))
    with ThreadPoolExecutor(READERS) as pool:
        assert list(pool.map(lambda _: len(told(store)), range(20))) == [2] * 20


def test_a_write_whose_connection_is_lost_half_way_is_done_again_as_a_whole(store: Store, place: str) -> None:
    tries: list[int] = []

    def work(tx: Transaction) -> tuple[int, int]:
        tell(tx, "first half")
        tries.append(len(tries))
        if len(tries) == 1:
            terminate(place)
        return tell(tx, "second half")

    assert store.write_sync(work) == (2, 1)
    assert tries == [0, 1]
    assert told(store) == ["first half", "second half"]


def test_a_process_has_no_more_connections_than_it_says(store: Store, place: str) -> None:
    most = []

    def look(tx: Transaction) -> None:
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'loom'"
        most.append(tx._connection.exec_driver_sql(count).scalar_one())

    with ThreadPoolExecutor(30) as pool:
        list(pool.map(lambda n: (store.write_sync(lambda tx: tell(tx, str(n))), store.read_sync(look)), range(90)))
    assert max(most) <= READERS + 1


def test_compacting_keeps_everything(store: Store) -> None:
    store.write_sync(lambda tx: [tell(tx, str(n)) for n in range(20)])
    store.compact()
    assert len(told(store)) == 20
    assert store.read_sync(problems) == []


def test_doctor_and_lists_look_into_a_store_without_opening_it(
    store: Store, place: str, postgres_address: Callable[[str], str]
) -> None:
    assert look(place, lambda tx: tx.store_id()) == store.id
    location = parse_location(place)
    assert isinstance(location, ServerLocation)
    state = look_at_server(location)
    assert (state.connections, state.fsync, state.size > 0) == (200, False, True)
    with postgres.database(postgres_address) as empty:
        assert look(empty, lambda tx: tx.store_id()) is None
        with pytest.raises(StoreMissing, match=r"there is no store in postgresql://loom@.*; start a worker"):
            Store.open(empty, create=False)
        assert look_at_server(parse_location(empty)).revision is None  # type: ignore[arg-type]


def test_the_clock_is_the_servers(store: Store) -> None:
    def apart(tx: Transaction) -> float:
        theirs = tx._connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())::float8").scalar_one()
        return abs(tx.now() - float(theirs))

    assert store.write_sync(apart) < 60
    assert store.read_sync(apart) < 60


PASSWORD = "hunter2%40%2F"
WRONG = {
    "nobody listens": ("127.0.0.1:1/loom", StoreUnreachable, "does not answer"),
    "no such database": ("{here}/nothing", StoreUnreachable, r"CREATE DATABASE loom"),
    "no such host": ("no-such-host.invalid/loom", StoreUnreachable, "does not answer"),
    "no database": ("127.0.0.1:1", ConfigurationError, "names no database"),
    "another option": ("127.0.0.1:1/loom?nonsense=1", ConfigurationError, "cannot be read"),
    "a password in the options": ("127.0.0.1:1/loom?password=hunter2", StoreUnreachable, "does not answer"),
    "not a mode": ("127.0.0.1:1/loom?synchronous=off", ConfigurationError, "must be full or normal"),
    "a slash in the password": ("hunter2/b@127.0.0.1:1/loom", ConfigurationError, "as %XX"),
}


@pytest.mark.parametrize(("rest", "kind", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_opened_says_what_to_do_and_never_the_password(
    place: str, rest: str, kind: type[LoomError], says: str
) -> None:
    here = place.partition("@")[2].partition("/")[0]
    address = f"postgresql://loom:{PASSWORD}@{rest.format(here=here)}"
    with pytest.raises(kind, match=says) as caught:
        Store.open(address)
    for text in (str(caught.value), shown_place(address), repr(caught.value)):
        assert "hunter2" not in text


def test_a_location_shows_no_password() -> None:
    location = parse_location("postgresql://me:hunter2@db.example:5433/loom?sslmode=require&synchronous=normal")
    assert isinstance(location, ServerLocation)
    assert location.shown == "postgresql://me@db.example:5433/loom"
    assert location.address.endswith("/loom?sslmode=require")
    assert location.synchronous == "normal"
    assert "hunter2" not in repr(location)


def test_without_the_driver_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['psycopg'] = None\n"
    code += "from loom_store.store import Store\nStore.open('postgresql://me:hunter2@localhost/loom')"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "ConfigurationError: a store on PostgreSQL needs the driver psycopg" in done.stderr
    assert "loom-dsl[postgres]" in done.stderr
    assert "hunter2" not in done.stderr.splitlines()[-1]


class Between:
    """Stands between a store and its server, and can cut the line at a commit.

    Args:
        address: The store's.
    """

    def __init__(self, address: str) -> None:
        there = re.fullmatch(r"(.*@)127\.0\.0\.1:(\d+)(/.*)", address)
        assert there is not None
        self.port, self._server = own_port(), ("127.0.0.1", int(there[2]))
        self.address = f"{there[1]}127.0.0.1:{self.port}{there[3]}"
        self.cut: str | None = None
        """``before`` or ``after`` the server has heard the next commit."""
        self.did_cut = threading.Event()
        self.was_committed: Callable[[], bool] = lambda: True
        self._mute: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []
        self._start(self._accept)

    def close(self) -> None:
        """Cut all lines, and forget them."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()

    def _start(self, work: Callable[..., None], *given: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=given))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, server = self._listener.accept()[0], socket.create_connection(self._server)
                self._ends += [client, server]
                self._start(self._forward, client, server, True)
                self._start(self._forward, server, client, False)

    def _forward(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if asks and self.cut is not None and b"COMMIT\0" in data:
                    self._cut(target, data)
                    break
                if asks or source not in self._mute:
                    target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _cut(self, server: socket.socket, data: bytes) -> None:
        if self.cut == "after":
            self._mute.append(server)  # its answer reaches nobody
            server.sendall(data)
            until(self.was_committed)
        self.cut = None
        self.did_cut.set()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_that_was_not_answered_is_neither_lost_nor_done_twice(place: str, cut: str) -> None:
    with closing(Between(place)) as between, Store.open(place) as other, Store.open(between.address) as store:
        between.was_committed = lambda: told(other) == ["a", "b"]
        store.write_sync(lambda tx: tell(tx, "a"))
        runs: list[bool] = []

        def work(tx: Transaction) -> bool:
            tell(tx, "b")
            begun = tx.begin_effect("j/0/c", job="j", turn=0, call_id="c", tool="t", arguments_digest="0" * 64)
            runs.append(begun.created)
            return begun.created

        between.cut = cut
        assert store.write_sync(work)  # whoever asked is told that the effect is its own
        assert between.did_cut.is_set()
        assert runs == ([True] if cut == "after" else [True, True])
        assert told(other) == ["a", "b"]
        (effect,) = other.read_sync(lambda tx: tx.effects("j"))
        assert effect.attempts == 1


WRITER = """
import sys, time
from loom_dsl.errors import StoreError
from loom_store.rows import NewEntry
from loom_store.store import Store
place, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store.open(place) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(count):
        key = f"{name}/{n}"
        def work(tx):
            said = NewEntry(kind="message", head={"by": name}, content=f"content of {key}" * 20, job="j", turn=n)
            tx.append_entries("s", key, [said])
            tx.append_events("j", key, [{"key": key, "n": i} for i in range(2)])
            tx.audit("control", "j", {"key": key})
            digest = tx.put_blob(b"a")
            return tx.begin_effect(f"j/{key}", job="j", turn=n, call_id=key, tool="t", arguments_digest=digest).created
        while True:
            try:
                created = store.write_sync(work)
                break
            except StoreError as error:
                assert error.passes, error
        print(key, created, flush=True)
"""


@pytest.mark.crash
def test_a_server_that_is_killed_under_writers_of_several_processes_loses_and_doubles_nothing(
    postgres_address: Callable[[str], str],
) -> None:
    count, names = 60, "abc"
    with postgres.own_postgres(durable=True) as server:
        place = server.address()
        with Store.open(place) as store:
            store.write_sync(lambda tx: tx.create_session("s"))
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, place, name, str(count)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in names
        ]
        with ExitStack() as stack:
            lines: dict[str, list[str]] = {name: [] for name in names}
            for writer in writers:
                stack.enter_context(writer)
                assert writer.stdout is not None
                assert writer.stdout.readline() == "ready\n"
            readers = [
                threading.Thread(target=lambda w=writer, n=name: lines[n].extend(w.stdout))
                for name, writer in zip(names, writers, strict=True)
            ]
            for reader, writer in zip(readers, writers, strict=True):
                reader.start()
                assert writer.stdin is not None
                writer.stdin.write("go\n")
                writer.stdin.flush()
            until(lambda: all(len(got) >= count // 3 for got in lines.values()), every=0.01)
            server.kill()
            server.start()
            for reader in readers:
                reader.join(PATIENCE)
            assert [writer.wait(PATIENCE) for writer in writers] == [0] * len(names)

        with Store.open(place) as store:
            wanted = {f"{name}/{n}" for name in names for n in range(count)}
            assert store.read_sync(problems) == []
            assert {line.split()[0] for got in lines.values() for line in got} == wanted
            assert Counter(told(store)) == dict.fromkeys(wanted, 2)
            assert Counter(entry.key for entry in store.read_sync(lambda tx: tx.read_entries("s"))) == Counter(wanted)
            effects = store.read_sync(lambda tx: tx.effects("j"))
            assert Counter(effect.call_id for effect in effects) == Counter(wanted)
            assert store.read_sync(lambda tx: tx.verify_audit()).problem == ""
            assert store.epoch.number == 1  # a crash is no restore
