"""Conversations that become too long for their model: they are compressed, and the job goes on."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from loom_client.job import Job
from loom_dsl.agent.compression import SECTIONS, write_sections
from loom_dsl.agent.context import estimate_tokens
from loom_dsl.agent.messages import SUMMARY
from loom_dsl.errors import ContextLengthExceeded
from loom_dsl.observe.events import EventType
from loom_store.transaction import Transaction
from tests.durability.conftest import USAGE, House, Opener
from tests.durability.reading import account, events, histories, of, unheard_of
from tests.durability.test_debug_replay import again, same
from tests.support.waiting import eventually

pytestmark = pytest.mark.server

NOTES = write_sections({name: f"{name} of the work" for name in SECTIONS})
WRITER, READER = "You keep the notes of an agent", "[compressed "
LOOK = {"calls": [{"tool": "look", "args": {"text": "x" * 1_200}}]}
LOOKS = [{"repeat": 20, **LOOK}]
WINDOW = 4_000
SMALL = {"max_context_tokens": WINDOW}
REFUSED = {"fail": {"status": 400, "code": "context_length_exceeded", "message": "too long"}}


def cases(*notes: Mapping[str, Any], after: Mapping[str, Any] = {"say": "done"}) -> list[dict[str, Any]]:
    """What the model says when it is to write notes, and to a conversation that begins with some."""
    write = {"say": NOTES, "usage": {"prompt": 7_000, "completion": 50}}
    steps = [{"usage": USAGE, **step} for step in notes]
    return [
        {"when": {"contains": WRITER}, "steps": steps, "otherwise": write},
        {"when": {"contains": READER}, "otherwise": {"usage": USAGE, **after}},
    ]


async def summaries(house: House, job: Job) -> list[dict[str, Any]]:
    """The summaries in a job's session: their heads, and their text."""
    session = (await job.result()).session_id

    def read(tx: Transaction) -> list[dict[str, Any]]:
        found = [entry for entry in tx.read_entries(session) if entry.head.get("note") == SUMMARY]
        return [{**entry.head, "text": tx.get_blob(str(entry.content_digest)).decode()} for entry in found]

    return await house.loom.store.read(read)


def asked(house: House, *, notes: bool = False) -> list[list[dict[str, Any]]]:
    """The messages of the agent's own requests, or of those for notes."""
    bodies = [json.loads(request.body)["messages"] for request in house.model.requests]
    return [messages for messages in bodies if messages[0]["content"].startswith(WRITER) == notes]


async def lost_of(house: House, job: Job) -> int:
    """How many attempts the server lost sight of, on a slow machine: what they had asked is asked again."""
    return unheard_of(await histories(house.loom.client, job.id))


def roles(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(message["role"]) for message in messages]


@pytest.mark.parametrize("recurse", ["per_turn", "adaptive", "history"])
async def test_a_conversation_that_is_nearly_full_is_compressed_before_the_model_is_asked(
    house: Opener, recurse: str
) -> None:
    opened = await house(LOOKS, cases=cases())
    async with opened.inside():
        job = await opened.start(opened.agent(limits=SMALL, recurse=recurse))
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    (note,) = await summaries(opened, job)
    (event,) = of(await events(job), EventType.COMPRESSION_APPLIED)
    last, own = asked(opened)[-1], len(asked(opened))
    assert roles(last[:3]) == ["system", "system", "user"]
    assert (last[1]["content"], last[2]["content"]) == (note["text"], "do it")
    assert all(f"## {name}\n{name} of the work" in note["text"] for name in SECTIONS)
    assert event["messages_after"] == len(last) - 1 < event["messages_before"]
    assert event["tokens_after"] <= 0.75 * event["tokens_before"]
    assert max(estimate_tokens(json.dumps(messages)) for messages in asked(opened)) < WINDOW
    # Every entry is still there: the task, an answer and a result for each call, and the last answer.
    assert len(told.messages) == 1 + 2 * (own - 1) + 1
    assert told.usage["prompt_tokens"] == 7_000 * len(asked(opened, notes=True)) + own * USAGE["prompt"]
    same(await again(opened, job))


async def test_the_turn_after_a_compression_knows_of_it(house: Opener) -> None:
    opened = await house(LOOKS, cases=[cases()[0], {"when": {"contains": READER}, "steps": [LOOK], "otherwise": LOOK}])
    async with opened.inside():
        job = await opened.start(opened.agent(limits={**SMALL, "max_iterations": 12}))
        await job.result()
    first, *more = await summaries(opened, job)
    assert more  # it fills again, and the notes so far are what the next ones begin with
    assert all(f"{name} of the work" in asked(opened, notes=True)[-1][1]["content"] for name in SECTIONS)
    assert await compacted(opened, job) == [note["turn"] + 1 for note in (first, *more)]


async def compacted(house: House, job: Job) -> list[int]:
    """The numbers of the turns whose state says that the one before compressed the conversation."""
    begun = [history.events[0] for history in await histories(house.loom.client, job.id)]
    inputs = [
        json.loads(event.workflow_execution_started_event_attributes.input.payloads[0].data) for event in begun[1:]
    ]
    states = [given["state"]["turn"] for given in inputs]
    return [state["turn_counter"] for state in states if state.get("compacted")]


async def refusal(job: Job) -> str:
    """Wait until a job has failed since its model takes no more; what it says."""
    result = await job.result()
    assert result.error is not None
    assert result.error.code == ContextLengthExceeded.code
    return result.error.message


