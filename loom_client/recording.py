"""Reading what a job of an agent left in the store, for a debug replay."""

from collections.abc import Mapping
from typing import Any

from loom_client.job import is_graph
from loom_dsl.agent.messages import NOT_COMPRESSED, SUMMARY
from loom_dsl.agent.turn import TurnState
from loom_dsl.errors import UserError
from loom_dsl.graph.plan import Plan
from loom_dsl.observe.events import EventType
from loom_dsl.simulation.recording import TOLD, Record, RecordedQuestion, TurnRecord
from loom_store.rows import Entry
from loom_store.transaction import Transaction
from loom_store.transcript import PRIVATE

TRAITS = {"safe": True, "key": None, "quick": False, "timeout": 60.0}
"""Of every call: how calls are ordered among each other changes nothing where their results are known."""


def read_record(tx: Transaction, row: Mapping[str, Any]) -> tuple[Record, Plan]:
    """Give what a job left, and the plan that it ran.

    Args:
        tx: Of the store that knows the job.
        row: The job's row.

    Raises:
        UserError: It is a graph's, or it has not begun.
    """
    job = row["job"]
    if is_graph(tx, dict(row)):
        what = f"job {job} is a graph's: what its nodes gave is not in the store"
        raise UserError(f"{what}; `loom simulate` plays graphs")
    plan = Plan.load(tx.get_blob(row["plan"]).decode())
    turns: dict[int, TurnRecord] = {}
    reading = _Reading(turns)
    for _, event in tx.each_event(job):
        reading.take(event)
    if not turns:
        raise UserError(f"job {job} has not begun, so there is nothing to replay; `loom show {job}` says why")
    for entry in tx.read_entries(row["session"]):
        if entry.job == job and entry.turn in turns:
            _take_entry(turns[entry.turn], entry, f"{job}/inject/")
    error = (row["result"] or {}).get("error") or {}
    first, point = min(turns), tx.fork_point(job)
    limit = reading.limit or (point.turn if point else 0) + int(plan.agent["limits"]["max_iterations"])
    state = TurnState.initial(job, first=first, max_iterations=limit, session_id=row["session"])
    ended = {"code": error.get("code") or "", "message": error.get("message") or "", "content": reading.content}
    return Record(job=job, first=state, turns=turns, status=row["status"], abort=reading.abort, **ended), plan


class _Reading:
    """What the events tell."""

    def __init__(self, turns: dict[int, TurnRecord]) -> None:
        self._turns = turns
        self._questions: dict[str, tuple[TurnRecord, str]] = {}
        self.abort: dict[str, str] = {}
        self.limit = 0
        self.content = ""

    def take(self, event: Mapping[str, Any]) -> None:
        kind, number = event.get("t"), event.get("n", 0)
        if kind == EventType.CONTROL and event.get("op") == "abort":
            self.abort = {name: str(event.get(name) or "") for name in ("by", "reason")}
        elif kind == EventType.MAX_ITERATIONS_REACHED:
            self.limit = int(event.get("max_iterations", 0))
        elif kind == EventType.AGENT_FINISH:
            self.content = _digest(event.get("content"))
        if kind in TOLD:
            self._turns.setdefault(number, TurnRecord())
        if (turn := self._turns.get(number)) is not None:
            self._take_of(turn, event)

    def _take_of(self, turn: TurnRecord, event: Mapping[str, Any]) -> None:
        kind = event.get("t")
        if kind in TOLD:
            turn.events.append(event)
        match kind:
            case EventType.LLM_START:
                turn.asked = True
            case EventType.TOOL_RESULT:
                kept = {"status": event["status"], "code": event.get("code", ""), "content": _digest(event["content"])}
                turn.results[event["tool_call_id"]] = {"id": event["tool_call_id"], **kept}
            case EventType.APPROVAL_REQUESTED if isinstance(event.get("request"), Mapping):
                call = str(event["request"].get("call_id", ""))
                turn.questions[call] = RecordedQuestion(request=event["request"])
                self._questions[event["approval_id"]] = turn, call
            case EventType.APPROVAL_DECIDED if event["approval_id"] in self._questions:
                asked, call = self._questions[event["approval_id"]]
                asked.questions[call] = RecordedQuestion(request=asked.questions[call].request, decision=event)


def _take_entry(turn: TurnRecord, entry: Entry, injected: str) -> None:
    turn.end = entry.seq + 1
    if entry.kind == "message" and entry.key.startswith(injected):
        # An id of Loom's own cannot be sent.
        name = entry.key.removeprefix(injected).replace("~", "recorded-")
        turn.injected.append({"id": name, "text": "as it was recorded"})
    elif entry.head.get("note") in (SUMMARY, NOT_COMPRESSED):
        gave = {"entries": entry.seq + 1, **entry.head["told"]}
        turn.compressions.append({"overflow": entry.head["overflow"], "gave": gave})
    elif "usage" in (kept := entry.head.get(PRIVATE) or {}):  # not an answer that the job was given as its input
        calls = [
            {"id": call["id"], "name": call["function"]["name"], "e": entry.seq, "i": index, **TRAITS}
            for index, call in enumerate(entry.head.get("tool_calls") or ())
        ]
        turn.context = entry.seq
        turn.answer = {"entries": entry.seq + 1, "calls": calls, "usage": kept["usage"], "cost": kept.get("cost", 0)}


def _digest(content: Any) -> str:
    return str(content.get("$blob", "")) if isinstance(content, Mapping) else ""
