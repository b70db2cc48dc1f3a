"""What the steps of the patterns do: next to nothing. In a graph of yours, they are functions of yours."""

import asyncio
from typing import Any


def work(item: Any = None) -> Any:
    """Give back what is given."""
    return item


async def watch() -> None:
    """Take so long that somebody cancels it."""
    await asyncio.sleep(3600)
