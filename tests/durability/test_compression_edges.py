"""What becomes of a conversation's rare parts when it is compressed: tasks, guidance, large messages, small windows."""

import json
from typing import Any

import pytest

from activities.context.assemble import LAST_TURN
from loom_cli.commands.show.recursion import chain
from loom_dsl.agent.compression import SECTIONS, write_sections
from loom_dsl.agent.context import estimate_tokens
from loom_dsl.agent.messages import legal_order
from loom_dsl.errors import ModelProtocolError, ModelRequestRefused
from loom_dsl.observe.events import EventType
from tests.durability.conftest import USAGE, Opener
from tests.durability.reading import account, events, of
from tests.durability.test_compression import (
    LOOK,
    LOOKS,
    NOTES,
    READER,
    REFUSED,
    SMALL,
    WINDOW,
    asked,
    cases,
    compacted,
    compressing,
    lost_of,
    roles,
    summaries,
)
from tests.durability.test_debug_replay import again, same
from tests.support.waiting import eventually

pytestmark = pytest.mark.server

ONE_TOOL = {"tools": ("tests.support.external:look",), "permissions": {"allow": ["look"]}}
PUT = {"calls": [{"tool": "put", "args": {"text": "a"}}]}
"""What takes as long as the test wants."""


def texts(messages: list[dict[str, Any]]) -> str:
    return "\n".join(str(message.get("content")) for message in messages)


async def test_whoever_writes_notes_knows_the_task(house: Opener) -> None:
    opened = await house(LOOKS, cases=cases())
    async with opened.inside():
        job = await opened.start(opened.agent(limits=SMALL))
        await account(opened.loom.store, job)
    assert all("user: do it" in messages[1]["content"] for messages in asked(opened, notes=True))


async def test_the_next_job_of_a_session_still_knows_the_task_of_the_one_before(house: Opener) -> None:
    opened = await house(LOOKS, cases=cases())
    agent = opened.agent(limits=SMALL)
    async with opened.inside():
        first = await opened.start(agent)
        session = (await first.result()).session_id
        second = await opened.loom.start(agent, "and now this", workdir=opened.workdir(first), session=session)
        await second.result()
    assert len(await summaries(opened, first)) == 1
    last = asked(opened)[-1]
    said = [message["content"] for message in last if message["role"] == "user"]
    assert said == ["do it", "and now this"]


async def test_the_turns_of_another_job_in_the_session_are_not_those_of_this_one(house: Opener) -> None:
    """Each of them compresses in its first turn what the one before it left."""
    opened = await house([{"say": "x" * 14_400}], cases=cases(after={"say": "z" * 14_400}))
    agent = opened.agent(limits={**SMALL, "compress_at": 0.9}, **ONE_TOOL)
    async with opened.inside():
        first = await opened.start(agent)
        session = (await first.result()).session_id
        for number in range(3):
            job = await opened.loom.start(agent, f"task {number}", workdir=opened.workdir(first), session=session)
            assert (await job.result()).status == "completed"
    assert [(note["job"] == first.id, note["turn"]) for note in await summaries(opened, first)] == [(False, 0)] * 3


async def test_the_last_turn_is_still_told_to_be_the_last_after_everything_was_compressed(house: Opener) -> None:
    reads = {"when": {"contains": READER}, "steps": [{"say": "done"}, REFUSED]}
    opened = await house([LOOK, LOOK, REFUSED], cases=[cases()[0], reads])
    async with opened.inside():
        job = await opened.start(opened.agent(limits={"max_iterations": 3}))
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    last = asked(opened)[-1]
    assert roles(last) == ["system", "system", "user", "system"]
    assert last[-1]["content"] == LAST_TURN
    assert LAST_TURN not in texts(asked(opened, notes=True)[-1])


async def test_what_the_model_has_not_read_yet_is_not_compressed_where_it_fits(house: Opener) -> None:
    opened = await house([LOOK, LOOK, {"say": "never"}], cases=cases())
    limits = {"max_context_tokens": 12_000, "compress_at": 0.01}
    async with opened.inside():
        job = await opened.start(opened.agent(limits=limits, **ONE_TOOL))
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    assert roles(asked(opened)[-1]) == ["system", "system", "user", "assistant", "tool"]


async def test_calls_whose_results_do_not_fit_together_are_compressed(house: Opener) -> None:
    many = {"calls": [{"tool": "look", "args": {"text": f"{n} " + "x" * 3_000}} for n in range(6)]}
    opened = await house([many], cases=cases())
    async with opened.inside():
        job = await opened.start(opened.agent(limits=SMALL))
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    assert len(asked(opened, notes=True)) > 1
    assert roles(asked(opened)[-1]) == ["system", "system", "user"]
    same(await again(opened, job))


async def test_a_summary_leaves_room_for_the_conversation(house: Opener) -> None:
    """Long notes, a long last message of the user's, and a window that the agent's instructions nearly fill."""
    long = write_sections(dict.fromkeys(SECTIONS, "y" * 2_000))
    opened = await house([PUT, *LOOKS], cases=cases({"repeat": 100, "say": long}))
    two_tools = {"tools": tuple(f"tests.support.external:{name}" for name in ("look", "put"))}
    agent = opened.agent(limits=SMALL, instructions="i" * 8_000, **two_tools)
    async with opened.inside():
        job = await opened.start(agent, hold=True)
        await job.inject("use the blue one, please " + "z" * 2_000, by="me")
        opened.release(job)
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    (note,) = await summaries(opened, job)
    (event,) = of(await events(job), EventType.COMPRESSION_APPLIED)
    assert "use the blue one, please" in texts(asked(opened)[-1])
    assert event["tokens_after"] < event["tokens_before"]
    assert estimate_tokens(note["text"]) < 1_600
    assert max(estimate_tokens(json.dumps(messages)) for messages in asked(opened)) < WINDOW


