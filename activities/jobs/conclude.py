"""The ends of a turn and of a job: tool messages into the session, and the result."""

from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import activity

from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from activities.record.outcomes import message_of, outcome_of
from activities.record.transcript import Transcript, wasted_in
from loom_dsl.agent.finish import is_cut
from loom_dsl.agent.messages import CANCELLED, PERHAPS_TAKEN_BACK, TAKEN_BACK, WITHHELD, call_ids, close_orphans
from loom_dsl.agent.run import MAX_ANSWER, ErrorInfo, RecursionStats, RunResult, RunUsage
from loom_dsl.agent.turn import TurnState
from loom_dsl.errors import LoomError, StoreLocked
from loom_dsl.text.canonical import digest
from loom_dsl.tools.result import ToolMessage
from loom_store.queries.effects import undo_key
from loom_store.rows import Entry, NewEntry
from loom_store.transaction import Transaction
from loom_store.transcript import PRIVATE, tool_head

# What the model reads of calls whose job was ended before it had told their results: what the ledger knows of them.


Told = tuple[ToolMessage, str, str]
"""A message, its text as it may be stored, and the name of its whole output where the text lacks some of it."""


def settle_orphans(
    tx: Transaction, call: ActivityCall, turn: TurnState, facts: JobFacts | None, secrets: Mapping[str, str]
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
    more = facts is not None and facts.reads_on({})
    output = tx.get_blob(outcome["output"]) if outcome["ok"] else b""
    message, text = message_of(outcome, output, secrets, reads_on=more)
    return message, text, outcome["output"] if message.cut and more else ""


def _cancelled(text: str) -> Told:
    return ToolMessage("error", "cancelled", text), text, ""


MAX_RECURSIONS = 200
_EMPTY = digest(b"")
_LIMITS = {
    "max_iterations": "the limit of {0} iterations was reached",
    "max_tool_calls": "the limit of tool calls was reached",
    "max_tool_rounds": "the limit of tool rounds was reached",
    "max_cost": "the cost limit was reached",
    "max_run_duration": "the time limit was reached",
}


class Conclude:
    """Activities that end a turn and a job."""

    def __init__(self, jobs: JobStore, transcript: Transcript) -> None:
        self._jobs, self._transcript = jobs, transcript

    @activity.defn(name="loom.turn.feedback")
    async def feedback(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Append the tool messages in call order, in one transaction."""
        call = ActivityCall.of(envelope)
        end, entries = await self._jobs.store.write(lambda tx: _append_results(tx, call))
        session = await self._jobs.conversation(call.job)
        for seq, entry in enumerate(entries, end - len(entries)):
            self._transcript.add(session, seq, dict(entry.head), entry.content)
        return {"entries": end}

    @activity.defn(name="loom.job.result")
    async def result(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Settle what is open in the session, and say how the job went."""
        call = ActivityCall.of(envelope)
        try:
            facts = await self._jobs.facts(call.job)
        except StoreLocked:
            raise
        except LoomError:  # a job must come to its end also where it could not go on
            facts = None
        secrets = self._jobs.secrets
        return await self._jobs.store.write(lambda tx: _conclude(tx, call, facts, secrets))


def _append_results(tx: Transaction, call: ActivityCall) -> tuple[int, list[NewEntry]]:
    store_events(tx, call)
    entries: list[NewEntry] = []
    shown: list[NewEntry] = []
    for item, result in zip(call.arguments["calls"], call.arguments["results"], strict=True):
        head = tool_head(item["id"], result["status"], result["code"], result.get("output", ""))
        content = tx.get_blob(result["content"]).decode()
        entries.append(NewEntry(kind="message", head=head, content=content, job=call.job, turn=call.turn))
        if result.get("images"):
            # Not in the tool's message, which takes text only; after all of them, as the API wants it.
            seen = {"role": "user", PRIVATE: {"images": result["images"]}}
            words = f"What {item['name']} gave to look at (call {item['id']}):"
            shown.append(NewEntry(kind="message", head=seen, content=words, job=call.job, turn=call.turn))
    entries += shown
    return tx.append_entries(call.session, call.key, entries).end, entries


def _conclude(
    tx: Transaction, call: ActivityCall, facts: JobFacts | None, secrets: Mapping[str, str]
) -> dict[str, Any]:
    store_events(tx, call)
    given = call.arguments
    fields = {key: value for key, value in given["turn"].items() if key in TurnState.model_fields}
    turn = TurnState.from_dict(fields)
    settle_orphans(tx, call, turn, facts, secrets)
    entries = tx.read_entries(call.session, 0)
    answer, name, unfinished = _answer(tx, call, entries)
    code = given.get("code")
    point = tx.fork_point(call.job)
    first = point.turn if point else 0
    message = given.get("message") or _LIMITS.get(code or "", "").format(turn.max_iterations - first)
    stats = RecursionStats.of_turn(turn, first)
    cut = answer if len(answer) <= MAX_ANSWER else answer[:MAX_ANSWER] + "\n[... the rest is in the store]"
    result = RunResult(
        session_id=call.session,
        run_id=call.job,
        status=given["status"],
        answer=cut,
        error=ErrorInfo(code=code, message=message) if code else None,
        usage=RunUsage.of_turn(turn, wasted_in(entries, call.job)),
        recursion_stats=stats.model_copy(update={"recursion_events": stats.recursion_events[-MAX_RECURSIONS:]}),
        partial=unfinished or given["status"] != "completed",
    )
    # A graph whose node this job is reads its answer, also an empty one, and what it used, also where that is nothing.
    dumped = {"answer": "", **result.model_dump(mode="json", exclude_defaults=True)}
    dumped["usage"] = result.usage.model_dump(mode="json")
    if tx.job(call.job) is not None:
        tx.update_job(call.job, result=dumped)
    return {"result": dumped, "content": name, "error": dumped.get("error")}


def _answer(tx: Transaction, call: ActivityCall, entries: Sequence[Entry]) -> tuple[str, str, bool]:
    """The last text that the model wrote in this job, its digest, and whether the model itself cut it off.

    A model that has said everything beside its last calls may end with an empty message: the text is then before it.
    """
    for entry in reversed(entries):
        if (
            entry.kind == "message"
            and entry.job == call.job
            and entry.head.get("role") == "assistant"
            and entry.content_digest not in (None, _EMPTY)
        ):
            cut = is_cut(entry.head.get(PRIVATE, {}).get("finish", ""))
            return tx.get_blob(entry.content_digest).decode(), entry.content_digest, cut
    return "", tx.put_blob(b""), False
