"""Decisions: whether one counts, when it came, and what follows from it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from loom_dsl.agent.turn import MAX_TURN_STATE as MAX_TURN
from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.policy import is_among, person
from loom_dsl.approvals.signature import TOO_LATE, VERIFIED
from loom_dsl.errors import PlanError
from loom_dsl.graph.nodes import Approval
from loom_dsl.machine.commands import (
    ActivityFailed,
    CancelActivity,
    CancelTimer,
    RunActivity,
    SignalReceived,
)
from loom_dsl.machine.decision_states import Question, Stage, Verdict, next_stage
from loom_dsl.machine.kinds.approvals import (
    approval_due,
    catch_up,
    deciders,
    digest_of,
    ends_at_deadline,
    policy_of,
    set_timer,
    wake,
)
from loom_dsl.machine.kinds.decision_queue import (
    MAX_VERIFIED,
    ONCE,
    PIPELINES,
    RULES,
    SAID,
    UNVERIFIABLE,
    answer_all,
    find_question,
    in_stage,
    is_its_turn,
    join,
    keep,
    leave,
    next_queued,
    note_counted,
    outcome,
    pending_twin,
    proof_of,
    signature_refusal,
    start_verification,
    verification_of,
    was_counted,
    was_said,
)
from loom_dsl.machine.kinds.decision_queue import PLACE as VERIFICATIONS
from loom_dsl.machine.payloads import size_of
from loom_dsl.machine.pending_decision import PendingDecision
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import READY, WAITING, Token
from loom_dsl.machine.tokens.ending import EXPIRED, close_approval, drop_all
from loom_dsl.machine.tokens.moves import Moves
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.text.confusables import mixes_scripts

# Who may decide about a question, when enough people have answered alike, and what is remembered of it.


STOPS = frozenset({"reject", "terminate"})
"""Choices for which one person is enough, whatever the quorum."""
Refusal = tuple[str, str]
"""A verdict, and why."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a check found about a decision.

    Attributes:
        verdict: By which the table says what follows.
        answer: What whoever sent it is told, where the verdict settles it: a word for programs, and why.
        decided: What all have decided, where that is it.
    """

    verdict: Verdict
    answer: Refusal = ("", "")
    decided: Decision | None = None


def refusal(machine: Moves, token: Token, decision: Decision) -> Refusal | None:
    """Why a decision cannot count, or None."""
    return (
        was_counted(machine, decision)
        or _malformed(machine, token, decision)
        or signature_refusal(machine, token, decision)
        or _not_allowed(machine, token, decision.by)
    )


def _malformed(machine: Moves, token: Token, decision: Decision) -> Refusal | None:
    node = machine.node(token)
    assert isinstance(node, Approval)
    choice, request = decision.choice, token.kept(ApprovalRecord).request
    if choice not in node.approval.choices:
        return "invalid", f"choice {choice!r} is not one of {', '.join(node.approval.choices)}"
    if choice == "edit" and decision.edited_arguments is None:
        return "invalid", "choice edit needs edited_arguments"
    if choice != "edit" and decision.edited_arguments is not None:
        return "invalid", f"edited_arguments go with the choice edit, and not with {choice}"
    if choice == "respond" and not decision.message.strip():
        return "invalid", "choice respond needs a message: it is what the tool would have given"
    if decision.remember != "no" and choice != "approve":
        return "invalid", f"remember goes with the choice approve, and not with {choice}"
    asked = digest_of(request)
    if decision.digest and decision.digest != asked:
        return "wrong_digest", f"what is asked has the digest {asked}, and not {decision.digest}"
    return None


def _not_allowed(machine: Moves, token: Token, by: str) -> Refusal | None:
    policy, people = policy_of(token), deciders(token)
    able = _with_a_role(machine, token)
    if able is not None and not is_among(by, able):
        named = ", ".join(able) or "nobody"
        return "not_allowed", f"{_named(by)} has no role that may decide this; the deployment's policy names: {named}"
    if people and not is_among(by, people):
        return "not_allowed", f"{_named(by)} is not one of the approvers: {', '.join(people)}"
    if policy.quorum == 1 and not policy.four_eyes:
        return None
    if not person(by):
        return "not_allowed", "who decides must say who they are, in `by`"
    if mixes_scripts(by) and not people and not able:
        return "not_allowed", f"the name {by!a} mixes letters of several scripts, so it may look like another's"
    return _same_eyes(machine, token, by) if policy.four_eyes else None


def _same_eyes(machine: Moves, token: Token, by: str) -> Refusal | None:
    request = token.kept(ApprovalRecord).request
    asks = request.get("requester") if isinstance(request, dict) else None
    if not machine.state.starter:
        return "not_allowed", "four eyes are needed, and it is not known who started the job"
    if is_among(by, [machine.state.starter, asks if isinstance(asks, str) else ""]):
        return "not_allowed", f"{_named(by)} started the job or asks, and four eyes are needed: somebody else decides"
    return None


def _with_a_role(machine: Moves, token: Token) -> list[str] | None:
    """Those whom the deployment's policy lets decide; None: it does not say."""
    request = token.kept(ApprovalRecord).request
    if machine.state.frames[token.frame].graph not in PIPELINES or not isinstance(request, dict):
        return None
    able = request.get("deciders")
    return [str(name) for name in able] if isinstance(able, list) else None