async def test_notes_so_far_become_shorter_where_the_model_takes_no_more(house: Opener) -> None:
    """Its window is smaller than notes of a window as large as the agent's file says."""
    long = write_sections(dict.fromkeys(SECTIONS, "y" * 1_800))
    opened = await house(LOOKS, cases=cases({"repeat": 100, "say": long}), window=2_200)
    async with opened.inside():
        job = await opened.start(opened.agent(**ONE_TOOL))
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")


async def test_a_compression_that_fails_is_paid_for_and_is_not_tried_again_every_turn(house: Opener) -> None:
    used = {"prompt": 7_000, "completion": 50}
    opened = await house(LOOKS, cases=cases({"empty": True, "usage": used}))
    async with opened.inside():
        job = await opened.start(opened.agent(limits={**SMALL, "max_iterations": 9, "compress_at": 0.4}, **ONE_TOOL))
        result = await job.result()
        tokens = await opened.loom.store.read(lambda tx: [turn["usage"] for turn in chain(tx, tx.job(job.id) or {})])
    (warning,) = of(await events(job), EventType.WARNING)
    assert warning["code"] == ModelProtocolError.code
    assert warning["message"].startswith("the conversation could not be compressed: ")
    assert 3 <= len(asked(opened, notes=True)) <= 3 + await lost_of(opened, job)  # the attempts of one turn
    assert result.usage.prompt_tokens == USAGE["prompt"] * 9 + used["prompt"]
    assert sum(one["prompt_tokens"] for one in tokens) == result.usage.prompt_tokens
    assert await compacted(opened, job) == []
    same(await again(opened, job))


async def test_a_job_whose_refused_conversation_cannot_be_compressed_ends_with_the_reason(house: Opener) -> None:
    opened = await house([LOOK, LOOK, REFUSED], cases=cases({"fail": {"status": 400, "message": "no such field"}}))
    async with opened.inside():
        job = await opened.start()
        result = await job.result()
    assert result.error is not None
    assert (result.status, result.error.code) == ("failed", ModelRequestRefused.code)
    assert "no such field" in result.error.message
    assert result.usage.prompt_tokens == USAGE["prompt"] * 2
    same(await again(opened, job))


async def test_an_abort_reaches_a_compression_and_leaves_no_summary(house: Opener) -> None:
    opened = await house(LOOKS, cases=cases({"say": NOTES, "hang": True}))
    async with opened.inside():
        job = await opened.start(opened.agent(limits=SMALL))
        await eventually(lambda: compressing(opened, job))
        await job.abort("enough")
        told = await account(opened.loom.store, job)
    assert told.status == "aborted"
    assert await summaries(opened, job) == []
    same(await again(opened, job))


async def test_an_order_that_an_api_refuses_is_never_sent(house: Opener) -> None:
    two = {"calls": [{"tool": "look", "args": {"text": f"{n}" + "x" * 500}} for n in range(2)]}
    reads = {"when": {"contains": READER}, "steps": [two, LOOK, two, LOOK, two, LOOK, two], "otherwise": {"say": "end"}}
    opened = await house([PUT, {"repeat": 20, **two}], cases=[cases()[0], reads])
    async with opened.inside():
        job = await opened.start(opened.agent(limits={**SMALL, "compress_at": 0.3}), hold=True)
        for number in range(3):
            await job.inject(f"message {number}", by="me")
        opened.release(job)
        await account(opened.loom.store, job)
    assert len(await summaries(opened, job)) > 1
    assert [problem for messages in asked(opened) for problem in legal_order(messages)] == []


async def test_forks_read_what_was_said_before_a_compression_and_its_summary_after_it(house: Opener) -> None:
    looks = await house(LOOKS, cases=cases())
    agent = looks.agent(limits={**SMALL, "max_iterations": 30}, **ONE_TOOL)
    async with looks.inside():
        first = await looks.start(agent)
        (note,) = await summaries(looks, first)
        early, late = [
            await looks.loom.fork(first, turn, f"go on from {turn}", workdir=looks.workdir(first))
            for turn in (1, note["turn"] + 1)
        ]
        assert [(await job.result()).status for job in (early, late)] == ["completed"] * 2
    said = [messages for messages in asked(looks) if "go on from" in texts(messages)]
    of_early = next(messages for messages in said if "go on from 1" in texts(messages))
    of_late = next(messages for messages in said if f"go on from {note['turn'] + 1}" in texts(messages))
    assert roles(of_early) == ["system", "user", "assistant", "tool", "user"]
    assert [one["content"] for one in of_late if one["role"] == "user"] == ["do it", f"go on from {note['turn'] + 1}"]
    assert of_late[1]["content"] == note["text"]


LOOKING = """
loom: 1
kind: graph
name: looking
extends: loom.tt
insert:
  after_it: {after: assemble, emit: {warning: {code: seen, message: a node of mine}}}
  before_it: {before: model, emit: {warning: {code: seen, message: another one}}}
"""


async def test_a_graph_that_puts_nodes_around_the_context_compresses_too(house: Opener) -> None:
    opened = await house(LOOKS, cases=cases())
    file = opened.folder / "looking.yaml"
    file.write_text(LOOKING)
    async with opened.inside():
        job = await opened.start(opened.agent(limits=SMALL), turn=file)
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    assert len(await summaries(opened, job)) == 1
