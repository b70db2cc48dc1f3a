"""The control-flow patterns on a real server: the same results and the same traces as in memory, also under a kill."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.runtime import Runtime
from loom_client.job import GraphJob, NoAnswer
from loom_dsl.errors import NotFoundError
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import House, Opener
from tests.durability.reading import events, failed_tasks, histories, trace
from tests.support.patterns import FOLDER, SCENARIOS, InMemory, Send, names, plan_of, traced
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker_process import WorkerProcess
from worker import make_worker

pytestmark = pytest.mark.server
AT_ONCE = 12
"""Patterns that are played at the same time: with more, a busy machine's worker has no time to tell that it lives."""
SILENT = [{"say": "nothing, for no pattern asks a model"}]


@pytest.fixture(autouse=True)
def steps_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "steps", raising=False)


@asynccontextmanager
async def inside(house: House) -> AsyncIterator[None]:
    """A worker in this process that has the steps of the examples."""
    async with (
        Runtime(house.loom.store, ToolRegistry.load(modules=["steps"]), house.folder) as runtime,
        make_worker(house.loom.client, runtime, house.settings.task_queue, sandboxed=True),
    ):
        yield


async def start(house: House, name: str, steps: int | None) -> GraphJob:
    """Start the job of an example."""
    given = SCENARIOS[name].input
    return await house.loom.start_graph(plan_of(name), input=given, workdir=house.folder, steps=steps)


async def play(house: House, job: GraphJob, name: str) -> dict[str, Any]:
    """Send what the scenario sends, each when the job stands where it stands in memory; what came of it."""
    twin = InMemory(name, SCENARIOS[name], None)
    twin.play()
    for send, tokens in zip(SCENARIOS[name].sends, twin.tokens, strict=True):
        await eventually(lambda tokens=tokens: stands(job, tokens), every=0.1)  # type: ignore[misc]
        await deliver(job, send)
    result = await asyncio.wait_for(job.result(), PATIENCE)
    runs = await histories(house.loom.client, job.id)
    ended = [
        (f"{branch}/{node}".partition("/")[2], verdict)
        for branch, nodes in trace(runs).items()
        for node, verdict in nodes
    ]
    assert failed_tasks(runs) == []
    return {"result": result.result, "error": result.error and result.error.code, "trace": traced(ended)}


async def stands(job: GraphJob, tokens: list[str]) -> bool:
    """Whether the job has tokens just where these are; the last number tells who came first, which varies."""
    try:
        status = await job.status()
    except (NoAnswer, NotFoundError):
        return False  # with all of them at work, a worker may take long to answer, and a killed one does not
    assert places(status.tokens) == places(tokens)
    return True


def places(tokens: Iterable[str]) -> list[str]:
    return sorted(token.rpartition("#")[0] for token in tokens)


async def deliver(job: GraphJob, send: Send) -> None:
    """Send an event, or abort the job."""
    if send.name == "abort":
        await job.abort(reason=send.data)
        return
    try:
        verdict = str((await job.event(send.name, send.data)).verdict)
    except NotFoundError:
        verdict = "unknown"
    assert verdict in (send.verdict, "unconfirmed")


def expected(name: str) -> dict[str, Any]:
    """What must come of an example."""
    scenario = SCENARIOS[name]
    error = "aborted" if any(send.name == "abort" for send in scenario.sends) else None
    return {"result": scenario.result, "error": error, "trace": sorted(scenario.trace.split())}


async def play_all(house: House, jobs: Mapping[str, Awaitable[GraphJob]]) -> None:
    """Play many at once, and compare them with what must come of them."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, begun: Awaitable[GraphJob]) -> dict[str, Any]:
        async with gate:
            return await play(house, await begun, name)

    playing = (one(name, begun) for name, begun in jobs.items())
    found = await asyncio.gather(*playing, return_exceptions=True)
    assert dict(zip(jobs, found, strict=True)) == {name: expected(name) for name in jobs}


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "steps", [pytest.param(steps, marks=[pytest.mark.nightly] * (steps != 1)) for steps in (None, 4, 1)]
)
async def test_the_patterns_come_to_the_same_on_a_server(house: Opener, steps: int | None) -> None:
    opened = await house(SILENT)
    async with inside(opened):
        await play_all(opened, {name: start(opened, name, steps) for name in names()})


@pytest.mark.crash
@pytest.mark.timeout(400)
async def test_the_patterns_survive_a_kill_of_the_worker_with_all_of_them_in_flight(house: Opener) -> None:
    opened = await house(SILENT, answer_seconds=5.0)
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    worker = WorkerProcess(opened.settings, opened.url, opened.folder, {"PYTHONPATH": path}, tools=["steps"])
    jobs = {name: await start(opened, name, 4) for name in names()}
    async with worker:
        await eventually(lambda: many_have_begun(list(jobs.values())), every=0.01)
        worker.kill()
        rows = await opened.loom.store.read(lambda tx: tx.jobs(limit=100))
        # Those to which something must be sent cannot have ended, however much a slow machine let the others do.
        assert sum(row["ended_at"] is None for row in rows) >= len(jobs) // 3
        await worker.start()
        await play_all(opened, {name: there(job) for name, job in jobs.items()})
    assert worker.starts == 2


async def there(job: GraphJob) -> GraphJob:
    """Give a job that has begun."""
    return job


async def many_have_begun(jobs: list[GraphJob]) -> bool:
    """Whether half of the jobs have told something."""
    told = [bool(await events(job)) for job in jobs]
    return sum(told) >= len(jobs) // 2
