"""Wait for what is about to become true."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")


async def eventually(
    condition: Callable[[], Result | Awaitable[Result]], within: float = 10.0, *, every: float = 0.02
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
        if time.monotonic() > deadline:
            raise AssertionError(f"did not become true within {within:g} s; last: {said}")
        await asyncio.sleep(every)