def _named(by: str) -> str:
    return repr(by[:100]) if by else "a decision without `by`"


def vote(machine: Moves, token: Token, decision: Decision) -> Found:
    """Count a decision with those that say the same, and remember that it came."""
    need = policy_of(token).quorum
    if need == 1 or decision.choice in STOPS:
        note_counted(machine, decision)
        keep(machine, decision, "recorded")
        return Found(Verdict.DECIDED, decided=decision)
    votes = token.kept(ApprovalRecord).votes
    message = decision.message if decision.choice == "respond" else ""
    content = digest(canonical_json([decision.choice, decision.edited_arguments, message]))[:16]
    before = next((given for given in votes if person(given["by"]) == person(decision.by)), None)
    if before is not None:
        why = f"{decision.by} has answered already, and counts once; {_count(votes, before['content'], need)}"
        if before["content"] != content:
            return Found(Verdict.REFUSED, ("not_allowed", why))
        keep(machine, decision, "already_done")
        return Found(Verdict.REPEATED, ("already_done", why))
    note_counted(machine, decision)
    keep(machine, decision, "recorded")
    mine = {"by": decision.by, "content": content, "remember": decision.remember, "message": decision.message}
    mine |= {"key": decision.signature.key} if decision.signature else {}
    token.kept(ApprovalRecord).votes = votes = [*votes, mine]
    alike = [given for given in votes if given["content"] == content]
    if len(alike) < need:
        have = {"choice": decision.choice, "by": decision.by, "have": len(alike), "need": need}
        proof = proof_of(token, decision)
        machine.emit("approval_changed", approval_id=token.kept(ApprovalRecord).id, what="vote", **have, **proof)
        return Found(Verdict.RECORDED, ("recorded", f"{decision.choice} recorded: {_count(votes, content, need)}"))
    return Found(Verdict.DECIDED, decided=_decision_of_all(decision, alike, message))


def _decision_of_all(decision: Decision, alike: list[dict[str, str]], message: str) -> Decision:
    """Put together what several people have decided: their names, and the shortest reach that one of them gave it."""
    reach = ("no", "job", "rule")
    remember = reach[min(reach.index(given["remember"]) for given in alike)]
    messages = message or "; ".join(dict.fromkeys(given["message"] for given in alike if given["message"]))
    names = ", ".join(given["by"] for given in alike)
    return decision.model_copy(update={"by": names, "message": messages[:10_000], "remember": remember})


def _count(votes: list[dict[str, str]], content: str, need: int) -> str:
    """Say how many have answered alike, and who."""
    alike = [given["by"] for given in votes if given["content"] == content]
    return f"{len(alike)} of {need} ({', '.join(name[:80] for name in alike)[:500]})"


def votes_of(token: Token, decision: Decision) -> dict[str, list[str]]:
    """What is told of a decision that several people made: by which keys it was signed, if it was."""
    votes = token.kept(ApprovalRecord).votes
    if not votes or decision.choice in STOPS:
        return {}
    keys = [vote["key"] for vote in votes if vote["content"] == votes[-1]["content"] and "key" in vote]
    return {"keys": keys} if keys else {}


def rules_of(machine: Moves, token: Token) -> list[str]:
    """The rules that a decision may remember: only a pipeline's.

    What a question of a user's graph says may have been computed from what was read outside, and who answers it is
    asked about something else.
    """
    request = token.kept(ApprovalRecord).request
    rules = request.get("rules") if isinstance(request, dict) else None
    known = machine.state.frames[token.frame].graph in PIPELINES
    return [str(rule) for rule in rules] if known and isinstance(rules, list) else []


