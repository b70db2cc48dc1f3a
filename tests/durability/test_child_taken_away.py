"""A job below another one is aborted when its node is taken away, also when the parent's run ends just then."""

import asyncio
from typing import Any

import pytest

from loom_dsl.graph.compiler import compile_graph
from tests.durability.conftest import House, Opener
from tests.durability.test_graphs import inside
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.server
GRAPH = """
loom: 1
kind: graph
name: taken-away
agents:
  writer: {model: scripted, instructions: Write., tools: [calculator]}
graphs:
  told:
    nodes:
      waits: {event: enough, deadline: never, next: noted}
      noted: {activity: "tests.support.graph_functions:note", with: {text: enough}, next: done}
      done: {end: null}
nodes:
  first: {race: [written, told]}
  written: {agent: writer, with: {task: Write for ever.}, next: done}
  told: {graph: told, next: done}
  done: {end: told}
"""


async def child_of(house: House, job: str) -> dict[str, Any]:
    """The row of the child job, once it is at work."""

    async def running() -> Any:
        row = await house.loom.store.read(lambda tx: tx.job(f"{job}.written.1"))
        return row if row is not None and house.model.count else None

    return dict(await eventually(running))


@pytest.mark.parametrize("steps", [None, 1])
async def test_a_child_is_aborted_when_another_arm_is_first(house: Opener, steps: int | None) -> None:
    opened = await house([{"hang": True}])
    async with inside(opened):
        job = await opened.loom.start_graph(compile_graph(GRAPH, "test"), workdir=opened.folder, steps=steps)
        child = await child_of(opened, job.id)
        await job.event("enough")
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", "told")
    row = await opened.loom.store.read(lambda tx: tx.job(child["job"]))
    assert row is not None
    assert row["status"] == "aborted"
