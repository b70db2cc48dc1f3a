"""Durable bytes and memory."""

import asyncio
import sqlite3
import statistics
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psutil
from temporalio.client import Client

from benchmarks.report import Table, aim
from benchmarks.stand.contestants import HandWritten, LoomJobs, LoomSide, Stand
from benchmarks.stand.tools import text_of
from benchmarks.stand.workload import Workload
from loom_client.job import Job
from loom_dsl.agent.run import RunInput
from loom_store.store import Store

KIB, MIB = 1024, 1024 * 1024
PLAIN = Workload(turns=100)
SHORT = Workload(turns=10)
LARGE = Workload(turns=100, size=5_000)
THOUSAND = Workload(turns=1_000)
HEAVY_TURNS = 10
HEAVY = Workload(turns=HEAVY_TURNS)
APPROVAL = Workload(turns=1, tool="change")
WORKLOADS = [PLAIN, SHORT, LARGE, THOUSAND, HEAVY, APPROVAL]
OPENING_BYTES = 800_000
ROW = 30
"""Bytes of a row beside its texts: its numbers, and its place in an index."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a job left behind, in bytes.

    Attributes:
        history: Of each of its runs, in order.
        store: What the store grew by, without streamed text.
        deltas: Streamed text in the store.
    """

    history: list[int]
    store: int
    deltas: int

    @property
    def total(self) -> int:
        """History and store, streamed text left out."""
        return sum(self.history) + self.store


async def weigh_bytes(stand: Stand, *, full: bool) -> Table:
    """Weigh what jobs leave behind: per turn, over many turns, and after a large opening."""
    other = await stand.hand_written()
    table = Table("Durable bytes", ["", "history", "store", "KB/turn", "streamed text KB/turn", "aim"])
    for workload in (PLAIN, LARGE):
        own = workload.size
        for policy in ("per_turn", "adaptive"):
            # A store of its own: equal contents are stored once, so a second job would find the first one's.
            side = await stand.loom(f"{policy}-{own}")
            weighed = await _weigh(side, LoomJobs(side, policy), workload)
            beyond = weighed.total / workload.turns - own
            name = f"Loom {policy}, {workload.turns} turns, results of {own} bytes"
            table.rows.append(_row(name, weighed, workload.turns, aim(beyond / KIB, 8, form=".0f")))
        size = await _loop_history(other, workload)
        table.rows.append(_row(f"(b), {workload.turns} turns, results of {own} bytes", size, workload.turns, ""))
    opening, side = _opening(), await stand.loom("opening")
    weighed = await _weigh(side, LoomJobs(side, "per_turn"), PLAIN, RunInput(input_messages=tuple(opening)))
    table.rows.append(
        _row("Loom per_turn, 100 turns after 800 KB", weighed, 100, aim(weighed.total / MIB, 3, form=".0f") + " MB")
    )
    size = await _loop_history(other, HEAVY, [{"role": "system", "content": "Answer briefly."}, *opening])
    table.rows.append(_row(f"(b), {HEAVY_TURNS} turns after 800 KB", size, HEAVY_TURNS, ""))
    table.notes.append(
        "History: all runs of the job, by the server's own count. The aim of 8 KB a turn is beyond the result's own "
        "bytes, which are in KB/turn here. Text of the tools is pseudo-random words, which deflate to about half."
    )
    table.notes.append(await _flatness(await stand.loom("flat"), THOUSAND if full else PLAIN))
    return table


async def weigh_memory(stand: Stand, *, full: bool) -> Table:
    """Weigh a worker: at rest, after many turns, and with many jobs that wait for a human."""
    table = Table("Worker memory (resident)", ["", "MB"])
    for sandboxed in (False, True):
        note = ", sandboxed" if sandboxed else ""
        side = await stand.loom("memory-boxed" if sandboxed else "memory", sandboxed=sandboxed)
        table.rows.append([f"at rest{note}", _resident(side)])
        workload = THOUSAND if full else PLAIN
        await LoomJobs(side, "per_turn").run(SHORT)
        table.rows.append([f"after 10 turns{note}", _resident(side)])
        await LoomJobs(side, "per_turn").run(workload)
        table.rows.append([f"after {workload.turns} more turns{note}", _resident(side)])
        await _wait_for_approvals(side, 200)
        table.rows.append([f"with 200 jobs that wait for an approval{note}", _resident(side)])
    return table


def _size(store: Store) -> int:
    """Bytes of all tables of a store, with their indices."""
    with closing(sqlite3.connect(store.path)) as opened:
        return int(opened.execute("SELECT sum(pgsize) FROM dbstat").fetchone()[0])


