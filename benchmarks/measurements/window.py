"""How long a tool call's outcome hangs on Loom: from its intent to its function, and from its return to its outcome.

Another process looks at the store, as the worker would that takes over from one that died: what it sees, counts.
"""

import asyncio
import dataclasses
import multiprocessing
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.record.job_store import Conversation, JobFacts
from activities.registration import activities_of
from activities.runtime import Runtime
from benchmarks.report import Table, aim
from loom_dsl.agent.definition import Agent
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import tool
from loom_store.store import Store
from loom_tools.registry import ToolRegistry

AT_ONCE = (1, 16)
"""Calls at the same time."""
LOOK = 0.0001
"""Seconds between two looks of the other process."""
MAX_MILLISECONDS = 5.0
"""Milliseconds in the median that each part may take."""
WORK = 0.03
"""Seconds that the tool takes."""
_BEGAN: dict[str, float] = {}
_ENDED: dict[str, float] = {}
Seen = dict[str, tuple[float, float, float]]
"""By call: when the other process saw its intent, that it was called, and its outcome, on the monotonic clock."""


@tool
def pay(context: ToolContext) -> str:
    """Pay, and note when."""
    _BEGAN[context.call_id] = time.monotonic()
    time.sleep(WORK)
    _ENDED[context.call_id] = time.monotonic()
    return f"paid {context.call_id}"


def measure_window(*, quick: bool) -> Table:
    """Measure the stage that runs a tool, with a store on the disk, without an engine."""
    columns = ["", "intent to function, ms", "called to function, ms", "return to outcome, ms", "the longest", "aim"]
    table = Table("The part of Loom in unknown outcomes", columns)
    for at_once in AT_ONCE:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            parts = asyncio.run(_measured(Path(folder), at_once, 32 if quick else 320))
        medians = [1000 * statistics.median(part) for part in parts]
        longest = 1000 * max(called + outcome for _, called, outcome in zip(*parts, strict=True))
        cells = [f"{median:.2f}" for median in medians]
        table.rows.append([f"{at_once} at once", *cells, f"{longest:.1f}", aim(max(medians[1:]), MAX_MILLISECONDS)])
    table.notes.append(
        "When a worker dies, a call's outcome is unknown from the moment at which another process sees that its tool "
        "is called to that at which it sees the outcome, without the tool's own time. From the intent to that the "
        "tool was called, a call never began, and is run again. The longest: of the last two parts together. A tool "
        f"of {WORK * 1000:.0f} ms; the other process looks every {LOOK * 1000:.1f} ms."
    )
    return table


async def _measured(folder: Path, at_once: int, count: int) -> list[list[float]]:
    path, names = folder / "loom.db", [f"c{number}" for number in range(count)]
    with Store.open(path) as store:
        here, there = multiprocessing.Pipe()
        watcher = multiprocessing.get_context("spawn").Process(target=_watch, args=(str(path), count, there))
        watcher.start()
        await asyncio.to_thread(here.recv)
        execute, arguments = _stage(store, folder)
        places = asyncio.Semaphore(at_once)
        await asyncio.gather(*(_call(execute, arguments, name, places) for name in names))
        seen: Seen = await asyncio.to_thread(here.recv)
        watcher.join()
    parts = [(_BEGAN[n] - seen[n][0], _BEGAN[n] - seen[n][1], seen[n][2] - _ENDED[n]) for n in names]
    # What the other process saw a little late was there before it.
    return [[max(0.0, value) for value in part] for part in zip(*parts, strict=True)]


def _stage(store: Store, folder: Path) -> tuple[Callable[..., Any], str]:
    agent = Agent(name="payer", model="m", instructions="Go.", tools=("pay",), permissions={"allow": ["pay"]})
    runtime = Runtime(store, ToolRegistry({"pay": pay}, {}), folder, environment={})
    runtime.jobs._facts["job", "run"] = JobFacts(None, agent, folder, "s")  # type: ignore[arg-type]
    runtime.jobs._known["job", "run"] = Conversation("s", 1)
    arguments = store.write_sync(lambda tx: tx.put_blob(b"{}"))
    return activities_of(runtime)["loom.tool.execute"], arguments


async def _call(execute: Callable[..., Any], arguments: str, name: str, places: asyncio.Semaphore) -> None:
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, workflow_id="job", workflow_run_id="run", attempt=1)
    call = {"id": name, "name": "pay", "e": 0, "i": 0}
    given: dict[str, Any] = {"at": "execute#1", "with": {"call": call, "arguments": arguments, "remembered": []}}
    async with places:
        told = await environment.run(execute, given)
    if not told["ok"]:
        raise RuntimeError(str(told))


def _watch(path: str, count: int, tell: Connection) -> None:
    """Look at the ledger again and again, until every call has its outcome."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    intents: dict[str, float] = {}
    called: dict[str, float] = {}
    outcomes: dict[str, float] = {}
    tell.send("ready")
    while len(outcomes) < count:
        rows = connection.execute("SELECT call_id, status, started_at FROM effects").fetchall()
        now = time.monotonic()
        for name, status, started_at in rows:
            intents.setdefault(name, now)
            if started_at is not None:
                called.setdefault(name, now)
            if status != "pending":
                outcomes.setdefault(name, now)
        time.sleep(LOOK)
    tell.send({name: (intents[name], called[name], outcomes[name]) for name in outcomes})
    connection.close()
