"""How long a worker waits for what a tool's author wrote besides the tool's function: a summary, a preview, a check."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from activities.tool_run import Raised, ask
from tests.support.waiting import PATIENCE

SECONDS = 0.05


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.tool_run.ANSWER_SECONDS", SECONDS)


async def asked_on_a_busy_machine(function: Callable[[], object]) -> object:
    """Ask, while the event loop gets no time from before the answer is there until its time is over."""
    busy, answering = threading.Event(), threading.Event()

    def answer() -> object:
        assert busy.wait(PATIENCE)
        answering.set()
        return function()

    asking = asyncio.create_task(ask(answer))
    await asyncio.sleep(0)  # it waits now
    busy.set()
    assert answering.wait(PATIENCE)
    time.sleep(4 * SECONDS)  # noqa: ASYNC251 - the machine is busy
    return await asking


async def test_an_answer_that_came_in_time_counts_although_it_is_looked_at_late() -> None:
    assert await asked_on_a_busy_machine(lambda: "here") == "here"


async def test_so_does_what_was_raised_in_time() -> None:
    with pytest.raises(Raised) as caught:
        await asked_on_a_busy_machine(lambda: 1 / 0)
    assert isinstance(caught.value.error, ZeroDivisionError)


async def test_who_does_not_answer_is_not_waited_for() -> None:
    never = threading.Event()
    try:
        with pytest.raises(TimeoutError):
            await ask(never.wait, PATIENCE)
    finally:
        never.set()
