"""A job goes on from a turn of another one, and nothing that was done up to there is done again."""

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

from loom_client.job import Job
from loom_dsl.errors import ConflictError, JobExists, NotFoundError, UserError
from loom_dsl.graph.graph import Graph
from loom_store.store import Store
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, events, transcript
from tests.support.external import BEGUN, lines
from tests.support.stores import problems
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server]


def steps(count: int, tool: str = "send") -> list[dict[str, Any]]:
    """A model that calls a tool in each of some turns, and then says goodbye."""
    calling = {"repeat": count, "say": "I go on.", "calls": [{"tool": tool, "args": {"text": "{n}"}}]}
    return [calling, {"say": "It says: {last}", "repeat": 20}]


async def forked(house: House, parent: Job, turn: int, task: str = "", **options: Any) -> Job:
    """Fork a job in its own directory."""
    job = await house.loom.fork(parent, turn, task, **options)
    house.workdirs[job.id] = house.workdir(parent)
    return job


async def ended(house: House, **options: Any) -> Job:
    """A job that has done its three turns with effects, and has ended."""
    job = await house.start(**options)
    assert (await account(house.loom.store, job)).status == "completed"
    assert len(effects_of(house.workdir(job))) == 3
    return job


def keys(house: House, job: Job) -> list[str]:
    """The effects of a job in the outside world, by turn."""
    return [line.split("/")[1] for line in lines(house.workdir(job)) if line.startswith(f"{job.id}/")]


async def rows(store: Store) -> dict[str, int]:
    """How many rows the conversations take: of entries, and of their contents."""

    def count(path: Path) -> dict[str, int]:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
            found = {name: file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("entries", "blobs")}
        file.close()
        return found

    return await asyncio.to_thread(count, store.path)


async def test_a_fork_shares_the_turns_and_does_nothing_of_them_again(house: Opener) -> None:
    opened = await house(steps(3))
    async with opened.inside():
        parent = await ended(opened)
        fork = await forked(opened, parent, 2)
        told = await account(opened.loom.store, fork)
        result = await fork.result()
    before = await transcript(opened.loom.store, f"s-{parent.id}")
    assert (told.status, told.answer) == ("completed", "It says: done: 3")
    assert told.messages == before, "the same turns come to the same conversation"
    assert (keys(opened, parent), keys(opened, fork)) == (["0", "1", "2"], ["2"])
    assert (told.usage["model_calls"], told.usage["tool_calls"]) == (2, 1)
    assert [event["depth"] for event in result.recursion_stats.recursion_events] == [3]
    assert {event.turn for event in await events(fork)} == {2, 3}


async def test_a_fork_at_the_task_begins_anew_and_one_with_a_message_goes_another_way(house: Opener) -> None:
    opened = await house(steps(3))
    async with opened.inside():
        parent = await ended(opened)
        anew = await account(opened.loom.store, await forked(opened, parent, 0))
        other = await forked(opened, parent, 1, "Be quick.")
        told = await account(opened.loom.store, other)
    assert anew.messages == await transcript(opened.loom.store, f"s-{parent.id}")
    assert [message["content"] for message in told.messages[:4]] == ["do it", "I go on.", "done: 1", "Be quick."]
    row = await opened.loom.store.read(lambda tx: tx.job(other.id))
    assert row is not None
    assert row["task"] == "Be quick."
    assert await opened.loom.store.read(lambda tx: tx.job(parent.id)) is not None


