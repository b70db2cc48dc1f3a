"""Graphs and loops of many nodes, on a real server: right results, and no run whose history grows with the work."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.runtime import Runtime
from loom_client.job import GraphJob
from loom_dsl.graph.compiler import compile_graph
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import House, Opener
from tests.durability.reading import failed_tasks, histories
from tests.durability.test_graphs import MODULES
from tests.durability.test_long_lists import LOOPS
from worker import make_worker

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]
SILENT = [{"say": "never asked"}]
NIGHTLY = pytest.mark.nightly


@pytest.fixture
def most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs end at fewer events than usual, so that many of them are seen in little time."""
    monkeypatch.setattr("workflows.graph.MAX_EVENTS", request.param)
    return int(request.param)


@asynccontextmanager
async def worker(house: House) -> AsyncIterator[None]:
    # The sandbox would read the module again, with the number that it has.
    async with (
        Runtime(house.loom.store, ToolRegistry.load(modules=list(MODULES)), house.folder) as runtime,
        make_worker(house.loom.client, runtime, house.settings.task_queue, sandboxed=False),
    ):
        yield


async def weighed(house: House, job: GraphJob) -> list[int]:
    """The events of each run of a job; they are printed with their bytes (`pytest -rP`)."""
    runs = await histories(house.loom.client, job.id)
    assert failed_tasks(runs) == []
    for run in runs[:3]:
        print(f"measured: {len(run.events)} events, {sum(event.ByteSize() for event in run.events)} bytes")
    print(f"measured: {len(runs)} runs")
    return [len(run.events) for run in runs]


@pytest.mark.parametrize(
    ("rounds", "most"), [(5_000, 25), pytest.param(100_000, 200, marks=NIGHTLY)], indirect=["most"]
)
async def test_a_loop_of_many_steps_goes_through_many_runs_of_bounded_history(
    house: Opener, rounds: int, most: int
) -> None:
    opened = await house(SILENT)
    async with worker(opened):
        plan = compile_graph(LOOPS, "loops.yaml")
        job = await opened.loom.start_graph(plan, input={"last": rounds - 1}, workdir=opened.folder)
        assert (await asyncio.wait_for(job.result(), 600)).result == rounds
    events = await weighed(opened, job)
    assert len(events) >= 2
    assert max(events) < most + 30


def layers(count: int, width: int) -> str:
    """A graph of layers of activities, each behind a join of the one before."""
    nodes: dict[str, Any] = {}
    for layer in range(count):
        names = [f"n{layer}_{index}" for index in range(width - 2)]
        nodes[f"s{layer}"] = {"next": names}
        join = {"join": "all", "next": f"s{layer + 1}" if layer + 1 < count else "done"}
        work = {"activity": "tests.support.graph_functions:untyped", "with": {"first": 1}}
        nodes |= {name: {**work, "write": {"sum": "${result[0]}"}, "next": f"j{layer}"} for name in names}
        nodes[f"j{layer}"] = join
    nodes["done"] = {"end": "${state.sum}"}
    state = {"sum": {"type": "int", "reduce": "add"}}
    return json.dumps({"loom": 1, "kind": "graph", "name": "layers", "state": state, "nodes": nodes})


@pytest.mark.parametrize(
    ("count", "width", "most"), [(6, 20, 30), pytest.param(40, 50, 60, marks=NIGHTLY)], indirect=["most"]
)
async def test_a_graph_of_many_nodes_goes_through_many_runs_of_bounded_history(
    house: Opener, count: int, width: int, most: int
) -> None:
    opened = await house(SILENT)
    async with worker(opened):
        plan = compile_graph(layers(count, width), "layers.yaml")
        job = await opened.loom.start_graph(plan, workdir=opened.folder)
        assert (await asyncio.wait_for(job.result(), 600)).result == count * (width - 2)
    events = await weighed(opened, job)
    assert len(events) >= 2
    # What was begun when the run was to end: each at most with three events of its own and three of a task for its end.
    assert max(events) < most + 6 * width + 30
