"""Wait for what is about to become true."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

Result = TypeVar("Result")

PATIENCE = 120.0
"""Seconds after which a test calls broken what it waits for.

Far more than a slow machine full of other work needs: the number is no property of what is tested. It is below the
limit of a whole test (`timeout` in pyproject.toml), so that what was waited for is told.
"""


async def eventually(
    condition: Callable[[], Result | Awaitable[Result]], within: float = PATIENCE, *, every: float = 0.02
) -> Result:
    """Call `condition` until it answers something true, and give that answer.

    An AssertionError that it raises means "not yet", so that it may hold plain asserts (and then return True); any
    other exception is a failure.

    Args:
        condition: Sync or async.
        within: Seconds after which to fail, with what the condition said last.
        every: Seconds between two calls.
    """
    deadline = time.monotonic() + within
    while True:
        said: object
        try:
            answer = condition()
            result = await answer if inspect.isawaitable(answer) else answer
            if result:
                return result
            said = result
        except AssertionError as error:
            said = error
        _check(deadline, within, said)
        await asyncio.sleep(every)


def until(condition: Callable[[], Result], within: float = PATIENCE, *, every: float = 0.02) -> Result:
    """Do what `eventually` does in a test that is not async: the condition is not async either."""
    deadline = time.monotonic() + within
    while True:
        said: object
        try:
            if result := condition():
                return result
            said = result
        except AssertionError as error:
            said = error
        _check(deadline, within, said)
        time.sleep(every)


def longer(seconds: float, most: float = PATIENCE) -> Iterator[float]:
    """Give a time limit that is under test, and then longer ones, for a test that ends the loop when one was kept.

    A limit that must end something begun says nothing where a slow machine had not begun it by then: the test tries
    again with four times as much. What comes of the last one counts, whatever it is.
    """
    while seconds < most:
        yield seconds
        seconds *= 4
    yield most


def _check(deadline: float, within: float, said: object) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"did not become true within {within:g} s; last: {said}")
