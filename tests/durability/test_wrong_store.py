"""A worker that was started with another store, or is of another release, does no harm to a job."""

import pytest

from activities.runtime import Runtime
from loom_client.connection import temporal
from loom_dsl.graph.plan import ENGINE
from loom_store.store import Store
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import Opener
from tests.durability.reading import account, failed_tasks, histories, unheard_of
from tests.support.copied import copied
from tests.support.external import REFERENCES
from tests.support.waiting import eventually
from worker import make_worker

pytestmark = pytest.mark.server


async def test_a_worker_with_another_store_gets_nothing_of_this_ones_jobs(house: Opener) -> None:
    opened = await house([{"say": "hello"}])
    with Store.open(opened.folder / "another.db") as another:
        client = await temporal(opened.settings, another)
        async with (
            Runtime(another, ToolRegistry.load(), opened.folder) as runtime,
            make_worker(client, runtime, opened.settings.task_queue),
        ):
            job = await opened.start()
            async with opened.inside():
                assert (await account(opened.loom.store, job)).status == "completed"
    runs = await histories(opened.loom.client, job.id)
    assert failed_tasks(runs) == []
    attempts = [
        event.activity_task_started_event_attributes.attempt
        for run in runs
        for event in run.events
        if event.HasField("activity_task_started_event_attributes")
    ]
    assert sum(attempts) - len(attempts) == unheard_of(runs)  # of those of a slow machine


async def test_a_job_waits_for_a_worker_that_has_its_plan(house: Opener) -> None:
    opened = await house([{"say": "hello"}])
    with Store.open(copied(opened.loom.store.path, opened.folder / "older.db")) as another:
        assert another.id == opened.loom.store.id  # so its workers ask on the same queue
        client = await temporal(opened.settings, another)
        registry = ToolRegistry.load(modules=[REFERENCES[0].partition(":")[0]])
        async with (
            Runtime(another, registry, opened.folder) as runtime,
            make_worker(client, runtime, opened.settings.task_queue),
        ):
            job = await opened.start()

            async def refused() -> list[str]:
                return failed_tasks(await histories(opened.loom.client, job.id))

            (message, *_) = await eventually(refused)
            assert "does not hold the plan" in message
    async with opened.inside():
        assert (await account(opened.loom.store, job)).status == "completed"


async def test_a_job_waits_for_a_worker_that_has_its_engine(house: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom_client.start.submission.ENGINE", ENGINE + 1)
    opened = await house([{"say": "hello"}])
    async with opened.runtime() as runtime:
        async with make_worker(opened.loom.client, runtime, opened.settings.task_queue):
            job = await opened.start()

            async def refused() -> list[str]:
                return failed_tasks(await histories(opened.loom.client, job.id))

            (message, *_) = await eventually(refused)
            assert f"the job needs engine {ENGINE + 1}, and this worker has {ENGINE}" in message
        monkeypatch.setattr("workflows.graph.ENGINE", ENGINE + 1)
        async with make_worker(opened.loom.client, runtime, opened.settings.task_queue):
            assert (await account(opened.loom.store, job)).status == "completed"
