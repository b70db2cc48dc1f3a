"""What was remembered of approvals, as far as it counts: a rule is worth no more than the approval it comes from."""

from collections.abc import Mapping
from typing import Any

from activities.runtime import Call, JobFacts, Runtime
from loom_dsl.approval_policy import Approvals
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.redaction import mask_known
from loom_dsl.tools import Arguments
from loom_store.kept_rules import KeptRule
from loom_store.transaction import Transaction


async def remembered_rules(runtime: Runtime, call: Call, facts: JobFacts, *, signed: bool) -> list[str]:
    """Give the rules that approvers allowed for the rest of a job.

    Args:
        runtime: The worker's.
        call: The call that they may let run.
        facts: Its job.
        signed: Whether only a signed decision lets it run.
    """
    rules: list[str] = call.arguments["remembered"]
    if not rules or not _is_more(facts.agent.approvals, signed):
        return rules
    rows = await runtime.store.read(lambda tx: tx.approvals(status="approved", job=call.job))
    worth = [row for row in rows if _is_worth(row, facts.agent.approvals, signed)]
    named = {rule for row in worth for rule in row["details"].get("rules", ())}
    return [rule for rule in rules if rule in named]


async def kept_rules(runtime: Runtime, facts: JobFacts, arguments: Arguments, *, signed: bool) -> list[str]:
    """Give the rules that approvers kept for this agent's jobs here. Looked up each time: they may be taken back.

    Where four eyes are needed there are none: who started this job may be who kept the rule.
    """
    if facts.agent.approvals.four_eyes:
        return []

    def look(tx: Transaction) -> list[KeptRule]:
        kept, policy = tx.rules_kept(facts.agent.name, str(facts.workdir)), facts.agent.approvals
        if not _is_more(policy, signed):
            return kept
        return [rule for rule in kept if _is_worth(tx.approval(rule.approval), policy, signed)]

    kept = await runtime.store.read(look)
    name = digest(mask_known(canonical_json(arguments), runtime.secrets)) if kept else ""
    return [rule.rule for rule in kept if rule.arguments in (None, name)]


def _is_more(policy: Approvals, signed: bool) -> bool:
    """Whether more is needed than one person's word."""
    return signed or policy.four_eyes or policy.quorum > 1


def _is_worth(row: Mapping[str, Any] | None, policy: Approvals, signed: bool) -> bool:
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