def remember(machine: Moves, rules: list[str]) -> None:
    """Let later calls of this job run that rules of a request cover, or tell why they will be asked about."""
    turn = machine.state.turn
    if not rules:
        return machine.emit("warning", code="not_remembered", message="the request names no rule to remember")
    if turn is None:
        return _remember_in_graph(machine, rules)
    try:
        machine.state.turn = turn.remember(rules)
    except PlanError as error:
        machine.emit("warning", code="not_remembered", message=error.message)
    return None


def _remember_in_graph(machine: Moves, rules: list[str]) -> None:
    """A graph without turns keeps them beside its tokens, as long as they are few."""
    known = list(dict.fromkeys([*machine.state.remembered, *rules]))
    if size_of(known) > MAX_TURN:
        return machine.emit("warning", code="not_remembered", message="there are too many rules already")
    machine.state.remembered = known
    return None


# Signals and updates that change nothing, and what is told of them.


DECISION = "loom.decision"


def refuse(machine: Moves, signal: SignalReceived, verdict: str, why: str) -> None:
    """Do nothing about a signal or an update, and say so: in an event, and to the update."""
    sent = "signal" if signal.answer_to is None else "update"
    said = _said(signal)
    told = {"signal": signal.name[:100], "sent": sent, **said, "verdict": verdict, "message": why[:500]}
    machine.emit("warning", code="signal_refused", **told)
    machine.answer(signal.answer_to, verdict, why)


def _said(signal: SignalReceived) -> dict[str, str]:
    """What a refused decision says of itself, as far as it can be read: about what, what, who, and by which key."""
    payload = signal.payload
    if signal.name != DECISION or not isinstance(payload, dict):
        return {}
    signature = payload.get("signature")
    key = signature.get("key") if isinstance(signature, dict) else None
    said = {**{name: payload.get(name) for name in ("approval_id", "choice", "by")}, "key": key}
    return {name: value[:200] for name, value in said.items() if isinstance(value, str) and value}


MAX_CHECKED = 50
"""Decisions about one question whose time is being looked up."""


def abort(machine: Moves, by: str, reason: str) -> None:
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


def decide(machine: Moves, signal: SignalReceived, decision: Decision) -> None:
    """Take a decision, or say why it does not count."""
    before = outcome(machine, decision)
    if before is not None and machine.patched(RULES):
        return machine.answer(signal.answer_to, *before)
    twin = pending_twin(machine, decision)
    if twin is not None and machine.patched(RULES):
        return twin.repeat(signal)
    token = find_question(machine, decision.approval_id)
    pending = PendingDecision(decision, signal, machine.state.last)
    if token is None:
        return advance(machine, pending, _check_without_question(machine, decision))
    _do_what_was_due(machine, token)
    advance(machine, pending, _check_arrival(machine, token, pending))
    return take_turns(machine, decision.approval_id)


def advance(machine: Moves, pending: PendingDecision, found: Found) -> None:
    """Bring a decision to the stage that follows from what was found, and do what that stage is for."""
    token = find_question(machine, pending.decision.approval_id)
    pending.stage = next_stage(pending.stage, _standing(machine, token), found.verdict)
    _ENTER[pending.stage](machine, token, pending, found)


def _standing(machine: Moves, token: Token | None) -> Question:
    """How a question stands."""
    if token is None:
        return Question.GONE
    node = machine.node(token)
    assert isinstance(node, Approval)
    over = token.deadline is not None and machine.state.last > token.deadline
    overdue = over and node.approval.late == "reject" and ends_at_deadline(token)
    return Question.OVERDUE if overdue else Question.OPEN


def take_turns(machine: Moves, name: str) -> None:
    """Let the decisions count whose turn it is."""
    while (pending := next_queued(machine, name)) is not None:
        advance(machine, pending, _check_turn(machine, pending.decision))


# Checks: each looks at a decision where it stands, and says what it finds.


def _check_arrival(machine: Moves, token: Token, pending: PendingDecision) -> Found:
    """A decision has come, and its question is there."""
    if refused := refusal(machine, token, pending.decision):
        return Found(Verdict.REFUSED, refused)
    if _standing(machine, token) is Question.OPEN:
        return _check_place(machine, pending)
    # What comes after the timer cannot have been sent before it, and looking it up would keep the question open.
    if pending.signal.answer_to is not None or (token.kept(ApprovalRecord).fired and machine.patched(RULES)):
        return Found(Verdict.LATE, _late(token))
    if len(in_stage(machine, token.kept(ApprovalRecord).id, Stage.LOOKING_UP)) >= MAX_CHECKED:
        return Found(Verdict.CROWDED, ("full", "too many decisions for this approval are being checked"))
    return Found(Verdict.UNDATED)


