"""Stores what the machine told, and keeps the lists of jobs and approvals in step with it."""

import json
import time
from typing import Any

from temporalio import activity

from activities.notify import notify
from activities.runtime import Call, Runtime
from loom_dsl.canonical import canonical_json, digest
from loom_store.rows import ApprovalRow
from loom_store.transaction import Transaction

FINAL = {"completed", "failed", "aborted"}
STATUS_OF_CHOICE = {"approve": "approved", "edit": "edited", "reject": "rejected", "respond": "answered"}


def store_events(tx: Transaction, call: Call) -> None:
    """Store the batches that travelled with an activity, each event once, and project them into the lists."""
    for sequence, events in call.batches:
        new = _append(tx, call.job, sequence, events)
        if new and tx.job(call.job) is not None:
            for event in new:
                _project(tx, call, event)


def _append(tx: Transaction, job: str, sequence: int, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Append a batch, and give the events of it that were not there.

    A workflow task that dies with its worker may have stored a batch already. It is then done again, perhaps with a
    signal that came in between, and may tell more, or something else, under the same number.
    """
    last = tx.last_offset(job)
    first, count = tx.append_events(job, f"m{sequence}", events)
    if first > last:
        return events
    stored = [event for _, event in tx.read_events(job, after=first - 1, limit=count)] if count else []
    new = []
    for index, event in enumerate(events):
        if index < len(stored) and stored[index] == event:
            continue
        name = digest(canonical_json(event))[:16]
        offset, _ = tx.append_events(job, f"m{sequence + index}/{name}", [event])
        if offset > last:
            last = offset
            new.append(event)
    return new


def _project(tx: Transaction, call: Call, event: dict[str, Any]) -> None:
    match event["t"]:
        case "state":
            fields: dict[str, Any] = {"state": event["state"]}
            if event["state"] in FINAL:
                fields |= {"status": event["state"], "ended_at": time.time()}
            tx.update_job(call.job, **fields)
        case "approval_requested":
            tx.upsert_approval(_approval_row(call, event))
        case "approval_decided" if tx.approval(event["approval_id"]) is not None:
            tx.decide_approval(
                event["approval_id"],
                STATUS_OF_CHOICE.get(event["choice"], event["choice"]),
                event["choice"],
                event.get("by", ""),
                time.time(),
                event.get("message", ""),
            )
        case "control" if event["op"] in ("pause", "resume"):
            tx.update_job(call.job, paused_by=(event["by"] or "somebody") if event["op"] == "pause" else None)


def _approval_row(call: Call, event: dict[str, Any]) -> ApprovalRow:
    told = event.get("request")
    request = told if isinstance(told, dict) else {"summary": str(told)}
    return ApprovalRow(
        id=event["approval_id"],
        job=call.job,
        tool=request.get("tool", ""),
        arguments_digest=request.get("arguments", ""),
        summary=request.get("summary", ""),
        reason=request.get("reason", ""),
        call_id=request.get("call_id", ""),
        turn=event["n"],
        node=event.get("node", ""),
        choices=tuple(event.get("choices", ())),
        created_at=time.time(),
        expires_at=event.get("expires_at"),
        requester=request.get("requester", ""),
        details={key: request[key] for key in ("preview", "rules", "risk") if request.get(key)},
    )


class Observe:
    """Activities about events."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="loom.events.flush")
    async def flush(self, envelope: dict[str, Any]) -> None:
        """Store events that no other activity carries."""
        call = Call.of(envelope)
        await self._runtime.store.write(lambda tx: store_events(tx, call))

    @activity.defn(name="loom.approval.announce")
    async def announce(self, envelope: dict[str, Any]) -> None:
        """Store the request, then tell whoever is configured to hear of it. At least once."""
        call = Call.of(envelope)
        await self._runtime.store.write(lambda tx: store_events(tx, call))
        if self._runtime.on_approval:
            notice = {"job": call.job, "turn": call.turn, **call.arguments}
            await notify(self._runtime.on_approval, notice)

    @activity.defn(name="loom.signal.time")
    async def signal_time(self, envelope: dict[str, Any]) -> dict[str, float | None]:
        """Look up in the history when the server received a signal, in seconds since the epoch."""
        call = Call.of(envelope)
        info = activity.info()
        handle = activity.client().get_workflow_handle(call.job, run_id=info.workflow_run_id)
        sent: float | None = None
        async for event in handle.fetch_history_events():
            if event.HasField("workflow_execution_signaled_event_attributes"):
                signal = event.workflow_execution_signaled_event_attributes
                named = signal.signal_name == call.arguments["signal"]
                if named and _matches(signal.input.payloads, call.arguments["digest"]):
                    sent = event.event_time.ToNanoseconds() / 1e9
                    break  # sent twice, the first time counts
        return {"sent": sent}


def _matches(payloads: Any, wanted: str) -> bool:
    try:
        return len(payloads) == 1 and digest(canonical_json(json.loads(payloads[0].data))) == wanted
    except ValueError:
        return False
