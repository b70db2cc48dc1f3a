"""Writes that wait for the next one of the same work: when they are done, and that none is lost."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from loom_dsl.errors import BlobMissing, StoreError
from loom_dsl.text.canonical import digest
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.support.waiting import PATIENCE


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place) as opened:
        yield opened


class Tells:
    """Appends an event of its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, tx: Transaction) -> str:
        tx.append_events("j", self.name, [{"key": self.name}])
        return self.name


def fail(tx: Transaction) -> None:
    raise ValueError("no")


def told(store: Store) -> list[str]:
    return [event["key"] for _, event in store.read_sync(lambda tx: tx.read_events("j"))]


async def test_what_waits_is_written_before_the_next_write_and_in_its_transaction(store: Store) -> None:
    async with store.together():
        await store.write_later(Tells("a"))
        await store.write_later(Tells("b"))
        assert told(store) == []
        assert await store.write(Tells("c"), durable=False) == "c"
        assert told(store) == ["a", "b", "c"]
        await store.write_later(Tells("d"))
        assert told(store) == ["a", "b", "c"]
    assert told(store) == ["a", "b", "c", "d"]


async def test_outside_of_a_block_nothing_waits(store: Store) -> None:
    await store.write_later(Tells("a"))
    assert told(store) == ["a"]
    name = await store.put_later(b"text")
    assert store.read_sync(lambda tx: tx.get_blob(name)) == b"text"


async def test_reading_in_the_block_sees_what_waits(store: Store) -> None:
    async with store.together():
        await store.write_later(Tells("a"))
        assert await store.read(lambda tx: len(tx.read_events("j"))) == 1


async def test_a_content_that_waits_is_at_hand(store: Store) -> None:
    async with store.together():
        name = await store.put_later(b"text")
        assert name == digest(b"text")
        assert store.cached_blob(name) == b"text"
        with pytest.raises(BlobMissing):
            await asyncio.to_thread(store.read_sync, lambda tx: tx.get_blob(name))
        assert await store.write(lambda tx: tx.get_blob(name)) == b"text"
    assert store.read_sync(lambda tx: tx.get_blob(name)) == b"text"


async def test_a_write_that_fails_does_not_take_along_what_waited(store: Store) -> None:
    async with store.together():
        await store.write_later(Tells("a"))
        await store.write_later(Tells("b"))
        with pytest.raises(ValueError, match="no"):
            await store.write(fail)
        assert told(store) == []
        await store.write_later(Tells("c"))
    assert told(store) == ["a", "b", "c"]


async def test_a_block_that_fails_writes_nothing_more(store: Store) -> None:
    async def block() -> None:
        async with store.together():
            await store.write_later(Tells("a"))
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await block()
    assert told(store) == []


@pytest.mark.parametrize("held", [False, True], ids=["in the queue", "under way"])
async def test_a_cancelled_write_loses_nothing_that_it_took_along(store: Store, held: bool) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    async with store.together():
        other = None if held else asyncio.create_task(store.write(hold))
        if other is not None:
            assert await asyncio.to_thread(entered.wait, PATIENCE)
        await store.write_later(Tells("a"))
        writing = asyncio.create_task(store.write(hold if held else Tells("b")))
        await asyncio.sleep(0)
        if held:
            assert await asyncio.to_thread(entered.wait, PATIENCE)
        writing.cancel()
        await asyncio.wait([writing])
        asyncio.get_running_loop().call_later(0.01, leave.set)
    assert told(store)[0] == "a"
    if other is not None:
        await other


async def test_a_task_that_outlives_the_block_writes_at_once(store: Store) -> None:
    over = asyncio.Event()

    async def outlives() -> None:
        await over.wait()
        await store.write_later(Tells("late"))

    async with store.together():
        task = asyncio.create_task(outlives())
    over.set()
    await task
    assert told(store) == ["late"]


async def test_another_store_and_another_task_do_not_wait(store: Store, places: Callable[[str], str]) -> None:
    with Store.open(places("other")) as other:
        outside = asyncio.create_task(_when(begun := asyncio.Event(), store))
        async with store.together():
            await other.write_later(Tells("a"))
            assert told(other) == ["a"]
            begun.set()
            await outside
            assert told(store) == ["outside"]


async def _when(begun: asyncio.Event, store: Store) -> None:
    await begun.wait()
    await store.write_later(Tells("outside"))


async def test_what_two_writes_took_along_that_fail_is_written_in_its_order(store: Store) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    async with store.together():
        other = asyncio.create_task(store.write(hold))
        assert await asyncio.to_thread(entered.wait, PATIENCE)
        failing = []
        for name in ("a", "b", "c"):
            await store.write_later(Tells(name))
            failing.append(asyncio.create_task(store.write(fail)))
            await asyncio.sleep(0)
        leave.set()
        assert [str(error) for error in await asyncio.gather(*failing, return_exceptions=True)] == ["no"] * 3
    assert told(store) == ["a", "b", "c"]
    await other


async def test_what_comes_while_a_block_is_being_ended_is_written_too(store: Store) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    async def comes() -> None:
        assert await asyncio.to_thread(entered.wait, PATIENCE)
        await store.write_later(Tells("late"))
        leave.set()

    async with store.together():
        await store.write_later(hold)
        task = asyncio.create_task(comes())
    await task
    assert told(store) == ["late"]


async def test_a_block_in_which_the_store_was_closed_fails(store: Store) -> None:
    async def block() -> None:
        async with store.together():
            await store.write_later(Tells("a"))
            await asyncio.to_thread(store.close)
            with pytest.raises(StoreError, match="closed"):
                await store.write(Tells("b"))

    with pytest.raises(StoreError, match="closed"):
        await block()
