"""Debug replay: the machine goes through a job again with what was recorded, in memory, without effects.

The model's answers, the tools' results and people's decisions come from the record. What the machine makes of them is
computed anew, by this release's machine and whatever plan is given, and held against what it told then.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from loom_dsl.errors import LoomError, PermissionDenied, PlanError
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import RunActivity, TimerFired
from loom_dsl.machine.decisions.refusals import DECISION
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.signals import CONTROL
from loom_dsl.machine.state import WAITING, MachineState
from loom_dsl.simulation.in_memory import Simulation
from loom_dsl.simulation.recording import OF_ABORT, Record, Replayed, ReplayedTurn, TurnRecord, told_lines

# What a debug replay has in place of activities: what they gave when the job ran.


class Recorded(LoomError):
    """An activity had failed with this."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]


class FromRecord(Simulation):
    """The machine in memory, with the record in place of activities.

    Args:
        record: What a job left.
        plan: What the machine runs.
    """

    def __init__(self, record: Record, plan: Plan) -> None:
        self._record = record
        self._notes: dict[int, list[str]] = defaultdict(list)
        self._compressed: dict[int, int] = defaultdict(int)
        """By turn: how many of its compressions were done again."""
        super().__init__(plan, MachineState(turn=record.first), self._recorded(), job=record.job)

    def _recorded(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "loom.context.assemble": self._assemble,
            "loom.context.compress": self._compress,
            "loom.model.call": self._model,
            "loom.tool.discover": lambda command: {"ok": True},
            "loom.tool.validate": lambda command: {"ok": True, "arguments": {}},
            "loom.tool.authorize": self._authorize,
            "loom.tool.check_cancel": lambda command: {"ok": True},
            "loom.tool.execute": lambda command: {"ok": True},
            "loom.tool.format": self._format,
            "loom.turn.feedback": lambda command: {"entries": self._turn.end if self._turn else 0},
            "loom.job.result": self._result,
            "loom.effects.undo": lambda command: {},
            "loom.signal.time": lambda command: {"sent": None},
            "loom.events.flush": lambda command: None,
            "loom.approval.announce": lambda command: None,
        }

    def _assemble(self, command: RunActivity) -> dict[str, Any]:
        turn = self._turn
        assert turn is not None
        if not turn.asked and (failure := self._failure()):
            self._note(f"the context cannot be built: {failure.code}")
            raise failure
        coming = self._coming
        if coming and not coming["overflow"]:
            # Where the compression failed, the model was asked with what fits, if anything did.
            return {"entries": turn.context, "full": True, **({"context": {}} if turn.asked else {})}
        if turn.answer is not None and not coming:  # a turn that the model has not answered does not tell
            self._note(f"the session has {turn.context} entries")
        return {"entries": turn.context, "context": {}}

    @property
    def _coming(self) -> dict[str, Any] | None:
        """The next compression of this turn that was recorded."""
        turn, done = self._turn, self._compressed[self._number]
        return turn.compressions[done] if turn and done < len(turn.compressions) else None

    def _compress(self, command: RunActivity) -> dict[str, Any]:
        coming = self._coming
        if coming is None:
            raise Recorded("context_length", "there is no compression in the record")
        self._compressed[self._number] += 1
        gave: dict[str, Any] = coming["gave"]
        failed = f"cannot be compressed: {gave['code']}" if "code" in gave else "is compressed"
        self._note(f"the conversation {failed}")
        return gave

    def _model(self, command: RunActivity) -> dict[str, Any]:
        turn = self._turn
        assert turn is not None
        if self._coming:
            self._note("the model says that the conversation is too long")
            raise Recorded("context_length", "the conversation was too long for the model")
        if turn.answer is None:
            failure = self._failure()
            assert failure is not None
            self._note(f"the model fails: {failure.code}")
            raise failure
        names = ", ".join(call["name"] for call in turn.answer["calls"])
        self._note(f"the model calls {names}" if names else "the model answers")
        return turn.answer

    def _authorize(self, command: RunActivity) -> dict[str, Any]:
        turn, call = self._turn, command.arguments["call"]
        assert turn is not None
        asked = turn.questions.get(call["id"])
        if asked is not None and not command.arguments["approved"]:
            self._note(f"{call['name']} asks")
            expired = asked.decision.get("choice") == "expired"
            rule = "allow" if asked.decision.get("allowed") else "deny"
            policy = {"expires": 1.0 if expired else None, "on_expiry": rule if expired else "deny"}
            # Whether the decision was signed has been looked at then, and so has who may decide.
            request = {name: value for name, value in asked.request.items() if name != "signed"}
            return {"decision": "ask", "request": request, "policy": policy}
        if asked is None and turn.results.get(call["id"], {}).get("code") == PermissionDenied.code:
            return {"decision": "deny", "ok": False, "code": PermissionDenied.code, "message": "denied"}
        return {"decision": "allow"}

    def _format(self, command: RunActivity) -> dict[str, Any]:
        turn, call = self._turn, command.arguments["call"]
        assert turn is not None
        result = turn.results[call["id"]]
        self._note(f"{call['name']}: {result['code'] or result['status']}")
        return result

    def _result(self, command: RunActivity) -> dict[str, Any]:
        given, record = command.arguments, self._record
        code = given.get("code")
        error = {"code": code, "message": given.get("message") or record.message} if code else None
        result = {"status": given["status"], "answer": "", **({"error": error} if error else {})}
        return {"result": result, "content": record.content, "error": error}

    def _failure(self) -> Recorded | None:
        """What the job's last turn broke with."""
        record = self._record
        last = record.turns and self._number == max(record.turns)
        return Recorded(record.code, record.message) if last and record.status == "failed" and record.code else None

    @property
    def _number(self) -> int:
        turn = self.machine.state.turn
        assert turn is not None
        return turn.turn_counter

    @property
    def _turn(self) -> TurnRecord | None:
        return self._record.turns.get(self._number)

    def _note(self, text: str) -> None:
        self._notes[self._number].append(text)


MAX_STEPS = 1_000_000
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
            for _ in range(MAX_STEPS):
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
        return [token.at for token in waiting if token.kept(ApprovalRecord).request.get("call_id") in expired]

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
            if token.status != WAITING or turn is None:
                continue
            question = token.kept(ApprovalRecord)
            request = question.request
            if not isinstance(request, Mapping):
                continue
            asked = turn.questions.get(str(request.get("call_id")))
            name = question.id
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
