"""The worker is killed with SIGKILL, and nobody can tell from what the job comes to."""

import time
from typing import Any

import pytest

from loom_client.job import Job
from loom_dsl.agent.context import estimate_tokens
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, events, of
from tests.support.external import BEGUN, CRASH, lines
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.server, pytest.mark.crash]

RECOVERY_SECONDS = 2 * PATIENCE
"""About ten seconds are usual on an idle machine; a model call that nobody heard of would take ten minutes."""


def calling(name: str) -> list[dict[str, Any]]:
    """A model that calls one tool and then says goodbye."""
    return [{"say": "I call.", "calls": [{"tool": name, "args": {"text": "one"}}]}, {"say": "It says: {last}"}]


async def undisturbed(house: House, **options: Any) -> Any:
    """What the same job comes to when nothing happens to it."""
    job = await house.start(**options)
    return await account(house.loom.store, job)


async def finish(house: House, job: Job, killed: float) -> Any:
    """What the job came to; the seconds from the kill to its end are printed (`pytest -rP`)."""
    told = await account(house.loom.store, job)
    seconds = time.monotonic() - killed
    print(f"measured: {seconds:.2f} s from the kill to the end")
    assert seconds < RECOVERY_SECONDS
    return told


async def test_a_model_stream_starts_again_and_a_watcher_sees_one_text(house: Opener) -> None:
    text = " ".join(f"word{number}" for number in range(60))
    for delay in (40, 160, 640):
        opened = await house([{"say": text, "chunk": 8, "delay": f"{delay}ms"}])
        async with opened.worker() as worker:
            expected = await undisturbed(opened)
            job = await opened.start()
            await eventually(lambda job=job: streaming(job))  # type: ignore[misc]
            killed = worker.kill()
            await worker.start()
            assert await finish(opened, job, killed) == expected
        told = await events(job)
        if opened.model.count == 3:
            break  # else a slow machine let the model say everything before the worker was killed
    assert of(told, EventType.STREAM_RESET) != []
    assert opened.model.count == 3
    assert expected.usage["prompt_tokens"] == 100
    wasted = (await job.result()).usage.wasted
    assert (wasted.prompt_tokens, 0 < wasted.completion_tokens <= estimate_tokens(text)) == (100, True)


async def streaming(job: Job) -> bool:
    """Whether the model's answer is on its way."""
    return len(of(await events(job), EventType.LLM_DELTA)) >= 3


async def test_a_local_stage_runs_again(house: Opener) -> None:
    opened = await house(calling("post"))
    asking = opened.agent(permissions={"ask": ["post"]})
    crash = opened.folder / CRASH
    async with opened.worker({"LOOM_TEST_CRASH": str(crash)}) as worker:
        first = await opened.start(asking)
        await first.decide(await opened.approval(first), "approve", by="me")
        expected = await account(opened.loom.store, first)
        crash.touch()
        job = await opened.start(asking)
        assert await worker.ended() == 128 + 9
        killed = time.monotonic()
        await worker.start()
        await job.decide(await opened.approval(job), "approve", by="me")
        assert await finish(opened, job, killed) == expected
    assert len(of(await events(job), EventType.APPROVAL_REQUESTED)) == 1
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]


@pytest.mark.parametrize(
    ("tool", "attempts"), [pytest.param("put", 2, id="idempotent"), pytest.param("register", 1, id="reconciled")]
)
async def test_an_executing_tool_has_one_effect_and_its_result_is_kept(house: Opener, tool: str, attempts: int) -> None:
    opened = await house(calling(tool))
    async with opened.worker() as worker:
        expected = await undisturbed(opened)
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        killed = worker.kill()
        opened.release(job)
        await worker.start()
        assert await finish(opened, job, killed) == expected
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    assert len(lines(opened.workdir(job), BEGUN)) == attempts


async def test_a_tool_that_is_not_idempotent_is_not_run_again_and_the_model_is_told(house: Opener) -> None:
    opened = await house(calling("send"))
    async with opened.worker() as worker:
        expected = await undisturbed(opened)
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        killed = worker.kill()
        opened.release(job)
        await worker.start()
        found = await finish(opened, job, killed)
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    assert (found.status, found.usage, found.results) == (expected.status, expected.usage, expected.results)
    told = found.messages[2]
    assert told["tool_call_id"] == "call_1_0"
    assert "outcome_unknown" in told["content"]
    (effect,) = await opened.loom.store.read(lambda tx: tx.effects(job.id))
    assert effect.status == "unknown"


async def test_an_approval_waits_and_a_decision_sent_to_nobody_counts(house: Opener) -> None:
    opened = await house(calling("send"))
    asking = opened.agent(permissions={"ask": ["send"]})
    async with opened.worker() as worker:
        first = await opened.start(asking)
        await first.decide(await opened.approval(first), "approve", by="me")
        expected = await account(opened.loom.store, first)
        job = await opened.start(asking)
        approval = await opened.approval(job)
        killed = worker.kill()
        await job.handle.signal("loom.decision", {"approval_id": approval, "choice": "approve", "by": "me"})
        await worker.start()
        assert await finish(opened, job, killed) == expected
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    assert len(of(await events(job), EventType.APPROVAL_DECIDED)) == 1


async def test_between_two_turns_nothing_is_lost_or_done_twice(house: Opener) -> None:
    turns, kills = 10, 2
    opened = await house([{"repeat": turns, "calls": [{"tool": "send", "args": {"text": "{n}"}}]}, {"say": "bye"}])
    async with opened.worker() as worker:
        expected = await undisturbed(opened)
        for _ in range(3):  # a slow machine may let a job come to its end before this sees its next turn
            job = await opened.start()
            killed, met, seen = 0.0, 0, (await job.handle.describe()).run_id

            async def next_run(job: Job = job) -> str:
                now = await job.handle.describe()
                return str(now.run_id) if now.run_id != seen or now.close_time else ""  # noqa: B023 - called at once

            for _ in range(kills):
                seen = await eventually(next_run, every=0.001)
                killed = worker.kill()
                met += (await job.handle.describe()).close_time is None
                await worker.start()
            found = await finish(opened, job, killed)
            if met == kills:
                break
    assert met == kills
    unknown = [message for message in found.messages if "outcome_unknown" in (message["content"] or "")]
    # A kill can meet a tool at work as well: then its effect is told to be unknown, and is not there twice either.
    assert len(unknown) <= kills
    if not unknown:
        assert found == expected
    assert (found.status, found.usage, found.results) == (expected.status, expected.usage, expected.results)
    effects = effects_of(opened.workdir(job))
    assert len(effects) == len(set(effects)) >= turns - len(unknown)
