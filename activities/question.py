"""A question about a call, as people read it who are to decide."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from activities.beside import beside
from activities.call_words import preview_of, summary_of
from activities.runtime import Call, JobFacts
from loom_dsl.approval_policy import Approvals
from loom_dsl.asking import unanswered
from loom_dsl.canonical import canonical_json
from loom_dsl.lookalike import in_one_line
from loom_dsl.permission_rules import rule_for
from loom_dsl.permissions import Verdict
from loom_dsl.redaction import mask_known, redact
from loom_dsl.roles import who_may_decide
from loom_dsl.tools import Arguments, Tool

if TYPE_CHECKING:
    from activities.stages import Calls

MOST_SUMMARY = 300


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question is about.

    Attributes:
        tool: What is called.
        arguments: Validated.
        verdict: Why it is asked, and by whom.
        policy: What happens to it.
    """

    tool: Tool
    arguments: Arguments
    verdict: Verdict
    policy: Approvals


async def request_of(calls: "Calls", call: Call, facts: JobFacts, asked: Asked) -> dict[str, Any]:
    """Write the request, with its contents in the store."""
    tool, arguments, verdict = asked.tool, asked.arguments, asked.verdict
    text, secrets = canonical_json(arguments), calls.runtime.secrets
    traits = await beside(arguments, calls.traits, call, facts, tool, arguments)
    summary = await summary_of(tool, arguments, secrets) or f"{tool.name}({text})"
    request: dict[str, Any] = {
        "tool": tool.name,
        "call_id": call.arguments["call"]["id"],
        "summary": in_one_line(redact(summary, secrets), MOST_SUMMARY),
        "reason": in_one_line(verdict.reason, MOST_SUMMARY),
        "rules": rule_for(traits.call(arguments)),
        "rule": verdict.rule[:MOST_SUMMARY],
        "layer": verdict.layer,
        "asked_by": list(verdict.asked_by),
        "risk": str(tool.risk),
        "requester": f"{'agent' if facts.plan.agent else 'graph'} {facts.agent.name}",
    }
    if said := unanswered(asked.policy, facts.agent.approvals, verdict):
        request["unanswered"] = said
    if roles := calls.roles:
        request["deciders"] = who_may_decide(roles, tool.risk)
    if calls.is_signed(call, facts, tool):
        request["signed"] = True
    # With the schema, so that who edits the arguments is told at once what does not fit.
    schema = canonical_json(tool.parameters).encode(errors="replace")
    kept = {"arguments": mask_known(text, secrets).encode(), "schema": schema}
    if preview := await preview_of(tool, arguments, facts.workdir, call):
        kept["preview"] = redact(preview, secrets).encode()
        request |= {"state": preview.state} if preview.state else {}
    store = calls.runtime.store
    return request | await store.write(lambda tx: {name: tx.put_blob(kept[name]) for name in kept})


def in_expressions(policy: Approvals) -> dict[str, Any]:
    """Give a policy as expressions read it: how long a question stays open in seconds, null for ever."""
    return {**policy.model_dump(mode="json"), "expires": policy.expires}
