"""A question about a call, as people read it who are to decide."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from activities.tool_calls.call_policy import CallPolicy
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.errors import LoomError
from loom_dsl.permissions.combine import unanswered
from loom_dsl.permissions.decide import Verdict
from loom_dsl.permissions.roles import who_may_decide
from loom_dsl.permissions.rules import rule_for
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.confusables import in_one_line
from loom_dsl.text.redaction import mask_known
from loom_dsl.tools.context import Preview, ToolContext
from loom_dsl.tools.tool import Arguments, Tool
from loom_tools.masking import redact
from loom_tools.running import ANSWER_SECONDS, ask, describe, run_in_thread_if_large
from loom_tools.user_code import Code, Raised, as_preview, as_text

# What a tool's author wrote for the people who are asked about its calls: a summary, and a preview.


MAX_LOG = 8_000
"""Characters of a failure that are logged."""


async def summary_of(tool: Tool, arguments: Arguments, secrets: Mapping[str, str]) -> str:
    """The tool's own summary; a summary that fails must not stand between a call and its approver."""
    if tool.summarise is None:
        return ""
    try:
        code = Code.of(tool, "summarise", as_text)
        return await ask(as_text, tool.summarise, arguments, code=code and code.given(arguments))
    except Raised as raised:
        told = redact(describe(raised.error), secrets)[:MAX_LOG]
        activity.logger.error("the summary of the tool %s failed: %s", tool.name, told)
    except TimeoutError:
        activity.logger.error("the summary of the tool %s took over %g s", tool.name, ANSWER_SECONDS)
    return ""


async def preview_of(tool: Tool, arguments: Arguments, workdir: Path, call: ActivityCall) -> Preview:
    """What a call would do, as the tool shows it, such as a diff; without text where it shows nothing."""
    if tool.preview is None:
        return Preview("")
    context = ToolContext(working_dir=workdir, job=call.job, turn=call.turn)
    try:
        code = Code.of(tool, "preview", as_preview)
        return await ask(as_preview, tool.preview, arguments, context, code=code and code.given(arguments, context))
    except Raised as raised:
        error = raised.error
        return Preview(f"(no preview: {error.message if isinstance(error, LoomError) else describe(error)})")
    except TimeoutError:
        return Preview(f"(no preview: it did not end within {ANSWER_SECONDS:g} s)")


MAX_SUMMARY = 300


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
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
    policy: ApprovalPolicy


async def request_of(
    jobs: JobStore, judge: CallPolicy, call: ActivityCall, facts: JobFacts, asked: ApprovalRequest
) -> dict[str, Any]:
    """Write the request, with its contents in the store."""
    tool, arguments, verdict = asked.tool, asked.arguments, asked.verdict
    text, secrets = canonical_json(arguments), jobs.secrets
    traits = await run_in_thread_if_large(arguments, judge.traits, call, facts, tool, arguments)
    summary = await summary_of(tool, arguments, secrets) or f"{tool.name}({text})"
    request: dict[str, Any] = {
        "tool": tool.name,
        "call_id": call.arguments["call"]["id"],
        "summary": in_one_line(redact(summary, secrets), MAX_SUMMARY),
        "reason": in_one_line(verdict.reason, MAX_SUMMARY),
        "rules": rule_for(traits.call(arguments)),
        "rule": verdict.rule[:MAX_SUMMARY],
        "layer": verdict.layer,
        "asked_by": list(verdict.asked_by),
        "risk": str(tool.risk),
        "requester": f"{'agent' if facts.plan.agent else 'graph'} {facts.agent.name}",
    }
    if said := unanswered(asked.policy, facts.agent.approvals, verdict):
        request["unanswered"] = said
    if roles := judge.roles:
        request["deciders"] = who_may_decide(roles, tool.risk)
    if judge.is_signed(call, facts, tool):
        request["signed"] = True
    # With the schema, so that who edits the arguments is told at once what does not fit.
    schema = canonical_json(tool.parameters).encode(errors="replace")
    kept = {"arguments": mask_known(text, secrets).encode(), "schema": schema}
    if preview := await preview_of(tool, arguments, facts.workdir, call):
        kept["preview"] = redact(preview, secrets).encode()
        request |= {"state": preview.state} if preview.state else {}
    store = jobs.store
    return request | await store.write(lambda tx: {name: tx.put_blob(kept[name]) for name in kept})


def in_expressions(policy: ApprovalPolicy) -> dict[str, Any]:
    """Give a policy as expressions read it: how long a question stays open in seconds, null for ever."""
    return {**policy.model_dump(mode="json"), "expires": policy.expires}
