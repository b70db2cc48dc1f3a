"""Jobs that ended where Loom could not see it do not hold their session for ever."""

import pytest

from loom_dsl.errors import LoomError, SessionBusy
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


async def test_watching_a_job_that_the_server_does_not_know_ends(house: Opener) -> None:
    opened = await house([{"say": "hello"}])
    assert [event async for event in opened.loom.job("never-started").events()] == []
