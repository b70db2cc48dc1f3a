"""Waiting for an effect that another attempt runs."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from activities.lifecycle.lease import AT_WORK, let_go, take_over
from activities.lifecycle.process_identity import this_process
from loom_store.rows import Effect
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.support.waiting import PATIENCE, eventually

KEY = "job/0/call"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "loom.db") as opened:
        yield opened


def begin(tx: Transaction, seconds: float = 8.0) -> Effect:
    """A tool begins to run in this process, which is believed for so long."""
    return tx.begin_effect(
        KEY, job="job", turn=0, call_id="call", tool="send", arguments_digest="0" * 64, held=(this_process(), seconds)
    )


def settle(tx: Transaction) -> str:
    """It has ended."""
    name = tx.put_blob(b"done")
    tx.settle_effect(KEY, "settled", result_digest=name)
    return name


async def test_an_outcome_written_after_the_effect_was_read_is_seen(store: Store) -> None:
    """The attempt ended between this one's look at the ledger and its look at who is at work."""
    stale = await store.write(begin)
    name = await store.write(settle)
    found = await let_go(store, stale, 10)
    assert (stale.status, found.status, found.result_digest) == ("pending", "settled", name)


async def test_an_attempt_at_work_is_waited_for(store: Store) -> None:
    effect = await store.write(begin)
    AT_WORK.add(KEY)
    waiting = asyncio.create_task(let_go(store, effect, 60))
    try:
        await store.read(lambda tx: tx.effect(KEY))
        assert not waiting.done()
        await store.write(settle)
    finally:
        AT_WORK.discard(KEY)
    assert (await waiting).status == "settled"


async def test_a_pending_effect_that_nobody_runs_is_given_at_once(store: Store) -> None:
    effect = await store.write(begin)
    assert (await let_go(store, effect, 60)).status == "pending"


async def test_no_longer_is_waited_than_was_asked(store: Store) -> None:
    effect = await store.write(begin)
    AT_WORK.add(KEY)
    try:
        assert (await let_go(store, effect, 0)).status == "pending"
    finally:
        AT_WORK.discard(KEY)


async def test_one_attempt_alone_takes_over_what_nobody_runs(store: Store) -> None:
    effect = await store.write(begin)
    try:
        waiting = [asyncio.create_task(take_over(store, effect, 60)) for _ in range(3)]
        (first, *_), others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert (await first).status == "pending"
        assert len(others) == 2
        await store.write(settle)
    finally:
        AT_WORK.discard(KEY)
    assert [(await other).status for other in others] == ["settled", "settled"]


async def test_what_was_taken_over_and_let_go_again_is_the_next_ones(store: Store) -> None:
    effect = await store.write(begin)
    try:
        assert (await take_over(store, effect, 60)).status == "pending"
        waiting = asyncio.create_task(take_over(store, effect, 60))
        await store.read(lambda tx: tx.effect(KEY))
        assert not waiting.done()
        AT_WORK.discard(KEY)
        assert (await waiting).status == "pending"
    finally:
        AT_WORK.discard(KEY)


async def test_what_is_held_for_longer_than_it_may_run_is_taken_over(store: Store) -> None:
    """Its process is there, and hangs: it does not say any more that it runs it."""
    effect = await store.write(partial(begin, seconds=0.0))
    AT_WORK.add(KEY)
    try:
        assert (await take_over(store, effect, 0)).status == "pending"
    finally:
        AT_WORK.discard(KEY)


async def test_what_an_attempt_says_that_it_runs_is_not_taken_from_it_however_long_that_takes(store: Store) -> None:
    """It may have waited itself, or asked the tool, before it called it."""
    effect = await store.write(partial(begin, seconds=3600.0))
    AT_WORK.add(KEY)
    waiting = asyncio.create_task(take_over(store, effect, 0))
    try:
        for _ in range(20):  # more turns than it takes to take it
            await store.write(lambda tx: None)
            await store.read(lambda tx: None)
        assert not waiting.done()
        await store.write(settle)
        assert (await waiting).status == "settled"
    finally:
        AT_WORK.discard(KEY)


async def test_an_attempt_that_is_cancelled_while_it_takes_an_effect_over_leaves_it_to_the_next(store: Store) -> None:
    effect = await store.write(begin)
    begun, free, taken, leave = (threading.Event() for _ in range(4))

    def hold(tx: Transaction) -> None:
        begun.set()
        assert free.wait(PATIENCE)

    def hold_back(tx: Transaction) -> None:  # in the transaction in which the effect is taken over
        taken.set()
        assert leave.wait(PATIENCE)

    writes = [asyncio.create_task(store.write(hold))]
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    first = asyncio.create_task(take_over(store, effect, 60))
    await eventually(lambda: store._writer._queue.qsize() == 1)
    writes.append(asyncio.create_task(store.write(hold_back)))
    await eventually(lambda: store._writer._queue.qsize() == 2)
    free.set()
    try:
        assert await asyncio.to_thread(taken.wait, PATIENCE)
        assert KEY in AT_WORK
        first.cancel()
        await asyncio.wait([first])
        leave.set()
        await asyncio.gather(*writes)
        await eventually(lambda: KEY not in AT_WORK)
    finally:
        AT_WORK.discard(KEY)
