"""A job may be long: every run's history, the state between runs and the worker's memory stay as they are."""

import statistics
import time
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from loom_client.job import Job
from tests.durability.conftest import Opener
from tests.durability.reading import account, events, histories
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.server

MAX_EVENTS, MAX_BYTES, MAX_STATE = 200, 200 * 1024, 16 * 1024
GROWTH = 24 * 1024 * 1024
"""Bytes that a worker may grow by after its first turns: caches that are bounded, and what the allocator keeps."""


def weight(run: WorkflowHistory) -> tuple[int, int, int]:
    """Events and bytes of a run's history, and bytes of the state that it began with."""
    started = run.events[0].workflow_execution_started_event_attributes
    return len(run.events), sum(event.ByteSize() for event in run.events), len(started.input.payloads[0].data)


async def memory_at(worker: WorkerProcess, job: Job, turn: int) -> int:
    """The worker's memory when the job has come to a turn."""
    after = 0

    async def come() -> bool:
        nonlocal after
        async for event in job.events(after, follow=False):
            after = event.offset
            if event.turn >= turn:
                return True
        return False

    await eventually(come, max(PATIENCE, turn), every=0.2)
    return worker.memory()


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param(24, id="24 turns"),
        pytest.param(1_000, id="1000 turns", marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],
)
async def test_a_turn_costs_the_same_however_many_came_before(house: Opener, turns: int) -> None:
    call = {"tool": "send", "args": {"text": "{n}"}}
    opened = await house([{"repeat": turns, "calls": [call]}, {"say": "bye"}])
    async with opened.worker() as worker:
        began = time.monotonic()
        job = await opened.start(opened.agent(limits={"max_iterations": turns + 1}))
        early = await memory_at(worker, job, turns // 4)
        late = await memory_at(worker, job, turns)
        found = await account(opened.loom.store, job)
        seconds = time.monotonic() - began
    runs = await histories(opened.loom.client, job.id)
    weights: list[Any] = [weight(run) for run in runs]
    counted, heavy, state = (max(column) for column in zip(*weights, strict=True))
    print(
        f"measured: {turns} turns in {seconds:.1f} s; at most {counted} events, {heavy} bytes, {state} bytes of state"
    )
    print(f"measured: {early / 2**20:.0f} MiB after a quarter, {late / 2**20:.0f} MiB at the end; {weights[-2:]}")
    assert found.status == "completed"
    assert found.usage["model_calls"] == turns + 1
    assert len(runs) == turns + 1
    assert len(await events(job)) > turns
    assert counted < MAX_EVENTS
    assert heavy < MAX_BYTES
    assert state < MAX_STATE
    assert late - early < GROWTH
    # Medians, for on a busy machine one turn or another has a task that was handed out twice.
    early_turn, late_turn = (
        statistics.median(size for _, size, _ in part) for part in (weights[1:12], weights[-12:-1])
    )
    assert late_turn <= 1.1 * early_turn, "a late turn's history is larger than an early one's"


async def test_a_long_answer_comes_whole(house: Opener) -> None:
    opened = await house([{"big": 100_000}])
    async with opened.inside():
        job = await opened.start()
        result = await job.result()
    assert len(result.answer) == 100_000
    assert result.final_message == {"role": "assistant", "content": result.answer}
    (history,) = await histories(opened.loom.client, job.id)
    assert weight(history)[1] < MAX_BYTES
