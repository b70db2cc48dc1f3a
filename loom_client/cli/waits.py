"""Says what a person has to do: while a command waits for a job that waits for a person, and when a job has failed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loom_client.cli.failures import say
from loom_client.cli.follow import IDLE_SECONDS, Ended
from loom_client.client import Loom
from loom_client.going_on import going_on
from loom_client.outcome import JobGone
from loom_client.why import wanted
from loom_client.why_facts import gather
from loom_store.store import Store


@asynccontextmanager
async def telling_waits(loom: Loom, job: str) -> AsyncIterator[None]:
    """Say on standard error, while this is open, what a person has to do before the job goes on; each thing once."""
    telling = asyncio.create_task(_tell(loom, job))
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


async def _tell(loom: Loom, job: str) -> None:
    said = ""
    while True:
        await asyncio.sleep(IDLE_SECONDS)
        facts = await gather(loom, job)
        if facts is not None and not facts.server:
            continue  # that is told once for all who wait for it, and changes nothing of what is wanted
        told = wanted(facts, time.time()) if facts is not None else ""
        if told not in ("", said):
            say(f"job {job} waits: {told}")
        said = told
