"""How long a worker waits for what a tool's author wrote besides the tool's function: a summary, a preview, a check."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from loom_tools.running import ask
from loom_tools.user_code import Raised
from tests.support.waiting import PATIENCE, eventually, longer

SECONDS = 0.05


async def asked_on_a_busy_machine(function: Callable[[], object]) -> object:
    """Ask, while the event loop gets no time from before the answer is there until its time is over."""
    for seconds in longer(SECONDS):  # which may be over on this machine before the question was even asked
        asking, begun = await _asked(function, seconds)
        if begun:
            break
        await asyncio.gather(asking, return_exceptions=True)
    return await asking


async def _asked(function: Callable[[], object], seconds: float) -> tuple[asyncio.Task[object], bool]:
    """Ask once; the question, and whether it was being answered before its time was over."""
    busy, threads = threading.Event(), list[threading.Thread]()

    def answer() -> object:
        threads.append(threading.current_thread())
        assert busy.wait(PATIENCE)
        return function()

    began = time.monotonic()
    asking = asyncio.create_task(ask(answer, seconds=seconds))
    await eventually(lambda: threads, every=0)
    begun = time.monotonic() < began + seconds
    busy.set()
    threads[0].join(PATIENCE)
    time.sleep(max(0.0, began + 3 * seconds - time.monotonic()))  # noqa: ASYNC251 - the machine is busy
    return asking, begun


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
            await ask(never.wait, PATIENCE, seconds=SECONDS)
    finally:
        never.set()
