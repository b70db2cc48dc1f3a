"""A job whose time is over ends in the middle of its turn, and its conversation stays legal."""

import asyncio
from typing import Any

import pytest

from tests.durability.conftest import Opener
from tests.durability.reading import account, histories
from tests.support.external import BEGUN, lines
from tests.support.waiting import PATIENCE, longer

pytestmark = pytest.mark.server
CALLS: list[dict[str, Any]] = [{"say": "I call.", "calls": [{"tool": "linger", "args": {"text": "one"}}]}]


@pytest.mark.parametrize("steps", [[{"hang": True}], [*CALLS, {"say": "never"}]], ids=["model", "tool"])
async def test_a_job_ends_with_the_limits_code_while_a_model_or_a_tool_is_at_work(
    house: Opener, steps: list[dict[str, Any]]
) -> None:
    opened = await house(steps)
    async with opened.inside():
        for seconds in longer(1.5):
            asked = opened.model.count
            agent = opened.agent(limits={"max_run_duration": f"{seconds:g}s"})
            job = await opened.start(agent, hold=True)
            found = await asyncio.wait_for(account(opened.loom.store, job), 2 * PATIENCE)
            if lines(opened.workdir(job), BEGUN) or (len(steps) == 1 and opened.model.count > asked):
                break
    assert (found.status, found.error) == ("failed", "max_run_duration: the time limit was reached")
    assert len(lines(opened.workdir(job), BEGUN)) == (len(steps) > 1)
    roles = [message["role"] for message in found.messages]
    assert roles == (["user"] if len(steps) == 1 else ["user", "assistant", "tool"])
    (run,) = await histories(opened.loom.client, job.id)
    assert sum(event.HasField("timer_started_event_attributes") for event in run.events) == 1