def _check_time(machine: Moves, token: Token, pending: PendingDecision, result: Any) -> Found:
    """The server's time of a decision is known, or could not be found; in doubt it is late."""
    sent = result.get("sent") if isinstance(result, dict) else None
    assert token.deadline is not None
    if not isinstance(sent, (int, float)) or sent > token.deadline:
        return Found(Verdict.LATE, _late(token))
    if refused := refusal(machine, token, pending.decision):
        return Found(Verdict.REFUSED, refused)
    pending.sent = sent
    return _check_place(machine, pending)


def _check_place(machine: Moves, pending: PendingDecision) -> Found:
    """A decision came in time from somebody who may decide: what it waits for."""
    if pending.decision.signature is None:
        return Found(Verdict.TURN if is_its_turn(machine, pending) else Verdict.BEHIND)
    verified = in_stage(machine, pending.decision.approval_id, Stage.VERIFYING)
    if sum(other is not pending for other in verified) >= MAX_VERIFIED:
        return Found(Verdict.CROWDED, ("full", "too many signatures for this approval are being verified; try again"))
    return Found(Verdict.SIGNED)


def _check_signature(machine: Moves, pending: PendingDecision, result: Any) -> Found:
    """A signature was held against the keys."""
    verdict, why = verification_of(result)
    asked = find_question(machine, pending.decision.approval_id) is not None
    if asked and verdict in TOO_LATE and pending.takes_signal():
        # Of a signal the server's time can be looked up, so what is too late as an update may be in time.
        pending.sent = machine.state.last
        return _check_place(machine, pending)
    if verdict == VERIFIED:
        return Found(Verdict.VERIFIED)
    return Found(Verdict.UNVERIFIABLE if verdict == UNVERIFIABLE else Verdict.REFUSED, (verdict, why))


def _check_turn(machine: Moves, decision: Decision) -> Found:
    """It is the turn of a decision that has waited. Much may have happened meanwhile, so all is looked at again."""
    token = find_question(machine, decision.approval_id)
    if token is None:
        return _check_without_question(machine, decision)
    refused = refusal(machine, token, decision)
    return Found(Verdict.REFUSED, refused) if refused else Found(Verdict.TURN)


def _check_without_question(machine: Moves, decision: Decision) -> Found:
    """Nothing waits for a decision any more."""
    if was_said(machine, decision) and machine.patched(SAID):
        return Found(Verdict.REPEATED, ("already_done", f"{decision.choice}: {ONCE}"))
    return Found(Verdict.REFUSED, was_counted(machine, decision) or _closed(machine, decision.approval_id))


def _do_what_was_due(machine: Moves, token: Token) -> None:
    """Do what was due before a decision came."""
    last, when = machine.state.last, wake(token)
    if when is None or when > last:
        return
    catch_up(machine, token, last)
    # A timer that each decision set anew would not fire while they keep coming.
    if wake(token) != when or not machine.patched(RULES):
        set_timer(machine, token)


def _late(token: Token) -> Refusal:
    return "expired", f"the decision came after the deadline: {token.kept(ApprovalRecord).id}"


def _closed(machine: Moves, name: str) -> Refusal:
    """Why nothing waits for a decision of this id."""
    if name in machine.state.decided:
        return "already_decided", f"this approval is already decided: {name}"
    if name + EXPIRED in machine.state.decided:
        return "expired", f"this approval has expired: {name}"
    return "unknown", f"no approval of this id is open: {name}"


# Stages: what is done when a decision gets there.


