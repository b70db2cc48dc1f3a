"""Agents whose turns are graphs that extend loom.tt: a guardrail, a critic, retrieval."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.runtime import Runtime
from loom_dsl.agent.messages import legal_order
from loom_dsl.graph.compiler import check_text
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import House, Opener
from tests.durability.reading import transcript
from worker import make_worker

pytestmark = pytest.mark.server
FOLDER = Path(__file__).parents[2] / "examples" / "extend"
READ = {"tool": "read_file", "args": {"path": "there.txt"}}


@asynccontextmanager
async def inside(house: House) -> AsyncIterator[None]:
    """A worker that has the example's functions."""
    sys.path.insert(0, str(FOLDER))
    try:
        registry = ToolRegistry.load(modules=["turns"])
    finally:
        sys.path.remove(str(FOLDER))
    environment = {"OPENAI_BASE_URL": house.url, "OPENAI_API_KEY": "none"}
    async with (
        Runtime(house.loom.store, registry, house.folder, environment=environment) as runtime,
        make_worker(house.loom.client, runtime, house.settings.task_queue, sandboxed=True),
    ):
        yield


async def run(house: House, turn: str, **fields: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Run an agent with these turns: its result and its conversation."""
    agent = house.agent(tools=["read_file"], permissions={"allow": ["read_file"]}, **fields)
    async with inside(house):
        job = await house.start(agent, turn=FOLDER / turn)
        result = await job.result()
    messages = await transcript(house.loom.store, f"s-{job.id}")
    assert legal_order(messages) == []
    return result, messages


@pytest.mark.parametrize("name", ["guardrail.yaml", "critic.yaml", "retrieval.yaml"])
def test_the_examples_pass_every_check(name: str) -> None:
    assert check_text((FOLDER / name).read_bytes(), name) == []


async def test_a_guardrail_lets_calls_pass(house: Opener) -> None:
    opened = await house([{"calls": [READ]}, {"say": "bye"}])
    result, messages = await run(opened, "guardrail.yaml")
    assert (result.status, result.answer) == ("completed", "bye")
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_guardrail_stops_a_job_before_a_call_is_made(house: Opener) -> None:
    opened = await house([{"calls": [{"tool": "read_file", "args": {"path": "secret.txt"}}]}, {"say": "never"}])
    result, messages = await run(opened, "guardrail.yaml")
    assert (result.status, result.error.code) == ("failed", "guardrail")
    assert result.error.message == "the model may not look at secret.txt"
    assert messages[-1]["role"] == "tool"  # the call that was not made has its answer


async def test_an_agent_goes_on_until_its_critic_agrees(house: Opener) -> None:
    opened = await house(
        [{"say": "first answer"}, {"say": "second answer"}],
        cases=[
            {"when": {"contains": "first answer"}, "steps": [{"say": "The date is missing."}]},
            {"when": {"contains": "second answer"}, "steps": [{"say": "OK, good."}]},
        ],
    )
    result, messages = await run(opened, "critic.yaml")
    assert (result.status, result.answer) == ("completed", "second answer")
    assert [m["content"] for m in messages if m["role"] == "user"][1:] == ["A reviewer says: The date is missing."]


async def test_notes_are_retrieved_at_every_third_turn(house: Opener) -> None:
    opened = await house([{"calls": [READ], "repeat": 4}, {"say": "bye"}])
    result, messages = await run(opened, "retrieval.yaml")
    assert result.status == "completed"
    notes = [m["content"] for m in messages if m["role"] == "system"]
    assert notes == [f"Notes: turn {turn}: the office is closed on Fridays" for turn in (0, 3)]
