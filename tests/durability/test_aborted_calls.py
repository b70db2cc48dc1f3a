"""What the conversation has of calls whose job was aborted before it told their results: what the ledger knows."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from activities.runtime import Runtime
from loom_client.job import Job
from loom_dsl.agent.messages import CANCELLED, TAKEN_BACK, WITHHELD
from loom_dsl.errors import DecisionRefused
from loom_store.store import Store
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, transcript
from tests.support.external import BEGUN, lines
from tests.support.undoable import NAMES, REFERENCES
from tests.support.waiting import PATIENCE, eventually
from worker import make_worker

pytestmark = [pytest.mark.server]

MODULES = ("tests.support.undoable", "tests.support.external", "tests.support.hook_functions")
DONE = ("note", "book", "stubborn")
"""Tools that are done before the one that the job is aborted in; none of them runs beside another."""
STEPS: list[dict[str, Any]] = [
    {"calls": [{"tool": name, "args": {"text": "one"}} for name in (*DONE, "linger")]},
    {"say": "It says: {last}"},
]
VEIL = {"hooks": {"after_execute": "tests.support.hook_functions:veil"}}


class _Slow:
    """A store that takes its time to write."""

    def __init__(self, store: Store, write: Any) -> None:
        self.read, self.write = store.read, write


@asynccontextmanager
async def a_worker(house: House) -> AsyncIterator[None]:
    registry, environment = ToolRegistry.load(modules=list(MODULES)), house.runtime().environment
    async with (
        Runtime(house.loom.store, registry, house.folder, environment=environment) as runtime,
        make_worker(house.loom.client, runtime, house.settings.task_queue),
    ):
        yield


def agent(house: House, **fields: Any) -> Any:
    tools = (*REFERENCES, "tests.support.external:linger")
    return house.agent(tools=tools, permissions={"allow": [*NAMES, "linger"]}, **fields)


async def told_of_calls(house: House, job: Job) -> list[str]:
    """What the session has of the calls, after the job was aborted in the last one."""
    await eventually(lambda: lines(house.workdir(job), BEGUN))
    await job.abort("me", "enough")
    found = await account(house.loom.store, job)
    assert (found.status, [message["role"] for message in found.messages[2:]]) == (
        "aborted",
        ["tool"] * len(STEPS[0]["calls"]),
    )
    return [str(message["content"]) for message in found.messages[2:]]


async def test_a_session_that_goes_on_after_an_abort_knows_what_was_done(house: Opener) -> None:
    opened = await house(STEPS)
    async with a_worker(opened):
        job = await opened.start(agent(opened), hold=True)
        assert await told_of_calls(opened, job) == ["noted", '{"number":7}', "bought", CANCELLED]
        session = (await job.result()).session_id
        later = await opened.start(agent(opened), session=session)
        assert (await later.result()).status == "completed"
    messages = await transcript(opened.loom.store, session)
    assert [message["role"] for message in messages[-2:]] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"on_abort": "compensate"}, ["noted", TAKEN_BACK, "bought", CANCELLED], id="taken back"),
        pytest.param(VEIL, [WITHHELD, WITHHELD, WITHHELD, CANCELLED], id="a hook may withhold it"),
    ],
)
async def test_it_is_told_no_more_than_holds_and_may_be_known(
    house: Opener, fields: dict[str, Any], told: list[str]
) -> None:
    opened = await house(STEPS)
    async with a_worker(opened):
        job = await opened.start(agent(opened, **fields), hold=True)
        assert await told_of_calls(opened, job) == told


async def marked(house: House, job: Job) -> bool:
    return bool(await house.loom.store.read(lambda tx: tx.abort_requested(job.id)))


async def killed(house: House, job: Job) -> None:
    """Abort a job with `loom abort`, which is killed as soon as it has left its mark."""
    place, program = house.settings, "from loom_cli import main; main()"
    patient = {f"LOOM_{what}_SECONDS": str(PATIENCE) for what in ("CONNECT", "ANSWER")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, "abort", job.id, "--address", place.address),
        env={**os.environ, "LOOM_STORE": str(place.store), **patient},
    )
    try:
        await eventually(partial(marked, house, job))
    finally:
        process.kill()
        assert await process.wait() == -signal.SIGKILL


async def given_up(house: House, job: Job) -> None:
    aborting = asyncio.create_task(job.abort("me", "enough"))
    await eventually(partial(marked, house, job))
    aborting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await aborting


@pytest.mark.parametrize("how", [killed, given_up])
async def test_an_abort_whose_sender_is_gone_once_the_mark_is_there_ends_the_job(house: Opener, how: Any) -> None:
    """The mark refuses a job's tools: one without an order would leave the job half aborted."""
    opened = await house(STEPS)
    job = await opened.start()  # no worker answers
    await how(opened, job)
    async with a_worker(opened):
        assert (await job.result()).status == "aborted"


async def test_an_abort_that_no_job_would_take_leaves_no_mark(house: Opener) -> None:
    opened = await house(STEPS)
    job = await opened.start()
    with pytest.raises(DecisionRefused, match="reason"):
        await job.abort("me", "e" * 2_001)
    assert not await marked(opened, job)


async def test_a_job_that_ends_by_the_order_before_it_is_asked_to_confirm_was_aborted(house: Opener) -> None:
    opened = await house(STEPS)
    async with a_worker(opened):
        job = await opened.start(agent(opened), hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        store, write = opened.loom.store, opened.loom.store.write

        async def late(work: Any) -> Any:
            """Leave the mark when all is over."""
            await job.result()
            return await write(work)

        slow = Job(job.id, opened.loom.client, _Slow(store, late), PATIENCE)  # type: ignore[arg-type]
        assert (await slow.abort("me", "enough")).verdict == "recorded"
    assert (await job.result()).status == "aborted"
