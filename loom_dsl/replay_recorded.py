"""What a debug replay has in place of activities: what they gave when the job ran."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from loom_dsl.commands import RunActivity
from loom_dsl.errors import LoomError, PermissionDenied
from loom_dsl.machine_state import MachineState
from loom_dsl.plan import Plan
from loom_dsl.record import Record, TurnRecord
from loom_dsl.simulate import Simulation


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
