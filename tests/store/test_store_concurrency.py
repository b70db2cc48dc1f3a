"""Many tasks, threads and loops on one store: order, isolation, cancellation, shared commits."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.errors import StoreError, StoreLocked
from loom_store import engine as engine_module
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.support.stores import beside, problems
from tests.support.waiting import PATIENCE


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place) as opened:
        yield opened


def tell(tx: Transaction, key: str) -> tuple[int, int]:
    return tx.append_events("j", key, [{"key": key}])


def told(store: Store) -> list[str]:
    return [event["key"] for _, event in store.read_sync(lambda tx: tx.read_events("j"))]


class Gate:
    """Holds the writer thread inside a transaction, so that what comes next has to queue up."""

    def __init__(self, store: Store) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self._store = store

    def __call__(self, tx: Transaction) -> str:
        self.entered.set()
        assert self.leave.wait(PATIENCE)
        return "left"


async def queue_up(
    store: Store, works: list[Callable[[Transaction], Any]]
) -> tuple[Gate, asyncio.Future[str], list[asyncio.Task[Any]]]:
    gate = Gate(store)
    first = asyncio.ensure_future(store.write(gate))
    assert await asyncio.to_thread(gate.entered.wait, PATIENCE)
    tasks = [asyncio.ensure_future(store.write(work)) for work in works]
    await asyncio.sleep(0)
    return gate, first, tasks


async def test_a_failure_passes_through_and_undoes_only_its_own(store: Store) -> None:
    def fail(tx: Transaction) -> None:
        tell(tx, "lost")
        raise KeyError("mine")

    def refuse(tx: Transaction) -> None:
        tell(tx, "lost too")
        tx.get_blob("0" * 64)

    works = [lambda tx: tell(tx, "a"), fail, lambda tx: tell(tx, "b"), refuse, lambda tx: tell(tx, "c")]
    gate, _, tasks = await queue_up(store, works)
    gate.leave.set()
    a, failed, b, refused, c = await asyncio.gather(*tasks, return_exceptions=True)

    assert (a, b, c) == ((1, 1), (2, 1), (3, 1))
    assert isinstance(failed, KeyError)
    assert isinstance(refused, StoreError)
    assert told(store) == ["a", "b", "c"]


async def test_functions_that_wait_share_one_commit(store: Store, place: str) -> None:
    gate, _, tasks = await queue_up(store, [lambda tx, n=n: tell(tx, str(n)) for n in range(20)])
    seen: set[int] = set()

    def look(tx: Transaction) -> None:
        # From inside the group nothing of it can be seen by others.
        seen.add(committed_events(place))

    tasks.append(asyncio.ensure_future(store.write(look)))
    await asyncio.sleep(0)
    gate.leave.set()
    await asyncio.gather(*tasks)

    assert seen == {0}
    assert told(store) == [str(n) for n in range(20)]


def committed_events(place: str) -> int:
    with beside(place) as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM events").scalar_one())


async def test_a_cancelled_write_that_has_not_begun_is_left_out(store: Store) -> None:
    gate, first, (cancelled, kept) = await queue_up(store, [lambda tx: tell(tx, "no"), lambda tx: tell(tx, "yes")])
    cancelled.cancel()
    await asyncio.sleep(0)
    gate.leave.set()
    assert await first == "left"
    await kept
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert told(store) == ["yes"]


async def test_a_cancelled_write_that_has_begun_runs_to_its_end(store: Store) -> None:
    started, go = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        tell(tx, "first half")
        started.set()
        assert go.wait(PATIENCE)
        tell(tx, "second half")

    task = asyncio.ensure_future(store.write(work))
    assert await asyncio.to_thread(started.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await store.write(lambda tx: tell(tx, "next"))
    assert told(store) == ["first half", "second half", "next"]


def test_several_event_loops_and_threads_use_one_store(store: Store) -> None:
    async def write_some(name: str) -> None:
        for n in range(25):
            await store.write(lambda tx, n=n: tell(tx, f"{name}{n}"))
            await store.read(lambda tx: tx.last_offset("j"))

    def in_sync(name: str) -> None:
        for n in range(25):
            store.write_sync(lambda tx, n=n: tell(tx, f"{name}{n}"), durable=n % 2 == 0)

    threads = [threading.Thread(target=lambda name=name: asyncio.run(write_some(name))) for name in "abc"]
    threads += [threading.Thread(target=in_sync, args=(name,)) for name in "de"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    keys = told(store)
    assert len(keys) == 125
    for name in "abcde":
        assert [key for key in keys if key[0] == name] == [f"{name}{n}" for n in range(25)]


async def test_a_read_sees_one_moment(store: Store) -> None:
    await store.write(lambda tx: tell(tx, "a"))
    loop = asyncio.get_running_loop()

    def read_twice(tx: Transaction) -> tuple[int, int]:
        first = tx.last_offset("j")
        asyncio.run_coroutine_threadsafe(store.write(lambda tx: tell(tx, "b")), loop).result(PATIENCE)
        return first, tx.last_offset("j")

    assert await store.read(read_twice) == (1, 1)
    assert await store.read(lambda tx: tx.last_offset("j")) == 2


def test_a_read_function_cannot_write(store: Store) -> None:
    with pytest.raises(StoreError, match=r"Store\.read wrote; give it to Store\.write"):
        store.read_sync(lambda tx: tell(tx, "a"))
    assert told(store) == []


def test_a_write_inside_a_write_says_so_and_does_not_hang(store: Store) -> None:
    with pytest.raises(StoreError, match="cannot start another write"):
        store.write_sync(lambda tx: store.write_sync(lambda inner: tell(inner, "a")))


def test_a_closed_store_says_so_after_finishing_what_was_queued(place: str) -> None:
    store = Store.open(place)
    futures = [store._writer.submit(lambda tx, n=n: tell(tx, str(n)), True) for n in range(100)]
    store.close()
    store.close()
    assert [future.result(0)[0] for future in futures] == list(range(1, 101))
    with pytest.raises(StoreError, match="the store is closed"):
        store.write_sync(lambda tx: tell(tx, "x"))
    with pytest.raises(StoreError, match="the store is closed"):
        store.read_sync(lambda tx: tx.last_offset("j"))


def test_a_lock_that_another_process_keeps_is_told_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "loom.db"
    monkeypatch.setattr(engine_module, "BUSY_SECONDS", 0.3)
    code = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""
    with Store.open(path) as store:
        store.write_sync(lambda tx: tell(tx, "before"))
        holder = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(StoreLocked, match=rf"store {path}: another process") as caught:
            store.write_sync(lambda tx: tell(tx, "lost"))
        assert caught.value.retryable
        assert told(store) == ["before"]
        with Store.open(path) as watcher:
            assert told(watcher) == ["before"]

        holder.communicate("go\n", timeout=PATIENCE)
        assert store.write_sync(lambda tx: tell(tx, "after")) == (2, 1)


@pytest.mark.parametrize("places", ["sqlite"], indirect=True)
def test_a_full_disk_loses_nothing_that_was_acknowledged(store: Store) -> None:
    """SQLite's own limit of pages stands for the disk: it fails in the same way, and rolls back by itself."""
    store.write_sync(lambda tx: tell(tx, "before"))
    noise = bytes(range(256)) * 40

    def limit(tx: Transaction) -> None:
        pages = tx._connection.exec_driver_sql("PRAGMA page_count").scalar()
        tx._connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    def fill(tx: Transaction) -> None:
        for n in range(200):
            tx.put_blob(str(n).encode() + noise)

    store.write_sync(limit)
    with pytest.raises(StoreError, match="the disk is full; free some space"):
        store.write_sync(fill)
    store.write_sync(lambda tx: tx._connection.exec_driver_sql("PRAGMA max_page_count = 1000000") and None)
    store.write_sync(fill)
    store.write_sync(lambda tx: tell(tx, "after"))
    assert told(store) == ["before", "after"]
    assert store.read_sync(problems) == []