def _look_up(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    """The deadline is past by the workflow's clock, and only the server knows when the signal was sent."""
    assert token is not None
    join(machine, pending)
    if in_stage(machine, token.kept(ApprovalRecord).id, Stage.LOOKING_UP)[0] is pending:
        _start_lookup(machine, token, pending)


def _start_lookup(machine: Moves, token: Token, pending: PendingDecision) -> None:
    at = f"~late/{token.at}"
    machine.side_work[at] = partial(time_found, machine, pending)
    arguments = {"signal": DECISION, "digest": digest(canonical_json(pending.signal.payload))}
    # It only looks, so events must not travel with it: they would count as stored.
    looking = RunActivity(at=at, activity="loom.signal.time", arguments=arguments, carries=False, timeout=10.0)
    machine.command(looking)


def time_found(machine: Moves, pending: PendingDecision, result: Any, failed: ActivityFailed | None) -> None:
    """The lookup of a decision's time has ended; the next one begins, one after the other."""
    name = pending.decision.approval_id
    token = find_question(machine, name)
    if token is None:
        for other in in_stage(machine, name, Stage.LOOKING_UP):
            advance(machine, other, Found(Verdict.CLOSED, _closed(machine, name)))
        return take_turns(machine, name)
    advance(machine, pending, _check_time(machine, token, pending, result))
    take_turns(machine, name)
    if token.status != WAITING:
        return None
    if rest := in_stage(machine, name, Stage.LOOKING_UP):
        return _start_lookup(machine, token, rest[0])
    return _expire_if_held(machine, name)


def _verify(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    assert token is not None
    join(machine, pending)
    start_verification(machine, token, pending, partial(signature_verified, machine, pending))


def signature_verified(machine: Moves, pending: PendingDecision, result: Any, failed: ActivityFailed | None) -> None:
    """The verification of a decision's signature has ended."""
    name = pending.decision.approval_id
    advance(machine, pending, _check_signature(machine, pending, result))
    take_turns(machine, name)
    _expire_if_held(machine, name)


def _expire_if_held(machine: Moves, name: str) -> None:
    """The time of a question was over while decisions were being looked at, and none of them counted."""
    token = find_question(machine, name)
    if token is not None and not machine.pending_decisions.get(name) and token.kept(ApprovalRecord).fired:
        token.kept(ApprovalRecord).fired = False
        approval_due(machine, token)


def _queue(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    join(machine, pending)


def _vote(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    assert token is not None
    leave(machine, pending)
    advance(machine, pending, vote(machine, token, pending.decision))


def _answer(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    """Say what became of a decision to whoever sent it."""
    leave(machine, pending)
    answer_all(machine, pending, *found.answer)


def _apply(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    assert token is not None
    assert found.decided is not None
    apply_decision(machine, token, found.decided, proof_of(token, pending.decision))
    answer_all(machine, pending, "recorded", f"{pending.decision.choice} recorded")


def reject(machine: Moves, token: Token | None, pending: PendingDecision, found: Found) -> None:
    """Do nothing about a decision, and say so; whoever sent it once more is told the same."""
    leave(machine, pending)
    refuse(machine, pending.signal, *found.answer)
    for signal in pending.again:
        machine.answer(signal.answer_to, *found.answer)


_ENTER: dict[Stage, Callable[[Moves, Token | None, PendingDecision, Found], None]] = {
    Stage.LOOKING_UP: _look_up,
    Stage.VERIFYING: _verify,
    Stage.QUEUED: _queue,
    Stage.VOTING: _vote,
    Stage.RECORDED: _answer,
    Stage.DECIDED: _apply,
    Stage.REPEATED: _answer,
    Stage.REFUSED: reject,
    Stage.DISMISSED: _answer,
}


def apply_decision(machine: Moves, token: Token, decision: Decision, proof: dict[str, Any]) -> None:
    """The decision counts: tell it with its proof, remember it, and let the token go on."""
    told: dict[str, Any] = {"choice": decision.choice, "by": decision.by, "message": decision.message}
    result = dict(told)
    if decision.edited_arguments is not None:
        result["edited"] = decision.edited_arguments
    if decision.remember != "no":
        remember(machine, rules_of(machine, token))
        told |= {"remember": decision.remember, "rules": rules_of(machine, token)}
    told |= {**proof, **votes_of(token, decision)}
    name = token.kept(ApprovalRecord).id
    close_approval(machine, token, **told, **_edited(decision), digest=digest_of(token.kept(ApprovalRecord).request))
    for other in in_stage(machine, name, Stage.LOOKING_UP):
        advance(machine, other, Found(Verdict.CLOSED, _closed(machine, name)))
    machine.command(CancelTimer(at=token.at))
    token.reset(READY)
    if decision.choice == "terminate":
        reason = f"terminated by {decision.by or 'somebody'}" + (f": {decision.message}" if decision.message else "")
        return abort(machine, decision.by, reason[:2_000])
    return machine.complete(token, result)


def _edited(decision: Decision) -> dict[str, str]:
    """Name the arguments that are to be used instead, which are told nowhere."""
    given = decision.edited_arguments
    return {} if given is None else {"edited": digest(canonical_json(given))}
