"""An abort takes back what tools did, the last effect first, each at most once; what could not be is told."""

import asyncio

import pytest

from activities.runtime import Runtime
from loom_client.effects import effects_of
from loom_dsl.observe.events import EventType
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import Opener
from tests.durability.reading import events, of
from tests.support.external import lines
from tests.support.undoable import NAMES, REFERENCES, TAKEN_BACK
from tests.support.waiting import eventually
from worker import make_worker

pytestmark = [pytest.mark.server]

STEPS = [
    {"calls": [{"tool": "book", "args": {"text": "hotel"}}]},
    {"calls": [{"tool": "stubborn", "args": {"text": "ticket"}}]},
    {"calls": [{"tool": "note", "args": {"text": "remark"}}]},
    {"calls": [{"tool": "place", "args": {"text": "flight"}}]},
    {"calls": [{"tool": "linger", "args": {"text": "x"}}]},
]


async def test_an_abort_takes_back_what_was_done_and_tells_what_it_could_not(house: Opener) -> None:
    opened = await house(STEPS)
    tools = (*REFERENCES, "tests.support.external:linger")
    fields = {"tools": tools, "permissions": {"allow": [*NAMES, "linger"]}}
    registry = ToolRegistry.load(modules=["tests.support.undoable", "tests.support.external"])
    environment = opened.runtime().environment
    async with (
        Runtime(opened.loom.store, registry, opened.folder, environment=environment) as runtime,
        make_worker(opened.loom.client, runtime, opened.settings.task_queue),
    ):
        job, kept = await asyncio.gather(
            opened.start(opened.agent(on_abort="compensate", **fields), hold=True),
            opened.start(opened.agent(**fields), hold=True),
        )
        for one in (job, kept):
            await eventually(lambda one=one: lines(opened.workdir(one), "begun"))  # type: ignore[misc]
            await one.abort("me", "enough")
            assert (await one.result()).status == "aborted"
    assert lines(opened.workdir(kept), TAKEN_BACK) == []
    assert lines(opened.workdir(job), TAKEN_BACK) == ["flight done: flight", "ticket", "ticket", "ticket", "hotel 7"]
    outcomes = [(data["node"].split()[0], data["outcome"]) for data in of(await events(job), EventType.COMPENSATED)]
    assert outcomes == [("place", "undone"), ("note", "kept"), ("stubborn", "failed"), ("book", "undone")]
    told = await opened.loom.store.read(lambda tx: effects_of(tx, job.id))
    assert [(effect.tool, effect.state) for effect in told] == [
        ("book", "compensated"),
        ("stubborn", "settled, not taken back"),
        ("note", "settled"),
        ("place", "compensated"),
    ]
    assert told[1].undone is not None
    assert "RuntimeError: closed today (3 attempts)" in (told[1].undone.note or "")
    assert told[1].undone.attempts == 3