async def test_nothing_of_the_conversation_is_copied_and_a_prune_of_the_parent_leaves_it(house: Opener) -> None:
    opened = await house(steps(3))
    store = opened.loom.store
    async with opened.inside():
        parent = await ended(opened)
        before = await rows(store)
        fork = await forked(opened, parent, 3, "And now?", job=opened.named("kept"))
        await account(store, fork)
        after = await rows(store)
        assert after["entries"] == before["entries"] + 2, "its message and an answer"
        assert after["blobs"] == before["blobs"] + 1, "its message; the answer was given before"
        said = await transcript(store, f"s-{fork.id}")
        await store.write(lambda tx: tx.update_job(fork.id, ended_at=datetime.now(UTC) + timedelta(days=3)))
        pruned = await store.write(lambda tx: tx.prune(datetime.now(UTC) + timedelta(days=1)))
        assert (pruned.jobs, pruned.sessions) == (1, 0)
        with pytest.raises(NotFoundError, match="there is no job"):
            await opened.loom.fork(parent.id, 1)
        assert await transcript(store, f"s-{fork.id}") == said
        second = await forked(opened, fork, 2, job=opened.named("second"))
        told = await account(store, second)
    point = await store.read(lambda tx: tx.fork_point(second.id))
    assert point is not None
    assert (point.job, point.turn, point.earlier) == (parent.id, 2, None), "the turn is that of the first job"
    assert told.messages[:5] == said[:5]
    assert await store.read(problems) == []


async def test_a_running_job_is_forked_at_the_turns_that_it_has_finished(house: Opener) -> None:
    opened = await house(steps(3))
    async with opened.worker():
        parent = await opened.start(opened.agent(permissions={"ask": ["send"]}))
        await parent.decide(await opened.approval(parent), "approve", by="me")
        await opened.approval(parent, 1)
        with pytest.raises(UserError, match="runs, and has finished 1 turn so far, so it cannot be forked at turn 2"):
            await opened.loom.fork(parent, 2)
        fork = await forked(opened, parent, 1)
        await fork.decide(await opened.approval(fork), "approve", by="me")
        await opened.approval(fork, 1)
        assert (keys(opened, parent), keys(opened, fork)) == (["0"], ["1"])
        for job in (fork, parent):
            await job.abort(by="me")
            await account(opened.loom.store, job)
        await parent.result()
        assert (keys(opened, parent), keys(opened, fork)) == (["0"], ["1"])
        with pytest.raises(UserError, match="has finished 1 turn, so it cannot be forked at turn 2"):
            await opened.loom.fork(parent, 2)
        again = await forked(opened, fork, 2)  # of a fork that was aborted
        assert (await opened.approval(again)).startswith("ap_")
        await again.abort(by="me")
        told = await account(opened.loom.store, again)
    assert [message["role"] for message in told.messages[:5]] == ["user", "assistant", "tool", "assistant", "tool"]


async def test_a_job_that_reached_its_limit_goes_on_with_a_budget_of_the_forks_own(house: Opener) -> None:
    opened = await house(steps(5, "put"))
    async with opened.inside():
        parent = await opened.start(opened.agent(limits={"max_iterations": 3}))
        failed = await account(opened.loom.store, parent)
        assert failed.error == "max_iterations: the limit of 3 iterations was reached"
        fork = await forked(opened, parent, 3)
        told = await account(opened.loom.store, fork)
    assert told.status == "completed"
    assert told.usage["model_calls"] == 3
    news = [message["content"] for message in told.messages if message["role"] == "system"]
    assert ["last turn" in text for text in news] == [True, False, True], "its own last turn is told, too"
    assert "there are turns left" in news[1]
    assert (keys(opened, parent), keys(opened, fork)) == (["0", "1", "2"], ["3", "4"])


@pytest.mark.nightly
async def test_a_job_whose_history_is_gone_from_the_server_is_forked_from_the_store(house: Opener) -> None:
    opened = await house(steps(3))
    client = opened.loom.client

    async def is_gone() -> bool:
        try:
            await client.get_workflow_handle(parent.id).describe()
        except RPCError as error:
            return error.status is RPCStatusCode.NOT_FOUND
        return False

    async with opened.inside():
        parent = await ended(opened)
        last = (await parent.handle.describe()).run_id
        gone = WorkflowExecution(workflow_id=parent.id, run_id=last)
        await client.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=gone)
        )
        await eventually(is_gone)
        fork = await forked(opened, parent, 2)
        told = await account(opened.loom.store, fork)
    assert (told.status, keys(opened, fork)) == ("completed", ["2"])


