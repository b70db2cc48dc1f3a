"""Why a job waits, in one line: what the store, the server and its queue know about it, most telling first."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import temporalio.service
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError

from loom_client.client import Loom
from loom_client.needs import start_worker
from loom_client.render.approvals import how_to_approve
from loom_client.render.text import clock, moment_of, one_line, place, plural
from loom_client.settings import worker_command
from loom_dsl.errors import LoomError, MissingTools
from loom_dsl.events import EventType, decode
from loom_dsl.machine_approvals import HALTED_BY
from loom_dsl.states import RunState
from loom_store.transaction import Transaction

MODEL, TOOL = "loom.model.call", "loom.tool.execute"
_KINDS = {MODEL: "model", TOOL: "tool", "loom.approval.announce": "notice"}
NODES = frozenset({"loom.function.call", "loom.llm.call"})
MOST_WAITS = 3
LATEST_EVENTS = 300
ANSWER_SECONDS = 3.0
SLOW_STEP = 3.0


@dataclass(frozen=True, slots=True)
class Pending:
    """An activity that the server has not seen the end of.

    Attributes:
        activity: Its type.
        attempt: From 1.
        most: Attempts in all, 0 for no limit.
        since: When this attempt was taken by a worker, in seconds since 1970; None while it waits for one.
        next_at: When the attempt is due, if it waits for its time.
        failure: What the attempt before said.
    """

    activity: str
    attempt: int = 1
    most: int = 0
    since: float | None = None
    next_at: float | None = None
    failure: str = ""


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
        worker: Whether a worker asks for work; None when that is not known.
        pending: The activities that the server waits for.
        step: The workflow task that it waits for: the worker's thinking between activities.
        queue: The task queue.
        address: The server's address.
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
    waits: Sequence[Mapping[str, Any]] = ()
    """What the tokens of a graph wait for, as the job says."""
    command: str = ""
    """Starts a worker that has what the job needs; empty when that was not looked up."""


def reason(facts: Facts, now: float) -> str:
    """Say in one line why the job is where it is.

    Args:
        facts: What is known.
        now: Seconds since 1970.
    """
    row = facts.row
    if row.get("ended_at"):
        return f"it has ended: {_phrase(row.get('status'))}"
    if facts.closed:
        return f"it was ended on the server ({facts.closed}), outside Loom"
    if not facts.server:
        return f"the Temporal server at {facts.address} does not answer; start it with `loom dev`"
    if row.get("paused_by") == HALTED_BY and facts.approvals:
        halted = min(facts.approvals, key=lambda asked: asked.get("expires_at") is not None)  # it has no time any more
        name = one_line(str(halted["id"]), 80)
        decide = f"decide it with `loom approve {row['job']} {name}` or `loom reject`"
        return f"halted: nobody decided {name} in time; {decide}, or have it asked anew with `loom resume {row['job']}`"
    if row.get("paused_by"):
        return f"paused by {one_line(str(row['paused_by']), 80)}; go on with `loom resume {row['job']}`"
    start = f"start one with `{facts.command or worker_command(facts.queue)}`"
    nobody = f"no worker on the queue {facts.queue}; {start}" if facts.worker is False else ""
    if facts.approvals:
        return _approval(facts.approvals, str(row["job"]), now) + (f"; and {nobody}" if nobody else "")
    return nobody or _work(facts, now)


def wanted(facts: Facts, now: float) -> str:
    """Say in one line what a person has to do before the job goes on, and why; empty when nobody has to.

    Args:
        facts: What is known.
        now: Seconds since 1970.
    """
    if facts.row.get("ended_at") or facts.closed or not facts.server:
        return ""
    line = reason(facts, now)
    if facts.approvals and not facts.row.get("paused_by"):
        first = facts.approvals[0]
        return f"{line}; decide with `{how_to_approve(first['job'], first['id'], first.get('choices', ()))}`"
    return line if facts.row.get("paused_by") or any("event" in wait for wait in facts.waits) else ""


def _work(facts: Facts, now: float) -> str:
    """What the worker is at, or is kept from."""
    command = facts.command or worker_command(facts.queue)
    if facts.step is not None and (stuck := _stuck(facts.step, command, now)):
        return stuck
    if facts.missing:
        return one_line(facts.missing, 240)
    retry = next((p for p in facts.pending if p.attempt > 1 and p.since is None), None)
    if retry is not None:
        return _retry(retry, now) + _untaken(retry, command, now)
    queued = next((p for p in facts.pending if p.since is None), None)
    if queued is not None and (untaken := _untaken(queued, command, now)):
        return f"{_KINDS.get(queued.activity, queued.activity)} due{untaken}"
    running = next((p for p in facts.pending if p.since is not None), None)
    if running is not None:
        return _running(running, facts.tools, now)
    told = [_wait(wait, facts.row["job"], now) for wait in facts.waits[:MOST_WAITS]]
    more = f"; and {len(facts.waits) - MOST_WAITS} more" if len(facts.waits) > MOST_WAITS else ""
    return "; ".join(told) + more if told else _phrase(facts.row.get("state"))


def _wait(wait: Mapping[str, Any], job: str, now: float) -> str:
    """What one token of a graph waits for."""
    at = place(str(wait["at"]))
    if "event" in wait:
        name = one_line(str(wait["event"]), 60)
        key = "" if wait.get("key") is None else f" --key {one_line(str(wait['key']), 40)}"
        return f"{at} waits for the event {name}: `loom event {job} {name}{key}`"
    if "child" in wait:
        return f"{at} waits for the job {wait['child']}: `loom show {wait['child']}`"
    return f"{at} waits until {clock(wait['until'], now)}"


async def gather(loom: Loom, job: str) -> Facts | None:
    """Collect what is known about a job; None when the store does not know it."""
    row, approvals, tools, lacks = await loom.store.read(lambda tx: _stored(tx, job))
    if row is None:
        return None
    known: dict[str, Any] = {"missing": lacks, "queue": loom.settings.task_queue, "address": loom.settings.address}
    if row["ended_at"]:
        return Facts(row, **known)
    known["command"] = await loom.store.read(lambda tx: start_worker(tx, row, loom.settings.task_queue))
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            described = await loom.job(job).handle.describe()
            known["worker"] = await loom.has_worker()
    except TimeoutError:
        return Facts(row, approvals, tools, server=False, **known)
    except temporalio.service.RPCError as error:
        missing = error.status is temporalio.service.RPCStatusCode.NOT_FOUND
        known |= {"closed": "it is not there any more"} if missing else {"server": False}
        return Facts(row, approvals, tools, **known)
    if described.status not in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW, None):
        known["closed"] = described.status.name.lower()
    if described.raw_description.HasField("pending_workflow_task"):
        known["step"] = _step(described.raw_description.pending_workflow_task)
    known["pending"] = [_pending(raw) for raw in described.raw_description.pending_activities]
    if known["worker"] and not known["pending"] and not approvals and row.get("state") == RunState.RUNNING:
        known["waits"] = await _waits(loom, job)
    return Facts(row, approvals, tools, **known)


async def _waits(loom: Loom, job: str) -> Sequence[Mapping[str, Any]]:
    """Ask a graph's job what its tokens wait for; nothing when it does not answer at once."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            waits: Sequence[Mapping[str, Any]] = (await loom.graph_job(job).status()).get("waits", ())
    except (TimeoutError, LoomError, temporalio.service.RPCError, WorkflowQueryFailedError):
        return ()
    return waits


async def why(loom: Loom, job: str) -> str:
    """Say in one line why a job is where it is; empty when the store does not know it, and when it has ended."""
    facts = await gather(loom, job)
    return reason(facts, time.time()) if facts and not facts.row["ended_at"] else ""


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
    )


def _step(raw: Any) -> Pending:
    return Pending(
        activity="",
        attempt=raw.attempt,
        since=raw.started_time.ToNanoseconds() / 1e9 if raw.HasField("started_time") else None,
        next_at=raw.original_scheduled_time.ToNanoseconds() / 1e9,
    )


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
    left = (pending.next_at or now) - now
    # No countdown: who watches without a terminal is told a reason once, until it is another one.
    when = f"at {clock(pending.next_at or now, now)}" if left > 0 else "now"
    most = f" of {pending.most - 1}" if pending.most else ""
    late = {"activity StartToClose timeout": "over its timeout", "activity Heartbeat timeout": "its worker was lost"}
    failure = late.get(pending.failure, one_line(pending.failure, 160))
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
    return f"{pending.activity} running {since}{retry}"


def _phrase(state: object) -> str:
    known = {member.value: member.phrase for member in RunState}
    return known.get(str(state), one_line(str(state), 60))
