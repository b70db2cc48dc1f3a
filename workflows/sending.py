"""How much a job commands at once: what it sends with one workflow task has a size that the server takes."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from temporalio import workflow

MOST_COMMANDED = 2 * 1024 * 1024
"""Bytes of arguments that go out with one workflow task. The server takes messages of 4 MiB; a larger one would be sent
and refused again and again. The rest is for what stretches tell and for what commands have around them. It decides
where timers are in histories, so another number needs another name of `IN_PARTS`."""
IN_PARTS = "loom.sending.2MiB"
"""Marks the runs that have such timers: one that began before there were any goes on without them."""
PAUSE = 0.001
"""Seconds of a timer, so that the task ends and another begins."""


class Sending:
    """Lets commands go out in the order in which they come, as many as one task can carry.

    What was sent counts until another task was begun for it: that costs a timer for every `MOST_COMMANDED` of a run,
    and needs no guess at when a task ended.

    Args:
        pause: Waits so many seconds, after which another task has begun.
        in_parts: Whether this run sends in parts. Asked when it would have to, for the first time.
    """

    def __init__(
        self,
        pause: Callable[[float], Awaitable[None]] = workflow.sleep,
        in_parts: Callable[[], bool] = lambda: workflow.patched(IN_PARTS),
    ) -> None:
        self._pause, self._in_parts, self._sent = pause, in_parts, 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._opener: asyncio.Task[None] | None = None

    async def room(self, size: int) -> None:
        """Wait until a command of so many bytes may go out. One that is larger than a task's share goes alone."""
        if not self._waiting and (self._takes(size) or not self._in_parts()):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        if self._opener is None:
            self._opener = asyncio.create_task(self._open())
        await turn

    def _takes(self, size: int) -> bool:
        if self._sent and self._sent + size > MOST_COMMANDED:
            return False
        self._sent += size
        return True

    async def _open(self) -> None:
        """Begin another task, and let out what it can carry, until nothing waits."""
        while self._waiting:
            await self._pause(PAUSE)
            self._sent = 0
            while self._waiting and (self._waiting[0][1].done() or self._takes(self._waiting[0][0])):
                _, turn = self._waiting.popleft()
                if not turn.done():  # one that was cancelled meanwhile waits no more
                    turn.set_result(None)
        self._opener = None
