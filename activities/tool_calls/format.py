"""The last stage of a tool call: the message that the model reads, whatever happened."""

import contextlib
from typing import Any

from temporalio import activity

from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall, is_node_call
from activities.record.job_store import JobStore
from activities.record.outcomes import effect_key, failed, message_of, outcome_of
from activities.record.provenance import comes_from_outside, mark_untrusted
from activities.tool_calls.hooks import Hooks, hooked
from activities.tool_calls.node import for_graph
from loom_dsl.agent.messages import KEPT_BACK
from loom_dsl.agent.provenance import is_untrusted
from loom_dsl.errors import (
    BlobMissing,
    LoomError,
    PermissionDenied,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    ToolTimeout,
)
from loom_dsl.text.canonical import digest
from loom_store.transaction import Transaction
from loom_tools.masking import redact
from loom_tools.registry import ToolRegistry

NO_END = frozenset({
    *(error.code for error in (ToolTimeout, StoreError, StoreLocked, StoreReadOnly, BlobMissing)),
    "worker_stopped",
    "internal",
    "activity_failed",
})  # fmt: skip
"""With which a stage ends that did not tell what became of the call; a tool's own timeout tells how long it took."""
NOT_ASKED = f"{KEPT_BACK}the hook that looks at results was not asked"


class Format:
    """The activity ``loom.tool.format``."""

    def __init__(self, jobs: JobStore, registry: ToolRegistry, hooks: Hooks) -> None:
        self._jobs, self._registry, self._hooks = jobs, registry, hooks

    @activity.defn(name="loom.tool.format")
    @hooked("format")
    async def format(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Make the tool message, whatever happened, and tell watchers."""
        call = ActivityCall.of(envelope)
        item = call.arguments["call"]
        more, outside, looked_at = False, is_untrusted(item["name"]), True
        with contextlib.suppress(LoomError):  # which a stage before this one has told: the tool gave nothing
            facts = await self._jobs.facts(call.job)
            looked_at = "after_execute" in facts.agent.hooks
            more = facts.reads_on(item)
            outside = comes_from_outside(self._registry, facts, item)
        outcome = call.arguments["outcome"]
        if outcome.get("code") in NO_END and "ms" not in outcome:
            outcome = await self._jobs.store.write(lambda tx: _known(tx, call, outcome, looked_at=looked_at))
        if outcome.get("choice") == "respond":
            # What a person answers stands for the tool's output, so it is redacted before it is kept, like one.
            answer = redact(outcome["message"], self._jobs.secrets).encode("utf-8", "replace")
            outcome = {"ok": True, "output": await self._jobs.store.put_later(answer), "by": outcome.get("by", "")}
        return await self._format(call, outcome, more, outside=outside)

    async def _format(
        self, call: ActivityCall, outcome: dict[str, Any], more: bool, *, outside: bool
    ) -> dict[str, Any]:
        store, item = self._jobs.store, call.arguments["call"]
        output = await self._jobs.store.content(outcome["output"]) if outcome.get("ok") else b""
        message, text = message_of(outcome, output, self._jobs.secrets, reads_on=more)
        data = text.encode("utf-8", "replace")
        made = {"id": item["id"], "status": message.status, "code": message.code, "content": digest(data)}
        # The policies of the calls after this one must know at once of what came from outside.
        write = store.write if outside else store.write_later
        await write(lambda tx: _tell(tx, call, made, data, outcome.get("ms"), outside=outside))
        if message.cut and more:
            made["output"] = outcome["output"]
        if outcome.get("images") and not is_node_call(item):
            made["images"] = outcome["images"]
        return {**made, **for_graph(outcome, message, text)} if is_node_call(item) else made


def _tell(
    tx: Transaction, call: ActivityCall, made: dict[str, Any], data: bytes, ms: int | None, *, outside: bool
) -> None:
    """Keep a call's message, and tell watchers."""
    store_events(tx, call)
    if outside:
        mark_untrusted(tx, call.job, call.arguments["call"]["name"])
    event = {
        "t": "tool_result",
        "n": call.turn,
        "tool_call_id": made["id"],
        "tool": call.arguments["call"]["name"],
        "status": made["status"],
        "content": {"$blob": tx.put_blob(data)},
    }
    if made["code"]:
        event |= {"code": made["code"]}
    if ms is not None:
        event |= {"ms": ms}
    tx.append_events(call.job, f"{call.turn}/{call.at}", [event])


def _known(tx: Transaction, call: ActivityCall, outcome: dict[str, Any], *, looked_at: bool) -> dict[str, Any]:
    """Give what is known of a call of which no attempt came to its end: the ledger knows more than the engine says.

    Args:
        tx: Reads the ledger.
        call: The activity that tells it.
        outcome: What the stages before gave, or what ended them.
        looked_at: Whether a hook says what of the tool's result is passed on; here it has not been asked.
    """
    known = outcome_of(tx, effect_key(call))
    if known is None:
        return outcome
    return failed(PermissionDenied(NOT_ASKED)) if known["ok"] and looked_at else known
