"""Looking up in the store the approval on which a call is to run: the word of the workflow alone is not enough."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.errors import ApprovalUnwritten, PermissionDenied
from loom_dsl.permissions.remembered import UNTRUSTED, Remembered
from loom_store.queries.approvals import KeptRule
from loom_store.store import Store
from loom_store.transaction import Transaction

# What was remembered of approvals, as far as it counts: a rule is worth no more than the approval it comes from.


async def remembered_here(
    store: Store, call: ActivityCall, policy: ApprovalPolicy, *, signed: bool
) -> list[Remembered]:
    """Give what approvers allowed for the rest of a job: what the workflow says, as far as the store has it.

    Args:
        store: The worker's.
        call: The call that they may let run.
        policy: What an approval of it takes now.
        signed: Whether only a signed decision lets it run.
    """
    rules: list[str] = call.arguments["remembered"]
    if not rules:
        return []
    rows = await store.read(lambda tx: tx.approvals(status="approved", job=call.job))
    worth = [row for row in rows if row.get("remember") and is_worth(row, policy, signed)]
    return [
        Remembered(rule=rule, arguments=row["arguments_digest"], asked_by=frozenset(row["details"].get("asked_by", ())))
        for row in worth
        for rule in row["details"].get("rules", ())
        if rule in rules
    ]


async def kept_rules(
    store: Store, facts: JobFacts, policy: ApprovalPolicy, arguments: str, *, signed: bool
) -> list[Remembered]:
    """Give the rules that approvers kept for this agent's jobs here. Looked up each time: they may be taken back.

    Where four eyes are needed there are none: who started this job may be who kept the rule. None answers the check
    after untrusted content: an earlier job knows nothing of what this one has read.

    Args:
        store: The worker's.
        facts: The job.
        policy: What an approval takes now.
        arguments: Digest of the call's.
        signed: Whether only a signed decision lets it run.
    """
    if policy.four_eyes:
        return []

    def look(tx: Transaction) -> list[KeptRule]:
        kept = tx.rules_kept(facts.agent.name, str(facts.workdir))
        if not _is_more(policy, signed):
            return kept
        return [rule for rule in kept if is_worth(tx.approval(rule.approval), policy, signed)]

    kept = await store.read(look)
    return [
        Remembered(rule=rule.rule, arguments=rule.arguments or "", asked_by=frozenset(rule.asked_by) - {UNTRUSTED})
        for rule in kept
        if rule.arguments in (None, arguments)
    ]


def _is_more(policy: ApprovalPolicy, signed: bool) -> bool:
    """Whether more is needed than one person's word."""
    return signed or policy.four_eyes or policy.quorum > 1


def is_worth(row: Mapping[str, Any] | None, policy: ApprovalPolicy, signed: bool) -> bool:
    """Whether an approval took all that one would take now."""
    if row is None:
        return False
    then = row["policy"]
    enough = int(then.get("quorum", 1)) >= policy.quorum
    return (
        enough
        and (then.get("four_eyes") is True or not policy.four_eyes)
        and (row["details"].get("signed") is True or not signed)
    )


PATIENCE = 10.0
"""Seconds for which a decision is waited for that another activity is writing down."""
_EVERY = 0.05
_CHOICES = {"approved": "approve", "edited": "edit"}


async def check_approved(
    store: Store,
    call: ActivityCall,
    policy: ApprovalPolicy,
    name: str,
    patience: float = PATIENCE,
    *,
    signed: bool = False,
) -> None:
    """Make sure that this very call was approved, as the store has it, by so many people as it needs.

    Args:
        store: The worker's.
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
        await store.write(lambda tx: store_events(tx, call))
    until = time.monotonic() + patience
    while True:
        rows = await store.read(lambda tx: _rows(tx, call))
        let = [row for row in rows if _lets_run(row, name, policy)]
        enough = [row for row in let if row["status"] == "expired" or is_worth(row, policy, signed=False)]
        if let and not enough:
            raise PermissionDenied("this call needs more than the approval that it has")
        if enough and signed:
            await _check_signed(store, call, policy, enough)
        if enough:
            return
        if rows and all(row["status"] != "pending" for row in rows):
            raise PermissionDenied("nobody approved this call with these arguments")
        if time.monotonic() > until:
            raise ApprovalUnwritten("the approval of this call is not written down")
        await asyncio.sleep(_EVERY)


async def _check_signed(store: Store, call: ActivityCall, policy: ApprovalPolicy, rows: list[dict[str, Any]]) -> None:
    """Refuse what a worker has verified no signatures for, whatever became of it on the way."""
    held = [json.loads(mark) for mark in await store.read(lambda tx: tx.marks(call.job, "signed"))]
    for row in rows:
        choice = _CHOICES.get(row["status"])
        people = {by for approval, chosen, by in held if (approval, chosen) == (row["id"], choice)}
        if len(people) >= policy.quorum:
            return
    raise PermissionDenied("this call runs only on signed decisions, and no worker has verified them")


def _rows(tx: Transaction, call: ActivityCall) -> list[dict[str, Any]]:
    asked = tx.approvals(job=call.job)
    return [row for row in asked if (row["turn"], row["call_id"]) == (call.turn, call.arguments["call"]["id"])]


def _lets_run(row: dict[str, Any], name: str, policy: ApprovalPolicy) -> bool:
    if row["status"] == "edited":  # what it was edited to is not kept with it
        return True
    late = row["status"] == "expired" and policy.on_expiry == "allow"
    return (late or row["status"] == "approved") and bool(row["arguments_digest"] == name)
