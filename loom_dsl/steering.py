"""What people and other systems send: decisions, pause, resume, abort, messages. Everything is checked here.

A refusal is never silent: an update gets an answer, and every refusal is an event.
"""

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loom_dsl.approval import Control, Decision, problem_of
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.commands import CancelActivity, CancelTimer, RunActivity, SignalReceived
from loom_dsl.errors import PlanError
from loom_dsl.graph import Approval
from loom_dsl.machine_ends import drop_all
from loom_dsl.machine_state import WAITING, Token

if TYPE_CHECKING:
    from loom_dsl.machine import Machine

DECISION, CONTROL, EVENT = "loom.decision", "loom.control", "loom.event"
MOST_SEEN = 100
MOST_WAITING = 50
LARGEST_PAYLOAD = 64 * 1024
"""Bytes of a signal's JSON. Larger ones are refused; a large message goes to the store and is sent as a reference."""


def receive(machine: "Machine", signal: SignalReceived) -> None:
    """Take a signal or an update."""
    if signal.problem:
        return _refuse(machine, signal, "invalid", signal.problem)
    if machine.state.ending is not None or machine.over:
        return _refuse(machine, signal, "ended", "the job is ending")
    if signal.answer_to is not None and (machine.draining or machine.at_boundary):
        return machine.answer(signal.answer_to, "retry", "the job is between two runs; send it again")
    try:
        if signal.name == DECISION:
            return _decide(machine, signal, Decision.model_validate(signal.payload))
        if signal.name == CONTROL:
            return _control(machine, signal, Control.model_validate(signal.payload))
    except ValidationError as error:
        return _refuse(machine, signal, "invalid", problem_of(error))
    return _refuse(machine, signal, "invalid", f"no signal of the name {signal.name[:100]!r} is known")


def _refuse(machine: "Machine", signal: SignalReceived, verdict: str, why: str) -> None:
    machine.emit("warning", code="signal_refused", signal=signal.name[:100], verdict=verdict, message=why[:500])
    machine.answer(signal.answer_to, verdict, why)


def _waiting(machine: "Machine", name: str) -> Token | None:
    tokens = (t for t in machine.state.tokens.values() if t.status == WAITING and t.data.get("id") == name)
    return next(tokens, None)


def _decide(machine: "Machine", signal: SignalReceived, decision: Decision) -> None:
    token = _waiting(machine, decision.approval_id)
    if token is None:
        known = decision.approval_id in machine.state.decided
        verdict = "already_decided" if known else "unknown"
        why = "this approval is already decided" if known else "no approval of this id is open"
        return _refuse(machine, signal, verdict, f"{why}: {decision.approval_id}")
    node = machine.node(token)
    assert isinstance(node, Approval)
    if decision.choice not in node.approval.choices:
        allowed = ", ".join(node.approval.choices)
        return _refuse(machine, signal, "invalid", f"choice {decision.choice!r} is not one of {allowed}")
    if decision.choice == "edit" and decision.edited_arguments is None:
        return _refuse(machine, signal, "invalid", "choice edit needs edited_arguments")
    deadline = token.data["deadline"]
    if deadline is not None and machine.state.last > deadline and node.approval.late == "reject":
        if signal.answer_to is not None:
            return _late(machine, token, signal)
        return _look_up_time(machine, token, signal)
    apply_decision(machine, token, decision)
    return machine.answer(signal.answer_to, "recorded", f"{decision.choice} recorded")


def apply_decision(machine: "Machine", token: Token, decision: Decision) -> None:
    """The decision counts: tell it, remember it, and let the token go on."""
    if decision.remember == "job" and decision.choice == "approve":
        _remember(machine, token.data.get("request"))
    result: dict[str, Any] = {"choice": decision.choice, "by": decision.by, "message": decision.message}
    if decision.edited_arguments is not None:
        result["edited"] = decision.edited_arguments
    machine.close_approval(token, choice=decision.choice, by=decision.by, message=decision.message)
    machine.command(CancelTimer(at=token.at))
    machine.complete(token, result)


def _remember(machine: "Machine", request: Any) -> None:
    rules = request.get("rules") if isinstance(request, dict) else None
    turn = machine.state.turn
    if turn is None or not isinstance(rules, list) or not rules:
        return machine.emit("warning", code="not_remembered", message="the request names no rule to remember")
    try:
        machine.state.turn = turn.remember([str(rule) for rule in rules])
    except PlanError as error:
        machine.emit("warning", code="not_remembered", message=error.message)
    return None


