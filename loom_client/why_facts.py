"""What the store, the server and its queue know about a job that waits."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.service import RPCError

from loom_client.client import Loom
from loom_client.lost import is_running
from loom_client.needs import start_worker
from loom_client.pollers import pollers
from loom_client.render.text import place
from loom_client.server_errors import is_missing
from loom_client.serving_workers import identity, is_served, lacking, workers_of
from loom_dsl.errors import LoomError, MissingTools
from loom_dsl.events import EventType, decode
from loom_dsl.states import RunState
from loom_store.transaction import Transaction

NODES = frozenset({"loom.function.call", "loom.llm.call"})
LATEST_EVENTS = 300
ANSWER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Pending:
    """An activity that the server has not seen the end of.

    Attributes:
        activity: Its type.
        attempt: From 1.
        most: Attempts in all, 0 for no limit.
        since: When this attempt was taken by a worker, in seconds since 1970; None while it waits for one.
        first: When the first attempt was due.
        next_at: When the attempt is due, if it waits for its time.
        failure: What the attempt before said.
    """

    activity: str
    attempt: int = 1
    most: int = 0
    since: float | None = None
    next_at: float | None = None
    failure: str = ""
    first: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a job that has not ended.

    Attributes:
        row: The job's row in the store.
        approvals: Its pending approvals and then those of its child jobs, the oldest first.
        tools: Names of the tools that have begun and not ended.
        missing: What a worker said that lacks the job's tools, when nothing has happened since.
        server: Whether the server answers.
        closed: What the server calls the job's end, when the store does not know of one.
        worker: Whether a worker serves the job; None when that is not known.
        pending: The activities that the server waits for.
        step: The workflow task that it waits for: the worker's thinking between activities.
        queue: The task queue.
        address: The server's address.
        waits: What the tokens of a graph wait for, as the job says; None when it did not say.
        halted: Its steps that wait for a person, and those of its child jobs, which have `job` with the job's id.
        outages: Its steps that wait for the end of an outage.
        store: The store's id.
        workers: Those that serve the job's queue, as they told of themselves.
        lacks: Modules of the job's tools that none of them has; empty where other workers ask for its work, too.
        command: Starts a worker that has what the job needs; empty when that was not looked up.
    """

    row: Mapping[str, Any]
    approvals: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[str] = ()
    missing: str = ""
    server: bool = True
    closed: str = ""
    worker: bool | None = None
    pending: Sequence[Pending] = ()
    step: Pending | None = None
    queue: str = ""
    address: str = ""
    waits: Sequence[Mapping[str, Any]] | None = ()
    halted: Sequence[Mapping[str, Any]] = ()
    outages: Sequence[Mapping[str, Any]] = ()
    command: str = ""
    store: str = ""
    workers: Sequence[Mapping[str, Any]] = ()
    lacks: Sequence[str] = ()


async def gather(loom: Loom, job: str) -> Facts | None:
    """Collect what is known about a job; None when the store does not know it."""
    row, approvals, tools, lacks = await loom.store.read(lambda tx: _stored(tx, job))
    if row is None:
        return None
    known: dict[str, Any] = {"missing": lacks, "queue": loom.settings.task_queue, "address": loom.settings.address}
    if row["ended_at"]:
        return Facts(row, **known)
    known |= {"halted": await loom.store.read(lambda tx: halted_steps(tx, row)), "outages": row.get("waiting") or ()}
    known["command"] = await loom.store.read(lambda tx: start_worker(tx, row, loom.settings.task_queue))
    known["store"] = loom.store.id
    serving = await loom.store.read(lambda tx: workers_of(tx, row["namespace"], row["task_queue"]))
    known["workers"] = [dict(one.about) for one in serving]
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            described = await loom.job(job).handle.describe()
            seen = await pollers(loom.client, loom.queue)
    except TimeoutError:
        return Facts(row, approvals, tools, server=False, **known)
    except RPCError as error:
        known |= {"closed": "it is not there any more"} if is_missing(error) else {"server": False}
        return Facts(row, approvals, tools, **known)
    place = (row["namespace"], row["task_queue"])
    known["worker"] = await loom.store.read(lambda tx: is_served(tx, *place, seen))
    if set(seen) <= {identity(one.about) for one in serving}:
        known["lacks"] = await loom.store.read(lambda tx: lacking(tx, row, serving))
    if described.status is not None and not is_running(described):
        known["closed"] = described.status.name.lower()
    if described.raw_description.HasField("pending_workflow_task"):
        known["step"] = _step(described.raw_description.pending_workflow_task)
    known["pending"] = [_pending(raw) for raw in described.raw_description.pending_activities]
    wanted = known["halted"] or (not approvals and row.get("state") == RunState.RUNNING)
    if known["worker"] and not known["pending"] and wanted:
        known["waits"] = await _waits(loom, job)
    elif known["halted"]:
        known["waits"] = None
    return Facts(row, approvals, tools, **known)


async def _waits(loom: Loom, job: str) -> Sequence[Mapping[str, Any]] | None:
    """Ask a graph's job what its tokens wait for; None when it does not answer at once."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            waits: Sequence[Mapping[str, Any]] = (await loom.graph_job(job).status()).get("waits", ())
    except (TimeoutError, LoomError):
        return None
    return waits


def halted_steps(tx: Transaction, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the steps of a job that wait for a person, and those of its child jobs, with `job`."""
    below = [(child["job"], child["halted"]) for child in tx.jobs_below(row["job"]) if not child["ended_at"]]
    return [*(row.get("halted") or ()), *({**step, "job": job} for job, steps in below for step in steps or ())]


def _stored(tx: Transaction, job: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]], list[str], str]:
    running: dict[str, str] = {}
    missing = ""
    for offset, raw in tx.read_events(job, after=max(0, tx.last_offset(job) - LATEST_EVENTS), limit=LATEST_EVENTS):
        event = decode(job, offset, raw)
        call = str(event.data.get("tool_call_id", ""))
        if event.type == EventType.TOOL_START:
            running[call] = str(event.data.get("tool", ""))
        elif event.type == EventType.TOOL_RESULT:
            running.pop(call, None)
        lacks = event.type == EventType.WARNING and event.data.get("code") == MissingTools.code
        missing = str(event.data.get("message", "")) if lacks else ""
    asked = tx.approvals(status="pending", job=job)
    for child in tx.jobs_below(job):
        asked += [] if child["ended_at"] else tx.approvals(status="pending", job=child["job"])
    return tx.job(job), asked, list(running.values()), missing


def _pending(raw: Any) -> Pending:
    started = raw.state != PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    # A user's function is known by the node that calls it.
    node = place(raw.activity_id.partition("/")[2]) if raw.activity_type.name in NODES else ""
    due = raw.next_attempt_schedule_time if raw.HasField("next_attempt_schedule_time") else raw.scheduled_time
    return Pending(
        activity=node or raw.activity_type.name,
        attempt=raw.attempt,
        most=raw.maximum_attempts,
        since=raw.last_started_time.ToNanoseconds() / 1e9 if started else None,
        next_at=due.ToNanoseconds() / 1e9,
        failure=raw.last_failure.message,
        first=raw.scheduled_time.ToNanoseconds() / 1e9,
    )


def _step(raw: Any) -> Pending:
    return Pending(
        activity="",
        attempt=raw.attempt,
        since=raw.started_time.ToNanoseconds() / 1e9 if raw.HasField("started_time") else None,
        next_at=raw.original_scheduled_time.ToNanoseconds() / 1e9,
    )
