"""Stores what the machine told, and keeps the lists of jobs and approvals in step with it."""

import asyncio
import json
import time
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from temporalio import activity

from activities.lifecycle.lease import AT_WORK, take_over
from activities.lifecycle.process_identity import this_process
from activities.lifecycle.shutdown import Stopping
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobStore
from activities.webhooks.notify import SECONDS, notify
from activities.webhooks.outbox import write_webhooks
from loom_dsl.approvals.decision import is_digest
from loom_dsl.machine.outbox import is_told_once, without_time
from loom_dsl.permissions.rules import parse_rule
from loom_dsl.text.canonical import canonical_json, digest
from loom_store.job_facts import arguments_of
from loom_store.queries.effects import notice_key
from loom_store.rows import ApprovalRow, Effect
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.background import BackgroundTasks

FINAL = {"completed", "failed", "aborted"}
STATUS_OF_CHOICE = {
    "approve": "approved",
    "edit": "edited",
    "reject": "rejected",
    "respond": "answered",
    "terminate": "terminated",
}


AUDITED = frozenset({"approval_requested", "approval_changed", "approval_decided", "control"})
"""Events that are part of the audit trail."""
CHANGES = ("what", "expires_at", "to", "by", "choice", "have", "need", "keys")
"""What an `approval_changed` event says that lists show."""


def store_events(tx: Transaction, call: ActivityCall) -> None:
    """Store the batches that travelled with an activity, each event once, and project them into the lists."""
    for sequence, told in call.batches:
        events = tx.masked(told)  # before they are hashed, and compared with what is stored
        new = _append(tx, call.job, sequence, events)
        for _, event in new:
            tx.tell({**event, "job": call.job})
        if new and tx.has_job(call.job):
            for _, event in new:
                _project(tx, call, event)
                _audit(tx, call, event)
            write_webhooks(tx, call.job, new)


async def begin(store: Store, envelope: Mapping[str, Any]) -> ActivityCall:
    """Read the argument of an activity that writes nothing else at once, and store the events that came with it."""
    call = ActivityCall.of(envelope)
    if call.batches:
        await store.write(lambda tx: store_events(tx, call))
    return call


