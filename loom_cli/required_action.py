"""Why a job waits, in one line: of what is known about it, what tells most."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.service import RPCError

from loom_cli.render.approvals import how_to_approve
from loom_cli.render.halts import halted_texts, waiting_text
from loom_cli.render.text import place, plural
from loom_client.client import Loom
from loom_client.requirements import start_worker
from loom_client.server.errors import is_missing
from loom_client.server.reconcile import is_running
from loom_client.server.workers import identity, is_served, lacking, pollers, workers_of
from loom_client.settings import worker_command
from loom_dsl.agent.states import RunState
from loom_dsl.errors import LoomError, MissingTools
from loom_dsl.machine.status import Wait
from loom_dsl.observe.events import EventType, decode
from loom_dsl.text.abridgement import abridge
from loom_dsl.text.printable import clock, moment_of, one_line
from loom_store.transaction import Transaction

# What the store, the server and its queue know about a job that waits.


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
    waits: Sequence[Wait] | None = ()
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
    required_action = known["halted"] or (not approvals and row.get("state") == RunState.RUNNING)
    if known["worker"] and not known["pending"] and required_action:
        known["waits"] = await _waits(loom, job)
    elif known["halted"]:
        known["waits"] = None
    return Facts(row, approvals, tools, **known)


async def _waits(loom: Loom, job: str) -> Sequence[Wait] | None:
    """Ask a graph's job what its tokens wait for; None when it does not answer at once."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            waits = (await loom.graph_job(job).status()).waits
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


MODEL, TOOL, COMPRESS = "loom.model.call", "loom.tool.execute", "loom.context.compress"
_KINDS = {MODEL: "model", TOOL: "tool", COMPRESS: "compression", "loom.approval.announce": "notice"}
MAX_WAITS = 3
SLOW_STEP = 3.0
"""Seconds after which work that no worker has taken is worth telling; taking it is a matter of milliseconds."""


def reason(facts: Facts, now: float, *, steady: bool = False) -> str:
    """Say in one line why the job is where it is.

    Args:
        facts: What is known.
        now: Seconds since 1970.
        steady: Leave out what changes while nothing happens.
    """
    row = facts.row
    if row.get("ended_at"):
        return f"it has ended: {_phrase(row.get('status'))}"
    if facts.closed:
        return f"it was ended on the server ({facts.closed}), outside Loom"
    if not facts.server:
        return f"the Temporal server at {facts.address} does not answer; start it with `loom dev`"
    if facts.halted:
        busy, nobody = _busy(facts, now), unserved(facts)
        told = halted_texts(facts.halted, str(row["job"]), now) + (f"; meanwhile {busy}" if busy else "")
        return told + (f"; and {nobody}" if nobody else "")
    if row.get("paused_by"):
        return f"paused by {one_line(str(row['paused_by']), 80)}; go on with `loom resume {row['job']}`"
    nobody = unserved(facts)
    if facts.approvals:
        return _approval(facts.approvals, str(row["job"]), now) + (f"; and {nobody}" if nobody else "")
    if facts.outages:
        told = waiting_text(facts.outages[0], now, steady=steady)
        return told + (f"; and {nobody}" if nobody else "")
    return nobody or _work(facts, now)


def unserved(facts: Facts) -> str:
    """Say in one line that no worker serves the job, and what to do; empty where one does, or that is not known."""
    if facts.worker is not False:
        return ""
    start = f"start one with `{facts.command or worker_command(facts.queue)}`"
    return f"no worker serves this job's store (id {facts.store}) on the queue {facts.queue}; {start}"


def required_action(facts: Facts, now: float) -> str:
    """Say in one line what a person has to do before the job goes on, and why; empty when nobody has to.

    Args:
        facts: What is known.
        now: Seconds since 1970.
    """
    if facts.row.get("ended_at") or facts.closed or not facts.server:
        return ""
    line = reason(facts, now, steady=True)
    if facts.halted or facts.outages:
        return line
    if facts.approvals and not facts.row.get("paused_by"):
        first = facts.approvals[0]
        return f"{line}; decide with `{how_to_approve(first['job'], first['id'], first.get('choices', ()))}`"
    asks = facts.row.get("paused_by") or any(wait.event is not None for wait in facts.waits or ())
    return line if asks or facts.worker is False or facts.missing or facts.lacks else ""


async def why(loom: Loom, job: str, has_told: Callable[[Sequence[Mapping[str, Any]]], bool] = lambda _: False) -> str:
    """Say in one line why a job is where it is; empty when the store does not know it, and when it has ended.

    Args:
        loom: The connection.
        job: The job's id.
        has_told: Says whether somebody has been told of these halted steps: then only what goes on beside them is said.
    """
    facts = await gather(loom, job)
    if facts is None or facts.row["ended_at"]:
        return ""
    now = time.time()
    if facts.halted and facts.server and has_told(facts.halted):
        return _busy(facts, now)
    return reason(facts, now, steady=True)


