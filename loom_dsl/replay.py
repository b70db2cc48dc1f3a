"""Debug replay: the machine goes through a job again with what was recorded, in memory, without effects.

The model's answers, the tools' results and people's decisions come from the record. What the machine makes of them is
computed anew, by this release's machine and whatever plan is given, and held against what it told then.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from loom_dsl.commands import RunActivity, TimerFired
from loom_dsl.decisions import DECISION
from loom_dsl.errors import PlanError
from loom_dsl.machine_state import WAITING
from loom_dsl.plan import Plan
from loom_dsl.record import OF_ABORT, Record, Replayed, ReplayedTurn, told_lines
from loom_dsl.replay_recorded import FromRecord
from loom_dsl.steering import CONTROL

MOST_STEPS = 1_000_000
EDITED = {"edited": True}
"""Stands for arguments that an approver wrote: a replay runs nothing with them."""


def replay(record: Record, plan: Plan) -> Replayed:
    """Go through a job again.

    Args:
        record: What it left.
        plan: What the machine runs: the job's own plan, or another one to see what it would have done.
    """
    replayed = _Replay(record, plan).play()
    if replayed.differs and record.status == "aborted":
        # What was recorded last may have come when the job was ending already, so that the machine never had it.
        replayed = min(replayed, _Replay(record, plan, sooner=True).play(), key=lambda one: one.differs)
    return replayed


class _Replay(FromRecord):
    """The same machine, with the record in place of people, too."""

    def __init__(self, record: Record, plan: Plan, *, sooner: bool = False) -> None:
        self._sooner = sooner
        self._sent: set[str] = set()
        self._stopped = ""
        self._is_recordable = True
        """Whether that which it stopped for is in other records."""
        super().__init__(record, plan)

    def play(self) -> Replayed:
        """Go on until the job is over, or the record."""
        try:
            for _ in range(MOST_STEPS):
                if self.outcome.over or not self._go_on():
                    break
        except PlanError as error:
            self._stopped = f"it cannot go on: {error.message}"
        return self._told()

    # -- driving -----------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Do one thing; False when the record has nothing more to do it with."""
        self._inject()
        if self._sooner and self._has_told_all():
            return self._record_ends("")
        if not self.work:
            return self._decide() or (bool(self._expiring()) and self.step()) or self._record_ends("a decision")
        command = self.work[0]
        if not isinstance(command, RunActivity) or command.activity not in self.handlers:
            what = command.activity if isinstance(command, RunActivity) else f"the job {command.child}"
            self._stopped, self._is_recordable = f"what {what} gave is in no record", False
            return False
        lacks = self._lacks(command)
        return self._record_ends(lacks) if lacks else self.step()

    def _expiring(self) -> list[str]:
        """Where a question stands that nobody answered in time."""
        turn = self._turn
        asked = turn.questions.values() if turn else ()
        expired = [one.request.get("call_id") for one in asked if one.decision.get("choice") == "expired"]
        waiting = [token for token in self.machine.state.in_order() if token.status == WAITING]
        return [token.at for token in waiting if token.data["request"].get("call_id") in expired]

    def _lacks(self, command: RunActivity) -> str:
        """What a command needs that the record does not have; empty: it has all."""
        turn = self._turn
        if command.activity == "loom.context.assemble" and turn is None:
            return "this turn"
        answered = turn is not None and (turn.answer is not None or self._coming is not None)
        if command.activity == "loom.model.call" and not answered and (turn is None or not self._failure()):
            return "the model's answer"
        if command.activity in ("loom.tool.execute", "loom.tool.format"):
            call = command.arguments["call"]
            if turn is None or call["id"] not in turn.results:
                return f"the result of {call['name']}"
        return ""

    def _record_ends(self, lacks: str) -> bool:
        """Let an abort or the end of the time come where the record ends; else there is nothing to go on with."""
        if self._record.status == "aborted" and "abort" not in self._sent:
            self._sent.add("abort")
            self._note("somebody ends the job")
            self.signal(CONTROL, {"op": "abort", **self._record.abort})
            return True
        if self._record.code == "max_run_duration" and self.timers:
            at = min(self.timers, key=lambda name: (self.timers[name], name))
            self.now = max(self.now, self.timers.pop(at))
            self._note("the time is over")
            self._feed(TimerFired(now=self.now, at=at))
            return True
        self._stopped = f"the record has not got {lacks}"
        return False

    def _has_told_all(self) -> bool:
        """Whether the last turn has told all that it told before the job was ended."""
        last = max(self._record.turns)
        if self._number < last or "abort" in self._sent:
            return False
        missing = told_lines(self._record.turns[last].events) - told_lines(self._events()[last])
        return all(line.startswith(OF_ABORT) for line in missing)

    def _inject(self) -> None:
        """Send a message before it was taken: in the turn before, whose model had not answered yet."""
        number, work = self._number, self.work
        at = work[0].activity if work and isinstance(work[0], RunActivity) else ""
        if at == "loom.model.call":
            self._send_messages(number + 1)
        elif number == self._record.first.turn_counter:
            self._send_messages(number)

    def _send_messages(self, number: int) -> None:
        turn = self._record.turns.get(number)
        for message in turn.injected if turn else ():
            if message["id"] not in self._sent:
                self._sent.add(message["id"])
                self.signal(CONTROL, {"op": "inject", **message})

    def _decide(self) -> bool:
        """Give the decision of a question that waits; False when none of them was decided."""
        turn = self._turn
        for token in self.machine.state.in_order():
            request = token.data.get("request")
            if token.status != WAITING or turn is None or not isinstance(request, Mapping):
                continue
            asked = turn.questions.get(str(request.get("call_id")))
            name = str(token.data["id"])
            if asked is None or not asked.decision or name in self._sent:
                continue
            if asked.decision["choice"] in ("expired", "cancelled"):
                continue
            self._sent.add(name)
            self._note(f"{request.get('tool')}: {asked.decision['choice']} by {asked.decision.get('by') or 'somebody'}")
            self.signal(DECISION, _decision(name, asked.decision))
            return True
        return False

    # -- what came of it -----------------------------------------------------------------------------

    def _told(self) -> Replayed:
        record, events = self._record, self._events()
        numbers = {*record.turns, *events, *self._notes}
        if self._stopped:  # the turn in which it stopped is not whole, on one side or the other
            numbers = {number for number in numbers if number <= self._number}
        turns = [self._compared(number, events[number]) for number in sorted(numbers)]
        status, code = self._ending()
        same_end = (status, code) == (record.status, record.code)
        waits = status == "stopped" and (record.status == "running" or not self._is_recordable)
        differs = any(turn.missing or turn.added for turn in turns) or not (same_end or waits)
        return Replayed(turns=turns, status=status, code=code, stopped=self._stopped, differs=differs)

    def _events(self) -> dict[int, list[Mapping[str, Any]]]:
        outbox = self.machine.state.outbox
        self._store(outbox.batches)  # where the replay stopped, nothing carried the last ones
        events: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for event in [*self.outcome.events, *outbox.open]:
            events[event["n"]].append(event)
        return events

    def _compared(self, number: int, events: list[Mapping[str, Any]]) -> ReplayedTurn:
        turn = self._record.turns.get(number)
        then, now = told_lines(turn.events if turn else ()), told_lines(events)
        if self._stopped and number == self._number:
            then = now
        missing, added = sorted((then - now).elements()), sorted((now - then).elements())
        return ReplayedTurn(number=number, steps=self._notes[number], missing=missing, added=added)

    def _ending(self) -> tuple[str, str]:
        outcome = self.outcome
        if outcome.failure is not None:
            return "failed", outcome.failure.code
        if not outcome.over:
            return "stopped", ""
        result = outcome.result if isinstance(outcome.result, dict) else {}
        return str(result.get("status", "completed")), str((result.get("error") or {}).get("code", ""))


def _decision(name: str, decided: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: decided[key] for key in ("choice", "by", "message", "remember") if decided.get(key)}
    edited = {"edited_arguments": EDITED} if decided["choice"] == "edit" else {}
    return {"approval_id": name, **kept, **edited}
