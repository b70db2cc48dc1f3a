"""The server is killed with SIGKILL and started again on its file; and the server and the worker both."""

import asyncio
import time
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from loom_cli.dev.server import DevServer
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, events, of
from tests.durability.test_worker_killed import calling, finish, undisturbed
from tests.support.external import BEGUN, lines
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

pytestmark = [pytest.mark.server, pytest.mark.crash]

BOTH = pytest.mark.parametrize(
    "worker_too", [pytest.param(False, id="server"), pytest.param(True, id="server-and-worker")]
)


async def crash(server: DevServer, worker: WorkerProcess, worker_too: bool) -> float:
    """Kill, and start again; the moment of the kill."""
    killed = time.monotonic()
    server.kill()
    if worker_too:
        worker.kill()
    await server.start()
    if worker_too:
        await worker.start()
    return killed


@BOTH
async def test_a_tool_that_runs_has_one_effect_and_its_result_is_kept(
    house: Opener, own_server: DevServer, worker_too: bool
) -> None:
    opened = await house(calling("register"), server=own_server)
    async with opened.worker() as worker:
        expected = await undisturbed(opened)
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        waiting = asyncio.create_task(job.result())
        killed = await crash(own_server, worker, worker_too)
        opened.release(job)
        assert await finish(opened, job, killed) == expected
        assert (await waiting).status == "completed"
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]


@BOTH
async def test_an_approval_waits(house: Opener, own_server: DevServer, worker_too: bool) -> None:
    opened = await house(calling("send"), server=own_server)
    asking = opened.agent(permissions={"ask": ["send"]})
    async with opened.worker() as worker:
        expected = await approved(opened, asking)
        job = await opened.start(asking)
        approval = await opened.approval(job)
        # Injected before the crash, so that the signal is in the server's file and nowhere else.
        await job.handle.signal("loom.control", {"op": "inject", "id": "note", "text": "be kind"})
        killed = await crash(own_server, worker, worker_too)
        await job.handle.signal("loom.decision", {"approval_id": approval, "choice": "approve", "by": "me"})
        found = await finish(opened, job, killed)
    assert [message for message in found.messages if message["content"] != "be kind"] == expected.messages
    assert [message["role"] for message in found.messages if message["content"] == "be kind"] == ["user"]
    assert (found.status, found.usage, found.results) == (expected.status, expected.usage, expected.results)
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    assert len(of(await events(job), EventType.APPROVAL_DECIDED)) == 1


async def approved(house: House, agent: Any) -> Any:
    """What the job comes to when nothing happens but the approval."""
    job = await house.start(agent)
    await job.decide(await house.approval(job), "approve", by="me")
    return await account(house.loom.store, job)


@pytest.mark.nightly
async def test_who_waits_for_a_result_outlasts_a_server_that_is_away(house: Opener, own_server: DevServer) -> None:
    opened = await house(calling("put"), server=own_server)
    async with opened.worker():
        job = await opened.start(hold=True)
        waiting = asyncio.create_task(job.result())
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        killed = time.monotonic()
        own_server.kill()
        await eventually(lambda: time.monotonic() > killed + 16 or waiting.done())
        assert not waiting.done()
        await own_server.start()
        opened.release(job)
        assert (await waiting).status == "completed"
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]


@pytest.mark.parametrize("tool", ["send", pytest.param("linger", marks=pytest.mark.nightly)])
async def test_a_tool_goes_on_while_the_server_is_away_for_longer_than_its_heartbeat(
    house: Opener, own_server: DevServer, tool: str
) -> None:
    opened = await house(calling(tool), server=own_server)
    async with opened.worker() as worker:
        expected = await undisturbed(opened)
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        killed = time.monotonic()
        own_server.kill()
        await eventually(lambda: time.monotonic() > killed + 6)
        await own_server.start()
        back = time.time()

        async def known_again() -> bool:
            """The timeout and the next heartbeat race: there is a second attempt, or the first one is seen again."""
            found = (await job.handle.describe()).raw_description.pending_activities
            # A slow machine may have events written down by an activity as well.
            (pending,) = [one for one in found if one.activity_type.name == "loom.tool.execute"]
            began = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            return began and (pending.attempt >= 2 or pending.last_heartbeat_time.ToNanoseconds() / 1e9 > back)

        await eventually(known_again)
        opened.release(job)
        assert await finish(opened, job, killed) == expected
        assert worker.starts == 1
    assert len(lines(opened.workdir(job), BEGUN)) == 1
