"""Pending decisions, in a queue: they count in the order in which they came, and each of them once.

A signature is verified and a late signal's time is looked up outside the machine, which takes a while; what comes
meanwhile waits for its turn. What is refused needs no turn. None of this crosses a run: one ends when nothing is in
flight.
"""

from loom_dsl.approvals.decision import Decision
from loom_dsl.machine.decision_states import Stage
from loom_dsl.machine.pending_decision import PendingDecision, Refusal, digest_of, name_of
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import WAITING, Token
from loom_dsl.machine.tokens.core import Core

ONCE = "this was received before, and counts once"
MAX_KEPT = 100
"""Decisions of which a job knows that they counted."""


def find_question(machine: Core, name: str) -> Token | None:
    """Give the token that waits for decisions about an approval."""
    tokens = (t for t in machine.state.tokens.values() if t.status == WAITING and t.kept(ApprovalRecord).id == name)
    return next(tokens, None)


def join(machine: Core, pending: PendingDecision) -> None:
    """Put a decision behind those about the same question that came before it, if it is not in the queue."""
    queue = machine.pending_decisions.setdefault(pending.decision.approval_id, [])
    if pending not in queue:
        queue.append(pending)


def leave(machine: Core, pending: PendingDecision) -> None:
    """Take a decision out of the queue, if it is in it."""
    name = pending.decision.approval_id
    queue = [other for other in machine.pending_decisions.get(name, ()) if other is not pending]
    if queue:
        machine.pending_decisions[name] = queue
    else:
        machine.pending_decisions.pop(name, None)


def in_stage(machine: Core, name: str, stage: Stage) -> list[PendingDecision]:
    """The decisions about an approval that stand there, the first one first."""
    return [pending for pending in machine.pending_decisions.get(name, ()) if pending.stage is stage]


def is_its_turn(machine: Core, pending: PendingDecision) -> bool:
    """Whether nothing that came before it keeps a decision waiting whose question is open."""
    queue = machine.pending_decisions.get(pending.decision.approval_id)
    return not queue or queue[0] is pending


def next_queued(machine: Core, name: str) -> PendingDecision | None:
    """Give the queued decision whose turn it is. When the question is gone, none waits for another."""
    pending = next(iter(in_stage(machine, name, Stage.QUEUED)), None)
    if pending is None or find_question(machine, name) is None or is_its_turn(machine, pending):
        return pending
    return None


# -- the same decision once more ---------------------------------------------------------------------------------------


def pending_twin(machine: Core, decision: Decision) -> PendingDecision | None:
    """Give this very decision as it came before, while it is not settled."""
    queue = machine.pending_decisions.get(decision.approval_id, [])
    name = name_of(decision) if queue else ""
    return next((pending for pending in queue if name and pending.name == name), None)


def keep(machine: Core, decision: Decision, verdict: str) -> None:
    """Remember what became of a decision that is not refused: under its sender's name for it, and by what it says."""
    name, content = name_of(decision), _content(decision)
    if name or content:
        entry = f"{verdict}/{name}/{content}" if content else f"{verdict}/{name}"
        machine.state.counted = [*machine.state.counted, entry][-MAX_KEPT:]


def outcome(machine: Core, decision: Decision) -> Refusal | None:
    """Say what became of this very decision when it came first; None where it has not come, or was refused.

    A refusal is not remembered: what is judged again is refused again, or the reason is gone.
    """
    name = name_of(decision) if machine.state.counted else ""
    for verdict in ("recorded", "already_done"):
        wanted = f"{verdict}/{name}"
        if name and any(entry == wanted or entry.startswith(f"{wanted}/") for entry in machine.state.counted):
            return verdict, f"{decision.choice}: {ONCE}"
    return None


def was_said(machine: Core, decision: Decision) -> bool:
    """Whether an unsigned decision that counted says the very same, whatever its sender calls it."""
    content = _content(decision) if machine.state.counted else ""
    return bool(content) and any(entry.endswith(f"/{content}") for entry in machine.state.counted)


def _content(decision: Decision) -> str:
    """Name what an unsigned decision says; empty for a signed one, whose signature counts once."""
    return "" if decision.signature is not None else digest_of(decision, "")[:16]
