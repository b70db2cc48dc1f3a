"""What a fork keeps of the job that it came from: its agent, its policy, and what became of its effects."""

import json

import pytest

from activities.runtime import Runtime
from loom_dsl.graph.compiler import compile_graph
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import Opener
from tests.durability.reading import account, transcript
from tests.durability.test_fork import ended, forked, steps
from tests.support import undoable
from tests.support.external import BEGUN, lines
from tests.support.waiting import eventually
from worker import make_worker

pytestmark = [pytest.mark.server]


async def test_the_agent_is_the_one_of_then_unless_another_is_given(house: Opener) -> None:
    opened = await house(steps(3, "put"))
    store = opened.loom.store

    async def plan(job: str) -> str:
        row = await store.read(lambda tx: tx.job(job))
        assert row is not None
        return str(row["plan"])

    async with opened.inside():
        parent = await ended(opened)
        await store.write(lambda tx: tx.mark(parent.id, "policy", tx.put_blob(b"loom: 1\nkind: policy\n")))
        same = await forked(opened, parent, 1, job=opened.named("same"))
        asking = opened.agent(permissions={"ask": ["put"]})
        other = await forked(opened, parent, 1, job=opened.named("other"), agent=asking)
        cheaper = await forked(opened, parent, 1, job=opened.named("cheaper"), model="cheaper")
        await opened.approval(other)
        await other.abort(by="me")
        for job in (same, other, cheaper):
            await account(store, job)
    assert await plan(same.id) == await plan(parent.id)
    forks = [same.id, other.id, cheaper.id]
    assert len({await plan(job) for job in forks}) == 3
    marks = await store.read(lambda tx: [len(tx.marks(job, "policy")) for job in forks])
    assert marks == [1, 0, 1]


async def test_a_fork_is_told_what_an_abort_took_back_after_it_was_done(house: Opener) -> None:
    calls = [{"tool": "book", "args": {"text": "hotel"}}, {"tool": "note", "args": {"text": "remark"}}]
    opened = await house([{"calls": calls}, {"calls": [{"tool": "linger", "args": {"text": "x"}}]}, {"say": "Well."}])
    names = (*undoable.NAMES, "linger")
    tools = (*undoable.REFERENCES, "tests.support.external:linger")
    agent = opened.agent(tools=tools, permissions={"allow": list(names)}, on_abort="compensate")
    modules = ["tests.support.undoable", "tests.support.external"]
    environment = opened.runtime().environment
    registry = ToolRegistry.load(modules=modules)
    async with (
        Runtime(opened.loom.store, registry, opened.folder, environment=environment) as runtime,
        make_worker(opened.loom.client, runtime, opened.settings.task_queue),
    ):
        parent = await opened.start(agent, hold=True)
        await eventually(lambda: lines(opened.workdir(parent), BEGUN))
        await parent.abort(by="me")
        assert (await parent.result()).status == "aborted"
        opened.release(parent)
        told = await account(opened.loom.store, await forked(opened, parent, 1))
    assert told.status == "completed"
    assert [message["role"] for message in told.messages[:5]] == ["user", "assistant", "tool", "tool", "system"]
    assert "was taken back, or may have been: book (turn 1). Look" in told.messages[4]["content"]
    assert lines(opened.workdir(parent), undoable.TAKEN_BACK) == ["hotel 7"]


async def test_the_job_of_a_graphs_agent_is_forked_alone_and_within_the_policy_of_its_graph(house: Opener) -> None:
    opened = await house(steps(1))
    store = opened.loom.store
    inner = opened.agent(name="inner", tools=["tests.support.external:send"]).to_plan_data()
    document = {
        "loom": 1,
        "kind": "graph",
        "name": "around",
        "permissions": {"ask": ["send"]},
        "agents": {"inner": {name: value for name, value in inner.items() if name not in ("loom", "kind")}},
        "nodes": {
            "work": {"agent": "inner", "with": {"task": "do it"}, "next": "done"},
            "done": {"end": "${nodes.work.answer}"},
        },
    }
    plan = compile_graph(json.dumps(document), "test")
    async with opened.inside():
        graph = await opened.loom.start_graph(plan, workdir=opened.folder)
        child = opened.loom.job(f"{graph.id}.work.1")
        await child.decide(await opened.approval(child), "approve", by="me")
        assert (await graph.result()).status == "completed"
        fork = await opened.loom.fork(child, 0)
        await fork.decide(await opened.approval(fork), "approve", by="me")
        told = await account(store, fork)
    assert told.messages == await transcript(store, f"s-{child.id}")
    assert await store.read(lambda tx: (tx.job_above(child.id), tx.job_above(fork.id))) == (graph.id, None)
    assert [line.split("/")[0] for line in lines(opened.folder)] == [child.id, fork.id]
