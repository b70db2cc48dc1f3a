"""What takes long for large arguments is done beside the event loop, so that a worker's other jobs go on."""

import asyncio
import threading

from loom_tools.running import SMALL, run_in_thread_if_large
from tests.support.waiting import PATIENCE


async def test_the_event_loop_goes_on_while_large_arguments_are_looked_at() -> None:
    went_on = threading.Event()
    looking = asyncio.create_task(
        run_in_thread_if_large({"command": "a" * (SMALL + 1)}, went_on.wait, timeout=PATIENCE)
    )
    asyncio.get_running_loop().call_soon(went_on.set)
    assert await looking


async def test_small_arguments_are_looked_at_at_once() -> None:
    assert await run_in_thread_if_large({"command": "ls", "timeout": 5}, threading.get_ident) == threading.get_ident()
    assert await run_in_thread_if_large({"command": "a" * (SMALL + 1)}, threading.get_ident) != threading.get_ident()
