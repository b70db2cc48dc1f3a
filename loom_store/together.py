"""Writes that wait for the next one of the same work and share its transaction: one wait for the disk, not many."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import count
from operator import itemgetter
from typing import Any

from loom_store.transaction import Transaction

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
