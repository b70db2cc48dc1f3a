"""Attempts at a compression that know nothing of each other, and how long Loom takes for one of a large session."""

import asyncio
import dataclasses
import time
from functools import partial
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.registration import activities_of
from activities.runtime import Runtime
from loom_client.job import Job
from loom_dsl.agent.messages import SUMMARY, legal_order
from loom_dsl.errors import Aborted
from loom_store.rows import NewEntry
from tests.durability.conftest import House, Opener
from tests.durability.reading import transcript
from tests.durability.test_compression import asked, cases
from tests.support.waiting import eventually

pytestmark = pytest.mark.server


async def spoken(house: House, rounds: int, size: int = 800) -> tuple[Job, str, int]:
    """A job that no worker has, with a conversation: the job, its session and the end of its entries."""
    job = await house.start(house.agent(limits={"max_context_tokens": 100_000, "compress_at": 0.01}))
    session = f"s-{job.id}"
    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    for number in range(rounds):
        pair = [
            NewEntry(kind="message", head={"role": "assistant", "tool_calls": calls}, content=None, job=job.id, turn=0),
            NewEntry(
                kind="message", head={"role": "tool", "tool_call_id": "c"}, content="a " * size, job=job.id, turn=0
            ),
        ]
        await house.loom.store.write(lambda tx, pair=pair, key=f"{number}": tx.append_entries(session, key, pair))
    return job, session, 1 + 2 * rounds


async def run(job: Job, session: str, activity: Any, given: dict[str, Any], attempt: int = 1) -> Any:
    """One attempt at an activity of the job."""
    environment = ActivityEnvironment()
    info = dataclasses.replace(environment.info, workflow_id=job.id, workflow_run_id="run", attempt=attempt)
    environment.info = info
    return await environment.run(activity, {"at": "compress#1", "session": session, "turn": 3, "with": given})


async def notes(house: House, session: str) -> list[int]:
    entries = await house.loom.store.read(lambda tx: tx.read_entries(session))
    return [entry.seq for entry in entries if entry.head.get("note") == SUMMARY]


async def being_asked(house: House) -> bool:
    return house.model.count > 0


def compress(runtime: Runtime) -> Any:
    return activities_of(runtime)["loom.context.compress"]


async def test_attempts_at_the_same_time_come_to_one_summary_and_one_usage(house: Opener) -> None:
    opened = await house(cases=cases())
    job, session, end = await spoken(opened, 5)
    given = {"entries": end, "overflow": False}
    async with opened.runtime() as first, opened.runtime() as second:
        both = [compress(first), compress(second)]
        results = await asyncio.gather(*(run(job, session, one, given, n) for n, one in enumerate(both, 1)))
        later = await run(job, session, both[0], given, 3)
    assert results == [later, later]
    assert later["entries"] == end + 1
    assert await notes(opened, session) == [end]


async def test_an_attempt_that_was_taken_for_lost_writes_nothing_into_a_conversation_that_went_on(
    house: Opener,
) -> None:
    for seconds in (1, 8, 64):  # a slow machine may let the model answer before the conversation goes on
        opened = await house(cases=cases({"say": "## Plans\ngo on", "before": f"{seconds}s"}))
        if await goes_on_without(opened):
            break
    else:
        pytest.fail("the model always answered first")


async def goes_on_without(opened: House) -> bool:
    """Let a conversation go on while an attempt at a compression is asking; False: it was quicker."""
    job, session, end = await spoken(opened, 5)
    calls = [{"id": "d", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    answer = NewEntry(kind="message", head={"role": "assistant", "tool_calls": calls}, content=None, job=job.id, turn=3)
    result = NewEntry(kind="message", head={"role": "tool", "tool_call_id": "d"}, content="ok", job=job.id, turn=3)

    async with opened.runtime() as runtime:
        late = asyncio.create_task(run(job, session, compress(runtime), {"entries": end, "overflow": False}))
        await eventually(partial(being_asked, opened))
        await opened.loom.store.write(lambda tx: tx.append_entries(session, "answer", [answer]))
        if await notes(opened, session):
            await late
            return False
        with pytest.raises(Aborted):
            await late
    await opened.loom.store.write(lambda tx: tx.append_entries(session, "result", [result]))
    assert await notes(opened, session) == []
    assert legal_order(await transcript(opened.loom.store, session)) == []
    return True


async def test_known_secrets_are_masked_in_notes(house: Opener) -> None:
    opened = await house(cases=cases({"say": "## Plans\nuse 4711-of-the-door to get in"}))
    job, session, end = await spoken(opened, 5)
    async with opened.runtime() as runtime:
        guarded = dataclasses.replace(runtime, secrets={"DOOR": "4711-of-the-door"})
        await run(job, session, compress(guarded), {"entries": end, "overflow": False})
        await guarded.close()
    entry = (await opened.loom.store.read(lambda tx: tx.read_entries(session, end, end + 1)))[0]
    text = (await opened.loom.store.read(lambda tx: tx.get_blob(str(entry.content_digest)))).decode()
    assert "4711" not in text
    assert text.endswith("## Plans\nuse ${secret:DOOR} to get in")


async def test_a_thousand_messages_are_compressed_in_pieces_and_read(house: Opener) -> None:
    opened = await house(cases=cases())
    job, session, end = await spoken(opened, 500)
    async with opened.runtime() as runtime:
        began = time.monotonic()
        told = await run(job, session, compress(runtime), {"entries": end, "overflow": False})
        context = await run(job, session, activities_of(runtime)["loom.context.assemble"], {"entries": told["entries"]})
        print(f"measured: {time.monotonic() - began:.2f} s for two times 500 messages")
    assert context["context"]["summary"] == end
    assert told["after"] < told["before"] / 2
    assert len(asked(opened, notes=True)) > 1
