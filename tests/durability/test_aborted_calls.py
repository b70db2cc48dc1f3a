"""What the conversation has of calls whose job was aborted before it told their results: what the ledger knows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.registry import ToolRegistry
from activities.runtime import Runtime
from loom_client.job import Job
from loom_dsl.messages import CANCELLED, TAKEN_BACK, WITHHELD
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, transcript
from tests.support.external import BEGUN, lines
from tests.support.undoable import NAMES, REFERENCES
from tests.support.waiting import eventually
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


async def test_who_gives_up_on_an_abort_leaves_nothing_that_refuses_the_jobs_tools(house: Opener) -> None:
    opened = await house(STEPS)
    job = await opened.start()  # no worker answers
    store = opened.loom.store

    async def marked() -> bool:
        return bool(await store.read(lambda tx: tx.abort_requested(job.id)))

    aborting = asyncio.create_task(job.abort("me", "enough"))
    await eventually(marked)
    aborting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await aborting
    assert not await marked()
