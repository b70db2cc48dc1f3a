"""A provider's own fields through a job's life: sent back as they came, by compression and forks, to nobody else."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from loom_cli.commands.show.conversation import conversation, entry_lines
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, events
from tests.durability.test_compression import SMALL, asked, cases, summaries
from tests.durability.test_fork import forked

pytestmark = pytest.mark.server

SIGNATURE = {"google": {"thought_signature": "c2ln+/{n}=="}}
DETAILS = [{"type": "reasoning.encrypted", "data": "{n}", "index": 0}]
LOOKED = {
    "calls": [
        {"tool": "look", "args": {"text": "x" * 1_200}, "fields": {"extra_content": SIGNATURE}},
        {"tool": "look", "args": {"text": "{n}"}},
    ],
    "fields": {"reasoning_content": "I look a {n}th time.", "reasoning_details": DETAILS},
}
OWN = {"reasoning_content", "reasoning_details", "extra_content"}


def fields_of(message: Mapping[str, Any]) -> set[str]:
    """The names of a provider's own fields in a message and its calls."""
    calls = message.get("tool_calls") or ()
    return OWN & {name for each in (message, *calls) for name in each}


def bodies(house: House, model: str) -> list[bytes]:
    return [request.body for request in house.model.requests if json.loads(request.body)["model"] == model]


def sent(house: House, model: str) -> list[dict[str, Any]]:
    """All messages of all requests to a model."""
    return [message for body in bodies(house, model) for message in json.loads(body)["messages"]]


async def test_a_providers_fields_go_back_to_it_through_compression_and_forks_and_to_no_other(house: Opener) -> None:
    steps = [{"repeat": 6, **LOOKED}, {"say": "done", "fields": {"reasoning_content": "I am done."}}]
    other = {"when": {"model": "plain"}, "otherwise": {"say": "I am another."}}
    # Who does not send back what was given is refused: the jobs would not complete.
    opened = await house(steps, cases=[other, *cases()], requires_back=True)
    store = opened.loom.store
    async with opened.inside({"OTHER_BASE_URL": opened.url}):
        job = await opened.start(opened.agent(limits={**SMALL, "max_iterations": 12}))
        told = await account(store, job)
        (note, *_) = await summaries(opened, job)
        own = len(bodies(opened, "scripted"))
        same = await account(store, await forked(opened, job, 2, "And now?"))
        changed = await account(store, await forked(opened, job, 2, "And now?", model="other:plain"))
    assert [each.status for each in (told, same, changed)] == ["completed"] * 3
    assert (told.answer, changed.answer, set(opened.model.statuses)) == ("done", "I am another.", {200})
    # What is sent begins, byte for byte, with what was sent the turn before: a prompt cache holds.
    first, second = bodies(opened, "scripted")[:2]
    assert second.startswith(first.removesuffix(b"]}"))
    assert note["since"] > 0
    assert sum(fields_of(message) == OWN for message in json.loads(bodies(opened, "scripted")[own])["messages"]) == 2
    assert [message["role"] for message in sent(opened, "plain")].count("assistant") == 2
    assert not any(fields_of(message) for message in sent(opened, "plain"))
    assert not any("I look a" in json.dumps(messages) for messages in asked(opened, notes=True))


async def test_reasoning_is_shown_apart_and_is_no_part_of_what_was_said(house: Opener) -> None:
    opened = await house([{"say": "<think>Hm, a {n}.</think>It is 4."}])
    async with opened.inside():
        job = await opened.start(opened.agent(model="qwen3"))
        told = await account(opened.loom.store, job)
        row = await opened.loom.store.read(lambda tx: tx.job(job.id))
        assert row is not None
        shown = await opened.loom.store.read(lambda tx: conversation(tx, row))
    assert (told.answer, told.messages[-1]["content"]) == ("It is 4.", "It is 4.")
    assert "Hm" not in str(await events(job))
    said = shown["conversation"][-1]
    assert (said["content"], said["reasoning"]) == ("It is 4.", "Hm, a 1.")
    assert entry_lines([said])[0][-1] == "It is 4. (thought: Hm, a 1.)"
