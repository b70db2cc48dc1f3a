"""A worker among others: what it says of itself in the store, and whether that store is still there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

from activities.lifecycle.process_identity import this_process
from loom_dsl.errors import StoreError, StoreLost
from loom_store.queries.workers import RENEW_SECONDS
from loom_store.store import Store

LOOK_SECONDS = 2.0
"""How often a worker that does nothing looks whether its store is still there."""


@activity.defn(name="loom.present")
async def present() -> None:
    """Do nothing. Nobody asks for it: who asks for such work on the queue of the base name is found there."""


class Attendance:
    """A worker's place in its store.

    Args:
        store: Which it serves.
        about: What it has, as `loom_store.queries.workers.WorkerRow.about` says.
        stop: Set when the store is lost.

    Attributes:
        lost: How the store was lost; None while it is there.
    """

    def __init__(self, store: Store, about: Mapping[str, Any], stop: asyncio.Event) -> None:
        self.lost: StoreLost | None = None
        self._store, self._about, self._stop = store, dict(about), stop
        self._process = this_process()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Be registered while this is open, and look after the store.

        Raises:
            StoreError: The store does not take it.
        """
        await self._store.write(lambda tx: tx.register_worker(self._process, self._about))
        await asyncio.to_thread(self._store.note_heard)
        tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._look())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(StoreError):
                await self._store.write(lambda tx: tx.stop_worker(self._process))

    def check(self) -> None:
        """Say that the store was lost, if it was.

        Raises:
            StoreLost: It was.
        """
        if self.lost is not None:
            raise self.lost

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with contextlib.suppress(StoreError):  # it is told again
                await self._store.write(lambda tx: tx.renew_worker(self._process), durable=False)
                await asyncio.to_thread(self._store.note_heard)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await asyncio.to_thread(self._store.check)
            except StoreLost as error:
                self.lost = error
                self._stop.set()
                return
            except StoreError:
                continue  # what cannot be written now may be again
