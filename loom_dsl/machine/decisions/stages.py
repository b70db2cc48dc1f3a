"""What happens to a decision that has come, by the table in `machine/decision_states.py`.

A check looks at a decision where it stands and says what it finds; the table says to which stage that brings it; the
deed of that stage is done. Nothing else decides what follows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.signature import TOO_LATE, VERIFIED
from loom_dsl.graph.nodes import Approval
from loom_dsl.machine.commands import ActivityFailed, CancelTimer, RunActivity, SignalReceived
from loom_dsl.machine.decision_states import CheckVerdict, Question, Stage, next_stage
from loom_dsl.machine.decisions import queue, signatures
from loom_dsl.machine.decisions.eligibility import refusal
from loom_dsl.machine.decisions.queue import find_question, in_stage
from loom_dsl.machine.decisions.refusals import DECISION, refuse
from loom_dsl.machine.decisions.remembered_rules import remember, rules_of
from loom_dsl.machine.decisions.votes import keys_of, vote
from loom_dsl.machine.kinds.approvals import approval_due, catch_up, digest_of, ends_at_deadline, set_timer, wake
from loom_dsl.machine.pending_decision import Found, PendingDecision, Refusal
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import READY, Token
from loom_dsl.machine.tokens.ending import EXPIRED, abort, close_approval
from loom_dsl.machine.tokens.moves import Moves
from loom_dsl.text.canonical import canonical_json, digest

MAX_CHECKED = 50
"""Decisions about one question whose time is being looked up."""
_LOOKUP = "~late/"


def decide(machine: Moves, signal: SignalReceived, decision: Decision) -> None:
    """Take a decision, or say why it does not count."""
    if (before := queue.outcome(machine, decision)) is not None:
        return machine.answer(signal.answer_to, *before)
    if (twin := queue.pending_twin(machine, decision)) is not None:
        return twin.repeat(signal)
    token = find_question(machine, decision.approval_id)
    if token is not None:
        _do_what_was_due(machine, token)
    _check(machine, PendingDecision(decision, signal, machine.state.last))
    return _settle(machine, decision.approval_id) if token is not None else None


def _do_what_was_due(machine: Moves, token: Token) -> None:
    """Do what was due before a decision came."""
    last, when = machine.state.last, wake(token)
    if when is None or when > last:
        return
    catch_up(machine, token, last)
    if wake(token) != when:  # a timer that each decision set anew would not fire while they keep coming
        set_timer(machine, token)


def _check(machine: Moves, pending: PendingDecision, result: Any = None) -> None:
    """Make the check of the stage where a decision stands, with the result that it has waited for."""
    token = find_question(machine, pending.decision.approval_id)
    _enter(machine, pending, _CHECKS[pending.stage](machine, token, pending, result))


def _enter(machine: Moves, pending: PendingDecision, found: Found) -> None:
    """Bring a decision to the stage that follows from what was found, and do what that stage is for."""
    token = find_question(machine, pending.decision.approval_id)
    pending.stage = next_stage(pending.stage, _standing(machine, token), found.verdict)
    _DEEDS[pending.stage](machine, token, pending, found)


def _standing(machine: Moves, token: Token | None) -> Question:
    """How a question stands."""
    if token is None:
        return Question.GONE
    node, deadline = machine.node(token), token.deadline
    assert isinstance(node, Approval)
    over = deadline is not None and machine.state.last > deadline
    overdue = over and node.approval.late == "reject" and ends_at_deadline(token)
    return Question.OVERDUE if overdue else Question.OPEN


def _reported(machine: Moves, pending: PendingDecision, result: Any, failed: ActivityFailed | None) -> None:
    """What a decision has waited for is known; it may have been settled with its question meanwhile."""
    if pending.stage in (Stage.LOOKING_UP, Stage.VERIFYING):
        _check(machine, pending, result)
    _settle(machine, pending.decision.approval_id)


def _settle(machine: Moves, name: str) -> None:
    """Go on with the decisions about a question: whose turn it is, whose time is to be looked up, or none is left."""
    if find_question(machine, name) is None:
        for pending in in_stage(machine, name, Stage.LOOKING_UP):
            _check(machine, pending)
    while (queued := queue.next_queued(machine, name)) is not None:
        _check(machine, queued)
    token = find_question(machine, name)
    if token is None:
        return
    looking = in_stage(machine, name, Stage.LOOKING_UP)
    if looking and _LOOKUP + token.at not in machine.side_work:  # one after the other
        _look_up(machine, token, looking[0])
    if not machine.pending_decisions.get(name) and token.kept(ApprovalRecord).fired:
        token.kept(ApprovalRecord).fired = False
        approval_due(machine, token)  # its time was over while decisions were looked at, and none of them counted


def _look_up(machine: Moves, token: Token, pending: PendingDecision) -> None:
    """The deadline is past by the workflow's clock, and only the server knows when the signal was sent."""
    at = _LOOKUP + token.at
    machine.side_work[at] = partial(_reported, machine, pending)
    arguments = {"signal": DECISION, "digest": digest(canonical_json(pending.signal.payload))}
    # It only looks, so events must not travel with it: they would count as stored.
    looking = RunActivity(at=at, activity="loom.signal.time", arguments=arguments, carries=False, timeout=10.0)
    machine.command(looking)


