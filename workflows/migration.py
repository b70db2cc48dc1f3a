"""Moving a job to another plan: what is in flight ends first, and the next run begins under the new plan."""

from dataclasses import dataclass
from typing import Any

from temporalio import workflow

from workflows.signals import Move

with workflow.unsafe.imports_passed_through():
    from loom_dsl.graph.plan import Plan, PlanText
    from loom_dsl.machine.commands import Drain, Input
    from loom_dsl.machine.interpreter import Machine
    from loom_dsl.machine.migration import moved
    from loom_dsl.machine.state import RUNNING, MachineState
    from loom_dsl.text.abridgement import abridge

PATIENCE = 5.0
"""Seconds after which whoever moves a job is told what it waits for; the job moves all the same when that is done."""
MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """Somebody wants the job to go on under another plan.

    Attributes:
        slot: Where the answer is waited for.
    """

    slot: str
    move: Move


class Moving:
    """What a job knows of its way to another plan.

    Attributes:
        answers: Where answers are put, by slot.
    """

    def __init__(self, answers: dict[str, dict[str, str]]) -> None:
        self.answers = answers
        self._asked: MigrationRequest | None = None
        self._settled = False

    def begin(self, machine: Machine, asked: MigrationRequest) -> Input | None:
        """Begin a move if every token has a home under the new plan; nothing that would be refused holds the job up."""
        refused = self._refusal(machine, asked.move)
        if refused is not None:
            self._answer(asked.slot, *refused)
            return None
        self._asked = asked
        return Drain(now=workflow.time(), hold=True)

    def _refusal(self, machine: Machine, move: Move) -> tuple[str, str] | None:
        if machine.over or machine.state.ending is not None:
            return "ended", "the job is ending"
        if self._asked is not None:
            return "invalid", "the job is being moved already"
        problems = _moved(machine, move)[1]
        return ("refused", "; ".join(problems)) if problems else None

    def waits(self, machine: Machine | None) -> dict[str, str]:
        """Answer somebody whose patience is over."""
        at = [token.at for token in machine.state.in_order() if token.status == RUNNING] if machine else []
        named = abridge(at, MAX_NAMED, "`{}`".format)
        return {
            "verdict": "waiting",
            "message": f"it waits for {named or 'what is in flight'}, and moves when that is done; until then nothing "
            "else of the job begins",
        }

    def settle(self, machine: Machine) -> None:
        """Say whether the job moves, now that nothing is in flight. Why it does not is an event, too."""
        asked = self._asked
        if asked is None or self._settled:
            return
        self._settled = True
        problems = _moved(machine, asked.move)[1]
        if problems:
            why = "; ".join(problems)
            machine.emit("warning", code="not_moved", message=f"the job stays under its plan: {why}")
            self._answer(asked.slot, "refused", why)
        else:
            self._answer(asked.slot, "recorded", "the job goes on under the other plan")

    def following(self, machine: Machine) -> tuple[dict[str, Any], PlanText] | None:
        """Give the state and the plan that the next run begins with; None where the job stays under its plan."""
        if self._asked is None:
            return None
        state, problems = _moved(machine, self._asked.move)
        return None if problems else (state.to_json(), self._asked.move.plan)

    def _answer(self, slot: str, verdict: str, message: str) -> None:
        self.answers[slot] = {"verdict": verdict, "message": message}


def _moved(machine: Machine, move: Move) -> tuple[MachineState, list[str]]:
    return moved(machine.state, machine.plan, Plan.load(move.plan.text), move.names)