async def test_a_model_that_refuses_a_conversation_is_asked_again_after_it_was_compressed(house: Opener) -> None:
    opened = await house(LOOKS, cases=cases(), window=WINDOW)
    async with opened.inside():
        job = await opened.start()
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    (note,) = await summaries(opened, job)
    assert note["overflow"]
    assert 1 <= opened.model.statuses[400] <= 1 + await lost_of(opened, job)
    same(await again(opened, job))


async def test_a_model_that_refuses_every_conversation_fails_the_job_after_two_compressions(house: Opener) -> None:
    glance = {"repeat": 12, "calls": [{"tool": "look", "args": {"text": "{n}"}}]}
    opened = await house([glance, REFUSED], cases=cases(after=REFUSED))
    async with opened.inside():
        job = await opened.start()
        assert "too long" in await refusal(job)
    first, second = await summaries(opened, job)
    assert first["since"] < second["since"]
    assert roles(asked(opened)[-1]) == ["system", "system", "user"]
    assert 3 <= opened.model.statuses[400] <= 3 + await lost_of(opened, job)
    same(await again(opened, job))


async def test_without_compression_a_model_that_refuses_fails_the_job_at_once(house: Opener) -> None:
    opened = await house([LOOK, LOOK, REFUSED], cases=cases())
    async with opened.inside():
        job = await opened.start(opened.agent(limits={"compress_at": None}))
        assert await refusal(job)
    assert await summaries(opened, job) == []


async def test_a_task_that_is_too_long_is_told_as_such(house: Opener) -> None:
    opened = await house([REFUSED], cases=cases())
    async with opened.inside():
        job = await opened.start()
        assert "nothing left to compress" in await refusal(job)
    assert asked(opened, notes=True) == []


async def test_a_compression_that_fails_leaves_the_conversation_and_the_job_goes_on(house: Opener) -> None:
    opened = await house(LOOKS, cases=cases({"fail": {"status": 400}}))
    async with opened.inside():
        job = await opened.start(opened.agent(limits={**SMALL, "max_iterations": 8}))
        result = await job.result()
    assert result.error is not None
    assert result.error.code == "max_iterations"
    assert 8 <= len(asked(opened)) <= 8 + await lost_of(opened, job)
    assert await summaries(opened, job) == []
    warnings = of(await events(job), EventType.WARNING)
    assert warnings
    assert all("the conversation could not be compressed" in warning["message"] for warning in warnings)
    assert max(estimate_tokens(json.dumps(messages)) for messages in asked(opened)) < WINDOW
    assert asked(opened)[-1][1]["content"] == "do it"


async def test_notes_are_written_in_pieces_where_the_model_takes_no_more_at_once(house: Opener) -> None:
    opened = await house([*LOOKS], cases=cases(), window=2_200)
    one_tool = {"tools": ("tests.support.external:look",), "permissions": {"allow": ["look"]}}
    async with opened.inside():
        job = await opened.start(opened.agent(**one_tool))
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    pieces = [messages[1]["content"] for messages in asked(opened, notes=True)]
    assert len(pieces) > 1
    assert "Background of the work" in pieces[-1]


async def test_a_section_that_is_too_long_is_compressed_again(house: Opener) -> None:
    long = write_sections({"Results": "y" * 4_000, "Errors": "short"})
    opened = await house(LOOKS, cases=cases({"say": long}))
    async with opened.inside():
        job = await opened.start(opened.agent(limits=SMALL))
        await account(opened.loom.store, job)
    (note,) = await summaries(opened, job)
    requests = [messages[1]["content"] for messages in asked(opened, notes=True)]
    assert len([text for text in requests if "y" * 4_000 in text]) == len(requests) / 2
    assert "## Results\ny" in note["text"]
    assert estimate_tokens(note["text"]) < 8 * 150 + 100


async def test_what_the_user_said_last_stays_as_it_was_said(house: Opener) -> None:
    put = {"calls": [{"tool": "put", "args": {"text": "x"}}]}
    opened = await house([put, *LOOKS], cases=cases())
    async with opened.inside():
        job = await opened.start(opened.agent(limits=SMALL), hold=True)
        await job.inject("use the blue one, please", by="me")
        opened.release(job)
        await account(opened.loom.store, job)
    assert await summaries(opened, job)
    assert "use the blue one, please" in "".join(str(message["content"]) for message in asked(opened)[-1])


@pytest.mark.crash
async def test_a_worker_that_is_killed_while_it_compresses_leaves_one_summary(house: Opener) -> None:
    opened = await house(LOOKS, cases=cases({"say": NOTES, "hang": True, "times": 1}))
    async with opened.worker() as worker:
        job = await opened.start(opened.agent(limits={**SMALL, "compress_at": 0.5}))
        await eventually(lambda: compressing(opened, job))
        worker.kill()
        await worker.start()
        told = await account(opened.loom.store, job)
    assert (told.status, told.answer) == ("completed", "done")
    assert len(await summaries(opened, job)) == 1
    assert len(of(await events(job), EventType.COMPRESSION_APPLIED)) == 1


async def compressing(house: House, job: Job) -> bool:
    """Whether the model is being asked for notes."""
    found = await house.loom.client.get_workflow_handle(job.id).describe()
    at_work = [one.activity_type.name for one in found.raw_description.pending_activities]
    return at_work == ["loom.context.compress"] and house.model.count > len(house.model.requests)
