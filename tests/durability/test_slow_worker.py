"""A worker that is slow and not dead: what its tools do is neither done again nor taken for unknown."""

import asyncio
import os
import signal
import sqlite3
import time

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from loom_client.job import GraphJob
from loom_dsl.graph.compiler import compile_graph
from tests.durability.conftest import Opener
from tests.durability.reading import account, effects_of, failed_tasks, histories
from tests.durability.test_replay import replayer
from tests.durability.test_worker_killed import calling
from tests.support.external import BEGUN, lines
from tests.support.waiting import PATIENCE, eventually
from worker import patient

pytestmark = [pytest.mark.server, pytest.mark.crash]


@pytest.mark.parametrize("tool", ["send", "register"])
async def test_what_a_stopped_worker_still_runs_is_waited_for(house: Opener, tool: str) -> None:
    opened = await house(calling(tool))
    # A stopped worker that still asks for work is given the next attempts, one after the other: this one does not ask.
    async with opened.worker(activities=1) as first:
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        (effect,) = await opened.loom.store.read(lambda tx: tx.effects(job.id))
        assert effect.holder is not None
        pid = int(effect.holder.split()[-2])

        async def again() -> int:
            """How many attempts came to the effect after the first, in the other worker."""
            (found,) = await opened.loom.store.read(lambda tx: tx.effects(job.id))
            return found.attempts - 1

        async with opened.worker() as second:
            # Within a write of ours, so that the store is not locked by a process that stands still.
            await opened.loom.store.write(lambda _: os.kill(pid, signal.SIGSTOP))
            try:
                await eventually(again)
            finally:
                os.kill(pid, signal.SIGCONT)
            opened.release(job)
            told = await account(opened.loom.store, job)
            assert (first.starts, second.starts) == (1, 1)
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    assert len(lines(opened.workdir(job), BEGUN)) == 1
    assert "done: one" in told.messages[2]["content"]
    (effect,) = await opened.loom.store.read(lambda tx: tx.effects(job.id))
    assert (effect.status, effect.reconciled, effect.holder) == ("settled", None, None)


@workflow.defn(name="test.stands_still")
class StandsStill:
    """A workflow on a machine that has no time for it."""

    @workflow.run
    async def run(self) -> str:
        time.sleep(2.5)  # noqa: ASYNC251 - half a second more than the SDK gives it
        return "done"


async def test_a_workflow_that_a_busy_machine_lets_wait_is_not_taken_for_locked_up(
    temporal_client: Client, task_queue: str
) -> None:
    worker = Worker(
        temporal_client, task_queue=task_queue, workflows=[StandsStill], workflow_runner=UnsandboxedWorkflowRunner()
    )
    async with patient(worker):
        job = await temporal_client.start_workflow(StandsStill.run, id=task_queue, task_queue=task_queue)
        assert await job.result() == "done"
    events = (await job.fetch_history()).events
    assert not [event for event in events if event.HasField("workflow_task_failed_event_attributes")]


WAITS = """
loom: 1
kind: graph
name: waits
nodes:
  go: {event: go, deadline: never, next: done}
  done: {end: well}
"""


async def remote_flushes(job: GraphJob) -> int:
    """How often events were to be written down by a remote activity, for the local one took too long."""
    events = (await job.handle.fetch_history()).events
    scheduled = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    return scheduled.count("loom.events.flush")


async def test_a_run_in_which_something_local_took_too_long_replays(house: Opener) -> None:
    opened = await house([{"say": "never asked"}])
    async with opened.inside():
        job = await opened.loom.start_graph(compile_graph(WAITS, "waits.yaml"), workdir=opened.folder)
        await eventually(lambda: opened.loom.store.read(lambda tx: tx.last_offset(job.id)))
        other = sqlite3.connect(opened.settings.store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # nobody else writes now
        try:
            await job.handle.signal("loom.event", {"name": "go"})
            await eventually(lambda: remote_flushes(job))
        finally:
            other.rollback()
            other.close()
        assert (await asyncio.wait_for(job.result(), PATIENCE)).result == "well"
    runs = await histories(opened.loom.client, job.id)
    assert failed_tasks(runs) == []
    for run in runs:
        await replayer(opened.loom.store).replay_workflow(run)
