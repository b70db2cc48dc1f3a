"""The last stage of a tool call: the message that the model reads, whatever happened."""

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
from loom_dsl.errors import LoomError, ToolLost, ToolTimeout
from loom_dsl.redaction import redact
from loom_dsl.untrusted import is_untrusted
from loom_store.transaction import Transaction


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
        try:
            facts = await self._runtime.facts(call.job)
            more = reads_on(facts, item)
            outside = comes_from_outside(self._runtime, facts, item)
        except LoomError:  # which a stage before this one has told: the tool gave nothing
            more, outside = False, is_untrusted(item["name"])
        return await self._runtime.store.write(lambda tx: self._format(tx, call, more, outside=outside))

    def _format(self, tx: Transaction, call: Call, more: bool, *, outside: bool) -> dict[str, Any]:
        store_events(tx, call)
        item, outcome = call.arguments["call"], call.arguments["outcome"]
        if outcome.get("code") == ToolTimeout.code and "ms" not in outcome:
            # The server's word, not the tool's: no attempt came to its end. What the ledger knows counts more.
            outcome = outcome_of(tx, effect_key(call)) or failed(ToolLost())
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
