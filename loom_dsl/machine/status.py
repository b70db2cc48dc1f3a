"""What a job answers when it is asked where it stands."""

from typing import Any

from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.kinds.approvals import deciders, halted_question, must_be_signed
from loom_dsl.machine.records import ApprovalRecord, ChildRecord, EventRecord
from loom_dsl.machine.state import CHILD, LISTENING, RUNNING, TIMING, WAITING, Token
from loom_dsl.machine.tokens.retry import backing_off, halted


def status_of(machine: Machine) -> dict[str, Any]:
    """Give the run's state, its turn, open approvals, what runs and what waits, as JSON."""
    state = machine.state
    tokens = state.in_order()
    approvals = [
        {
            "approval_id": asked.id,
            "node": token.at,
            "since": asked.since,
            "expires_at": token.deadline,
            "request": asked.request,
            "approvers": deciders(token),
            "votes": [vote["by"] for vote in asked.votes],
            "halted": bool(asked.halted),
            "signed": must_be_signed(machine, token),
        }
        for token in tokens
        if token.status == WAITING and (asked := token.kept(ApprovalRecord))
    ]
    questions = [
        halted_question(machine, token)
        for token in tokens
        if isinstance(token.record, ApprovalRecord) and token.record.halted
    ]
    return {
        "state": state.run_state,
        "phase": state.phase,
        "turn": state.turn.to_dict() if state.turn else None,
        "paused": state.paused,
        "abort": state.abort,
        "approvals": approvals,
        "running": [token.at for token in tokens if token.status == RUNNING],
        "halted": [*halted(machine), *questions],
        "backing_off": backing_off(machine),
        "tokens": [token.at for token in tokens],
        "visits": {key: frame.visits for key, frame in state.frames.items()},
        "events": [event["name"] for event in state.events],
        "waits": [wait for token in tokens if (wait := _wait(token))],
        "waiting_messages": len(state.inbox),
        "plan": machine.plan.hash,
    }


def _wait(token: Token) -> dict[str, Any] | None:
    """What a token waits for that is no approval and no activity; until when at most, where an edge has a deadline."""
    waits = _waits_for(token)
    due = token.deadline
    if due is None or token.status == WAITING:
        return waits
    return {"at": token.at, "until": due, **(waits or {})}


def _waits_for(token: Token) -> dict[str, Any] | None:
    if token.status == LISTENING:
        awaited = token.kept(EventRecord)
        return {"at": token.at, "event": awaited.name, "key": awaited.key}
    if token.status == TIMING:
        return {"at": token.at, "until": token.deadline}
    if token.status == CHILD:
        return {"at": token.at, "child": token.kept(ChildRecord).child}
    return None