def _append(tx: Transaction, job: str, sequence: int, events: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Append a batch, and give the events of it that were not there, with their offsets.

    A workflow task that dies with its worker may have stored a batch already. It is then done again, perhaps with
    signals that came in between, and may tell more, or something else, under the same numbers, or the same under other
    ones. An event that the machine tells once is known again by what it says, so that the trail and webhooks never tell
    a decision twice. Any other may happen again as it was: only its place tells it from another, and where that has
    changed it is rather stored twice than lost.
    """
    new = []
    for once, placed in groupby(enumerate(events, sequence), key=lambda one: is_told_once(one[1])):
        places, told = zip(*placed, strict=True)
        if not once:
            new += _append_here(tx, job, places[0], list(told))
            continue
        for event in told:
            new += _append_as(tx, job, f"once/{digest(canonical_json(without_time(event)))}", [event])
    return new


def _append_here(
    tx: Transaction, job: str, place: int, events: list[dict[str, Any]]
) -> list[tuple[int, dict[str, Any]]]:
    """Append events that their place in the job names."""
    last = tx.last_offset(job)
    first, count = tx.append_events(job, f"m{place}", events)
    if first > last:
        return list(enumerate(events, first))
    new = []
    stored = [event for _, event in tx.read_events(job, after=first - 1, limit=count)] if count else []
    for index, event in enumerate(events):
        if index < len(stored) and without_time(stored[index]) == without_time(event):
            continue
        name = digest(canonical_json(without_time(event)))[:16]
        new += _append_as(tx, job, f"m{place + index}/{name}", [event])
    return new


def _append_as(tx: Transaction, job: str, key: str, events: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    last = tx.last_offset(job)
    first, _ = tx.append_events(job, key, events)
    return list(enumerate(events, first)) if first > last else []


def _project(tx: Transaction, call: ActivityCall, event: dict[str, Any]) -> None:
    match event["t"]:
        case "state":
            fields: dict[str, Any] = {"state": event["state"]}
            if event["state"] in FINAL:
                fields |= {"status": event["state"], "ended_at": time.time(), "halted": None, "waiting": None}
            tx.update_job(call.job, **fields)
        case "approval_requested":
            tx.upsert_approval(_approval_row(call, event))
        case "approval_changed":
            tx.change_approval(event["approval_id"], {key: event[key] for key in CHANGES if key in event})
        case "approval_decided":
            _decide(tx, call, event)
        case "halted" | "waiting" | "resumed":
            _project_waits(tx, call.job, event)
        case "output_kept":
            told = {key: value for key, value in event.items() if key not in ("t", "n")}
            tx.mark(call.job, "output", canonical_json(told))
        case "control" if event["op"] in ("pause", "resume") and not event.get("cause"):  # with one, a pause stays
            tx.update_job(call.job, paused_by=(event["by"] or "somebody") if event["op"] == "pause" else None)


def _project_waits(tx: Transaction, job: str, event: dict[str, Any]) -> None:
    """Keep the lists of the steps that are halted, and of those that wait for the time of their next try."""
    row = tx.job(job) or {}
    told = {"at": event["node"], **{name: value for name, value in event.items() if name not in ("t", "n", "node")}}
    fields = {}
    for kind in ("halted", "waiting"):
        left = [step for step in row.get(kind) or () if step["at"] != event["node"]]
        fields[kind] = [*left, told] if event["t"] == kind else left
    tx.update_job(job, **{kind: steps or None for kind, steps in fields.items()})


def _decide(tx: Transaction, call: ActivityCall, event: dict[str, Any]) -> None:
    if event.get("remember") == "rule" and event.get("choice") == "approve":
        _keep_rules(tx, call, event)
    if tx.approval(event["approval_id"]) is None:
        return
    tx.decide_approval(
        event["approval_id"],
        STATUS_OF_CHOICE.get(event["choice"], event["choice"]),
        event["choice"],
        event.get("by", ""),
        time.time(),
        event.get("message", ""),
        tuple(event.get("keys", ())),
        # Without rules nothing was: only Loom's own pipelines say what may be remembered.
        event.get("remember", "no") if event.get("rules") else "no",
        more={key: event[key] for key in ("edited", "allowed") if key in event},
    )


def _keep_rules(tx: Transaction, call: ActivityCall, event: dict[str, Any]) -> None:
    """Keep the rules of an approved call for later jobs, for the questions that the approval answered."""
    asked, job = tx.approval(event["approval_id"]), tx.job(call.job)
    if asked is None or job is None:
        return
    for text in event.get("rules", ()):
        rule = parse_rule(text)
        if rule.tool != asked["tool"].rpartition(":")[2] and rule.tool != asked["tool"]:
            continue
        tx.keep_rule(
            approval=event["approval_id"],
            rule=text,
            arguments=asked["arguments_digest"] if rule.pattern is None else None,
            agent=job["agent"],
            workdir=job["workdir"],
            asked_by=asked["details"].get("asked_by", ()),
            summary=asked["summary"],
            by=event.get("by", ""),
            job=call.job,
        )


def _audit(tx: Transaction, call: ActivityCall, event: dict[str, Any]) -> None:
    """Write down who asked and decided what, and what was refused."""
    kind = event["t"]
    if kind == "warning" and event.get("code") == "signal_refused":
        kind = "decision_refused"
    elif kind not in AUDITED:
        return
    data = {key: value for key, value in event.items() if key not in ("t", "n")}
    tx.audit(kind, call.job, {"turn": event["n"], **data})


def _approval_row(call: ActivityCall, event: dict[str, Any]) -> ApprovalRow:
    told = event.get("request")
    request = told if isinstance(told, dict) else {"summary": str(told)}
    own = {} if is_digest(request.get("arguments")) else {"digest": event.get("digest")}
    own |= {"signed": True} if event.get("signed") else {}
    return ApprovalRow(
        id=event["approval_id"],
        job=call.job,
        tool=request.get("tool", ""),
        arguments_digest=request["arguments"] if is_digest(request.get("arguments")) else "",
        summary=request.get("summary", ""),
        reason=request.get("reason", ""),
        call_id=request.get("call_id", ""),
        turn=event["n"],
        node=event.get("node", ""),
        choices=tuple(event.get("choices", ())),
        created_at=time.time(),
        expires_at=event.get("expires_at"),
        requester=request.get("requester", ""),
        policy=event.get("policy", {}),
        details={**{key: request[key] for key in SHOWN if request.get(key)}, **own},
    )


def _flush(tx: Transaction, call: ActivityCall) -> None:
    store_events(tx, call)
    if "keep" in call.arguments:
        tx.put_blob(call.arguments["keep"].encode())
    ended = {key: call.arguments[key] for key in ("result", "failed_at") if key in call.arguments}
    if ended and tx.has_job(call.job):
        tx.update_job(call.job, **ended)


SHOWN = ("preview", "state", "schema", "rules", "risk", "rule", "layer", "deciders", "asked_by", "unanswered")
"""What of a request is kept besides the fields of a row."""


MAX_NOTICES = 8
"""Notices that are told at once: more commands would only wait for each other."""
MAX_SECONDS = SECONDS + 20.0
"""For how long a worker that does not say that it lives is believed to tell a notice."""


def _begin_notice(tx: Transaction, call: ActivityCall, name: str, named: Any) -> tuple[Effect, Any]:
    """Store the events, write down that somebody is about to be told, and give the content of what is asked about."""
    store_events(tx, call)
    effect = tx.begin_effect(
        notice_key(call.job, name),
        job=call.job,
        turn=call.turn,
        call_id=name,
        tool="on_approval",
        arguments_digest=digest(name),
        held=(this_process(), MAX_SECONDS),
        idempotent=True,
    )
    return effect, arguments_of(tx, named)


class Observe:
    """Activities about events."""

    def __init__(self, jobs: JobStore, stopping: Stopping, on_approval: str) -> None:
        self._jobs, self._stopping, self._on_approval = jobs, stopping, on_approval
        self._places = asyncio.Semaphore(MAX_NOTICES)
        self._telling = BackgroundTasks()

    @activity.defn(name="loom.events.flush")
    async def flush(self, envelope: dict[str, Any]) -> None:
        """Store events that no other activity carries, outputs to keep, and with a graph's last events its result."""
        call = ActivityCall.of(envelope)
        await self._jobs.store.write(lambda tx: _flush(tx, call))

    @activity.defn(name="loom.approval.announce")
    async def announce(self, envelope: dict[str, Any]) -> None:
        """Store the request, then tell whoever is configured to hear of it: once, unless a worker dies meanwhile."""
        call = ActivityCall.of(envelope)
        if not self._on_approval:
            await self._jobs.store.write(lambda tx: store_events(tx, call))
            return
        name = "notice_" + digest(f"{call.arguments['approval_id']}/{call.at}")[:32]
        asked = call.arguments["request"]
        named = asked.get("arguments") if isinstance(asked, dict) else None
        effect, content = await self._jobs.store.write(lambda tx: _begin_notice(tx, call, name, named))
        if effect.created:
            AT_WORK.add(effect.key)
        else:
            # The attempt that began it may be at work still: the server only lost sight of it.
            effect = await take_over(self._jobs.store, effect, MAX_SECONDS)
        if effect.status != "pending":
            return
        notice = {"id": name, "job": call.job, "turn": call.turn, **call.arguments}
        if content is not None:
            notice["content"] = content
        telling = self._telling.start(self._tell(effect.key, name, notice))
        # Looked at here, because it may be that no attempt waits any more.
        telling.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.shield(telling)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if self._stopping.over or (details is not None and details.worker_shutdown):
                telling.cancel()  # else only the server lost sight of it, or the job ends: what was begun is finished
            raise

    async def _tell(self, key: str, name: str, notice: dict[str, Any]) -> None:
        try:
            async with self._places:
                await notify(self._on_approval, notice, name)
            await self._jobs.keep(lambda tx: tx.settle_effect(key, "settled"))
        finally:
            AT_WORK.discard(key)

    @activity.defn(name="loom.signal.time")
    async def signal_time(self, envelope: dict[str, Any]) -> dict[str, float | None]:
        """Look up in the history when the server received a signal, in seconds since the epoch."""
        call = ActivityCall.of(envelope)
        return {"sent": await received_at(call.job, call.arguments["signal"], call.arguments["digest"])}


async def received_at(job: str, name: str, wanted: str) -> float | None:
    """Look up when the server received a signal in this run of a job, in seconds since the epoch.

    Args:
        job: The job of the activity that asks.
        name: The signal's.
        wanted: Digest of its payload as canonical JSON.
    """
    handle = activity.client().get_workflow_handle(job, run_id=activity.info().workflow_run_id)
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_execution_signaled_event_attributes"):
            signal = event.workflow_execution_signaled_event_attributes
            if signal.signal_name == name and is_signal(signal.input.payloads, wanted):
                return event.event_time.ToNanoseconds() / 1e9  # sent twice, the first time counts
    return None


def is_signal(payloads: Any, wanted: str) -> bool:
    """Whether these payloads of a signal are the decision whose digest is wanted."""
    try:
        return len(payloads) == 1 and digest(canonical_json(json.loads(payloads[0].data))) == wanted
    except (ValueError, RecursionError):
        return False
