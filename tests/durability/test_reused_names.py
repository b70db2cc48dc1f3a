"""A worker that lives long keeps nothing of a job or a session whose name another one took over after a prune."""

import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.context.assemble import system_message
from activities.record.activity_call import ActivityCall
from activities.record.transcript import Transcript
from activities.registration import activities_of
from activities.runtime import Runtime
from activities.tool_calls.call_reader import CallReader
from loom_dsl.agent.definition import Agent
from loom_dsl.graph.compiler import compile_agent
from loom_dsl.text.canonical import digest
from loom_store.rows import NewEntry
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.registry import ToolRegistry

ENVELOPE = {"at": "x#1", "session": "chat", "turn": 0, "with": {"call": {"e": 1, "i": 0}, "entries": 2}}


def written(tx: Transaction, agent: Agent, task: str, tools: tuple[str, ...], workdir: Path) -> None:
    """Write a job down whose model has made a call, as client and worker do."""
    plan = compile_agent(agent)
    tx.put_blob(plan.text.encode())
    tx.create_session("chat", job="job")
    tx.create_job(
        "job", session="chat", agent=agent.name, plan=plan.hash, task=task, workdir=str(workdir),
        namespace="default", task_queue="q", created_at=1.0,
    )  # fmt: skip
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": f'{{"of": "{task}"}}'}}
        for i, name in enumerate(tools)
    ]
    entries = [
        NewEntry(kind="message", head={"role": "user"}, content=task, job="job", turn=0),
        NewEntry(kind="message", head={"role": "assistant", "tool_calls": calls}, content=None, job="job", turn=0),
    ]
    tx.append_entries("chat", "job/input", entries)


async def run(work: Callable[[], Awaitable[Any]], name: str) -> Any:
    """Do something as an activity of the job."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, workflow_id="job", workflow_run_id=name)
    return await environment.run(work)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with Store.open(tmp_path / "loom.db") as store:
        yield Runtime(store, ToolRegistry.load(), tmp_path, environment={})


async def test_a_job_under_a_pruned_name_is_served_as_itself(runtime: Runtime, tmp_path: Path) -> None:
    store, transcript = runtime.store, Transcript(runtime.store)
    calls = CallReader(runtime.jobs, transcript, runtime.registry, runtime.mcp)
    assemble = activities_of(runtime)["loom.context.assemble"]
    for task in ("the old task", "the new task"):
        agent = Agent(name="tester", model="m", instructions=f"You do {task}.", tools=("read_file",))
        await store.write(partial(written, agent=agent, task=task, tools=("read_file",), workdir=tmp_path))

        async def served() -> tuple[Any, ...]:
            facts = await runtime.jobs.facts("job")
            context = (await assemble(ENVELOPE))["context"]
            messages = await transcript.messages(await runtime.jobs.conversation("job"), 2)
            return facts, context["system"], messages[0][0], await calls.raw_arguments(ActivityCall.of(ENVELOPE))

        name = f"run-{task}"
        facts, system, message, arguments = await run(served, name)
        assert facts.agent.instructions == f"You do {task}."
        assert system == digest(system_message(agent, facts))
        assert await store.read(partial(Transaction.has_blob, digest=system))
        assert task in message
        assert arguments == f'{{"of": "{task}"}}'
        await store.write(lambda tx: tx.update_job("job", status="completed", ended_at=2.0))
        await store.write(lambda tx: tx.prune(datetime(2100, 1, 1, tzinfo=UTC)))
        assert await store.read(lambda tx: tx.job("job")) is None


async def test_a_job_is_looked_up_once_a_run(runtime: Runtime, tmp_path: Path) -> None:
    agent = Agent(name="tester", model="m", instructions="Go.")
    await runtime.store.write(lambda tx: written(tx, agent, "go", ("read_file",), tmp_path))

    async def first() -> tuple[Any, Any]:
        return await runtime.jobs.facts("job"), await runtime.jobs.conversation("job")

    facts, session = await run(first, "run")
    runtime.store.close()  # nothing can be read from here on
    assert await run(first, "run") == (facts, session)