def _work(facts: Facts, now: float) -> str:
    """What the worker is at, or is kept from."""
    command = facts.command or worker_command(facts.queue)
    if facts.step is not None and (stuck := _stuck(facts.step, command, now)):
        return stuck
    if facts.missing:
        return one_line(facts.missing, 240)
    if facts.lacks:
        return one_line(f"no worker has its tools {', '.join(facts.lacks)}; start one with `{command}`", 240)
    retry = next((p for p in facts.pending if p.attempt > 1 and p.since is None), None)
    if retry is not None:
        return _retry(retry, now) + _untaken(retry, command, now)
    queued = next((p for p in facts.pending if p.since is None), None)
    if queued is not None and (untaken := _untaken(queued, command, now)):
        return f"{_KINDS.get(queued.activity, queued.activity)} due{untaken}"
    running = next((p for p in facts.pending if p.since is not None), None)
    if running is not None:
        return _running(running, facts.tools, now)
    waits = facts.waits or ()
    if not waits:
        return _phrase(facts.row.get("state"))
    return abridge(waits, MAX_WAITS, lambda wait: _wait(wait, facts.row["job"], now), between="; ", rest="; and ")


def _busy(facts: Facts, now: float) -> str:
    """What goes on beside the steps that are halted."""
    running = next((p for p in facts.pending if p.since is not None), None)
    if running is not None:
        return _running(running, facts.tools, now)
    return waiting_text(facts.outages[0], now, steady=True) if facts.outages else ""


def stands_still(facts: Facts, now: float) -> bool:
    """Whether a job has steps that wait for a person, and nothing else of it goes on by itself.

    Its child jobs are not looked into: what waits for one is taken to stand as still as that one does.

    Args:
        facts: What is known.
        now: Seconds since 1970.
    """
    if facts.row.get("ended_at") or facts.closed or not facts.server or not facts.halted:
        return False
    if facts.pending or facts.step is not None or facts.outages or facts.waits is None:
        return False
    expired = {step.get("approval") for step in facts.halted}
    timed = (asked for asked in facts.approvals if asked["id"] not in expired and asked.get("expires_at"))
    return not any(wait.until is not None for wait in facts.waits) and not any(
        moment_of(asked["expires_at"]) > now for asked in timed
    )


def _wait(wait: Wait, job: str, now: float) -> str:
    """What one token of a graph waits for."""
    at = place(wait.at)
    if wait.event is not None:
        name = one_line(wait.event, 60)
        key = "" if wait.key is None else f" --key {one_line(str(wait.key), 40)}"
        return f"{at} waits for the event {name}: `loom event {job} {name}{key}`"
    if wait.child is not None:
        return f"{at} waits for the job {wait.child}: `loom show {wait.child}`"
    return f"{at} waits until {clock(wait.until or now, now)}"


def _stuck(step: Pending, command: str, now: float) -> str:
    """A workflow task takes milliseconds; one that takes seconds is not taken, or fails and is tried again."""
    begun = step.next_at or now
    if step.attempt > 1:
        return f"the worker fails to carry it on (attempt {step.attempt} since {clock(begun, now)}); its log says why"
    if step.since is None and now - begun > SLOW_STEP:
        return f"no worker has taken its work since {clock(begun, now)}; start one with `{command}`"
    return ""


def _untaken(pending: Pending, command: str, now: float) -> str:
    """A worker that has ended is listed for a minute more; what it does not take tells."""
    if pending.next_at is None or now - pending.next_at <= SLOW_STEP:
        return ""
    return f"; no worker has taken it since {clock(pending.next_at, now)}: if none is up start one with `{command}`"


def _retry(pending: Pending, now: float) -> str:
    late = {"activity StartToClose timeout": "over its timeout", "activity Heartbeat timeout": "its worker was lost"}
    failure = late.get(pending.failure, one_line(pending.failure, 160))
    if not pending.most and pending.first is not None:
        tries = f"{plural(pending.attempt - 1, 'try', 'tries')} since {clock(pending.first, now)}"
        kind = _KINDS.get(pending.activity, pending.activity)
        return f"{kind}: no worker could finish this step: {tries}" + (f"; last: {failure}" if failure else "")
    left = (pending.next_at or now) - now
    # No countdown: who watches without a terminal is told a reason once, until it is another one.
    when = f"at {clock(pending.next_at or now, now)}" if left > 0 else "now"
    most = f" of {pending.most - 1}" if pending.most else ""
    because = f": {failure}" if failure else ""
    return f"{_KINDS.get(pending.activity, pending.activity)} retry {pending.attempt - 1}{most} {when}{because}"


def _approval(approvals: Sequence[Mapping[str, Any]], job: str, now: float) -> str:
    first = approvals[0]
    more = f" and {plural(len(approvals) - 1, 'more approval')}" if len(approvals) > 1 else ""
    expires = ""
    if first.get("expires_at"):
        left = moment_of(first["expires_at"]) - now
        expires = f" (until {clock(first['expires_at'], now)})" if left > 0 else " (it is past its time)"
    tool = one_line(str(first.get("tool") or place(str(first.get("node") or "")) or "a node"), 60)
    below = f" of job {first['job']}" if first.get("job", job) != job else ""
    return f"approval {first['id']} ({tool}){below} since {clock(first['created_at'], now)}{expires}{more}"


def _running(pending: Pending, tools: Sequence[str], now: float) -> str:
    since = f"since {clock(pending.since or now, now)}"
    retry = f", attempt {pending.attempt}" if pending.attempt > 1 else ""
    if pending.activity == TOOL:
        names = ", ".join(dict.fromkeys(one_line(name, 60) for name in tools))
        return f"tool {names or 'call'} running {since}{retry}"
    if pending.activity == MODEL:
        return f"the model is answering {since}{retry}"
    if pending.activity == COMPRESS:
        return f"the conversation is being compressed {since}{retry}"
    return f"{pending.activity} running {since}{retry}"


def _phrase(state: object) -> str:
    known = {member.value: member.phrase for member in RunState}
    return known.get(str(state), one_line(str(state), 60))
