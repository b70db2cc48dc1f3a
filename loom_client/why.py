"""Why a job waits, in one line: of what is known about it, what tells most."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loom_client.client import Loom
from loom_client.render.approvals import how_to_approve
from loom_client.render.halts import halted_texts, waiting_text
from loom_client.render.text import clock, moment_of, one_line, place, plural
from loom_client.settings import worker_command
from loom_client.why_facts import Facts, Pending, gather
from loom_dsl.abridgement import abridge
from loom_dsl.states import RunState

MODEL, TOOL, COMPRESS = "loom.model.call", "loom.tool.execute", "loom.context.compress"
_KINDS = {MODEL: "model", TOOL: "tool", COMPRESS: "compression", "loom.approval.announce": "notice"}
MOST_WAITS = 3
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


def wanted(facts: Facts, now: float) -> str:
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
    asks = facts.row.get("paused_by") or any("event" in wait for wait in facts.waits or ())
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
    return abridge(waits, MOST_WAITS, lambda wait: _wait(wait, facts.row["job"], now), between="; ", rest="; and ")


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
    return not any("until" in wait for wait in facts.waits) and not any(
        moment_of(asked["expires_at"]) > now for asked in timed
    )


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
