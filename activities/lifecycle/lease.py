"""Whether an attempt that began an effect still runs it: a worker that is slow is told from one that is gone.

Where both workers run on one machine, the system knows which processes there are. Of a worker elsewhere only the
ledger tells: who runs an effect says so again and again, and is taken for gone when it has not for some seconds.
"""

import asyncio
import os
import time
from datetime import datetime
from functools import partial
from typing import Any

from activities.lifecycle.process_identity import place_of, start_of, this_process
from loom_dsl.errors import StoreError
from loom_store.rows import Effect
from loom_store.store import Store
from loom_store.transaction import Transaction

HELD_SECONDS = 8.0
"""For how long to believe a worker elsewhere that it runs an effect."""
RENEW_SECONDS = 2.0
LOOK_SECONDS = 0.25

AT_WORK: set[str] = set()
"""Keys of the effects that run in this process."""


def never_began(effect: Effect, epoch: float | None = None) -> bool:
    """Whether an effect without an outcome cannot have happened: its tool's function was not called.

    That it is called is written down before it is, but not waited for: a machine that crashed may have lost it, and of
    another machine nothing is known.

    Args:
        effect: The effect.
        epoch: When the store's present epoch began, in seconds since 1970; None: in its first one.
    """
    if effect.status != "pending" or effect.started_at is not None or not effect.holder:
        return False
    if epoch is not None and datetime.fromisoformat(effect.begun_at).timestamp() < epoch:
        return False  # what was restored may be older than the call
    boot = place_of(os.getpid()).partition("/")[0]
    return bool(boot) and effect.holder.partition("/")[0] == boot


def is_held(effect: Effect) -> bool:
    """Whether an effect without an outcome runs now, as far as it can be told."""
    if effect.status != "pending" or not effect.holder:
        return False
    place, pid, started = effect.holder.rsplit(" ", 2)
    mine = os.getpid()
    if place and place == place_of(mine):
        return effect.key in AT_WORK if int(pid) == mine else bool(started) and start_of(int(pid)) == started
    return _is_renewed(effect)


def _is_renewed(effect: Effect) -> bool:
    """Whether who runs an effect has said so lately. A process that hangs as a whole does not."""
    return effect.renewed


async def renew(store: Store, key: str, pending: "asyncio.Future[Any]") -> None:
    """Say in the ledger that an effect runs, for as long as it does."""
    while True:
        await asyncio.wait([pending], timeout=RENEW_SECONDS)
        if pending.done():
            return
        try:
            await store.write(lambda tx: tx.hold_effect(key, this_process(), HELD_SECONDS), durable=False)
        except StoreError:
            continue  # it is told again; what runs does not depend on it


async def let_go(store: Store, effect: Effect, seconds: float) -> Effect:
    """Wait until an effect runs no more, or has an outcome; at most for so long. Gives it as it then is.

    Whoever ran it writes the outcome down and only then is no longer at work, so the ledger is read once more after
    nobody was found at work: what was read before may lack the outcome.
    """
    key, end = effect.key, time.monotonic() + seconds
    while effect.status == "pending":
        waiting = is_held(effect) and time.monotonic() < end
        if waiting:
            await asyncio.sleep(LOOK_SECONDS)
        found = await store.read(lambda tx: tx.effect(key))
        effect = found or effect
        if not waiting or found is None:
            break
    return effect


async def take_over(store: Store, effect: Effect, seconds: float) -> Effect:
    """Wait as `let_go` does. An effect that has no outcome then is this process's: one attempt alone goes on with it.

    Two that found nobody at work would both be told that it had not happened, and both let it happen. From one that
    says that it is at work it is not taken, however long that is: it may have waited itself, or asked the tool, before
    it let it happen. Whoever gets one that is pending takes its key out of `AT_WORK` when nothing of it runs here any
    more.
    """
    key, end = effect.key, time.monotonic() + seconds
    while True:
        effect = await let_go(store, effect, max(0.0, end - time.monotonic()))
        if effect.status != "pending":
            return effect
        taking = asyncio.ensure_future(store.write(partial(_take, effect=effect, late=time.monotonic() >= end)))
        try:
            if (taken := await asyncio.shield(taking)) is not None:
                return taken
        except asyncio.CancelledError:
            taking.add_done_callback(partial(_give_back, key))
            raise
        await asyncio.sleep(LOOK_SECONDS)


def _take(tx: Transaction, effect: Effect, *, late: bool) -> Effect | None:
    """Hold an effect from now on, and give it as it was before; None: it is not to be had."""
    found = tx.effect(effect.key) or effect
    if found.status != "pending" or (is_held(found) and (_is_renewed(found) or not late)):
        return None
    tx.hold_effect(effect.key, this_process(), HELD_SECONDS)
    AT_WORK.add(effect.key)  # here, where no other attempt of this process can look in between
    return found


def _give_back(key: str, taking: "asyncio.Future[Effect | None]") -> None:
    """Leave an effect to the next attempt where the one that took it over was cancelled meanwhile."""
    if not taking.cancelled() and taking.exception() is None and taking.result() is not None:
        AT_WORK.discard(key)
