"""Going through jobs again with what was recorded: the same comes of it, and no effect."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loom_client.job import Job
from loom_client.recording import read_record
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.run import RunInput
from loom_dsl.agent.turn import ExecutionContext, TurnState
from loom_dsl.errors import UserError
from loom_dsl.graph.compiler import compile_agent
from loom_dsl.simulation.recording import Replayed
from loom_dsl.simulation.replay import replay
from tests.durability.conftest import House, Opener
from tests.durability.reading import effects_of
from tests.durability.test_equivalence import STEPS, asking
from tests.support.external import BEGUN, lines
from tests.support.waiting import eventually

pytestmark = pytest.mark.server


async def again(house: House, job: Job, agent: Agent | None = None) -> Replayed:
    """Replay a job; nothing may happen in its directory meanwhile."""
    row = await house.loom.store.read(lambda tx: tx.job(job.id))
    assert row is not None
    before = effects_of(house.workdir(job))
    record, plan = await house.loom.store.read(lambda tx: read_record(tx, row))
    replayed = await asyncio.to_thread(replay, record, compile_agent(agent) if agent else plan)
    assert effects_of(house.workdir(job)) == before
    return replayed


def same(replayed: Replayed) -> None:
    assert [(turn.number, turn.missing, turn.added) for turn in replayed.turns if turn.missing or turn.added] == []
    assert (replayed.stopped, replayed.differs) == ("", False)


@pytest.mark.parametrize("recurse", ["per_turn", "adaptive", "history"])
async def test_a_job_with_parallel_calls_and_questions_comes_to_the_same(house: Opener, recurse: str) -> None:
    opened = await house(STEPS)
    async with opened.inside():
        job = await opened.start(asking(opened, recurse))
        await opened.approve_all(job)
    calls, requests = len(effects_of(opened.workdir(job))), len(opened.model.requests)
    replayed = await again(opened, job)
    same(replayed)
    assert replayed.status == "completed"
    assert [turn.number for turn in replayed.turns] == [0, 1, 2, 3, 4]
    first = replayed.turns[0].steps
    assert first[0] == "the session has 1 entries"
    assert first[1] == "the model calls look, linger, send, nonesuch, look, put"
    assert {"send asks", "send: approve by me", "send: success", "look: success"} <= set(first)
    assert replayed.turns[-1].steps[-1] == "the model answers"
    assert (calls, requests) == (len(effects_of(opened.workdir(job))), len(opened.model.requests))


@pytest.mark.parametrize(
    ("choice", "more"),
    [
        ("reject", {"message": "no"}),
        ("edit", {"edited_arguments": {"text": "other"}}),
        ("respond", {"message": "said"}),
        ("terminate", {}),
        ("approve", {"remember": "job"}),
    ],
)
async def test_every_decision_is_given_again(house: Opener, choice: str, more: dict[str, Any]) -> None:
    send = {"calls": [{"tool": "send", "args": {"text": "x"}}]}
    opened = await house([send, send, {"say": "done"}])
    async with opened.inside():
        job = await opened.start(asking(opened))
        await job.decide(await opened.approval(job), choice, by="me", **more)
        if choice != "terminate" and "remember" not in more:
            await job.decide(await opened.approval(job, 1), "approve", by="me")
        result = await job.result()
    replayed = await again(opened, job)
    same(replayed)
    assert replayed.status == result.status
    assert f"send: {choice} by me" in replayed.turns[0].steps


async def test_a_question_that_expired_expires_again(house: Opener) -> None:
    opened = await house([{"calls": [{"tool": "send", "args": {"text": "x"}}]}, {"say": "done"}])
    agent = opened.agent(permissions={"ask": ["send"]}, approvals={"expires": "1s"})
    async with opened.inside():
        job = await opened.start(agent)
        await job.result()
    same(await again(opened, job))


async def abort(opened: House, job: Job) -> None:
    await eventually(lambda: lines(opened.workdir(job), BEGUN))
    await job.abort(by="me", reason="enough")


async def inject(opened: House, job: Job) -> None:
    await eventually(lambda: lines(opened.workdir(job), BEGUN))
    await job.inject("one more thing", by="me")
    opened.release(job)


async def inject_when_idle(opened: House, job: Job) -> None:
    await eventually(lambda: lines(opened.workdir(job), BEGUN))
    await job.inject("one more thing", when="when_idle", by="me")
    opened.release(job)


async def pause(opened: House, job: Job) -> None:
    await eventually(lambda: lines(opened.workdir(job), BEGUN))
    await job.pause(by="me")
    await job.resume(by="me")
    opened.release(job)


@pytest.mark.parametrize(
    ("act", "status"),
    [(abort, "aborted"), (inject, "completed"), (inject_when_idle, "completed"), (pause, "completed")],
)
async def test_what_people_did_to_the_job_happens_again(
    house: Opener, act: Callable[[House, Job], Awaitable[None]], status: str
) -> None:
    opened = await house([{"calls": [{"tool": "linger", "args": {"text": "x"}}]}, {"say": "a"}, {"say": "b"}])
    async with opened.inside():
        job = await opened.start(hold=True)
        await act(opened, job)
        assert (await job.result()).status == status
    replayed = await again(opened, job)
    same(replayed)
    assert replayed.status == status


LOOKS: list[dict[str, Any]] = [{"repeat": 4, "calls": [{"tool": "look", "args": {"text": "{n}"}}]}, {"say": "done"}]


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"max_iterations": 3}, "max_iterations"), ({"max_tool_calls": 2}, "max_tool_calls"), ({}, "")],
    ids=["iterations", "calls", "none"],
)
async def test_a_limit_ends_it_again(house: Opener, limits: dict[str, int], code: str) -> None:
    opened = await house(LOOKS)
    async with opened.inside():
        job = await opened.start(opened.agent(limits=limits))
        await job.result()
    replayed = await again(opened, job)
    same(replayed)
    assert replayed.code == code


async def test_a_time_that_was_over_is_over_again(house: Opener) -> None:
    opened = await house([LOOKS[0] | {"repeat": 1}, {"calls": [{"tool": "linger", "args": {"text": "x"}}]}])
    async with opened.inside():
        job = await opened.start(opened.agent(limits={"max_run_duration": "3s"}), hold=True)
        result = await job.result()
        opened.release(job)
    assert result.error is not None
    assert result.error.code == "max_run_duration"
    replayed = await again(opened, job)
    same(replayed)
    assert (replayed.status, replayed.code) == ("failed", "max_run_duration")


async def test_a_model_that_failed_fails_again(house: Opener) -> None:
    opened = await house([LOOKS[0] | {"repeat": 1}, {"fail": {"status": 400}}])
    async with opened.inside():
        job = await opened.start()
        result = await job.result()
    assert result.error is not None
    replayed = await again(opened, job)
    same(replayed)
    assert (replayed.status, replayed.code) == ("failed", result.error.code)


async def test_a_fork_is_replayed_from_its_own_first_turn(house: Opener) -> None:
    opened = await house(LOOKS)
    async with opened.inside():
        job = await opened.start()
        await job.result()
        forked = await opened.loom.fork(job.id, turn=2)
        await forked.result()
    opened.workdirs[forked.id] = opened.workdir(job)
    replayed = await again(opened, forked)
    same(replayed)
    assert [turn.number for turn in replayed.turns] == [2, 3, 4]


async def test_a_job_that_began_with_a_conversation_and_in_a_later_turn_is_replayed_from_there(house: Opener) -> None:
    opened = await house([*LOOKS[:1], {"say": "done"}])
    said = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"})
    context = ExecutionContext(working_dir=str(opened.folder), correlation_id="c")
    async with opened.inside():
        state = TurnState.initial(first=7, max_iterations=9)
        run = RunInput(input_messages=said, context=context)
        job = await opened.loom.start(opened.agent(), run, turn_state=state)
        result = await job.result()
    assert result.error is not None
    assert result.error.code == "max_iterations"
    opened.workdirs[job.id] = opened.folder
    replayed = await again(opened, job)
    same(replayed)
    assert [turn.number for turn in replayed.turns] == [7, 8, 9]
    assert replayed.turns[0].steps[0] == "the session has 3 entries"


async def test_another_agent_shows_where_it_would_have_gone_another_way(house: Opener) -> None:
    opened = await house(LOOKS)
    async with opened.inside():
        job = await opened.start()
        await job.result()
    replayed = await again(opened, job, opened.agent(limits={"max_tool_calls": 2}))
    assert (replayed.status, replayed.code, replayed.differs) == ("failed", "max_tool_calls", True)
    assert [turn.number for turn in replayed.turns if turn.missing or turn.added] == [2, 3, 4]
    third = replayed.turns[2]
    assert "tool_calls_start look" in third.missing
    assert "error max_tool_calls" in third.added


async def test_a_job_that_goes_on_is_replayed_as_far_as_it_is(house: Opener) -> None:
    opened = await house(
        [LOOKS[0] | {"repeat": 1}, {"calls": [{"tool": "linger", "args": {"text": "x"}}]}, {"say": "a"}]
    )
    async with opened.inside():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        replayed = await again(opened, job)
        opened.release(job)
        await job.result()
    assert (replayed.status, replayed.differs) == ("stopped", False)
    assert replayed.stopped == "the record has not got the result of linger"


async def test_a_job_that_has_not_begun_says_so(house: Opener) -> None:
    opened = await house(LOOKS)
    job = await opened.start()
    with pytest.raises(UserError, match="has not begun"):
        await again(opened, job)
    await job.handle.terminate()