# Checks: each looks at a decision where it stands, and says what it finds.


def _check_arrival(machine: Moves, token: Token | None, pending: PendingDecision, result: Any) -> Found:
    """A decision has come."""
    if token is None:
        return _check_without_question(machine, pending.decision)
    if refused := signatures.replay(machine, pending.decision) or refusal(machine, token, pending.decision):
        return Found(CheckVerdict.REFUSED, refused)
    if _standing(machine, token) is Question.OPEN:
        return _check_place(machine, pending)
    # What comes after the timer cannot have been sent before it, and looking it up would keep the question open.
    if pending.signal.answer_to is not None or token.kept(ApprovalRecord).fired:
        return Found(CheckVerdict.LATE, _late(token))
    if len(in_stage(machine, token.kept(ApprovalRecord).id, Stage.LOOKING_UP)) >= MAX_CHECKED:
        return Found(CheckVerdict.CROWDED, ("full", "too many decisions for this approval are being checked"))
    return Found(CheckVerdict.UNDATED)


def _check_time(machine: Moves, token: Token | None, pending: PendingDecision, result: Any) -> Found:
    """The server's time of a decision is known, or could not be found; in doubt it is late."""
    if token is None:
        return Found(CheckVerdict.CLOSED, _closed(machine, pending.decision.approval_id))
    assert token.deadline is not None
    sent = result.get("sent") if isinstance(result, dict) else None
    if not isinstance(sent, (int, float)) or sent > token.deadline:
        return Found(CheckVerdict.LATE, _late(token))
    if replayed := signatures.replay(machine, pending.decision):
        return Found(CheckVerdict.REFUSED, replayed)
    pending.sent = sent
    return _check_place(machine, pending)


def _check_place(machine: Moves, pending: PendingDecision) -> Found:
    """A decision came in time from somebody who may decide: what it waits for."""
    if pending.decision.signature is None:
        return Found(CheckVerdict.TURN if queue.is_its_turn(machine, pending) else CheckVerdict.BEHIND)
    verified = in_stage(machine, pending.decision.approval_id, Stage.VERIFYING)
    if sum(other is not pending for other in verified) >= signatures.MAX_VERIFIED:
        return Found(
            CheckVerdict.CROWDED, ("full", "too many signatures for this approval are being verified; try again")
        )
    return Found(CheckVerdict.SIGNED)


def _check_signature(machine: Moves, token: Token | None, pending: PendingDecision, result: Any) -> Found:
    """A signature was held against the keys."""
    verdict, why = signatures.read_verification(result)
    if token is not None and verdict in TOO_LATE and pending.takes_signal():
        # Of a signal the server's time can be looked up, so what is too late as an update may be in time.
        pending.sent = machine.state.last
        return _check_place(machine, pending)
    if verdict == VERIFIED:
        return Found(CheckVerdict.VERIFIED)
    return Found(
        CheckVerdict.UNVERIFIABLE if verdict == signatures.UNVERIFIABLE else CheckVerdict.REFUSED, (verdict, why)
    )


def _check_turn(machine: Moves, token: Token | None, pending: PendingDecision, result: Any) -> Found:
    """It is the turn of a decision that has waited; meanwhile its question may be gone, or its nonce have counted."""
    if token is None:
        return _check_without_question(machine, pending.decision)
    replayed = signatures.replay(machine, pending.decision)
    return Found(CheckVerdict.REFUSED, replayed) if replayed else Found(CheckVerdict.TURN)


