"""From Python: another job goes on where a graph's failed, with its approvals, its child jobs and the history gone."""

import asyncio

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

from loom_client.job import GraphJob
from loom_dsl.errors import JobExists, UserError
from loom_dsl.observe.events import EventType
from loom_store.store import Store
from tests.durability.conftest import House, Opener
from tests.durability.reading import events, of
from tests.durability.test_graphs import MODULE, SAYS, graph_of, inside, start
from tests.support.external import lines
from tests.support.graph_functions import DONE
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.server
GRAPH = f"""
loom: 1
kind: graph
name: release
nodes:
  asked: {{approval: {{ask: "Go on?"}}, deadline: never, next: noted}}
  noted: {{activity: "{MODULE}:note", with: {{text: one}}, next: [read, below]}}
  read: {{activity: "{MODULE}:contents", with: {{name: rate}}, retry: {{attempts: 1}}, next: gather}}
  below: {{graph: inner, child: true, next: gather}}
  gather: {{join: all, next: done}}
  done: {{end: {{read: "${{nodes.read}}", below: "${{nodes.below}}", choice: "${{nodes.asked.choice}}"}}}}
graphs:
  inner:
    nodes:
      told: {{event: told, deadline: never, next: done}}
      done: {{end: "${{result}}"}}
"""


async def failed(house: House, name: str = "work") -> GraphJob:
    """A job that asked, noted something, and failed while a child job waited."""
    job = await start(house, GRAPH, name)
    await job.decide(await house.approval(job), "approve", by="me")
    result = await asyncio.wait_for(job.result(), PATIENCE)
    assert result.status == "failed"
    return job


async def forgotten(house: House, job: GraphJob) -> None:
    """Have the server forget a job."""
    client = house.loom.client
    last = (await job.handle.describe()).run_id
    gone = WorkflowExecution(workflow_id=job.id, run_id=last)
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=gone)
    )

    async def is_gone() -> bool:
        try:
            await job.handle.describe()
        except RPCError as error:
            return error.status is RPCStatusCode.NOT_FOUND
        return False

    await eventually(is_gone)


async def test_what_was_decided_stays_so_a_child_job_begins_anew_and_the_history_is_not_needed(house: Opener) -> None:
    opened = await house(SAYS)
    store = opened.loom.store
    async with inside(opened):
        job = await failed(opened)
        await forgotten(opened, job)
        (opened.folder / "work" / "rate").write_text("1.5")
        for _ in range(2):  # the same id again is the same job
            fork = await opened.loom.fork(job, job=opened.named("fork"), by="ann")
        assert isinstance(fork, GraphJob)
        child = f"{fork.id}.below.1"
        waits = opened.loom.graph_job(child)
        await eventually(lambda: store.read_sync(lambda tx: tx.job(child)))
        await eventually(lambda: _told(store, waits))
        result = await asyncio.wait_for(fork.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", {"read": "1.5", "below": "now", "choice": "approve"})
    assert lines(opened.folder / "work", DONE) == ["one"]
    assert of(await events(fork), EventType.APPROVAL_REQUESTED) == []
    jobs = {row["job"]: row["status"] for row in await store.read(lambda tx: tx.jobs())}
    # It may have been told to end before a slow worker had written it down, and writes its end down after its parent.
    assert jobs.pop(f"{job.id}.below.1", "aborted") in ("running", "aborted")
    assert jobs == {job.id: "failed", fork.id: "completed", child: "completed"}
    point = await store.read(lambda tx: tx.fork_point(fork.id))
    assert point is not None
    assert (point.job, point.place) == (job.id, "where it failed")


async def _told(store: Store, job: GraphJob) -> bool:
    try:
        return (await job.event("told", "now")).verdict == "recorded"
    except Exception:  # not yet; or it was told, the answer came too late, and the job has ended by now
        row = await store.read(lambda tx: tx.job(job.id))
        return row is not None and row["ended_at"] is not None


async def test_another_graph_goes_on_and_what_cannot_is_refused(house: Opener) -> None:
    opened = await house(SAYS)
    async with inside(opened):
        job = await failed(opened)
        mended = GRAPH.replace("  read:", "  looked:").replace("nodes.read", "nodes.looked")
        mended = mended.replace("[read, below]", "[looked, below]").replace("name: rate", "name: price")
        mended = mended.replace("below: {graph: inner, child: true, next: gather}", "below: {set: {}, next: gather}")
        with pytest.raises(UserError, match="the new plan has no node `read`; name its new home"):
            await opened.loom.fork(job, graph=graph_of(mended))
        (opened.folder / "work" / "price").write_text("2")
        fork = await opened.loom.fork(job, job=opened.named("mended"), graph=graph_of(mended), names={"read": "looked"})
        result = await asyncio.wait_for(fork.result(), PATIENCE)
        assert (result.status, result.result["read"]) == ("completed", "2")  # type: ignore[index, call-overload]
        with pytest.raises(UserError, match="it has completed; start a new job"):
            await opened.loom.fork(fork)
        with pytest.raises(JobExists, match="was not forked"):
            await opened.loom.fork(job, job=job.id)
