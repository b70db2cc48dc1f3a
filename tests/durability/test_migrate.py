"""Waiting jobs move to another plan on a real server."""

import asyncio
import json
import sqlite3
from typing import Any

import pytest

from loom_dsl.errors import ConflictError
from loom_dsl.graph.compiler import compile_agent, compile_graph
from loom_dsl.graph.plan import Plan
from tests.durability.conftest import Opener
from tests.durability.test_graphs import MODULE, inside
from tests.support.external import HOLD, lines
from tests.support.graph_functions import DONE
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.server
ASKS = """
loom: 1
kind: graph
name: asks
nodes:
  ask: {approval: {ask: "Go on?"}, deadline: never, next: count}
  count: {map: {over: "[1, 2]", do: twice}, next: done}
  done: {end: "${result}"}
graphs:
  twice:
    nodes:
      double: {set: {}, next: done}
      done: {end: "${item * 2}"}
"""
STEPS = [{"say": "never asked"}]


def plan(text: str) -> Plan:
    """Compile a graph."""
    return compile_graph(text, "asks.yaml")


async def ended(house: Opener, new: Plan, names: dict[str, str]) -> Any:
    """Start a job, move it while it waits, approve, and give its result."""
    opened = await house(STEPS)
    async with opened.inside():
        job = await opened.loom.start_graph(plan(ASKS), workdir=opened.folder)
        name = await opened.approval(job)
        await job.migrate(new, names)
        assert (await job.status()).plan == new.hash
        await job.decide(name, "approve")
        result = (await job.result()).result
    row = await opened.loom.store.read(lambda tx: tx.job(job.id))
    assert row is not None
    assert row["plan"] == new.hash
    return result


async def test_a_waiting_job_goes_on_under_the_changed_graph(house: Opener) -> None:
    assert await ended(house, plan(ASKS.replace("item * 2", "item * 10")), {}) == [10, 20]


async def test_a_plan_that_was_pruned_since_a_job_ran_it_last_is_there_for_another(house: Opener) -> None:
    """Client and worker live long, and remember of a plan that they have put it into the store."""
    opened, new = await house(STEPS), plan(ASKS.replace("item * 2", "item * 10"))
    async with opened.inside():
        for _ in range(2):
            job = await opened.loom.start_graph(plan(ASKS), workdir=opened.folder)
            name = await opened.approval(job)
            await job.migrate(new)
            await job.decide(name, "approve")
            assert (await job.result()).result == [10, 20]
            assert await opened.loom.store.read(lambda tx: tx.has_blob(new.hash))
            with sqlite3.connect(opened.settings.store_path()) as connection:  # as prune does
                connection.execute("DELETE FROM blobs WHERE digest = ?", (bytes.fromhex(new.hash),))
            connection.close()


async def test_a_node_that_was_renamed_is_named(house: Opener) -> None:
    assert await ended(house, plan(ASKS.replace("ask: {approval", "question: {approval")), {"ask": "question"}) == [
        2,
        4,
    ]


async def test_a_token_without_a_home_keeps_the_job_where_it_is(house: Opener) -> None:
    opened = await house(STEPS)
    async with opened.inside():
        job = await opened.loom.start_graph(plan(ASKS), workdir=opened.folder)
        name = await opened.approval(job)
        with pytest.raises(ConflictError, match=r"was not moved: .*no node `ask`; name its new home: ask=NODE"):
            await job.migrate(plan(ASKS.replace("ask: {approval", "question: {approval")))
        assert (await job.status()).plan == plan(ASKS).hash
        await job.decide(name, "approve")
        assert (await job.result()).result == [2, 4]


async def test_an_agents_job_moves_between_its_turns(house: Opener) -> None:
    opened = await house([{"calls": [{"tool": "send", "args": {"text": "x"}}]}, {"say": "bye"}])
    agent = opened.agent(permissions={"ask": ["send"]})
    other = agent.model_copy(update={"instructions": "Be brief."})
    async with opened.inside():
        job = await opened.start(agent)
        name = await opened.approval(job)
        await job.migrate(compile_agent(other))
        await job.decide(name, "approve")
        assert (await job.result()).answer == "bye"
    systems = [json.loads(request.body)["messages"][0]["content"] for request in opened.model.requests]
    assert "Be brief." not in systems[0]
    assert "Be brief." in systems[-1]  # a busy worker may have asked for a turn twice


WORKS = f"""
loom: 1
kind: graph
name: works
nodes:
  work: {{activity: "{MODULE}:note", with: {{text: once}}, timeout: 10m, next: done}}
  done: {{end: old}}
"""


async def test_a_move_during_a_long_activity_says_what_it_waits_for_and_begins_nothing_twice(house: Opener) -> None:
    opened = await house(STEPS)
    (opened.folder / HOLD).touch()
    new = compile_graph(WORKS.replace("end: old", "end: new"), "works.yaml")
    homeless = compile_graph(WORKS.replace("  work:", "  job:"), "works.yaml")
    async with inside(opened):
        job = await opened.loom.start_graph(compile_graph(WORKS, "works.yaml"), workdir=opened.folder)
        await eventually(lambda: lines(opened.folder, DONE))
        with pytest.raises(ConflictError, match="name its new home: work=NODE"):
            await job.migrate(homeless)
        answer = await job.migrate(new)
        assert answer.verdict == "waiting"
        assert "it waits for `work#1`" in answer.message
        with pytest.raises(ConflictError, match="being moved already"):
            await job.migrate(new)
        (opened.folder / HOLD).unlink()
        assert (await asyncio.wait_for(job.result(), PATIENCE)).result == "new"
    assert lines(opened.folder, DONE) == ["once"]
