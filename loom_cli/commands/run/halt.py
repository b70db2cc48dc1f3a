"""Waiting for a job that may be halted: whoever waits is told instead of waiting for what only a person can end."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from typing import TypeVar

from loom_cli.render.halts import halted_texts
from loom_cli.required_action import ANSWER_SECONDS, Facts, gather, halted_steps, stands_still
from loom_client.client import Loom
from loom_dsl.errors import JobHalted, LoomError, StoreLost
from loom_dsl.text.printable import one_line
from loom_store.transaction import Transaction

LOOK_SECONDS = 2.0
MAX_DEEP = 20
"""So many levels of child jobs are looked into."""
Result = TypeVar("Result")


async def unless_halted(loom: Loom, job: str, work: Awaitable[Result]) -> Result:
    """Wait for something of a job that follows its end; not when the job is halted and only a person helps.

    Raises:
        JobHalted: It is; says why, what to do, and how the job goes on then.
    """
    waiting = asyncio.ensure_future(work)
    looking = asyncio.create_task(_until_halted(loom, job))
    try:
        await asyncio.wait({waiting, looking}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise _halted(job, await looking)
        return await waiting
    finally:
        for task in (waiting, looking):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _until_halted(loom: Loom, job: str) -> Facts:
    """Wait until a job stands still at two looks in a row: what one of them sees may be about to go on."""
    seen = 0
    while True:
        facts = None
        try:
            has_halted = await loom.store.read(lambda tx: _has_halted(tx, job))
            facts = await _still(loom, job) if has_halted else None
        except StoreLost:
            raise  # nothing that is waited for would be seen
        except LoomError:
            pass  # a look that fails is none
        seen = seen + 1 if facts is not None else 0
        if facts is not None and seen > 1:
            return facts
        await asyncio.sleep(LOOK_SECONDS)


def _has_halted(tx: Transaction, job: str) -> bool:
    row = tx.job(job)
    return row is not None and bool(halted_steps(tx, row))


async def _still(loom: Loom, job: str, depth: int = 0) -> Facts | None:
    """Give what is known of a job that stands still, and of which every child job does that it waits for."""
    facts = await gather(loom, job)
    if facts is None or not stands_still(facts, time.time()):
        return None
    for wait in facts.waits or ():
        if wait.child is not None and (depth > MAX_DEEP or await _still(loom, wait.child, depth + 1) is None):
            return None
    return facts


async def is_held(loom: Loom, job: str, cause: str = "") -> bool | None:
    """Say whether a job is paused, or has steps that are halted or wait for the time of their next try.

    Args:
        loom: The connection.
        job: Its id.
        cause: Only steps that stopped for this cause count, and no pause.

    Returns:
        None: nobody who knows it answers.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            stands = await loom.job(job).status()
    except (TimeoutError, LoomError):
        return None
    causes = [step.cause for step in stands.halted] + [step.cause for step in stands.backing_off]
    return cause in causes if cause else bool(stands.paused or causes)


def _halted(job: str, facts: Facts) -> JobHalted:
    return JobHalted(f"job {job} is {halted_texts(facts.halted, job, time.time())}", facts.halted)


def shorten(job: str, error: JobHalted) -> JobHalted:
    """Say of a halted job no more than that, and where the rest is: whoever waits has been told of its steps."""
    causes = ", ".join(dict.fromkeys(one_line(str(step.get("cause") or ""), 80) for step in error.steps))
    of = f" ({causes})" if causes else ""
    return JobHalted(
        f"job {job} is halted{of}, and nothing of it goes on by itself; `loom show {job}` says what to do", error.steps
    )
