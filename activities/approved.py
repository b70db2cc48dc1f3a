"""Looking up in the store the approval on which a call is to run: the word of the workflow alone is not enough."""

import asyncio
import json
import time
from typing import Any

from activities.observe import store_events
from activities.remembered import is_worth
from activities.runtime import Call, Runtime
from loom_dsl.approval import Decision
from loom_dsl.approval_policy import Approvals
from loom_dsl.canonical import canonical_json
from loom_dsl.errors import ApprovalUnwritten, PermissionDenied
from loom_store.transaction import Transaction

PATIENCE = 10.0
"""Seconds for which a decision is waited for that another activity is writing down."""
_EVERY = 0.05
_CHOICES = {"approved": "approve", "edited": "edit"}


async def check_approved(
    runtime: Runtime,
    call: Call,
    policy: Approvals,
    name: str,
    patience: float = PATIENCE,
    *,
    signed: bool = False,
) -> None:
    """Make sure that this very call was approved, as the store has it, by so many people as it needs.

    Args:
        runtime: The worker's.
        call: The call.
        policy: What an approval of it takes.
        name: Digest of its arguments.
        patience: Seconds to wait for a decision that is being written down.
        signed: Whether so many people's signatures must have held.

    Raises:
        PermissionDenied: It was decided otherwise, or about other arguments.
        ApprovalUnwritten: No decision is written down; another attempt may find one.
    """
    if call.batches:
        await runtime.store.write(lambda tx: store_events(tx, call))
    until = time.monotonic() + patience
    while True:
        rows = await runtime.store.read(lambda tx: _rows(tx, call))
        let = [row for row in rows if _lets_run(row, name, policy)]
        enough = [row for row in let if row["status"] == "expired" or is_worth(row, policy, signed=False)]
        if let and not enough:
            raise PermissionDenied("this call needs more than the approval that it has")
        if enough and signed:
            await _check_signed(runtime, call, policy, enough)
        if enough:
            return
        if rows and all(row["status"] != "pending" for row in rows):
            raise PermissionDenied("nobody approved this call with these arguments")
        if time.monotonic() > until:
            raise ApprovalUnwritten("the approval of this call is not written down")
        await asyncio.sleep(_EVERY)


def mark_of(decision: Decision) -> str:
    """What is kept of a decision whose signature held."""
    return canonical_json([decision.approval_id, decision.choice, decision.by])


async def _check_signed(runtime: Runtime, call: Call, policy: Approvals, rows: list[dict[str, Any]]) -> None:
    """Refuse what a worker has verified no signatures for, whatever became of it on the way."""
    held = [json.loads(mark) for mark in await runtime.store.read(lambda tx: tx.marks(call.job, "signed"))]
    for row in rows:
        choice = _CHOICES.get(row["status"])
        people = {by for approval, chosen, by in held if (approval, chosen) == (row["id"], choice)}
        if len(people) >= policy.quorum:
            return
    raise PermissionDenied("this call runs only on signed decisions, and no worker has verified them")


def _rows(tx: Transaction, call: Call) -> list[dict[str, Any]]:
    asked = tx.approvals(job=call.job)
    return [row for row in asked if (row["turn"], row["call_id"]) == (call.turn, call.arguments["call"]["id"])]


def _lets_run(row: dict[str, Any], name: str, policy: Approvals) -> bool:
    if row["status"] == "edited":  # what it was edited to is not kept with it
        return True
    late = row["status"] == "expired" and policy.on_expiry == "allow"
    return (late or row["status"] == "approved") and bool(row["arguments_digest"] == name)
