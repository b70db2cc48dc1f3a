"""Beats of an activity that works, by which the server knows that its worker lives."""

import asyncio
from typing import Self

from temporalio import activity

EVERY = 0.25
"""Seconds between two: a cancellation comes with the answer to one."""


class Heartbeats:
    """Beats while an activity works, so that the server notices a lost worker and we notice a cancel.

    Only where the plan asks for heartbeats: the others end soon.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        info = activity.info()
        if not info.is_local and info.heartbeat_timeout is not None:
            self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            activity.heartbeat()
