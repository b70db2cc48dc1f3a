"""What a tool says while it works, for watchers: the latest, now and then, however often it says something."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

EVERY = 0.25
"""Seconds between two texts that are told."""


class Progress:
    """Takes texts from any thread and tells the latest of them, the last one always.

    Args:
        tell: Tells a text. Called in the event loop that this is made in, one call at a time.
        most: Characters that are taken of a text.
        every: Seconds that are between two.
    """

    def __init__(self, tell: Callable[[str], Awaitable[None]], most: int, every: float = EVERY) -> None:
        self._tell, self._most, self._every = tell, most, every
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._latest: str | None = None
        self._awake = False
        self._telling = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, text: object) -> None:
        """Take a text; one that was not told yet is forgotten."""
        text = str(text)[: self._most]
        with self._lock:
            self._latest = text
            if self._awake:
                return
            self._awake = True
        self._loop.call_soon_threadsafe(self._begin)

    async def settle(self) -> None:
        """Tell what was said last, if that has not been told: what is told after this comes after it."""
        async with self._telling:
            if (text := self._taken()) is not None:
                await self._tell(text)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._tell_all())

    async def _tell_all(self) -> None:
        while True:
            async with self._telling:
                if (text := self._taken(sleeps=True)) is None:
                    return
                await self._tell(text)
            await asyncio.sleep(self._every)

    def _taken(self, *, sleeps: bool = False) -> str | None:
        with self._lock:
            text, self._latest = self._latest, None
            if sleeps:
                self._awake = text is not None
            return text
