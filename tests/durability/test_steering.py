"""Pause, resume, abort and messages, sent while a job works."""

import time
from typing import Any

import pytest

from loom_client.job import Job
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, events, histories, of, unheard_of
from tests.durability.test_worker_killed import calling
from tests.support.external import BEGUN, lines
from tests.support.waiting import eventually

pytestmark = pytest.mark.server


async def told(job: Job, kind: EventType, **data: Any) -> list[dict[str, Any]]:
    """The events of a type that have these data."""
    return [each for each in of(await events(job), kind) if data.items() <= each.items()]


async def test_sixty_messages_arrive_in_order_and_once_while_the_job_continues_as_new(house: Opener) -> None:
    last = [{"calls": [{"tool": "linger", "args": {"text": "the last message"}}]}, {"say": "bye"}]
    opened = await house([{"repeat": 38, "calls": [{"tool": "look", "args": {"text": "{n}"}}]}, *last])
    sent = [f"message {number}" for number in range(60)]
    async with opened.inside():
        job = await opened.start(hold=True)  # so that it is there to take the last one
        for number, text in enumerate(sent):

            async def turn_has_come(turn: int = number // 2) -> bool:
                return any(event.turn >= turn for event in await events(job))

            await eventually(turn_has_come, every=0.005)
            signal = {"op": "inject", "id": f"id-{number}", "text": text}
            await job.handle.signal("loom.control", signal)
            if number % 7 == 0:  # the same id again is the same message
                await job.handle.signal("loom.control", {**signal, "text": "a repetition"})
        opened.release(job)
        found = await account(opened.loom.store, job)
    users = [message["content"] for message in found.messages if message["role"] == "user"]
    assert users == ["do it", *sent]
    assert len(await histories(opened.loom.client, job.id)) >= 30


async def test_what_the_server_gave_to_two_runs_is_told_as_recorded(
    house: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that took it ended before its answer was out, so the next one hears of it again: here by the same id."""
    opened = await house([{"hang": True, "say": "never"}])
    async with opened.inside():
        job = await opened.start()
        await eventually(lambda: opened.model.count)
        with monkeypatch.context() as patch:
            patch.setattr("loom_client.job.secrets.token_hex", lambda _: "the same")
            answers = [await job.inject("once") for _ in range(2)]
        await aborted(opened, job)
    assert {answer.verdict for answer in answers} <= {"recorded", "unconfirmed"}
    assert len(await told(job, EventType.CONTROL, op="inject")) == 1


@pytest.mark.parametrize(
    "step",
    [
        pytest.param({"hang": True, "say": "never"}, id="model that says nothing"),
        pytest.param({"say": "word " * 10_000, "chunk": 5, "delay": "50ms"}, id="model that streams"),
    ],
)
async def test_an_abort_reaches_a_model_call(house: Opener, step: dict[str, Any]) -> None:
    opened = await house([step])
    async with opened.inside():
        job = await opened.start()
        await eventually(lambda: opened.model.count or told(job, EventType.LLM_DELTA))
        found = await aborted(opened, job)
    assert [message["role"] for message in found.messages] == ["user"]
    assert await asked_once(opened, job)


@pytest.mark.parametrize(
    ("tool", "effects", "said"),
    [
        pytest.param("linger", [], "cancelled", id="async"),
        pytest.param("send", ["0/call_1_0 one"], "outcome_unknown", id="sync"),
    ],
)
async def test_an_abort_reaches_a_tool(house: Opener, tool: str, effects: list[str], said: str) -> None:
    opened = await house(calling(tool))
    async with opened.inside():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        found = await aborted(opened, job)
    assert [message["role"] for message in found.messages] == ["user", "assistant", "tool"]
    assert said in found.messages[-1]["content"]
    assert effects_of(opened.workdir(job)) == effects


async def aborted(house: House, job: Job) -> Any:
    """Abort the job by a bare signal, and give what it came to.

    What is aborted would go on for minutes: that it ended shows what a test finds of it, and no clock.
    """
    before = time.monotonic()
    await job.handle.signal("loom.control", {"op": "abort", "by": "me", "reason": "enough"})
    result = await job.result()
    seconds = time.monotonic() - before
    print(f"measured: {seconds:.2f} s from the abort to the end")
    assert (result.status, result.error and result.error.message) == ("aborted", "enough")
    assert len(await told(job, EventType.EXECUTION_CANCELLED)) == 1
    assert [data["state"] for data in await told(job, EventType.STATE)][-1] == "aborted"
    return await account(house.loom.store, job)


async def asked_once(house: House, job: Job) -> bool:
    """Whether the model was asked once, and again only where the server lost sight of a slow machine's attempt."""
    lost = unheard_of(await histories(house.loom.client, job.id), "loom.model.call")
    return 1 <= house.model.count <= 1 + lost


async def test_an_abort_before_the_first_turn_calls_nothing(house: Opener) -> None:
    opened = await house([{"say": "never"}])
    job = await opened.start()
    await job.handle.signal("loom.control", {"op": "abort", "by": "me"})
    async with opened.inside():
        found = await account(opened.loom.store, job)
    assert found.status == "aborted"
    assert opened.model.count == 0
    kinds = [event.type for event in await events(job)]
    assert kinds.count(EventType.EXECUTION_CANCELLED) == 1
    assert EventType.LLM_START not in kinds


async def test_temporals_own_cancel_is_an_abort(house: Opener) -> None:
    opened = await house(calling("linger"))
    async with opened.inside():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        await job.handle.cancel()
        found = await account(opened.loom.store, job)
    assert found.status == "aborted"
    assert found.messages[-1]["role"] == "tool"


async def test_a_paused_job_does_nothing_until_it_is_resumed(house: Opener) -> None:
    opened = await house(calling("linger"))
    async with opened.inside():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        assert (await job.pause(by="me", reason="lunch")).verdict == "recorded"
        opened.release(job)

        async def rests() -> bool:
            status = await job.status()
            return not status.running and status.paused is not None and status.paused["by"] == "me"

        await eventually(rests)

        async def written() -> bool:  # a moment later
            row = await opened.loom.store.read(lambda tx: tx.job(job.id))
            return row is not None and row["paused_by"] == "me"

        await eventually(written)
        assert await told(job, EventType.TOOL_RESULT) == []
        assert await asked_once(opened, job)
        await job.resume(by="me")
        found = await account(opened.loom.store, job)
    assert found.status == "completed"
    row = await opened.loom.store.read(lambda tx: tx.job(job.id))
    assert row is not None
    assert row["paused_by"] is None


async def test_an_abort_ends_a_paused_job(house: Opener) -> None:
    opened = await house(calling("linger"))
    async with opened.inside():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        await job.pause(by="me")
        assert (await job.abort(by="me", reason="enough")).verdict == "recorded"
        assert (await job.result()).status == "aborted"


@pytest.mark.parametrize(
    ("when", "roles"),
    [
        pytest.param("asap", ["user", "assistant", "tool", "user", "assistant"], id="asap"),
        pytest.param("when_idle", ["user", "assistant", "tool", "assistant", "user", "assistant"], id="when idle"),
    ],
)
async def test_a_message_reaches_the_agent(house: Opener, when: str, roles: list[str]) -> None:
    opened = await house([*calling("linger"), {"say": "again"}])
    async with opened.inside():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        assert (await job.inject("one more thing", when=when, by="me")).verdict == "recorded"
        opened.release(job)
        found = await account(opened.loom.store, job)
    assert [message["role"] for message in found.messages] == roles
    assert [m["content"] for m in found.messages if m["role"] == "user"] == ["do it", "one more thing"]
    assert found.status == "completed"


LIMITED = [{"repeat": 20, "calls": [{"tool": "look", "args": {"text": "{n}"}}]}]


@pytest.mark.parametrize(
    ("steps", "limit", "counts"),
    [
        pytest.param([{"say": "hello"}], 50, {"iteration_start": 1, "llm_start": 1, "recursion": 0}, id="no tools"),
        pytest.param(
            calling("look"), 50, {"iteration_start": 2, "llm_start": 2, "recursion": 1, "tool_result": 1}, id="one call"
        ),
        pytest.param(
            LIMITED,
            3,
            {"iteration_start": 4, "llm_start": 3, "recursion": 3, "max_iterations_reached": 1, "agent_finish": 0},
            id="limit of 3",
        ),
    ],
)
async def test_the_recursion_emits_each_event_as_often_as_it_happens(
    house: Opener, steps: list[dict[str, Any]], limit: int, counts: dict[str, int]
) -> None:
    opened = await house(steps)
    async with opened.inside():
        job = await opened.start(opened.agent(limits={"max_iterations": limit}))
        result = await job.result()
    kinds = [event.type for event in await events(job)]
    assert {kind: kinds.count(kind) for kind in counts} == counts
    assert kinds.count("llm_finish") == kinds.count("llm_start") == result.usage.model_calls
    assert (result.status, result.partial) == (("failed", True) if limit == 3 else ("completed", False))