async def _weigh(side: LoomSide, jobs: LoomJobs, workload: Workload, task: Any = "Look everything up.") -> Weighed:
    store = side.loom.store
    before, streamed = _size(store), _streamed(side)
    job = await jobs.start(workload, task, max_context_tokens=2_000_000)
    await job.result()
    deltas = _streamed(side) - streamed
    grown = _size(store) - before
    return Weighed(await history_of(side.loom.client, job.id), grown - deltas, deltas)


async def _loop_history(
    other: HandWritten, workload: Workload, messages: list[dict[str, Any]] | None = None
) -> Weighed:
    handle = await other.start(workload, messages)
    await handle.result()
    return Weighed(await history_of(other.client, handle.id), 0, 0)


async def history_of(client: Client, workflow: str) -> list[int]:
    """Give the history's bytes of each run of a workflow, oldest first."""
    run, sizes = (await client.get_workflow_handle(workflow).describe()).run_id, []
    while run:
        handle = client.get_workflow_handle(workflow, run_id=run)
        described = await handle.describe()
        sizes.append(described.raw_description.workflow_execution_info.history_size_bytes)
        # From run to run: the server's list of them may lag behind.
        first = await anext(aiter(handle.fetch_history_events(page_size=1)))
        run = first.workflow_execution_started_event_attributes.continued_execution_run_id
    return sizes[::-1]


def _streamed(side: LoomSide) -> int:
    """Bytes of streamed text: the events that have no key."""
    with closing(sqlite3.connect(f"file:{side.loom.store.path}?mode=ro", uri=True)) as connection:
        query = f"SELECT coalesce(sum(length(body) + {ROW}), 0) FROM events WHERE key_hash IS NULL"
        return int(connection.execute(query).fetchone()[0])


async def _flatness(side: LoomSide, workload: Workload) -> str:
    """Hold the last turns of a job against its first, by the bytes of the rows and of the runs' histories."""
    window = workload.turns // 10
    job = await LoomJobs(side, "per_turn").start(workload)
    await job.result()
    history = await history_of(side.loom.client, job.id)
    stored = await _stored_by_turn(side, job, workload.turns)
    turns = [kept + run for kept, run in zip(stored, history[: workload.turns], strict=True)]
    # Not the first turn: it brings the plan, the task and the system message.
    first, last = statistics.mean(turns[1 : 1 + window]), statistics.mean(turns[-window:])
    ratio = last / first
    return (
        f"Flat: of {workload.turns} turns, the last {window} left {last / KIB:.1f} KB each (rows and history, with "
        f"streamed text), the first {window} {first / KIB:.1f} KB each: {ratio:.2f} ×, aim {aim(ratio, 1.1)}. A run's "
        f"history: {history[1] / KIB:.1f} KB in turn 1, {history[-2] / KIB:.1f} KB in turn {workload.turns - 1}."
    )


async def _stored_by_turn(side: LoomSide, job: Job, turns: int) -> list[int]:
    """Give the bytes of rows that each turn of the only job of a store left: messages, their contents, and events."""
    sizes = [0] * (turns + 1)
    turn_of = {event.offset: event.turn async for event in job.events(follow=False)}
    with closing(sqlite3.connect(f"file:{side.loom.store.path}?mode=ro", uri=True)) as connection:
        entries = (
            "SELECT e.turn, length(e.head) + length(e.key) + coalesce(length(b.body), 0) "
            "FROM entries e LEFT JOIN blobs b ON b.id = e.content"
        )
        for turn, size in connection.execute(entries):
            sizes[turn] += size + ROW
        for last, size in connection.execute("SELECT last, length(body) FROM events"):
            sizes[turn_of[last]] += size + ROW
    return sizes[:turns]


def _opening() -> list[dict[str, Any]]:
    count, size = 160, OPENING_BYTES // 160
    # All of them a user's: the scripted model counts the assistant's to know its step.
    messages = [{"role": "user", "content": text_of(f"opening {n}", size)} for n in range(count)]
    return [*messages, {"role": "user", "content": "Look everything up."}]


def _row(name: str, weighed: Weighed, turns: int, wanted: str) -> list[str]:
    return [
        name,
        f"{sum(weighed.history) / KIB:.0f} KB",
        f"{weighed.store / KIB:.0f} KB",
        f"{weighed.total / turns / KIB:.1f}",
        f"{weighed.deltas / turns / KIB:.2f}",
        wanted,
    ]


def _resident(side: LoomSide) -> str:
    return f"{psutil.Process(side.process.pid).memory_info().rss / MIB:.0f}"


async def _wait_for_approvals(side: LoomSide, count: int) -> None:
    jobs, gate = LoomJobs(side, "per_turn"), asyncio.Semaphore(10)

    async def start() -> None:
        async with gate:
            await jobs.start(APPROVAL)

    async with asyncio.timeout(180), asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(start())
    async with asyncio.timeout(180):
        while len(await side.loom.approvals()) < count:  # noqa: ASYNC110 - another process writes the store
            await asyncio.sleep(0.2)
