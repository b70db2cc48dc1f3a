"""Writes down what webhooks are told, in the transaction that stores the events themselves."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from loom_dsl.observe.webhooks import told_as
from loom_store.job_facts import origin_of
from loom_store.transaction import Transaction

NEAR = 20
"""Events around a job's end in which it is looked for what it failed with."""
_KEPT = ("to", "choices", "expires_at", "choice", "by", "have", "need", "allowed")
"""What of an event about an approval is told. What somebody wrote beside a decision is between them and the job."""

_OF_STEP = ("node", "cause", "message", "action", "since", "by")
"""What of an event about a step that waits for somebody is told."""


def write_webhooks(tx: Transaction, job: str, events: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
    """Write down the messages that follow from new events of a job.

    Args:
        tx: The transaction that stores the events.
        job: The job.
        events: Each with its offset.
    """
    if not tx.endpoints:
        return
    for offset, event in events:
        kind = told_as(event)
        if kind is not None and not (kind.startswith("job_") and tx.job_above(job)):
            failed = {"error": _last_error(tx, job, offset)} if kind == "job_failed" else {}
            _write(tx, job, offset, kind, {**_about(tx, event), **failed})


def _write(tx: Transaction, job: str, offset: int, kind: str, data: Mapping[str, Any]) -> None:
    row = tx.job(job) or {}
    agent, risk = str(row.get("agent") or ""), str(data.get("request", {}).get("risk", ""))
    wanting = [endpoint.name for endpoint in tx.endpoints if endpoint.wants(kind, agent, risk)]
    if not wanting:
        return
    origin = origin_of(tx, job)
    for name in wanting:
        message = "msg_" + sha256(f"{origin}/{offset}/{name}".encode()).hexdigest()[:32]
        tx.add_delivery(message, job, name, kind, {"job": job, "agent": agent, "offset": offset, **data})


def _about(tx: Transaction, event: Mapping[str, Any]) -> dict[str, Any]:
    """What an event tells: about an approval what is asked, as who has no store to look into must know it."""
    told: dict[str, Any] = {"turn": event["n"]}
    if event["t"] == "control":
        return {**told, "by": event.get("by", "")}
    if event["t"] in ("halted", "resumed"):
        return told | {key: event[key] for key in _OF_STEP if event.get(key) not in (None, "")}
    name = event.get("approval_id")
    if name is None:
        return told
    row = tx.approval(name) or {}
    asked = {key: row[key] for key in ("tool", "summary", "reason", "requester", "call_id") if row.get(key)}
    asked |= {"arguments": row["arguments_digest"]} if row.get("arguments_digest") else {}
    asked |= {key: value for key, value in row.get("details", {}).items() if key not in ("changes", "layer", "rule")}
    said = event.get("request")  # a graph's question may say more than lists keep
    told |= {"approval_id": name, "request": {**said, **asked} if isinstance(said, dict) else asked}
    told |= {"to": people} if (people := row.get("policy", {}).get("approvers")) else {}
    return told | {key: event[key] for key in _KEPT if event.get(key) is not None}


def _last_error(tx: Transaction, job: str, offset: int) -> str:
    """Give the code of what a job failed with; its message is for those who may look at the job."""
    near = tx.read_events(job, after=max(0, offset - NEAR - 1), limit=2 * NEAR)
    codes = [str(event.get("error", "")) for _, event in near if event.get("t") == "error"]
    return codes[-1] if codes else ""
