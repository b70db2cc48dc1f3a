"""Decisions: whether one counts, when it came, and what follows from it."""

from typing import TYPE_CHECKING, Any

from loom_dsl.approval import Decision
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.commands import CancelActivity, CancelTimer, RunActivity, SignalReceived, StartTimer
from loom_dsl.deciding import refusal, remember, rules_of, vote, votes_of
from loom_dsl.machine_approvals import (
    EARLY,
    approval_due,
    catch_up,
    digest_of,
    ends_at_deadline,
    set_timer,
    wake,
)
from loom_dsl.machine_arrivals import (
    LOOKING,
    ONCE,
    RULES,
    SAID,
    VERIFYING,
    Arrival,
    join,
    keep,
    leave,
    outcome,
    question,
    settle,
    those,
    under_way,
    was_said,
)
from loom_dsl.machine_ends import EXPIRED, close_approval, drop_all
from loom_dsl.machine_refusals import DECISION as DECISION
from loom_dsl.machine_refusals import refuse as refuse
from loom_dsl.machine_retry import pause_over
from loom_dsl.machine_signed import MOST_VERIFIED, UNVERIFIABLE, note_counted, proof_of, verify, was_counted
from loom_dsl.machine_signed import PLACE as VERIFICATIONS
from loom_dsl.machine_state import BACKING_OFF, READY, WAITING, Token
from loom_dsl.machine_waits import DUE, time_is_over
from loom_dsl.nodes_flow import Approval
from loom_dsl.signature import TOO_LATE, VERIFIED

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine

MOST_CHECKED = 50
"""Decisions about one question whose time is being looked up."""


def abort(machine: "Machine", by: str, reason: str) -> None:
    """End the job on a person's word: what runs is cancelled, and what is open is settled first."""
    state = machine.state
    if state.abort is not None:
        return
    state.abort = {"by": by, "reason": reason or (f"aborted by {by}" if by else "aborted")}
    state.paused = None
    drop_all(machine)
    for at in machine.side_work:
        if at.startswith(("~announce/", VERIFICATIONS)):  # work about a question that is gone must not hold the end up
            machine.command(CancelActivity(at=at))


def decide(machine: "Machine", signal: SignalReceived, decision: Decision) -> None:
    """Take a decision, or say why it does not count."""
    before = outcome(machine, decision)
    if before is not None and machine.patched(RULES):
        return machine.answer(signal.answer_to, *before)
    same = under_way(machine, decision)
    if same is not None and machine.patched(RULES):
        return same.came_again(signal)
    token = question(machine, decision.approval_id)
    if token is None and was_said(machine, decision) and machine.patched(SAID):
        return machine.answer(signal.answer_to, *_again(decision))
    if token is None:
        return refuse(machine, signal, *(was_counted(machine, decision) or _closed(machine, decision.approval_id)))
    _do_what_was_due(machine, token)
    if refused := refusal(machine, token, decision):
        return refuse(machine, signal, *refused)
    if not _is_late(machine, token):
        return _weigh(machine, token, Arrival(decision, signal), machine.state.last)
    # What comes after the timer cannot have been sent before it, and looking it up would keep the question open.
    if signal.answer_to is not None or (token.data.get("fired") and machine.patched(RULES)):
        return refuse(machine, signal, *_late(token))
    return _look_up_time(machine, token, Arrival(decision, signal))


def _do_what_was_due(machine: "Machine", token: Token) -> None:
    """Do what was due before a decision came."""
    last, when = machine.state.last, wake(token)
    if when is None or when > last:
        return
    catch_up(machine, token, last)
    # A timer that each decision set anew would not fire while they keep coming.
    if wake(token) != when or not machine.patched(RULES):
        set_timer(machine, token)


def _is_late(machine: "Machine", token: Token) -> bool:
    """Whether what is seen now counts only if it was sent before."""
    node, deadline = machine.node(token), token.data["deadline"]
    assert isinstance(node, Approval)
    over = deadline is not None and machine.state.last > deadline
    return over and node.approval.late == "reject" and ends_at_deadline(token)


