"""The alarm about a deep recursion, and the log's lines about turns."""

import logging
from typing import Any

import pytest

from loom_client.job import Job
from loom_dsl.observe.events import EventType
from tests.durability.conftest import Opener
from tests.durability.reading import events

pytestmark = pytest.mark.server
LOGGER = "loom.agent"


def looking(times: int) -> list[dict[str, Any]]:
    return [{"repeat": times, "calls": [{"tool": "look", "args": {"text": "{n}"}}]}, {"say": "done"}]


async def alarms(job: Job) -> list[int]:
    """The turns that alarms are about."""
    told = [event for event in await events(job) if event.type == EventType.WARNING]
    return [event.turn for event in told if event.data["code"] == "deep_recursion"]


@pytest.mark.parametrize(
    ("turns", "limits", "told"),
    [
        pytest.param(21, {}, [], id="depth 20"),
        pytest.param(23, {}, [21], id="depth 22"),
        pytest.param(5, {"alarm_depth": 2}, [3], id="a limit of one's own"),
        pytest.param(23, {"alarm_depth": None}, [], id="switched off"),
    ],
)
async def test_a_recursion_deeper_than_the_limit_is_told_once_and_ends_nothing(
    house: Opener, caplog: pytest.LogCaptureFixture, turns: int, limits: dict[str, Any], told: list[int]
) -> None:
    opened = await house(looking(turns - 1))
    async with opened.inside():
        job = await opened.start(opened.agent(limits=limits, recurse="adaptive"))
        result = await job.result()
    assert (result.status, result.recursion_stats.max_depth) == ("completed", turns - 1)
    assert await alarms(job) == told
    lines = [record for record in caplog.records if record.name == LOGGER and record.levelno == logging.WARNING]
    assert [(vars(line)["loom_job"], vars(line)["loom_depth"]) for line in lines] == [(job.id, at) for at in told]


async def test_a_fork_that_begins_deep_is_told_of_its_own_depth(house: Opener) -> None:
    opened = await house(looking(4))
    async with opened.inside():
        job = await opened.start(opened.agent(limits={"alarm_depth": 2}))
        await job.result()
        forked = await opened.loom.fork(job.id, turn=4)
        await forked.result()
    assert (await alarms(job), await alarms(forked)) == ([3], [4])


async def test_the_log_tells_each_step_with_its_depth_and_without_content(
    house: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    opened = await house(
        [{"say": "a secret plan", "calls": [{"tool": "look", "args": {"text": "hidden"}}]}, {"say": "x"}]
    )
    with caplog.at_level(logging.INFO, logger=LOGGER):
        async with opened.inside():
            job = await opened.start()
            await job.result()
    lines = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    steps = [
        # Each once, or again where a busy machine had a step done again.
        "depth 0: turn 1 begins",
        "depth 0: the model answered after",
        "depth 0: the tool look starts",
        "depth 0: the tool look ended after",
        "depth 0: turn 1 ended after",
        "depth 1: turn 2 begins",
        "depth 1: the model answered after",
        "depth 1: turn 2 ended after",
    ]
    found = {step: [line for line in lines if line.startswith(f"job {job.id} {step}")] for step in steps}
    assert all(found.values())
    assert sorted(lines) == sorted(line for said in found.values() for line in said)
    assert sorted(steps, key=lambda step: lines.index(found[step][0])) == steps
    assert "1 tool calls, 100 tokens in, 10 out" in found[steps[1]][0]
    assert found[steps[3]][0].endswith(": success")
    assert found[steps[-1]][0].endswith(": completed")
    assert not [line for line in lines if "secret" in line or "hidden" in line]


async def test_the_log_says_nothing_of_steps_unless_it_is_asked_to(
    house: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    opened = await house(looking(1))
    async with opened.inside():
        await (await opened.start()).result()
    assert [record for record in caplog.records if record.name == LOGGER] == []
