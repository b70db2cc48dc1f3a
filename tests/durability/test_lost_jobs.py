"""Jobs that ended where Loom could not see it do not hold their session for ever."""

import asyncio
import time
from functools import partial

import pytest
from temporalio.service import RPCError, RPCStatusCode

from loom_client.server.reconcile import why_refused
from loom_dsl.errors import ConflictError, LoomError, NotFoundError, SessionBusy
from tests.durability.conftest import Opener

pytestmark = pytest.mark.server


async def test_a_job_that_was_terminated_on_the_server_gives_its_session_back(house: Opener) -> None:
    opened = await house([{"say": "hello"}])
    first = await opened.start(session="shared")  # nobody works, so that it stays open
    with pytest.raises(SessionBusy, match=first.id):
        await opened.start(session="shared")
    await first.handle.terminate("from outside")
    second = await opened.start(session="shared")
    assert second.id != first.id
    row = await opened.loom.store.read(lambda tx: tx.job(first.id))
    assert row is not None
    assert row["status"] == "failed"
    assert row["ended_at"] is not None


async def test_an_abort_that_reaches_nobody_leaves_no_mark(house: Opener) -> None:
    opened = await house([{"say": "hello"}])
    job = await opened.start()
    await job.handle.terminate("from outside")
    with pytest.raises(LoomError):
        await job.abort(by="somebody")
    assert await opened.loom.store.read(lambda tx: tx.abort_requested(job.id)) is None


CLOSED = RPCError("workflow update was aborted by closing workflow", RPCStatusCode.NOT_FOUND, b"")
"""What the server says when a job ends while an update to it waits for a worker."""
FORGOTTEN = "a job that the server has forgotten"


async def test_what_a_job_does_not_take_is_refused_by_where_it_stands_and_not_by_the_servers_words(
    house: Opener,
) -> None:
    opened = await house([{"say": "hello"}])
    loom = opened.loom
    ended, runs = await opened.start(), await opened.start()
    await ended.handle.terminate("from outside")
    known = {"session": "s", "agent": "a", "plan": "ab" * 32, "task": "t", "workdir": "/", "namespace": "default"}
    await loom.store.write(lambda tx: tx.create_session("s"))
    await loom.store.write(lambda tx: tx.create_job(FORGOTTEN, **known, task_queue="q", created_at=time.time()))
    await loom.store.write(lambda tx: tx.update_job(FORGOTTEN, status="completed", ended_at=time.time()))

    async def why(job: str) -> str | None:
        found = await why_refused(loom.client, loom.store, job, CLOSED)
        return None if found is None else type(found).__name__

    told = [await why(job) for job in (ended.id, runs.id, FORGOTTEN, "never")]
    assert told == ["ConflictError", None, "ConflictError", "NotFoundError"]
    for job in (loom.job(ended.id), loom.job(FORGOTTEN)):
        for send in (job.pause, job.resume, job.abort, partial(job.inject, "a word"), partial(job.decide, "a", "b")):
            with pytest.raises(ConflictError, match="has already ended"):
                await send()
    with pytest.raises(NotFoundError):
        await loom.job("never").pause()


async def test_a_job_that_ends_while_it_is_told_something_has_ended(house: Opener) -> None:
    opened = await house([{"say": "hello"}])
    job = await opened.start()  # nobody works, so that the server keeps what is sent
    telling = asyncio.create_task(job.pause())
    done, _ = await asyncio.wait([telling], timeout=1.0)  # sent: whether it has arrived cannot be seen, and both hold
    assert not done
    await job.handle.terminate("from outside")
    with pytest.raises(ConflictError, match="has already ended"):
        await telling


async def test_watching_a_job_that_the_server_does_not_know_ends(house: Opener) -> None:
    opened = await house([{"say": "hello"}])
    assert [event async for event in opened.loom.job("never-started").events()] == []