def _late(token: Token) -> tuple[str, str]:
    return "expired", f"the decision came after the deadline: {token.data['id']}"


def _turn_down(machine: "Machine", arrival: Arrival, verdict: str, why: str) -> None:
    """Do nothing about a decision; whoever sent it once more is told the same."""
    leave(machine, arrival)
    refuse(machine, arrival.signal, verdict, why)
    for signal in arrival.again:
        machine.answer(signal.answer_to, verdict, why)


def _closed(machine: "Machine", name: str) -> tuple[str, str]:
    """Why nothing waits for a decision of this id."""
    if name in machine.state.decided:
        return "already_decided", f"this approval is already decided: {name}"
    if name + EXPIRED in machine.state.decided:
        return "expired", f"this approval has expired: {name}"
    return "unknown", f"no approval of this id is open: {name}"


def _again(decision: Decision) -> tuple[str, str]:
    return "already_done", f"{decision.choice}: {ONCE}"


def _weigh(machine: "Machine", token: Token, arrival: Arrival, sent: float) -> None:
    """The decision came in time from somebody who may decide: count it, once its signature is verified."""
    name = arrival.decision.approval_id
    if arrival.decision.signature is None:
        arrival.count = lambda: _count(machine, arrival)
        join(machine, arrival)
        return settle(machine, name)

    def then(verdict: str, why: str) -> None:
        _verified(machine, arrival, verdict, why)

    if len(those(machine, name, VERIFYING)) >= MOST_VERIFIED:
        why = "too many signatures for this approval are being verified; try again"
        return _turn_down(machine, arrival, "full", why)
    join(machine, arrival)
    return verify(machine, token, arrival, sent, then)


def _verified(machine: "Machine", arrival: Arrival, verdict: str, why: str) -> None:
    """A signature was held against the keys."""
    name = arrival.decision.approval_id
    arrival.doing = ""
    token = question(machine, name)
    if token is not None and verdict in TOO_LATE and arrival.takes_signal():
        # Of a signal the server's time can be looked up, so what is too late as an update may be in time.
        return _weigh(machine, token, arrival, machine.state.last)
    if verdict == VERIFIED or (token is None and verdict == UNVERIFIABLE):
        arrival.count = lambda: _count(machine, arrival)
    else:
        _turn_down(machine, arrival, verdict, why)
    settle(machine, name)
    _expire_if_held(machine, name)


def _expire_if_held(machine: "Machine", name: str) -> None:
    """The time of a question was over while decisions were being looked at, and none of them counted."""
    token = question(machine, name)
    if token is not None and not machine.arrivals.get(name) and token.data.pop("fired", False):
        approval_due(machine, token)


def _count(machine: "Machine", arrival: Arrival) -> None:
    """It is a decision's turn. Much may have happened since it came, so all else is looked at again."""
    decision = arrival.decision
    token = question(machine, decision.approval_id)
    if token is None and was_said(machine, decision) and machine.patched(SAID):
        return arrival.answer(machine, *_again(decision))
    if token is None:
        refused = was_counted(machine, decision) or _closed(machine, decision.approval_id)
        return _turn_down(machine, arrival, *refused)
    if refusal_now := refusal(machine, token, decision):
        return _turn_down(machine, arrival, *refusal_now)
    return _take(machine, token, arrival)


def _take(machine: "Machine", token: Token, arrival: Arrival) -> None:
    """Count a decision."""
    decision = arrival.decision
    proof = proof_of(token, decision)
    counted = vote(machine, token, decision)
    if not isinstance(counted, Decision):
        verdict, why = counted
        if verdict not in ("recorded", "already_done"):
            return _turn_down(machine, arrival, verdict, why)
        if verdict == "recorded":
            note_counted(machine, decision)
        keep(machine, decision, verdict)
        return arrival.answer(machine, verdict, why)
    note_counted(machine, decision)
    keep(machine, decision, "recorded")
    apply_decision(machine, token, counted, proof)
    return arrival.answer(machine, "recorded", f"{decision.choice} recorded")


