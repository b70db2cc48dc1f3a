"""Many short programs, one after the other: each connects, calls, and ends as the interpreter does.

    python -m tests.support.short_programs ADDRESS STORE COUNT FOLDER

A program is forked off one that has imported everything and begun nothing, so that most of its time is its end. It is
of one of the kinds below; what it prints goes to a file of its own in FOLDER. At the end it is printed how many of each
kind ended with which status.
"""

import asyncio
import atexit
import collections
import json
import os
import signal
import sys
from pathlib import Path

from loom_client import Loom, connect

AT_ONCE = 2
SECONDS = 120
"""After so long a program is ended by the signal SIGALRM: it hangs."""


async def asks(loom: Loom) -> None:
    """Ends with nothing under way."""
    await loom.has_worker()


async def leaves(loom: Loom) -> None:
    """Ends while calls are under way."""
    # Calls that need no database: a server on SQLite may not survive that many of those are broken off.
    calls = [asyncio.ensure_future(loom.client.service_client.check_health()) for _ in range(20)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)


async def exits(loom: Loom) -> None:
    """Ends with a status of its own while calls are under way."""
    await leaves(loom)
    sys.exit(3)


async def fails(loom: Loom) -> None:
    """Ends with an exception, whose traceback keeps the connection, while calls are under way."""
    await leaves(loom)
    raise ValueError("a mistake of the program")


KINDS = {"asks": (asks, 0), "leaves": (leaves, 0), "exits": (exits, 3), "fails": (fails, 1)}


async def main(address: str, store: str, kind: str) -> None:
    async with connect(address=address, store=store, connect_seconds=60) as loom:
        print("connected")
        await KINDS[kind][0](loom)


def begin(address: str, store: str, kind: str, file: Path) -> None:
    """Be a program of a kind: the rest of this process is its own ending."""
    signal.alarm(SECONDS)
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    atexit.register(print, "the program's own end")
    asyncio.run(main(address, store, kind))


def program(address: str, store: str, count: int, folder: Path) -> None:
    """Fork the programs, and print their statuses by kind; in a fork, be one of them."""
    ended: dict[str, collections.Counter[int]] = {kind: collections.Counter() for kind in KINDS}
    running: dict[int, str] = {}
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]
        child = os.fork()
        if child == 0:
            begin(address, store, kind, folder / f"{kind}-{number}")
            return
        running[child] = kind
        if len(running) == AT_ONCE:
            _take_one(running, ended)
    while running:
        _take_one(running, ended)
    print(json.dumps(ended))


def _take_one(running: dict[int, str], ended: dict[str, collections.Counter[int]]) -> None:
    child, status = os.wait()
    ended[running.pop(child)][os.waitstatus_to_exitcode(status)] += 1


if __name__ == "__main__":
    program(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
