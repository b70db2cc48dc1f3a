"""What the model reads of calls whose job was ended before it had told their results: what the ledger knows of them."""

from collections.abc import Mapping

from activities.effect_outcome import outcome_of
from activities.node_call import reads_on
from activities.runtime import Call, JobFacts
from activities.told import message_of
from activities.transcript import tool_head
from loom_dsl.messages import CANCELLED, PERHAPS_TAKEN_BACK, TAKEN_BACK, WITHHELD, call_ids, close_orphans
from loom_dsl.tool_result import ToolMessage
from loom_dsl.turn import TurnState
from loom_store.effects import undo_key
from loom_store.rows import NewEntry
from loom_store.transaction import Transaction

Told = tuple[ToolMessage, str, str]
"""A message, its text as it may be stored, and the name of its whole output where the text lacks some of it."""


def settle_orphans(
    tx: Transaction, call: Call, turn: TurnState, facts: JobFacts | None, secrets: Mapping[str, str]
) -> None:
    """Answer the calls of the session's last message that nobody answered, so that the conversation can go on.

    Args:
        tx: Writes them.
        call: The activity that ends the job.
        turn: The turn in which it ends.
        facts: What is fixed for the job; None: it cannot be found out here.
        secrets: Values that must not be stored.
    """
    start = max(0, turn.entries - 1)
    entries = [entry for entry in tx.read_entries(call.session, start) if entry.kind == "message"]
    asked = next((i for i in reversed(range(len(entries))) if call_ids(entries[i].head)), None)
    if asked is None:
        return
    owner = entries[asked]
    new = []
    for head in close_orphans([entry.head for entry in entries[asked:]]):
        name = head["tool_call_id"]
        message, text, output = _known(tx, f"{owner.job}/{owner.turn}/{name}", facts, secrets)
        kept = tool_head(name, message.status, message.code, output)
        new.append(NewEntry(kind="message", head=kept, content=text, job=call.job, turn=call.turn))
    if new:
        tx.append_entries(call.session, f"{call.job}/{owner.turn}/orphans", new)


def _known(tx: Transaction, key: str, facts: JobFacts | None, secrets: Mapping[str, str]) -> Told:
    outcome = outcome_of(tx, key)
    effect = tx.effect(key)
    if outcome is None or effect is None:
        return _cancelled(CANCELLED)
    undone = tx.effect(undo_key(effect))
    if undone is not None and undone.status != "failed":
        return _cancelled(TAKEN_BACK if undone.status == "settled" else PERHAPS_TAKEN_BACK)
    if outcome["ok"] and (facts is None or facts.agent.hooks):
        # A hook may keep a result from the model, and it may not have been asked.
        return _cancelled(WITHHELD)
    more = facts is not None and reads_on(facts, {})
    output = tx.get_blob(outcome["output"]) if outcome["ok"] else b""
    message, text = message_of(outcome, output, secrets, reads_on=more)
    return message, text, outcome["output"] if message.cut and more else ""


def _cancelled(text: str) -> Told:
    return ToolMessage("error", "cancelled", text), text, ""
