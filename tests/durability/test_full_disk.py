"""A disk that is full while a job works: nothing is dropped, nothing is done twice, and all goes on when there is room.

The worker is a process of its own that the system lets write no file beyond its first page: what a full disk is to it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psutil
import pytest

from loom_client.job import Job
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, histories, unheard_of
from tests.support import external, stopped
from tests.support.stopped import BEGUN, GO, RETURNS
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

pytestmark = [pytest.mark.server, pytest.mark.crash]

ROOM = 4_096
"""Bytes of a file: less than the store's log needs for one page."""
MODULES = (external.__name__, stopped.__name__)


@contextmanager
def full(worker: WorkerProcess) -> Iterator[None]:
    """Let a worker write nothing more to its store."""
    process = worker.process()
    before = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_FSIZE, before)


def worker_of(house: House) -> WorkerProcess:
    return WorkerProcess(house.settings, house.url, house.folder, tools=MODULES)


async def failing(job: Job) -> bool:
    """Whether the engine knows of a step that the store failed."""
    pending = (await job.handle.describe()).raw_description.pending_activities
    return any("store" in each.last_failure.message for each in pending)


@pytest.mark.nightly
async def test_calls_that_were_approved_while_the_disk_was_full_are_done_when_there_is_room(house: Opener) -> None:
    calls: list[dict[str, Any]] = [{"tool": "send", "args": {"text": text}} for text in ("one", "two")]
    opened = await house([{"say": "I call.", "calls": calls}, {"say": "It says: {last}"}])
    agent = opened.agent(permissions={"ask": ["send"]})
    async with worker_of(opened) as worker:
        job = await opened.start(agent)
        asked = [await opened.approval(job, index) for index in range(2)]
        with full(worker):
            for name in asked:
                await job.decide(name, "approve", by="me")
            await eventually(lambda: failing(job), every=0.2)
            assert effects_of(opened.workdir(job)) == []
        told = await account(opened.loom.store, job)
    assert told.status == "completed"
    assert [message["content"] for message in told.messages if message["role"] == "tool"] == ["done: one", "done: two"]
    assert sorted(line.split()[-1] for line in effects_of(opened.workdir(job))) == ["one", "two"]


async def test_what_a_tool_returned_while_the_disk_was_full_is_written_when_there_is_room(house: Opener) -> None:
    opened = await house([{"calls": [{"tool": "stubborn", "args": {"text": "one"}}]}, {"say": "It says: {last}"}])
    agent = opened.agent(tools=[f"{stopped.__name__}:stubborn"], permissions={"allow": ["stubborn"]})
    async with worker_of(opened) as worker:
        job = await opened.start(agent)
        folder = opened.workdir(job)
        await eventually(lambda: (folder / BEGUN).exists())
        with full(worker):
            (folder / GO).touch()
            await eventually(lambda: (folder / RETURNS).exists())
            await eventually(lambda: "what came of a step waits to be written" in worker.said(), every=0.2)
            (effect,) = await opened.loom.store.read(lambda tx: tx.effects(job.id))
            assert effect.status == "pending"
        told = await account(opened.loom.store, job)
    (effect,) = await opened.loom.store.read(lambda tx: tx.effects(job.id))
    assert (told.status, effect.status) == ("completed", "settled")
    assert told.messages[2]["content"] == "done: one"
    assert (folder / BEGUN).read_text() == "begun\n"


@pytest.mark.nightly
async def test_a_model_whose_answer_cannot_be_written_is_not_asked_again(house: Opener) -> None:
    for delay in (50, 400, 1_600):
        opened = await house([{"say": "word " * 60, "chunk": 5, "delay": f"{delay}ms"}])
        async with worker_of(opened) as worker:
            before = len(worker.said())
            job = await opened.start(opened.agent(tools=[], permissions={}))
            await eventually(lambda house=opened: house.model.count)  # type: ignore[misc]
            with full(worker):
                kept = partial(waits_or_has_ended, opened, job, worker, before)
                waited = await eventually(kept, every=0.2) == "waits"
            told = await account(opened.loom.store, job)
        if waited:
            break  # else a slow machine let the model say everything before the disk was full
    assert waited
    assert told.status == "completed"
    assert told.messages[-1]["content"] == "word " * 60
    lost = unheard_of(await histories(opened.loom.client, job.id), "loom.model.call")  # by a slow machine
    assert 1 <= opened.model.count <= 1 + lost


async def waits_or_has_ended(house: House, job: Job, worker: WorkerProcess, before: int) -> str:
    """Say whether a worker `waits` to write what came of a step, or its job has `ended`; nothing before."""
    if "what came of a step waits to be written" in worker.said()[before:]:
        return "waits"
    row = await house.loom.store.read(lambda tx: tx.job(job.id))
    return "ended" if row is not None and row["ended_at"] else ""
