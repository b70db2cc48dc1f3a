"""Who is told by `--on-approval` that a job waits is told once, whatever the engine lost sight of, and under load."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from activities.registration import activities_of
from activities.runtime import Runtime
from activities.webhooks.notify import NoticeFailed
from loom_dsl.graph.compiler import compile_graph
from loom_store.store import Store
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import Opener
from tests.support.receiver import Receiver, receiver
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker_process import WorkerProcess

GRAPH = """
loom: 1
kind: graph
name: ask
nodes:
  ask:
    approval: {ask: May it go on?}
    deadline: never
    next: done
  done: {end: "${result}"}
"""


def attempt(number: int) -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, workflow_id="job", workflow_run_id="run", attempt=number)
    return environment


def asked(at: str = "~announce/ask#1", name: str = "ap_1") -> dict[str, Any]:
    return {"at": at, "turn": 0, "with": {"approval_id": name, "request": {"summary": "send it"}}}


def observing(store: Store, target: str) -> Any:
    return activities_of(Runtime(store, ToolRegistry.load(), store.path.parent, target, environment={}))[
        "loom.approval.announce"
    ]


async def lost(observe: Any, hook: Receiver) -> None:
    """Begin to tell, and have the server lose sight of the attempt while the receiver has not answered."""
    environment = attempt(1)
    first = asyncio.create_task(environment.run(observe, asked()))
    await eventually(lambda: len(hook.held) == 1)
    environment.cancel(ActivityCancellationDetails(timed_out=True))
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_notice_that_is_under_way_is_waited_for_and_not_sent_again(tmp_path: Path, elsewhere: bool) -> None:
    """Also by another worker of this process's machine: it sees in the ledger who tells it."""
    hook = Receiver()
    with hook.up(), Store.open(tmp_path / "loom.db") as store, Store.open(tmp_path / "loom.db") as other:
        observe = observing(store, hook.url)
        await lost(observe, hook)
        second = observing(other, hook.url) if elsewhere else observe
        waiting = asyncio.create_task(attempt(2).run(second, asked()))
        done, _ = await asyncio.wait([waiting], timeout=1.0)
        assert not done
        hook.hold.set()
        await asyncio.wait_for(waiting, PATIENCE)
        assert len(hook.seen) == 1
        await attempt(3).run(second, asked())
    assert len(hook.seen) == 1


async def test_a_notice_that_was_refused_is_sent_again_with_the_id_that_it_had(tmp_path: Path) -> None:
    hook = receiver()
    answers = iter((503, 204, 204))
    hook.status = lambda told: next(answers)
    with hook.up(), Store.open(tmp_path / "loom.db") as store:
        observe = observing(store, hook.url)
        with pytest.raises(NoticeFailed, match="503"):
            await attempt(1).run(observe, asked())
        await attempt(2).run(observe, asked())
        await attempt(1).run(observe, asked("~announce/ask#1+1"))
    ids = [received.headers["idempotency-key"] for received in hook.seen]
    assert ids[0] == ids[1] != ids[2]
    assert [received.told["id"] for received in hook.seen] == ids
    with Store.open(tmp_path / "loom.db") as store:
        assert store.read_sync(lambda tx: tx.effects("job")) == []


async def test_a_command_is_told_the_id_of_a_notice(tmp_path: Path) -> None:
    place = tmp_path / "told"
    command = f"sh -c 'echo \"$LOOM_NOTICE_ID\" > {place}.id; cat > {place}.json'"
    with Store.open(tmp_path / "loom.db") as store:
        await attempt(1).run(observing(store, command), asked())
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["id"] == (tmp_path / "told.id").read_text().strip()
    assert told["id"].startswith("notice_")


@pytest.mark.server
@pytest.mark.crash
@pytest.mark.parametrize("many", [24, pytest.param(120, marks=pytest.mark.nightly)])
async def test_under_load_there_is_one_notice_for_each_approval(house: Opener, many: int) -> None:
    opened = await house([{"say": "nothing"}])
    told = opened.folder / "told.jsonl"
    # Slow as a mailer is, so that many wait for each other.
    command = f"sh -c 'sleep 0.2; echo \"$LOOM_NOTICE_ID\" >> {told}'"
    plan = compile_graph(GRAPH, "test")
    async with WorkerProcess(opened.settings, opened.url, opened.folder, on_approval=command) as worker:
        jobs = [await opened.loom.start_graph(plan, workdir=opened.folder) for _ in range(many)]
        await eventually(lambda: told.exists() and len(set(told.read_text().split())) == many, within=4 * PATIENCE)
        for job in jobs:
            await job.decide(await opened.approval(job), "approve", by="me")
        for job in jobs:
            assert (await job.result()).status == "completed"
        assert worker.starts == 1
    assert len(told.read_text().split()) == many
