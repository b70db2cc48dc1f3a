"""What a tool says while it works: the latest, now and then, and always the last."""

import asyncio
import threading

from loom_tools.running import ProgressReporter
from tests.support.waiting import PATIENCE


async def test_of_many_texts_the_first_and_the_last_are_told() -> None:
    told: list[str] = []
    first = asyncio.Event()

    async def tell(text: str) -> None:
        told.append(text)
        first.set()

    progress = ProgressReporter(tell, most=6, every=3_600)
    progress("begin")
    await first.wait()
    for number in range(10_000):
        progress(f"at {number} of many")
    await progress.settle()
    await progress.settle()
    assert told == ["begin", "at 999"]


async def test_a_last_text_that_nobody_settles_is_told_all_the_same() -> None:
    told: list[str] = []
    over = asyncio.Event()

    async def tell(text: str) -> None:
        told.append(text)
        if text == "the end":
            over.set()

    progress = ProgressReporter(tell, most=100, every=0.01)

    def work() -> None:
        for number in range(1_000):
            progress(number)
        progress("the end")

    threading.Thread(target=work).start()
    await asyncio.wait_for(over.wait(), PATIENCE)
    assert told[-1] == "the end"
    assert len(told) < 1_000
    assert told == [*sorted(told[:-1], key=int), "the end"]
