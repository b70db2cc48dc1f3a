"""The stages of a tool call before it runs: discover, validate, authorize, check_cancel."""

from collections.abc import Mapping
from typing import Any

from temporalio import activity

from activities.observe.events import begin
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from activities.record.outcomes import failed
from activities.tool_calls.approval_request import ApprovalRequest, in_expressions, request_of
from activities.tool_calls.call_policy import CallPolicy
from activities.tool_calls.call_reader import CallReader
from activities.tool_calls.hooks import Hooks, hooked
from activities.tool_calls.services import check_runtime
from loom_dsl.errors import LoomError, PermissionDenied, ToolValidationError
from loom_dsl.text.canonical import canonical_json
from loom_dsl.tools.secrets import refuse_secrets
from loom_dsl.tools.tool import validate_arguments
from loom_store.store import Store
from loom_store.transaction import Transaction

# How often a tool may be called in a job.


async def check_call_limit(store: Store, call: ActivityCall, facts: JobFacts) -> None:
    """Refuse a model's call beyond the agent's limit for its tool.

    Counted is what the model asked for in the order in which it did, whatever became of it, so that every attempt
    finds the same number.

    Raises:
        PermissionDenied: It is one too many.
    """
    item = call.arguments["call"]
    limit = facts.agent.limits.calls.get(item["name"])
    if limit is None or "e" not in item:
        return
    number = await store.read(lambda tx: _number(tx, call, item))
    if number > limit:
        raise PermissionDenied(
            f"{item['name']} may be called {limit} time{'' if limit == 1 else 's'} in a job, and this is call {number}"
        )


def _number(tx: Transaction, call: ActivityCall, item: Mapping[str, Any]) -> int:
    """Say the how manyth call of its tool in this job it is, from 1."""
    count = 0
    for entry in tx.read_entries(call.session, 0, item["e"] + 1):
        if entry.job != call.job:
            continue
        for index, made in enumerate(entry.head.get("tool_calls", ())):
            if made["function"]["name"] == item["name"] and (entry.seq, index) <= (item["e"], item["i"]):
                count += 1
    return count


CUT = (
    "your message was cut off at the limit of output tokens or by a filter, so none of its calls was run: what is "
    "missing is not known. Make fewer calls at a time, and the arguments shorter"
)


class Stages:
    """The stages that only look: each is an activity of its own, local by default."""

    def __init__(self, jobs: JobStore, reader: CallReader, policy: CallPolicy, hooks: Hooks) -> None:
        self._jobs, self._reader, self._policy, self._hooks = jobs, reader, policy, hooks

    @activity.defn(name="loom.tool.discover")
    @hooked("discover")
    async def discover(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Find the tool and ask whether it is available, and may be called once more."""
        call = await begin(self._jobs.store, envelope)
        try:
            facts = await self._jobs.facts(call.job)
            await check_call_limit(self._jobs.store, call, facts)
            await check_runtime(self._jobs.store, call, await self._reader.tool(facts, call.arguments["call"]))
        except LoomError as error:
            return failed(error)
        return {"ok": True}

    @activity.defn(name="loom.tool.validate")
    @hooked("validate")
    async def validate(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments; those of a call that changes something, or that were edited, are kept as approved."""
        call = await begin(self._jobs.store, envelope)
        edited = call.arguments.get("edited")
        try:
            tool = await self._reader.tool(await self._jobs.facts(call.job), call.arguments["call"])
            if edited is None and await self._reader.was_cut(call):
                return failed(ToolValidationError(CUT))
            raw = await self._reader.raw_arguments(call) if edited is None else edited
            arguments = validate_arguments(tool, raw)
            masked = edited is None and await self._reader.was_masked(call)
            refuse_secrets(arguments, self._jobs.secrets, masked=masked)
        except LoomError as error:
            return failed(error)
        if tool.read_only and edited is None:
            return {"ok": True, "arguments": None}
        text = canonical_json(arguments).encode()
        return {"ok": True, "arguments": await self._jobs.store.write(lambda tx: tx.put_blob(text))}

    @activity.defn(name="loom.tool.authorize")
    @hooked("authorize")
    async def authorize(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Decide by policy; where it asks, describe the call for a human."""
        call = await begin(self._jobs.store, envelope)
        facts = await self._jobs.facts(call.job)
        try:
            tool = await self._reader.tool(facts, call.arguments["call"])
            arguments = await self._reader.arguments(call, tool)
            verdict = await self._policy.verdict(call, facts, tool, arguments)
        except LoomError as error:
            return {"decision": "deny", **failed(error)}
        if verdict.decision == "deny":
            return {"decision": "deny", "ok": False, "code": "permission_denied", "message": verdict.reason}
        if verdict.decision == "allow":
            return {"decision": "allow", "rule": verdict.rule, "layer": verdict.layer}
        try:
            policy = self._policy.approvals(call, facts, tool, verdict)
        except LoomError as error:
            return {"decision": "deny", **failed(error)}
        request = await request_of(
            self._jobs, self._policy, call, facts, ApprovalRequest(tool, arguments, verdict, policy)
        )
        return {"decision": "ask", "request": request, "policy": in_expressions(policy)}

    @activity.defn(name="loom.tool.check_cancel")
    @hooked("check_cancel")
    async def check_cancel(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Look at the abort mark: a signal reaches the workflow only with its next task."""
        call = await begin(self._jobs.store, envelope)
        mark = await self._jobs.store.read(lambda tx: tx.abort_requested(call.job))
        if mark is not None:
            return {"ok": False, "code": "aborted", "message": "the job was aborted before this call ran"}
        return {"ok": True}
