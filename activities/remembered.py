"""What was remembered of approvals, as far as it counts: a rule is worth no more than the approval it comes from."""

from collections.abc import Mapping
from typing import Any

from activities.runtime import Call, JobFacts, Runtime
from loom_dsl.approval_policy import Approvals
from loom_dsl.remembered import UNTRUSTED, Remembered
from loom_store.kept_rules import KeptRule
from loom_store.transaction import Transaction


async def remembered_here(runtime: Runtime, call: Call, policy: Approvals, *, signed: bool) -> list[Remembered]:
    """Give what approvers allowed for the rest of a job: what the workflow says, as far as the store has it.

    Args:
        runtime: The worker's.
        call: The call that they may let run.
        policy: What an approval of it takes now.
        signed: Whether only a signed decision lets it run.
    """
    rules: list[str] = call.arguments["remembered"]
    if not rules:
        return []
    rows = await runtime.store.read(lambda tx: tx.approvals(status="approved", job=call.job))
    worth = [row for row in rows if row.get("remember") and is_worth(row, policy, signed)]
    return [
        Remembered(rule=rule, arguments=row["arguments_digest"], asked_by=frozenset(row["details"].get("asked_by", ())))
        for row in worth
        for rule in row["details"].get("rules", ())
        if rule in rules
    ]


async def kept_rules(
    runtime: Runtime, facts: JobFacts, policy: Approvals, arguments: str, *, signed: bool
) -> list[Remembered]:
    """Give the rules that approvers kept for this agent's jobs here. Looked up each time: they may be taken back.

    Where four eyes are needed there are none: who started this job may be who kept the rule. None answers the check
    after untrusted content: an earlier job knows nothing of what this one has read.

    Args:
        runtime: The worker's.
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

    kept = await runtime.store.read(look)
    return [
        Remembered(rule=rule.rule, arguments=rule.arguments or "", asked_by=frozenset(rule.asked_by) - {UNTRUSTED})
        for rule in kept
        if rule.arguments in (None, arguments)
    ]


def _is_more(policy: Approvals, signed: bool) -> bool:
    """Whether more is needed than one person's word."""
    return signed or policy.four_eyes or policy.quorum > 1


def is_worth(row: Mapping[str, Any] | None, policy: Approvals, signed: bool) -> bool:
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
