"""A worker that is stopped lets steps go on for its grace, tells tools before its end, and names what is left."""

from pathlib import Path
from typing import Any

import pytest

from loom_client.job import Job
from loom_dsl.graph.compiler import compile_graph
from tests.durability.conftest import House, Opener
from tests.durability.reading import account
from tests.support import stopped
from tests.support.stopped import BEGUN, GO
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker_process import WorkerProcess

pytestmark = [pytest.mark.server, pytest.mark.crash]

MODULE = stopped.__name__
TOOLS = ("stubborn", "nap", "careful", "search")


def calling(*names: str) -> list[dict[str, Any]]:
    calls = [{"tool": name, "args": {"text": "one"}} for name in names]
    return [{"say": "I call.", "calls": calls}, {"say": "It says: {last}"}]


def worker_of(house: House, grace: float) -> WorkerProcess:
    return WorkerProcess(house.settings, house.url, house.folder, tools=[MODULE], grace=grace)


async def begun(house: House, *, before: dict[str, str] | None = None) -> Job:
    """Start a job; its tool is at work when this returns."""
    agent = house.agent(tools=[f"{MODULE}:{name}" for name in TOOLS], permissions={"allow": list(TOOLS)})
    job = await house.start(agent, before=before)
    await eventually(lambda: (house.workdir(job) / BEGUN).exists())
    return job


async def effects_of(house: House, job: Job) -> list[tuple[str, str]]:
    rows = await house.loom.store.read(lambda tx: tx.effects(job.id))
    return [(row.tool, row.status) for row in rows]


@pytest.mark.parametrize(("tool", "grace", "said"), [("nap", 300, "done: one"), ("careful", 10, "stopped early: one")])
async def test_what_a_tool_returns_while_its_worker_stops_is_its_result(
    house: Opener, tool: str, grace: float, said: str
) -> None:
    opened = await house(calling(tool))
    async with worker_of(opened, grace) as worker:
        job = await begun(opened)
        worker.stop()
        assert await worker.ended() == 0
        assert await effects_of(opened, job) == [(tool, "settled")]
        assert "left" not in worker.said()
        await worker.start()
        told = await account(opened.loom.store, job)
    assert told.status == "completed"
    assert told.messages[2]["content"] == said
    assert (opened.workdir(job) / BEGUN).read_text() == "begun\n"


async def test_a_read_that_gave_up_because_its_worker_stops_is_done_again(house: Opener) -> None:
    opened = await house(calling("search"))
    async with worker_of(opened, 2) as worker:
        job = await begun(opened)
        worker.stop()
        assert await worker.ended() == 0
        assert f"stopped with 1 step left: tool search of job {job.id} (run again)" in worker.said()
        (opened.workdir(job) / GO).touch()
        await worker.start()
        told = await account(opened.loom.store, job)
    assert told.messages[2]["content"] == "found: one"


async def test_what_is_left_at_the_end_of_the_grace_is_told_with_what_becomes_of_it(house: Opener) -> None:
    opened = await house(calling("stubborn"))
    async with worker_of(opened, 1) as worker:
        job = await begun(opened)
        worker.stop()
        assert await worker.ended() == 0
        line = f"stopped with 1 step left: tool stubborn of job {job.id} (its outcome will be unknown)"
        assert line in worker.said()
        await worker.start()
        told = await account(opened.loom.store, job)
    assert told.messages[2]["content"].startswith("Error (outcome_unknown)")
    assert await effects_of(opened, job) == [("stubborn", "unknown")]


async def test_a_second_signal_ends_a_worker_at_once_and_tells_the_same(house: Opener) -> None:
    opened = await house(calling("stubborn"))
    async with worker_of(opened, 300) as worker:
        job = await begun(opened)
        worker.stop()
        await eventually(lambda: "stopping: 1 step goes on for at most 300 s" in worker.said())
        worker.stop()
        assert PATIENCE < 300
        assert await worker.ended() == 0
        assert f"tool stubborn of job {job.id} (its outcome will be unknown)" in worker.said()


async def test_a_model_call_that_is_left_is_asked_again(house: Opener) -> None:
    opened = await house([{"say": "word " * 2_000, "chunk": 5, "delay": "100ms"}])
    async with worker_of(opened, 0) as worker:
        job = await opened.start(opened.agent(tools=[], permissions={}))
        await eventually(lambda: opened.model.count >= 1)
        worker.stop()
        assert await worker.ended() == 0
        assert f"stopped with 1 step left: the model call of job {job.id} (asked again)" in worker.said()


async def test_a_function_of_a_graph_is_told_and_its_result_taken(house: Opener, tmp_path: Path) -> None:
    graph = f"""
loom: 1
kind: graph
name: counting
start: count
nodes:
  count:
    activity: {MODULE}:count
    timeout: 2m
    with: {{text: one two three}}
    next: done
  done:
    end: ${{nodes.count}}
"""
    opened = await house([{"say": "nothing"}])
    place = tmp_path / "counting"
    place.mkdir()
    async with worker_of(opened, 10) as worker:
        job = await opened.loom.start_graph(compile_graph(graph, "test"), workdir=place)
        await eventually(lambda: (place / BEGUN).exists())
        worker.stop()
        assert await worker.ended() == 0
        assert "left" not in worker.said()
        await worker.start()
        assert (await job.result()).result == "3 words"
    assert (place / BEGUN).read_text() == "begun\n"
