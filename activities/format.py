"""The last stage of a tool call: the message that the model reads, whatever happened."""

import contextlib
from typing import Any

from temporalio import activity

from activities.effect_outcome import effect_key, outcome_of
from activities.hooks import Hooks, hooked
from activities.node_call import for_graph, is_node_call, reads_on
from activities.observe import store_events
from activities.runtime import Call, Runtime
from activities.stages import Calls
from activities.told import failed, message_of
from activities.untrusted import comes_from_outside, mark_untrusted
from loom_dsl.errors import (
    BlobMissing,
    LoomError,
    PermissionDenied,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    ToolLost,
    ToolTimeout,
)
from loom_dsl.redaction import redact
from loom_dsl.untrusted import is_untrusted
from loom_store.transaction import Transaction

NO_END = frozenset({
    *(error.code for error in (ToolTimeout, StoreError, StoreLocked, StoreReadOnly, BlobMissing)),
    "worker_stopped",
    "internal",
    "activity_failed",
})  # fmt: skip
"""With which a stage ends that did not tell what became of the call; a tool's own timeout tells how long it took."""
WITHHELD = "the tool ran, and its result is withheld: the hook that looks at results was not asked"


class Format:
    """The activity ``loom.tool.format``."""

    def __init__(self, runtime: Runtime, calls: Calls) -> None:
        self._runtime = runtime
        self._hooks = Hooks(runtime, calls)

    @activity.defn(name="loom.tool.format")
    @hooked("format")
    async def format(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Make the tool message, whatever happened, and tell watchers."""
        call = Call.of(envelope)
        item = call.arguments["call"]
        more, outside, looked_at = False, is_untrusted(item["name"]), True
        with contextlib.suppress(LoomError):  # which a stage before this one has told: the tool gave nothing
            facts = await self._runtime.facts(call.job)
            looked_at = "after_execute" in facts.agent.hooks
            more = reads_on(facts, item)
            outside = comes_from_outside(self._runtime, facts, item)
        told = call.arguments["outcome"]
        return await self._runtime.store.write(
            lambda tx: self._format(tx, call, _known(tx, call, told, looked_at=looked_at), more, outside=outside)
        )

    def _format(
        self, tx: Transaction, call: Call, outcome: dict[str, Any], more: bool, *, outside: bool
    ) -> dict[str, Any]:
        store_events(tx, call)
        item = call.arguments["call"]
        if outcome.get("choice") == "respond":
            # What a person answers stands for the tool's output, so it is redacted before it is kept, like one.
            answer = redact(outcome["message"], self._runtime.secrets).encode("utf-8", "replace")
            outcome = {"ok": True, "output": tx.put_blob(answer), "by": outcome.get("by", "")}
        message, text = message_of(tx, outcome, self._runtime.secrets, reads_on=more)
        content = tx.put_blob(text.encode("utf-8", "replace"))
        if outside:
            mark_untrusted(tx, call.job, item["name"])
        event = {
            "t": "tool_result",
            "n": call.turn,
            "tool_call_id": item["id"],
            "tool": item["name"],
            "status": message.status,
            "content": {"$blob": content},
        }
        if message.code:
            event |= {"code": message.code}
        if outcome.get("ms") is not None:
            event |= {"ms": outcome["ms"]}
        tx.append_events(call.job, f"{call.turn}/{call.at}", [event])
        made = {"id": item["id"], "status": message.status, "code": message.code, "content": content}
        if message.cut and more:
            made["output"] = outcome["output"]
        if outcome.get("images") and not is_node_call(item):
            made["images"] = outcome["images"]
        return {**made, **for_graph(outcome, message, text)} if is_node_call(item) else made


def _known(tx: Transaction, call: Call, outcome: dict[str, Any], *, looked_at: bool) -> dict[str, Any]:
    """Give what is known of a call: where no attempt came to its end, the ledger knows more than the engine says.

    Args:
        tx: Reads the ledger.
        call: The activity that tells it.
        outcome: What the stages before gave, or what ended them.
        looked_at: Whether a hook says what of the tool's result is passed on; here it has not been asked.
    """
    if outcome.get("code") not in NO_END or "ms" in outcome:
        return outcome
    known = outcome_of(tx, effect_key(call))
    if known is None:
        return failed(ToolLost()) if outcome["code"] == ToolTimeout.code else outcome
    return failed(PermissionDenied(WITHHELD)) if known["ok"] and looked_at else known