@pytest.mark.crash
@pytest.mark.parametrize(
    ("tool", "outcome"), [pytest.param("register", "settled", marks=pytest.mark.nightly), ("send", "unknown")]
)
async def test_a_killed_worker_of_a_fork_repeats_no_effect_of_it_or_of_its_parent(
    house: Opener, tool: str, outcome: str
) -> None:
    opened = await house(steps(3, tool))
    async with opened.worker() as worker:
        parent = await ended(opened)
        (opened.workdir(parent) / "hold").touch()
        begun = len(lines(opened.workdir(parent), BEGUN))
        fork = await forked(opened, parent, 1)
        await eventually(lambda: len(lines(opened.workdir(parent), BEGUN)) > begun)
        worker.kill()
        opened.release(parent)
        await worker.start()
        told = await account(opened.loom.store, fork)
    before = await transcript(opened.loom.store, f"s-{parent.id}")
    assert told.messages[:4] == before[:4]
    assert (told.messages == before, "outcome_unknown" in told.messages[4]["content"]) == (
        outcome == "settled",
        outcome == "unknown",
    )
    assert (keys(opened, parent), keys(opened, fork)) == (["0", "1", "2"], ["1", "2"])
    done = await opened.loom.store.read(lambda tx: tx.effects(fork.id))
    assert [(effect.turn, effect.status) for effect in done] == [(1, outcome), (2, "settled")]


async def test_the_same_id_is_the_same_fork_and_no_other(house: Opener) -> None:
    opened = await house(steps(3))
    async with opened.worker():
        parent = await ended(opened)
        (opened.workdir(parent) / "hold").touch()
        for _ in range(2):
            fork = await forked(opened, parent, 2, job=opened.named("once"))
        with pytest.raises(JobExists, match=f"was forked from {parent.id} at turn 2; take another id"):
            await opened.loom.fork(parent, 1, job=opened.named("once"))
        with pytest.raises(JobExists, match="another task"):
            await opened.loom.fork(parent, 2, "Something else", job=opened.named("once"))
        with pytest.raises(JobExists, match="was forked from"):
            await opened.loom.start(opened.agent(), "do it", job=opened.named("once"), workdir=opened.workdir(parent))
        with pytest.raises(JobExists, match="was not forked"):
            await opened.loom.fork(parent, 1, job=parent.id)
        opened.release(parent)
        await account(opened.loom.store, fork)
        with pytest.raises(ConflictError, match="has ended"):
            await opened.loom.fork(parent, 2, job=opened.named("once"))
    assert keys(opened, fork) == ["2"]


async def test_what_cannot_be_forked_is_told(house: Opener) -> None:
    opened = await house(steps(3))
    async with opened.inside():
        parent = await ended(opened)
        graph = Graph.model_validate({"name": "g", "nodes": {"done": {"end": "${1}"}}})
        other = await opened.loom.start_graph(graph, workdir=opened.folder)
        await other.result()
        with pytest.raises(NotFoundError, match="there is no job 'nobody'"):
            await opened.loom.fork("nobody", 1)
        with pytest.raises(UserError, match="has finished 4 turns, so it cannot be forked at turn 5"):
            await opened.loom.fork(parent, 5)
        with pytest.raises(UserError, match="runs the graph g, which has no turns"):
            await opened.loom.fork(other, 0)
        with pytest.raises(UserError, match="after turn 4 the agent had finished; say what"):
            await opened.loom.fork(parent, 4)
        with pytest.raises(UserError, match=r"the working directory .* does not exist"):
            await opened.loom.fork(parent, 1, workdir=opened.folder / "nowhere")
        fork = await forked(opened, parent, 4, "Once more.")
        told = await account(opened.loom.store, fork)
    assert told.status == "completed"