def apply_decision(machine: "Machine", token: Token, decision: Decision, proof: dict[str, Any]) -> None:
    """The decision counts: tell it with its proof, remember it, and let the token go on."""
    told: dict[str, Any] = {"choice": decision.choice, "by": decision.by, "message": decision.message}
    result = dict(told)
    if decision.edited_arguments is not None:
        result["edited"] = decision.edited_arguments
    if decision.remember != "no":
        remember(machine, rules_of(machine, token))
        told |= {"remember": decision.remember, "rules": rules_of(machine, token)}
    told |= {**proof, **votes_of(token, decision)}
    name = token.data["id"]
    close_approval(machine, token, **told, **_edited(decision), digest=digest_of(token.data["request"]))
    for other in those(machine, name, LOOKING):
        _turn_down(machine, other, *_closed(machine, name))
    machine.command(CancelTimer(at=token.at))
    token.data, token.status = {}, READY
    if decision.choice == "terminate":
        reason = f"terminated by {decision.by or 'somebody'}" + (f": {decision.message}" if decision.message else "")
        return abort(machine, decision.by, reason[:2_000])
    return machine.complete(token, result)


def _edited(decision: Decision) -> dict[str, str]:
    """Name the arguments that are to be used instead, which are told nowhere."""
    given = decision.edited_arguments
    return {} if given is None else {"edited": digest(canonical_json(given))}


def _look_up_time(machine: "Machine", token: Token, arrival: Arrival) -> None:
    """The deadline is past by the workflow's clock; only the server knows when the signal was sent."""
    others = len(those(machine, token.data["id"], LOOKING))
    if others >= MOST_CHECKED:
        return _turn_down(machine, arrival, "full", "too many decisions for this approval are being checked")
    arrival.doing = LOOKING
    join(machine, arrival)
    if not others:
        _look_up(machine, token, arrival)
    return None


def _look_up(machine: "Machine", token: Token, arrival: Arrival) -> None:
    at = f"~late/{token.at}"
    machine.side_work[at] = lambda result, failed: _looked_up(machine, arrival, result)
    arguments = {"signal": DECISION, "digest": digest(canonical_json(arrival.signal.payload))}
    # It only looks, so events must not travel with it: they would count as stored.
    looking = RunActivity(at=at, activity="loom.signal.time", arguments=arguments, carries=False, timeout=10.0)
    machine.command(looking)


def _looked_up(machine: "Machine", arrival: Arrival, result: Any) -> None:
    """The server's time of a decision is known, or could not be found; in doubt it is late."""
    name = arrival.decision.approval_id
    token, looking = question(machine, name), those(machine, name, LOOKING)
    if token is None:
        for other in looking:  # signals, which nobody waits for; but one may have come again as an update
            leave(machine, other)
            other.answer(machine, *_closed(machine, name))
        return settle(machine, name)
    arrival.doing = ""
    sent = result.get("sent") if isinstance(result, dict) else None
    if not isinstance(sent, (int, float)) or sent > token.data["deadline"]:
        _turn_down(machine, arrival, *_late(token))
    elif refused := refusal(machine, token, arrival.decision):
        _turn_down(machine, arrival, *refused)
    else:
        _weigh(machine, token, arrival, sent)
    settle(machine, name)
    if token.status != WAITING:
        return None
    if looking[1:]:
        return _look_up(machine, token, looking[1])
    return _expire_if_held(machine, name)


def deadline_passed(machine: "Machine", at: str) -> None:
    """A timer fired: a question is told again, passed on or expires; what else waits is over."""
    token = machine.state.tokens.get(at)
    if token is None or token.doomed:
        return
    machine.spun = 0
    due = token.data.get("deadline")
    if token.status == WAITING:
        approval_due(machine, token)
    elif token.status == BACKING_OFF and (due is None or due - machine.state.last > EARLY):
        pause_over(machine, token)
    elif due is not None and due - machine.state.last > EARLY and machine.patched(DUE):
        machine.command(StartTimer(at=at, when=due))  # it was set for what had this name in the turn before
    elif due is not None:
        time_is_over(machine, token)
