"""Writes that wait for the next one of the same work and share its transaction: one wait for the disk, not many."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from loom_store.transaction import Transaction

Work = Callable[[Transaction], Any]


class Together:
    """What waits inside one `Store.together` block. It belongs to one event loop.

    Attributes:
        contents: Contents that are not stored yet, by digest.
    """

    def __init__(self, owner: object) -> None:
        self.owner: object | None = owner
        self.contents: dict[str, bytes] = {}
        self._works: list[Work] = []
        self._under_way: set[asyncio.Future[Any]] = set()

    @property
    def waits(self) -> bool:
        """Whether anything waits to be written."""
        return bool(self._works)

    def add(self, work: Work) -> None:
        """Let a function wait."""
        self._works.append(work)

    def joined(self, work: Work) -> tuple[Work, Sequence[Work]]:
        """Take what waits: a function that does all of it and then `work`, and what it does before."""
        first, self._works = self._works, []

        def all_of_it(tx: Transaction) -> Any:
            for each in first:
                each(tx)
            return work(tx)

        return all_of_it, first

    def follow(self, writing: "asyncio.Future[Any]", works: Sequence[Work]) -> None:
        """Have functions wait again if the write that took them along fails, which undoes what they did."""

        def ended(done: "asyncio.Future[Any]") -> None:
            self._under_way.discard(done)
            if done.cancelled() or done.exception() is not None:
                self._works[:0] = works

        self._under_way.add(writing)
        writing.add_done_callback(ended)

    async def ended(self) -> None:
        """Wait until no write is under way that took others along."""
        while self._under_way:
            await asyncio.wait(set(self._under_way))


WAITING: ContextVar[Together | None] = ContextVar("waiting", default=None)
"""The block in which the running task is."""
