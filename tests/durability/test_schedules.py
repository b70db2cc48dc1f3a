"""Schedules on a real server: each firing is a job of its own, written down by the worker that takes it first."""

import asyncio
import dataclasses
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.testing import ActivityEnvironment

from activities.jobs.schedule import Firing
from loom_client.start.schedules import Times
from loom_dsl.agent.definition import Agent
from loom_dsl.errors import BlobMissing, ConflictError, JobExists, NotFoundError, UserError, WrongStore
from loom_dsl.graph.compiler import compile_agent
from loom_store.job_facts import Order
from loom_store.store import Store
from tests.durability.conftest import House, Opener
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.server
YEARLY = Times(cron="0 0 1 1 *", timezone="Europe/Berlin")
GRAPH = """
loom: 1
kind: graph
name: nightly
input: {text: {type: str, default: quiet}}
nodes:
  asked: {event: go, deadline: never, next: done}
  done: {end: {text: "${input.text}"}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "nightly.yaml"
    path.write_text(GRAPH)
    return path


def change(graph: Path) -> None:
    graph.write_text(GRAPH.replace("${input.text}", "changed"))


async def fired(house: House, name: str, count: int = 1) -> list[str]:
    """Wait until a schedule has started so many jobs; their ids, the newest first."""

    async def jobs() -> list[str]:
        found = (await house.loom.schedules.show(name)).jobs
        return found if len(found) >= count else []

    return await eventually(jobs)


async def skipped(house: House, name: str) -> int:
    """How many firings a schedule has left out."""
    return (await house.loom.schedules.show(name)).skipped


async def listed(house: House, name: str) -> bool:
    """Whether the list has a schedule, once."""
    return [each.name for each in await house.loom.schedules.list()].count(name) == 1


async def written(house: House, job: str) -> None:
    """Wait until a job is in the store."""
    await eventually(lambda: house.loom.store.read(lambda tx: tx.job(job)))


async def test_each_firing_is_a_job_of_its_own_under_the_plan_of_that_day(
    house: Opener, graph: Path, task_queue: str
) -> None:
    opened = await house([{"say": "ok"}])
    schedules = opened.loom.schedules
    made = await schedules.create(task_queue, graph, input={"text": "a"}, times=YEARLY, workdir=opened.folder)
    assert (made.what, made.times, made.overlap, made.fired) == ("nightly", "0 0 1 1 * Europe/Berlin", "skip", 0)
    assert (made.next[0].astimezone(UTC).month, made.next[0].astimezone(UTC).hour) == (12, 23)
    change(graph)
    await schedules.trigger(task_queue)
    (job,) = await fired(opened, task_queue)
    assert job.startswith(f"{task_queue}-2")
    async with opened.inside(max_cached_workflows=0):
        await written(opened, job)
        await schedules.trigger(task_queue)  # is skipped: the one before waits
        await eventually(lambda: skipped(opened, task_queue))
        assert (await opened.loom.graph_job(job).event("go")).verdict == "recorded"
        result = await asyncio.wait_for(opened.loom.graph_job(job).result(), PATIENCE)
        shown = await schedules.show(task_queue)
    assert (result.status, result.result) == ("completed", {"text": "a"})
    (row,) = await opened.loom.jobs()
    assert (row.job, row.agent, row.session, row.status) == (job, "nightly", f"s-{job}", "completed")
    assert (row.task, row.workdir) == ('{"text": "a"}', str(opened.folder))
    assert (shown.jobs, shown.fired, shown.skipped) == ([job], 1, 1)
    await eventually(lambda: listed(opened, task_queue))  # the server's lists come a moment later
    await schedules.delete(task_queue)
    with pytest.raises(NotFoundError, match="there is no schedule"):
        await schedules.trigger(task_queue)


async def test_an_agent_on_a_schedule_begins_with_its_task(house: Opener, task_queue: str) -> None:
    opened = await house([{"say": "All is quiet."}])
    (opened.folder / "AGENTS.md").write_text("Be brief.")
    agent = opened.agent(name="watchman", tools=[])
    await opened.loom.schedules.create(task_queue, agent, task="look", times=Times(every="90d"), workdir=opened.folder)
    await opened.loom.schedules.trigger(task_queue)
    (job,) = await fired(opened, task_queue)
    async with opened.inside():
        result = await asyncio.wait_for(opened.loom.job(job).result(), PATIENCE)
    assert (result.status, result.answer, result.session_id) == ("completed", "All is quiet.", f"s-{job}")
    entries = await opened.loom.store.read(lambda tx: tx.read_entries(f"s-{job}"))
    assert [entry.kind for entry in entries[:2]] == ["note", "message"]
    row = await opened.loom.store.read(lambda tx: tx.job(job))
    assert row is not None
    assert (row["agent"], row["task"]) == ("watchman", "look")
    # The same id from a client is this very job, which has ended: nothing of it is overwritten.
    with pytest.raises(ConflictError, match="has ended"):
        await opened.loom.start(agent, "look", job=job, workdir=opened.folder)
    await opened.loom.schedules.delete(task_queue)


async def test_a_job_under_way_is_found_again_by_a_client_that_starts_the_same(
    house: Opener, graph: Path, task_queue: str
) -> None:
    opened = await house([{"say": "ok"}])
    await opened.loom.schedules.create(task_queue, graph, times=YEARLY, overlap="cancel", workdir=opened.folder)
    await opened.loom.schedules.trigger(task_queue)
    (job,) = await fired(opened, task_queue)
    async with opened.inside():
        await eventually(lambda: _waits(opened, job))
        again = await opened.loom.start_graph(graph, job=job, workdir=opened.folder)
        row = await opened.loom.store.read(lambda tx: tx.job(job))
        assert row is not None
        assert (again.id, row["status"]) == (job, "running")
        # The next one aborts it, as `overlap` says.
        await asyncio.sleep(1.1)  # ids are of the second
        await opened.loom.schedules.trigger(task_queue)
        result = await asyncio.wait_for(opened.loom.graph_job(job).result(), PATIENCE)
        assert result.status == "aborted"
        newest = (await fired(opened, task_queue, 2))[0]
        await written(opened, newest)
        await opened.loom.graph_job(newest).abort()
        assert (await asyncio.wait_for(opened.loom.graph_job(newest).result(), PATIENCE)).status == "aborted"
    await opened.loom.schedules.delete(task_queue)


async def test_a_job_of_that_id_that_is_another_is_left_alone(house: Opener, graph: Path, task_queue: str) -> None:
    opened = await house([{"say": "ok"}])
    await opened.loom.schedules.create(task_queue, graph, times=YEARLY, workdir=opened.folder)
    await opened.loom.schedules.trigger(task_queue)
    (job,) = await fired(opened, task_queue)
    facts = {"session": "s", "agent": "other", "plan": "0" * 64, "task": "", "workdir": "/", "namespace": "default"}
    await opened.loom.store.write(lambda tx: tx.create_job(job, **facts, task_queue="q", created_at=time.time()))
    async with opened.inside():
        with pytest.raises(WorkflowFailureError) as failed:
            await asyncio.wait_for(opened.loom.client.get_workflow_handle(job).result(), PATIENCE)
    assert getattr(failed.value.cause, "type", "") == JobExists.code
    row = await opened.loom.store.read(lambda tx: tx.job(job))
    assert row is not None
    assert (row["agent"], row["status"]) == ("other", "running")
    await opened.loom.schedules.delete(task_queue)


async def test_a_paused_schedule_says_why_and_what_it_would_do(house: Opener, graph: Path, task_queue: str) -> None:
    opened = await house([{"say": "ok"}])
    schedules = opened.loom.schedules
    await schedules.create(task_queue, graph, times=Times(every="1h"), paused=True, workdir=opened.folder)
    assert (await schedules.show(task_queue)).paused
    await schedules.resume(task_queue)
    assert not (await schedules.show(task_queue)).paused
    await schedules.pause(task_queue, "holidays")
    shown = await schedules.show(task_queue)
    assert (shown.paused, shown.note) == (True, "holidays")
    assert shown.order is not None
    assert (shown.order.input, shown.order.workdir) == ({"text": "quiet"}, str(opened.folder))
    with pytest.raises(ConflictError, match="there is a schedule"):
        await schedules.create(task_queue, graph, times=YEARLY)
    await schedules.delete(task_queue)


WRONG = [
    (Times(), "say when"),
    (Times(cron="* * * * *", every="1h"), "say when"),
    (Times(cron="0 2 * *"), "write five fields"),
    (Times(cron="99 2 * * *"), "Minute is not in range"),
    (Times(cron="0 2 * * *", timezone="Mars/Base"), "unknown time zone Mars/Base"),
    (Times(every="often"), "'often' is not a duration"),
    (Times(every="10ms"), "write 1s or more"),
    (Times(every="1h", timezone="Europe/Berlin"), "a time zone is for a cron"),
]


async def test_what_no_schedule_can_be_is_refused_and_leaves_nothing(
    house: Opener, graph: Path, task_queue: str
) -> None:
    opened = await house([{"say": "ok"}])
    for times, said in WRONG:
        with pytest.raises(UserError, match=said):
            await opened.loom.schedules.create(task_queue, graph, times=times)
    for options, said in (
        ({"overlap": "perhaps"}, "write one of skip, buffer, cancel, allow"),
        ({"catch_up": "1s"}, "write 10s or more"),
        ({"input": {"texts": "a"}}, "texts"),
        ({"task": "look"}, "takes input and no task"),
        ({"workdir": "/nowhere"}, "does not exist"),
    ):
        with pytest.raises(UserError, match=said):
            await opened.loom.schedules.create(task_queue, graph, times=YEARLY, **options)  # type: ignore[arg-type]
    for name in ("a b", "n" * 151):
        with pytest.raises(UserError):
            await opened.loom.schedules.create(name, graph, times=YEARLY)
    with pytest.raises(NotFoundError):
        await opened.loom.schedules.show(task_queue)


async def test_beginning_a_job_again_changes_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "loom.db") as store:
        plan = compile_agent(Agent(name="watchman", model="scripted"), None)
        facts = {"schedule": "s", "mark": "m", "input": {}, "namespace": "default", "task_queue": "q"}
        order = Order(name="watchman", plan=plan.hash, task="look", workdir=str(tmp_path), **facts)
        store.write_sync(lambda tx: tx.put_blob(plan.text.encode()))
        digest = store.write_sync(lambda tx: tx.hold_blob(order.text().encode()))
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, workflow_id="s-2026-11-22T02:00:00Z")
        firing = Firing(store)
        envelope = {"at": "~begin", "with": {"order": digest}}
        first = await environment.run(firing.begin, envelope)
        (tmp_path / "AGENTS.md").write_text("Be brief.")
        assert await environment.run(firing.begin, envelope) == first
        (row,) = store.read_sync(lambda tx: tx.jobs())
        assert row["job"] == "s-2026-11-22T02:00:00Z"
        assert len(store.read_sync(lambda tx: tx.read_entries(row["session"]))) == 1
        with pytest.raises(WrongStore, match="must share one store"):
            await environment.run(firing.begin, {"at": "~begin", "with": {"order": "0" * 64}})


def test_a_prune_spares_what_a_schedule_needs_until_it_goes(tmp_path: Path) -> None:
    with Store.open(tmp_path / "loom.db") as store:
        plan = store.write_sync(lambda tx: tx.put_blob(b"the plan"))
        order = store.write_sync(lambda tx: tx.hold_blob(f'{{"plan":"{plan}"}}'.encode()))
        other = store.write_sync(lambda tx: tx.put_blob(b"nobody names this"))
        later = datetime.now(UTC) + timedelta(days=400)
        store.write_sync(lambda tx: tx.prune(later))
        assert store.read_sync(lambda tx: tx.get_blob(plan)) == b"the plan"
        with pytest.raises(BlobMissing):
            store.read_sync(lambda tx: tx.get_blob(other))
        store.write_sync(lambda tx: tx.release_blob(order))
        assert store.write_sync(lambda tx: tx.prune(later)).blobs == 2


async def _waits(house: House, job: str) -> bool:
    row = await house.loom.store.read(lambda tx: tx.job(job))
    return row is not None and row["state"] == "running"