def _check_votes(machine: Moves, token: Token | None, pending: PendingDecision, result: Any) -> Found:
    assert token is not None
    return vote(machine, token, pending.decision)


def _check_without_question(machine: Moves, decision: Decision) -> Found:
    """Nothing waits for a decision any more."""
    if queue.was_said(machine, decision):
        return Found(CheckVerdict.REPEATED, ("already_done", f"{decision.choice}: {queue.ONCE}"))
    return Found(CheckVerdict.REFUSED, signatures.replay(machine, decision) or _closed(machine, decision.approval_id))


def _late(token: Token) -> Refusal:
    return "expired", f"the decision came after the deadline: {token.kept(ApprovalRecord).id}"


def _closed(machine: Moves, name: str) -> Refusal:
    """Why nothing waits for a decision of this id."""
    if name in machine.state.decided:
        return "already_decided", f"this approval is already decided: {name}"
    if name + EXPIRED in machine.state.decided:
        return "expired", f"this approval has expired: {name}"
    return "unknown", f"no approval of this id is open: {name}"


_CHECKS: dict[Stage, Callable[[Moves, Token | None, PendingDecision, Any], Found]] = {
    Stage.ARRIVED: _check_arrival,
    Stage.LOOKING_UP: _check_time,
    Stage.VERIFYING: _check_signature,
    Stage.QUEUED: _check_turn,
    Stage.VOTING: _check_votes,
}


# Deeds: what is done when a decision gets to a stage.


def _wait(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    """For its time to be looked up, or for its turn: `_settle` sees to both."""
    queue.join(machine, pending)


def _verify(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    assert token is not None
    queue.join(machine, pending)
    verification = signatures.verification(token, pending)
    machine.side_work[verification.at] = partial(_reported, machine, pending)
    machine.command(verification)


def _vote(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    queue.leave(machine, pending)
    _check(machine, pending)


def _answer(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    """Say what became of a decision to whoever sent it and waits for that, each time that it came."""
    queue.leave(machine, pending)
    for signal in (pending.signal, *pending.again):
        machine.answer(signal.answer_to, *found.answer)


def _reject(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    """Do nothing about a decision, and say so; whoever sent it once more is told the same."""
    queue.leave(machine, pending)
    refuse(machine, pending.signal, *found.answer)
    for signal in pending.again:
        machine.answer(signal.answer_to, *found.answer)


def _apply(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    """The decision counts: tell it with its proof, remember it, and let the token go on."""
    decision = found.decided
    assert token is not None
    assert decision is not None
    result: dict[str, Any] = {"choice": decision.choice, "by": decision.by, "message": decision.message}
    told, edited = dict(result), decision.edited_arguments
    if decision.remember != "no":
        rules = rules_of(machine, token)
        remember(machine, rules)
        told |= {"remember": decision.remember, "rules": rules}
    told |= {**signatures.proof_of(token, pending.decision), **keys_of(token, decision)}
    if edited is not None:  # the arguments to be used instead are named, and told nowhere
        result["edited"], told["edited"] = edited, digest(canonical_json(edited))
    name = token.kept(ApprovalRecord).id
    close_approval(machine, token, **told, digest=digest_of(token.kept(ApprovalRecord).request))
    for other in in_stage(machine, name, Stage.LOOKING_UP):
        _enter(machine, other, Found(CheckVerdict.CLOSED, _closed(machine, name)))
    machine.command(CancelTimer(at=token.at))
    token.reset(READY)
    if decision.choice == "terminate":
        reason = f"terminated by {decision.by or 'somebody'}" + (f": {decision.message}" if decision.message else "")
        abort(machine, {"by": decision.by, "reason": reason[:2_000]})
    else:
        machine.complete(token, result)
    _answer(machine, None, pending, Found(found.verdict, ("recorded", f"{pending.decision.choice} recorded")))


_DEEDS: dict[Stage, Callable[[Moves, Token | None, PendingDecision, Found], None]] = {
    Stage.LOOKING_UP: _wait,
    Stage.VERIFYING: _verify,
    Stage.QUEUED: _wait,
    Stage.VOTING: _vote,
    Stage.RECORDED: _answer,
    Stage.DECIDED: _apply,
    Stage.REPEATED: _answer,
    Stage.REFUSED: _reject,
    Stage.DISMISSED: _answer,
}