def _look_up_time(machine: "Machine", token: Token, signal: SignalReceived) -> None:
    """The deadline is past by the workflow's clock; only the server knows when the signal was sent."""
    if "checking" in token.data:
        return _refuse(machine, signal, "invalid", "another decision for this approval is being checked")
    token.data["checking"] = signal.payload
    at = f"~late/{token.at}"
    machine.side_work[at] = token.at
    name = digest(canonical_json(signal.payload))
    arguments = {"signal": signal.name, "digest": name}
    # It only looks, so events must not travel with it: they would count as stored.
    looking = RunActivity(at=at, activity="loom.signal.time", arguments=arguments, carries=False, timeout=10.0)
    machine.command(looking)
    return None


def late_check_done(machine: "Machine", at: str | None, result: Any) -> None:
    """The server's time of a decision is known, or could not be found; in doubt it is late."""
    token = machine.state.tokens.get(at) if at else None
    if token is None or token.status != WAITING:
        return
    payload = token.data.pop("checking")
    sent = result.get("sent") if isinstance(result, dict) else None
    if isinstance(sent, (int, float)) and sent <= token.data["deadline"]:
        return apply_decision(machine, token, Decision.model_validate(payload))
    _late(machine, token, SignalReceived(now=machine.state.last, name=DECISION, payload=payload))
    if token.data.get("fired"):
        deadline_passed(machine, token.at)
    return None


def _late(machine: "Machine", token: Token, signal: SignalReceived) -> None:
    _refuse(machine, signal, "expired", f"the decision came after the deadline: {token.data['id']}")


def deadline_passed(machine: "Machine", at: str) -> None:
    """A timer fired: the approval expires, unless a decision for it is being checked."""
    token = machine.state.tokens.get(at)
    if token is None or token.status != WAITING:
        return
    if "checking" in token.data:
        token.data["fired"] = True
        return
    node = machine.node(token)
    assert node.deadline is not None
    expired = {"choice": "expired", "by": "", "message": "nobody decided in time"}
    machine.close_approval(token, **expired)
    machine.set_output(token, expired)
    machine.move(token, [node.deadline.to])


def _control(machine: "Machine", signal: SignalReceived, control: Control) -> None:
    state = machine.state
    if control.id and control.id in state.seen:
        return machine.answer(signal.answer_to, "already_done", "this was received before")
    if control.op == "inject":
        if not control.text and not control.ref:
            return _refuse(machine, signal, "invalid", "inject needs a text or a ref")
        size = sum(len(message.get("text", "")) for message in state.inbox) + len(control.text)
        if len(state.inbox) >= MOST_WAITING or size > LARGEST_PAYLOAD:
            return _refuse(machine, signal, "full", "too many messages wait already; none of them was dropped")
    if control.op == "pause" and state.abort is not None:
        return _refuse(machine, signal, "ended", "the job is being aborted")
    if control.id:
        state.seen = [*state.seen, control.id][-MOST_SEEN:]
    machine.emit("control", op=control.op, by=control.by, reason=control.reason)
    if control.op == "pause":
        state.paused = state.paused or {"by": control.by, "at": round(state.last, 3)}
    elif control.op == "resume":
        state.paused = None
    elif control.op == "abort":
        _abort(machine, control)
    else:
        _inject(machine, control)
    return machine.answer(signal.answer_to, "recorded", f"{control.op} recorded")


def _inject(machine: "Machine", control: Control) -> None:
    state = machine.state
    message: dict[str, Any] = {"id": control.id or f"~{state.outbox.sequence + len(state.outbox.open)}"}
    message.update({"ref": control.ref} if control.ref else {"text": control.text})
    if control.when == "when_idle":
        message["idle"] = True
    state.inbox.append(message)


def _abort(machine: "Machine", control: Control) -> None:
    state = machine.state
    if state.abort is not None:
        return
    reason = control.reason or (f"aborted by {control.by}" if control.by else "aborted")
    state.abort = {"by": control.by, "reason": reason}
    state.paused = None
    drop_all(machine)
    for at in machine.side_work:
        if at.startswith("~announce/"):  # telling somebody of a question that is gone must not hold the end up
            machine.command(CancelActivity(at=at))
