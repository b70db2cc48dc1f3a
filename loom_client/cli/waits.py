"""Says what a person has to do: while a command waits for a job that waits for a person, and when a job has failed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from loom_client.cli.failures import say
from loom_client.cli.follow import IDLE_SECONDS, Ended
from loom_client.client import Loom
from loom_client.going_on import going_on
from loom_client.outcome import JobGone
from loom_client.why import stands_still, unserved, wanted
from loom_client.why_facts import Facts, gather
from loom_store.store import Store

MOST_STILL = 3
"""A job that stands still at so many looks, and whose end is not told, waits for a job below that does not."""


@dataclass(slots=True)
class Told:
    """What was said to whoever waits for a job, so that nothing is said twice.

    Attributes:
        unserved: That no worker serves it.
    """

    unserved: bool = False
    _line: str = ""
    _halted: Sequence[Mapping[str, Any]] = ()
    _still: int = 0

    def take(self, facts: Facts, now: float) -> list[str]:
        """Take what is known of the job now, and give the lines that are to be said.

        Args:
            facts: What is known.
            now: Seconds since 1970.
        """
        self._still = self._still + 1 if stands_still(facts, now) else 0
        if not facts.server or 0 < self._still < MOST_STILL:
            return []  # a server that is away is told for all who wait, and a halted job by what ends the waiting
        nobody, line = unserved(facts), wanted(replace(facts, worker=None), now)
        lines = ["is served by a worker again"] if self.unserved and facts.worker else []
        parts = [line] if line != self._line else []
        parts += [nobody] if not self.unserved else []
        if any(parts):
            lines.append(f"waits: {'; and '.join(filter(None, parts))}")
        if line != self._line:
            self._line, self._halted = line, facts.halted if line else ()
        if facts.worker is not None:
            self.unserved = bool(nobody)
        return lines

    def has_told(self, halted: Sequence[Mapping[str, Any]]) -> bool:
        """Say whether just these halted steps were told."""
        return bool(halted) and list(halted) == list(self._halted)


@asynccontextmanager
async def telling_waits(loom: Loom, job: str, told: Told) -> AsyncIterator[None]:
    """Say on standard error, while this is open, what a person has to do before the job goes on; each thing once."""
    telling = asyncio.create_task(_tell(loom, job, told))
    try:
        yield
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):  # what is only told must not end the waiting
            await telling


async def tell_how_to_go_on(store: Store, job: str, ended: Ended) -> None:
    """Say by which command a failed job goes on, where one would help."""
    if ended.status == "failed" and (how := await going_on(store, job)):
        say(how)


@asynccontextmanager
async def telling_the_lost(loom: Loom, job: str) -> AsyncIterator[None]:
    """Say the same of a job that turns out to have been ended outside Loom, while this is open."""
    try:
        yield
    except JobGone:
        await loom.settle_lost(job)
        if how := await going_on(loom.store, job):
            say(how)
        raise


async def _tell(loom: Loom, job: str, told: Told) -> None:
    while True:
        await asyncio.sleep(IDLE_SECONDS)
        facts = await gather(loom, job)
        for line in told.take(facts, time.time()) if facts is not None else ():
            say(f"job {job} {line}")
