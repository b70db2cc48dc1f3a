"""Jobs below jobs: only their own reports count, what they did is taken back, lists show none that never ran."""

import asyncio
import sqlite3
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from loom_client.job import GraphJob
from loom_dsl.errors import NotFoundError
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import events, of
from tests.durability.test_graphs import MODULE, inside
from tests.support.external import lines
from tests.support.graph_functions import UNDONE
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.server
SILENT = [{"say": "never asked"}]
PART = f"""
loom: 1
kind: graph
name: parts
nodes:
  part: {{graph: part, child: true, next: last}}
  last: {{event: go, deadline: never, next: sorry}}
  sorry: {{fail: "${{nodes.part}}"}}
graphs:
  part:
    nodes:
      one: {{event: open, deadline: never, next: first}}
      first:
        activity: {MODULE}:note
        with: {{text: first}}
        compensate: {{activity: "{MODULE}:take_back", with: {{text: "${{get(result, 'noted')}}"}}}}
        next: second
      second:
        activity: {MODULE}:note
        with: {{text: second}}
        compensate: {{activity: "{MODULE}:take_back", with: {{text: second}}}}
        next: done
      done: {{end: real}}
"""


async def waits(job: GraphJob, at: str) -> None:
    """Wait until a token of the job is at a node."""

    async def there() -> bool:
        try:
            return at in (await job.status()).tokens
        except NotFoundError:
            return False  # a child that is written down is started a moment later

    await eventually(there)


@pytest.mark.parametrize("steps", [None, 1])
async def test_a_forged_report_is_refused_and_a_failing_job_takes_back_what_its_child_did(
    house: Opener, steps: int | None
) -> None:
    opened = await house(SILENT)
    async with inside(opened):
        job = await opened.loom.start_graph(compile_graph(PART, "test"), workdir=opened.folder, steps=steps)
        child = opened.loom.graph_job(f"{job.id}.part.1")
        await waits(job, "part#1")
        await eventually(lambda: opened.loom.store.read(lambda tx: tx.job(child.id)))
        await waits(child, "one#1")
        forged = {"at": "part#1", "child": child.id, "result": "forged"}
        undo = [{"at": "x", "with": {"text": "forged"}, "do": {"activity": f"{MODULE}:take_back", "timeout": 5.0}}]
        for word in ({}, {"word": ""}, {"word": "0" * 32}, {"word": None}, {"undo": undo}):
            await job.handle.signal("loom.child", {**forged, **word})
        await eventually(lambda: refused(job, 5))
        await child.event("open")
        await waits(job, "last#1")
        await job.event("go")
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert result.error is not None
    assert result.error.message == "real"
    assert lines(opened.folder, UNDONE) == ["second", "first"]


async def refused(job: GraphJob, count: int) -> bool:
    """Whether so many signals were refused."""
    told = of(await events(job), EventType.WARNING)
    why = "the report is not from a job that this one started"
    return [each["message"] for each in told if each["code"] == "signal_refused"] == [why] * count


@pytest.mark.parametrize("ended", [False, True], ids=["runs", "has_ended"])
async def test_what_another_job_left_on_the_server_under_a_childs_id_is_not_taken_for_the_child(
    house: Opener, *, ended: bool
) -> None:
    """The store may have forgotten it: `loom prune` asks for no retention of the server's."""
    opened = await house(SILENT)
    name = f"again-{opened.settings.task_queue}"
    old = await opened.loom.client.start_workflow(
        "loom.graph", args=[{"parent": {"word": "old"}}, {}], id=f"{name}.part.1", task_queue="nobody"
    )
    if ended:
        await old.terminate("long ago")
    async with inside(opened):
        job = await opened.loom.start_graph(compile_graph(PART, "test"), workdir=opened.folder, job=name)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    if not ended:
        await old.terminate("enough")
    assert result.error is not None
    assert (result.error.code, f"{name}.part.1" in result.error.message) == ("job_exists", True)
    row = await opened.loom.store.read(lambda tx: tx.job(f"{name}.part.1"))
    assert row is not None
    assert row["status"] == "failed"


AWAY = """
loom: 1
kind: graph
name: away
agents:
  writer: {model: scripted, instructions: Write., tools: [calculator]}
nodes:
  begin: {event: begin, deadline: never, next: first}
  first: {race: [written, told]}
  written: {agent: writer, with: {task: Write.}, next: done}
  told: {event: enough, deadline: never, next: done}
  done: {end: told}
"""


async def test_a_child_that_is_taken_away_while_it_is_prepared_does_not_stand_in_lists_as_running(
    house: Opener,
) -> None:
    opened = await house(SILENT)
    async with inside(opened):
        job = await opened.loom.start_graph(compile_graph(AWAY, "test"), workdir=opened.folder)
        await waits(job, "begin#1")
        other = sqlite3.connect(opened.settings.store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # nobody else writes now, so the child waits to be written down
        try:
            await job.handle.signal("loom.event", {"name": "begin"})
            await eventually(lambda: pending(opened, job, "loom.child.prepare"))
            await job.handle.signal("loom.event", {"name": "enough"})
            await eventually(lambda: cancelled(opened, job))
        finally:
            other.rollback()
            other.close()
        assert (await asyncio.wait_for(job.result(), PATIENCE)).result == "told"
    row = await opened.loom.store.read(lambda tx: tx.job(f"{job.id}.written.1"))
    # A slow worker may not have come to writing it down before it was told that nobody wants it.
    assert row is None or (row["status"], bool(row["ended_at"])) == ("aborted", True)
    assert opened.model.count == 0


async def pending(house: House, job: GraphJob, name: str) -> bool:
    """Whether a worker has begun an activity of this name."""
    described: Any = await job.handle.describe()
    found = [one for one in described.raw_description.pending_activities if one.activity_type.name == name]
    return any(one.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED for one in found)


async def cancelled(house: House, job: GraphJob) -> bool:
    """Whether the server was told to cancel an activity."""
    history = await job.handle.fetch_history()
    return any(event.HasField("activity_task_cancel_requested_event_attributes") for event in history.events)
