"""Decisions on a real server: they count in the order in which they came, each once, and none holds an expiry up."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateStage

from loom_client.job import Job
from loom_dsl.approvals.signature import ApproverKey
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.observe.events import EventType
from loom_tools.approver_keys import ApproverKeys
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, events, failed_tasks, histories, of
from tests.durability.test_worker_killed import calling
from tests.support.signing import key_of, public_key, write_keys
from tests.support.waiting import eventually, longer
from worker import make_worker

pytestmark = pytest.mark.server

ANN, BOB = key_of("ann"), key_of("bob")


class StumblingKeys(ApproverKeys):
    """Keys on a disk that fails when Ann's is read first, so that verifying her signature needs a second attempt."""

    def read(self) -> Mapping[str, ApproverKey]:
        self.known = getattr(self, "known", None) or Stumbling(super().read())
        return self.known


class Stumbling(dict[str, ApproverKey]):
    """Fails once."""

    stumbled = False

    def get(self, name: str, default: Any = None) -> Any:
        if name == ANN.name and not self.stumbled:
            self.stumbled = True
            raise OSError("the disk stumbled")
        return super().get(name, default)


@asynccontextmanager
async def stumbling(house: House) -> AsyncIterator[Stumbling]:
    """A worker with such keys, which replays a job at each of its tasks: what its rules were is in the history."""
    path = house.folder / "keys"
    write_keys(path, public_key(ANN), public_key(BOB))
    async with house.runtime() as runtime:
        runtime.approver_keys = keys = StumblingKeys(path)
        queue = house.settings.task_queue
        async with make_worker(house.loom.client, runtime, queue, max_cached_workflows=0):
            yield keys.read()  # type: ignore[misc]


async def refusals(job: Job) -> list[str]:
    """The verdicts of all decisions that were refused."""
    return [data["verdict"] for data in of(await events(job), EventType.WARNING) if data["code"] == "signal_refused"]


async def decided(job: Job) -> list[tuple[str, str]]:
    return [(data["choice"], data["by"]) for data in of(await events(job), EventType.APPROVAL_DECIDED)]


async def payload_of(house: House, job: Job, choice: str = "approve", key: Any = None) -> dict[str, Any]:
    """A decision about what the job asks, with the signature of a key or the sender's name for it."""
    name = await house.approval(job)
    row = await eventually(lambda: house.loom.store.read(lambda tx: tx.approval(name)))
    assert row is not None
    plain = {"approval_id": name, "choice": choice, "digest": row["arguments_digest"]}
    if key is None:
        return {**plain, "by": "ann", "id": "mine"}
    signed: dict[str, Any] = key.sign(plain, job=job.id, tool=row["tool"], requester=row["requester"])
    return signed


async def test_the_signed_decision_counts_that_came_first_also_when_it_is_verified_last(house: Opener) -> None:
    opened = await house(calling("send"))
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}, approvals={"signed": "low"}))
        first = await payload_of(opened, job, "approve", ANN)
        second = await payload_of(opened, job, "reject", BOB)
    # While no worker is up, so that both are verified at the same time.
    for payload in (first, second):
        await job.handle.signal("loom.decision", payload)
    async with stumbling(opened) as keys:
        found = await account(opened.loom.store, job)
    assert keys.stumbled
    assert found.status == "completed"
    assert (await decided(job), await refusals(job)) == ([("approve", "ann")], ["already_decided"])
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
async def test_an_update_that_its_sender_sends_again_as_a_signal_counts_once_and_is_nowhere_refused(
    house: Opener, signed: bool
) -> None:
    opened = await house(calling("send"))
    policy = {"signed": "low"} if signed else {}
    async with stumbling(opened):
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}, approvals=policy), hold=True)
        payload = await payload_of(opened, job, key=ANN if signed else None)
        accepted = WorkflowUpdateStage.ACCEPTED
        update = await job.handle.start_update("loom.decide", payload, wait_for_stage=accepted)
        await job.handle.signal("loom.decision", payload)
        assert (await update.result())["verdict"] == "recorded"
        await job.handle.signal("loom.decision", payload)
        again: dict[str, str] = await job.handle.execute_update("loom.decide", payload)
        assert again["verdict"] == "recorded"
        other = {**payload, "choice": "reject"}
        refused: dict[str, str] = await job.handle.execute_update("loom.decide", other)
        assert refused["verdict"] == ("replayed" if signed else "already_decided")
        opened.release(job)
        assert (await account(opened.loom.store, job)).status == "completed"
    assert (await decided(job), await refusals(job)) == ([("approve", "ann")], [refused["verdict"]])
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []


@asynccontextmanager
async def keeps_coming(job: Job, name: str) -> AsyncIterator[None]:
    """Somebody sends one late decision after the other, faster than it can be looked up when each was sent."""

    async def send() -> None:
        for number in itertools.count():
            decision = {"approval_id": name, "choice": "approve", "by": "late", "id": str(number)}
            await job.handle.signal("loom.decision", decision)
            await asyncio.sleep(0.02)

    sender = asyncio.create_task(send())
    try:
        yield
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)  # the job may have ended


async def test_decisions_that_keep_coming_after_the_deadline_do_not_keep_the_question_open(house: Opener) -> None:
    opened = await house(calling("send"))
    for seconds in longer(2.0):
        agent = opened.agent(permissions={"ask": ["send"]}, approvals={"expires": f"{seconds:g}s"})
        async with opened.inside():
            job = await opened.start(agent)
            name = await opened.approval(job)
        (request,) = of(await events(job), EventType.APPROVAL_REQUESTED)
        if time.time() < request["expires_at"]:  # nobody is at work now, and it has not expired before
            break
    await eventually(lambda: time.time() > request["expires_at"] + 0.3)
    async with opened.inside():
        async with keeps_coming(job, name):
            await eventually(lambda: decided(job))
        assert (await account(opened.loom.store, job)).status == "completed"
    (row,) = await opened.loom.approvals(job.id, status=None)
    assert row.status == "expired"
    assert set(await refusals(job)) <= {"expired", "full", "ended", "unknown"}
    assert effects_of(opened.workdir(job)) == []


GRAPH = """
loom: 1
kind: graph
name: waits
nodes:
  wait: {event: {name: go}, deadline: never, next: done}
  done: {end: "${nodes.wait}"}
"""


@pytest.mark.parametrize("name", ["~", "~signed/key_0/nonce"])
async def test_an_event_with_an_id_of_looms_own_is_refused_and_no_task_fails(house: Opener, name: str) -> None:
    opened = await house([{"say": "nothing"}])
    async with opened.inside():
        job = await opened.loom.start_graph(compile_graph(GRAPH, "waits"), workdir=opened.folder)
        await job.handle.signal("loom.event", {"name": "go", "id": name})
        refused: dict[str, str] = await job.handle.execute_update("loom.event", {"name": "go", "id": name})
        assert (refused["verdict"], "cannot start with `~`" in refused["message"]) == ("invalid", True)
        await job.event("go", {"by": "ops"})
        assert (await job.result()).result == {"by": "ops"}
        told = [event async for event in job.events()]
    assert [data["verdict"] for data in of(told, EventType.WARNING)] == ["invalid"] * 2
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []
