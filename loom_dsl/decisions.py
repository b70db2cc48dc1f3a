"""Decisions: whether one counts, when it came, and what follows from it."""

from typing import TYPE_CHECKING, Any

from loom_dsl.approval import Decision
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.commands import CancelActivity, CancelTimer, RunActivity, SignalReceived
from loom_dsl.deciding import refusal, rules_of, vote, votes_of
from loom_dsl.errors import PlanError
from loom_dsl.machine_approvals import (
    approval_due,
    catch_up,
    digest_of,
    ends_at_deadline,
    picked_up,
    set_timer,
    wake,
)
from loom_dsl.machine_ends import EXPIRED, close_approval, drop_all
from loom_dsl.machine_signed import PLACE as VERIFYING
from loom_dsl.machine_signed import UNVERIFIABLE, note_counted, proof_of, verify, was_counted
from loom_dsl.machine_state import READY, WAITING, Token
from loom_dsl.machine_waits import time_is_over
from loom_dsl.nodes_flow import Approval
from loom_dsl.signature import VERIFIED
from loom_dsl.turn import LARGEST_STATE as LARGEST_TURN
from loom_dsl.wire import size_of

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine

DECISION = "loom.decision"
MOST_CHECKED = 50
"""Decisions about one question whose time is being looked up."""


def refuse(machine: "Machine", signal: SignalReceived, verdict: str, why: str) -> None:
    """Do nothing about a signal, and say so: in an event, and to the update."""
    machine.emit("warning", code="signal_refused", signal=signal.name[:100], verdict=verdict, message=why[:500])
    machine.answer(signal.answer_to, verdict, why)


def abort(machine: "Machine", by: str, reason: str) -> None:
    """End the job on a person's word: what runs is cancelled, and what is open is settled first."""
    state = machine.state
    if state.abort is not None:
        return
    state.abort = {"by": by, "reason": reason or (f"aborted by {by}" if by else "aborted")}
    state.paused = None
    drop_all(machine)
    for at in machine.side_work:
        if at.startswith(("~announce/", VERIFYING)):  # work about a question that is gone must not hold the end up
            machine.command(CancelActivity(at=at))


def _waiting(machine: "Machine", name: str) -> Token | None:
    tokens = (t for t in machine.state.tokens.values() if t.status == WAITING and t.data.get("id") == name)
    return next(tokens, None)


def decide(machine: "Machine", signal: SignalReceived, decision: Decision) -> None:
    """Take a decision, or say why it does not count."""
    token = _waiting(machine, decision.approval_id)
    if token is None:
        return refuse(machine, signal, *(was_counted(machine, decision) or _closed(machine, decision.approval_id)))
    node = machine.node(token)
    assert isinstance(node, Approval)
    last, when = machine.state.last, wake(token)
    if when is not None and when <= last:
        catch_up(machine, token, last)
        set_timer(machine, token)
    if refused := refusal(machine, token, decision):
        return refuse(machine, signal, *refused)
    deadline = token.data["deadline"]
    if deadline is not None and last > deadline and node.approval.late == "reject" and ends_at_deadline(token):
        if signal.answer_to is not None:
            return _late(machine, token, signal)
        return _look_up_time(machine, token, signal)
    return _weigh(machine, token, decision, signal, last)


def _closed(machine: "Machine", name: str) -> tuple[str, str]:
    """Why nothing waits for a decision of this id."""
    if name in machine.state.decided:
        return "already_decided", f"this approval is already decided: {name}"
    if name + EXPIRED in machine.state.decided:
        return "expired", f"this approval has expired: {name}"
    return "unknown", f"no approval of this id is open: {name}"


def _weigh(machine: "Machine", token: Token, decision: Decision, signal: SignalReceived, sent: float) -> None:
    """The decision came in time from somebody who may decide: count it, once its signature is verified."""
    if decision.signature is None:
        return _take(machine, token, decision, signal)

    def then(verdict: str, why: str) -> None:
        _verified(machine, decision, signal, (verdict, why))

    if not verify(machine, token, decision, signal, sent, then):
        return refuse(machine, signal, "full", "too many signatures for this approval are being verified; try again")
    return None


def _verified(machine: "Machine", decision: Decision, signal: SignalReceived, said: tuple[str, str]) -> None:
    """A signature was held against the keys. Much may have happened meanwhile, so all else is looked at again."""
    token = _waiting(machine, decision.approval_id)
    if token is None and said[0] in (VERIFIED, UNVERIFIABLE):
        refuse(machine, signal, *(was_counted(machine, decision) or _closed(machine, decision.approval_id)))
    elif token is None or said[0] != VERIFIED:
        refuse(machine, signal, *said)
    elif refused := refusal(machine, token, decision):
        refuse(machine, signal, *refused)
    else:
        _take(machine, token, decision, signal)
    if token is not None and token.status == WAITING and not token.data.get("verifying"):
        _expire_if_held(machine, token)


def _expire_if_held(machine: "Machine", token: Token) -> None:
    """The time of a question was over while decisions were being looked at, and none of them counted."""
    if not token.data.get("checking") and token.data.pop("fired", False):
        approval_due(machine, token)


def _take(machine: "Machine", token: Token, decision: Decision, signal: SignalReceived) -> None:
    """Count a decision."""
    proof = proof_of(token, decision)
    counted = vote(machine, token, decision)
    if not isinstance(counted, Decision):
        verdict, why = counted
        if verdict == "recorded":
            note_counted(machine, decision)
        if verdict in ("recorded", "already_done"):
            return machine.answer(signal.answer_to, verdict, why)
        return refuse(machine, signal, verdict, why)
    note_counted(machine, decision)
    apply_decision(machine, token, counted, proof)
    return machine.answer(signal.answer_to, "recorded", f"{decision.choice} recorded")


def apply_decision(machine: "Machine", token: Token, decision: Decision, proof: dict[str, Any]) -> None:
    """The decision counts: tell it with its proof, remember it, and let the token go on."""
    told: dict[str, Any] = {"choice": decision.choice, "by": decision.by, "message": decision.message}
    result = dict(told)
    if decision.edited_arguments is not None:
        result["edited"] = decision.edited_arguments
    if decision.remember != "no":
        _remember(machine, token.data.get("request"))
        told["remember"] = decision.remember
        if decision.remember == "rule":
            told["rules"] = rules_of(machine, token)
    checking = token.data.get("checking", ())
    told |= {**proof, **votes_of(token, decision)}
    close_approval(machine, token, **told, digest=digest_of(token.data["request"]))
    for payload in checking:
        other = SignalReceived(now=machine.state.last, name=DECISION, payload=payload)
        refuse(machine, other, *_closed(machine, token_id(payload)))
    machine.command(CancelTimer(at=token.at))
    token.data, token.status = {}, READY
    if decision.choice == "terminate":
        reason = f"terminated by {decision.by or 'somebody'}" + (f": {decision.message}" if decision.message else "")
        return abort(machine, decision.by, reason[:2_000])
    picked_up(machine, decision.by)
    return machine.complete(token, result)


def token_id(payload: Any) -> str:
    """The approval that a payload is about; it was read as a decision before."""
    return str(payload["approval_id"])


def _remember(machine: "Machine", request: Any) -> None:
    rules = request.get("rules") if isinstance(request, dict) else None
    turn = machine.state.turn
    if not isinstance(rules, list) or not rules:
        return machine.emit("warning", code="not_remembered", message="the request names no rule to remember")
    if turn is None:
        return _remember_in_graph(machine, [str(rule) for rule in rules])
    try:
        machine.state.turn = turn.remember([str(rule) for rule in rules])
    except PlanError as error:
        machine.emit("warning", code="not_remembered", message=error.message)
    return None


def _remember_in_graph(machine: "Machine", rules: list[str]) -> None:
    """A graph without turns keeps them beside its tokens, as long as they are few."""
    known = list(dict.fromkeys([*machine.state.remembered, *rules]))
    if size_of(known) > LARGEST_TURN:
        return machine.emit("warning", code="not_remembered", message="there are too many rules already")
    machine.state.remembered = known
    return None


def _look_up_time(machine: "Machine", token: Token, signal: SignalReceived) -> None:
    """The deadline is past by the workflow's clock; only the server knows when the signal was sent."""
    checking = token.data["checking"] = [*token.data.get("checking", ()), signal.payload]
    if len(checking) > MOST_CHECKED:
        token.data["checking"] = checking[:-1]
        return refuse(machine, signal, "full", "too many decisions for this approval are being checked")
    if len(checking) == 1:
        _look_up_first(machine, token)
    return None


def _look_up_first(machine: "Machine", token: Token) -> None:
    at = f"~late/{token.at}"
    machine.side_work[at] = lambda result, failed: late_check_done(machine, token.at, result)
    arguments = {"signal": DECISION, "digest": digest(canonical_json(token.data["checking"][0]))}
    # It only looks, so events must not travel with it: they would count as stored.
    looking = RunActivity(at=at, activity="loom.signal.time", arguments=arguments, carries=False, timeout=10.0)
    machine.command(looking)


def late_check_done(machine: "Machine", at: str | None, result: Any) -> None:
    """The server's time of a decision is known, or could not be found; in doubt it is late."""
    token = machine.state.tokens.get(at) if at else None
    if token is None or token.status != WAITING:
        return
    payload, *others = token.data.pop("checking")
    if others:
        token.data["checking"] = others
    signal = SignalReceived(now=machine.state.last, name=DECISION, payload=payload)
    decision = Decision.model_validate(payload)
    sent = result.get("sent") if isinstance(result, dict) else None
    if not isinstance(sent, (int, float)) or sent > token.data["deadline"]:
        _late(machine, token, signal)
    elif refused := refusal(machine, token, decision):
        refuse(machine, signal, *refused)
    else:
        _weigh(machine, token, decision, signal, sent)
    if token.status != WAITING:
        return
    if others:
        _look_up_first(machine, token)
    else:
        _expire_if_held(machine, token)


def _late(machine: "Machine", token: Token, signal: SignalReceived) -> None:
    refuse(machine, signal, "expired", f"the decision came after the deadline: {token.data['id']}")


def deadline_passed(machine: "Machine", at: str) -> None:
    """A timer fired: a question is told again, passed on or expires; what else waits is over."""
    token = machine.state.tokens.get(at)
    if token is None or token.doomed:
        return
    machine.spun = 0
    if token.status == WAITING:
        approval_due(machine, token)
    elif token.data.get("deadline") is not None:
        time_is_over(machine, token)
