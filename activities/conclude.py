"""The ends of a turn and of a job: tool messages into the session, and the result."""

from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import activity

from activities.observe import store_events
from activities.orphans import settle_orphans
from activities.runtime import Call, JobFacts, Runtime
from activities.transcript import PRIVATE, Transcript, tool_head
from activities.wasted import wasted_in
from loom_dsl.canonical import digest
from loom_dsl.errors import LoomError, StoreLocked
from loom_dsl.run import MOST_ANSWER, ErrorInfo, RecursionStats, RunResult, RunUsage
from loom_dsl.turn import TurnState
from loom_store.rows import Entry, NewEntry
from loom_store.transaction import Transaction

MOST_RECURSIONS = 200
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

    def __init__(self, runtime: Runtime, transcript: Transcript) -> None:
        self._runtime, self._transcript = runtime, transcript

    @activity.defn(name="loom.turn.feedback")
    async def feedback(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Append the tool messages in call order, in one transaction."""
        call = Call.of(envelope)
        end, entries = await self._runtime.store.write(lambda tx: _append_results(tx, call))
        session = await self._runtime.conversation(call.job)
        for seq, entry in enumerate(entries, end - len(entries)):
            self._transcript.add(session, seq, dict(entry.head), entry.content)
        return {"entries": end}

    @activity.defn(name="loom.job.result")
    async def result(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Settle what is open in the session, and say how the job went."""
        call = Call.of(envelope)
        try:
            facts = await self._runtime.facts(call.job)
        except StoreLocked:
            raise
        except LoomError:  # a job must come to its end also where it could not go on
            facts = None
        secrets = self._runtime.secrets
        return await self._runtime.store.write(lambda tx: _conclude(tx, call, facts, secrets))


def _append_results(tx: Transaction, call: Call) -> tuple[int, list[NewEntry]]:
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


def _conclude(tx: Transaction, call: Call, facts: JobFacts | None, secrets: Mapping[str, str]) -> dict[str, Any]:
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
    cut = answer if len(answer) <= MOST_ANSWER else answer[:MOST_ANSWER] + "\n[... the rest is in the store]"
    result = RunResult(
        session_id=call.session,
        run_id=call.job,
        status=given["status"],
        answer=cut,
        error=ErrorInfo(code=code, message=message) if code else None,
        usage=RunUsage.of_turn(turn, wasted_in(entries, call.job)),
        recursion_stats=stats.model_copy(update={"recursion_events": stats.recursion_events[-MOST_RECURSIONS:]}),
        partial=unfinished or given["status"] != "completed",
    )
    # A graph whose node this job is reads its answer, also an empty one.
    dumped = {"answer": "", **result.model_dump(mode="json", exclude_defaults=True)}
    if tx.job(call.job) is not None:
        tx.update_job(call.job, result=dumped)
    return {"result": dumped, "content": name, "error": dumped.get("error")}


def _answer(tx: Transaction, call: Call, entries: Sequence[Entry]) -> tuple[str, str, bool]:
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
            cut = entry.head.get(PRIVATE, {}).get("finish") == "length"
            return tx.get_blob(entry.content_digest).decode(), entry.content_digest, cut
    return "", tx.put_blob(b""), False
