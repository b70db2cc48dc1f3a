"""A worker that is killed at any event of a job's history changes neither its trace nor its result nor its effects."""

import asyncio
import json

import pytest

from loom_client.job import GraphJob
from loom_dsl.agent.run import GraphResult
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from tests.durability.conftest import House, Opener
from tests.durability.reading import failed_tasks, histories, trace
from tests.durability.test_graphs import MODULE, worker_of
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.server, pytest.mark.crash, pytest.mark.nightly]
SILENT = [{"say": "never asked"}]
WORK = {"activity": f"{MODULE}:untyped", "with": {"first": "${[run.id != '', index]}"}, "heartbeat": "2s"}
HERE = {**WORK, "with": {"first": 1}}
GRAPH = {
    "loom": 1,
    "kind": "graph",
    "name": "reference",
    "nodes": {
        "begin": {**HERE, "next": ["many", "waits"]},
        "many": {"map": {"over": "range(3)", "do": "item", "window": 2}, "next": "gather"},
        "waits": {"timer": "300ms", "next": "go"},
        "go": {"event": "go", "deadline": "never", "next": "quick"},
        "quick": {**HERE, "carrier": "local", "next": "gather"},
        "gather": {"join": "all", "next": "last"},
        "last": {**HERE, "next": "done"},
        "done": {"end": ["${nodes.many}", "${nodes.go}"]},
    },
    "graphs": {
        "item": {
            "nodes": {"first": {**WORK, "next": "second"}, "second": {**WORK, "next": "z"}, "z": {"end": "${index}"}}
        }
    },
}
TRIES = 4
STEPS = 3
"""Activities after which a run ends: the kills meet the ends of runs, too."""


async def begun(house: House, plan: Plan) -> GraphJob:
    """Start the job, and send it its event before it waits for it."""
    job = await house.loom.start_graph(plan, workdir=house.folder, steps=STEPS)
    await job.handle.signal("loom.event", {"name": "go", "data": "early"})
    return job


async def has(house: House, job: GraphJob, events: int) -> bool:
    """Whether the job has come to an event of its history, counted over its runs."""
    if await is_over(job):
        return True
    return sum(len(run.events) for run in await histories(house.loom.client, job.id)) >= events


async def is_over(job: GraphJob) -> bool:
    return (await job.handle.describe()).close_time is not None


async def ended(job: GraphJob, events: int) -> GraphResult:
    """Wait for the job's end; one that does not come to it says where it stands."""
    try:
        return await asyncio.wait_for(job.result(), PATIENCE)
    except TimeoutError:
        raw = (await job.handle.describe()).raw_description
        raise AssertionError(
            f"killed at event {events}, it stands still: {raw.pending_activities} {raw.pending_workflow_task}"
        ) from None


def points(sample: bool, most: int) -> list[int]:
    """The events at which the worker is killed, of so many; a busy machine has less of them, about 60 are usual."""
    return [most // 3, 2 * most // 3] if sample else list(range(4, most, 2))


@pytest.mark.parametrize("sample", [True, pytest.param(False, marks=pytest.mark.timeout(2400))], ids=["sample", "all"])
async def test_a_worker_killed_at_any_event_gives_the_same_trace(house: Opener, sample: bool) -> None:
    opened = await house(SILENT)
    plan = compile_graph(json.dumps(GRAPH), "reference.yaml")
    async with worker_of(opened) as worker:
        job = await begun(opened, plan)
        expected = (await asyncio.wait_for(job.result(), PATIENCE)).result
        runs = await histories(opened.loom.client, job.id)
        assert expected == [[0, 1, 2], "early"]
        reference = trace(runs)
        assert len(runs) > 2
        met = 0
        kills = points(sample, sum(len(run.events) for run in runs))
        for events in kills:
            for _ in range(TRIES):
                job = await begun(opened, plan)
                await eventually(lambda job=job, events=events: has(opened, job, events), every=0.001)  # type: ignore[misc]
                worker.kill()
                over = await is_over(job)
                await worker.start()
                if not over:
                    break  # else a slow machine saw that event when the job had ended
            met += not over
            assert (await ended(job, events)).result == expected, events
            runs = await histories(opened.loom.client, job.id)
            assert failed_tasks(runs) == [], events
            assert trace(runs) == reference, events
        assert met > len(kills) // 2, "the jobs were over before the worker was killed"
