"""Decisions: whether one counts, when it came, and what follows from it."""

from typing import Any

from loom_dsl.agent.turn import LARGEST_STATE as LARGEST_TURN
from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.policy import is_among, person
from loom_dsl.approvals.signature import TOO_LATE, VERIFIED
from loom_dsl.errors import PlanError
from loom_dsl.graph.nodes import Approval
from loom_dsl.machine.arrival import Arrival
from loom_dsl.machine.commands import CancelActivity, CancelTimer, RunActivity, SignalReceived
from loom_dsl.machine.ending import EXPIRED, close_approval, drop_all
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
    LOOKING,
    MOST_VERIFIED,
    ONCE,
    PIPELINES,
    RULES,
    SAID,
    UNVERIFIABLE,
    VERIFYING,
    answer_all,
    join,
    keep,
    leave,
    note_counted,
    outcome,
    proof_of,
    question,
    settle,
    signature_refusal,
    those,
    under_way,
    verify,
    was_counted,
    was_said,
)
from loom_dsl.machine.kinds.decision_queue import PLACE as VERIFICATIONS
from loom_dsl.machine.moves import Moves
from loom_dsl.machine.payloads import size_of
from loom_dsl.machine.state import READY, WAITING, Token
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.text.confusables import mixes_scripts

# Who may decide about a question, when enough people have answered alike, and what is remembered of it.


STOPS = frozenset({"reject", "terminate"})
"""Choices for which one person is enough, whatever the quorum."""
Refusal = tuple[str, str]
"""A verdict, and why."""


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
    choice, request = decision.choice, token.data["request"]
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
    request = token.data["request"]
    asks = request.get("requester") if isinstance(request, dict) else None
    if not machine.state.starter:
        return "not_allowed", "four eyes are needed, and it is not known who started the job"
    if is_among(by, [machine.state.starter, asks if isinstance(asks, str) else ""]):
        return "not_allowed", f"{_named(by)} started the job or asks, and four eyes are needed: somebody else decides"
    return None


def _with_a_role(machine: Moves, token: Token) -> list[str] | None:
    """Those whom the deployment's policy lets decide; None: it does not say."""
    request = token.data["request"]
    if machine.state.frames[token.frame].graph not in PIPELINES or not isinstance(request, dict):
        return None
    able = request.get("deciders")
    return [str(name) for name in able] if isinstance(able, list) else None


def _named(by: str) -> str:
    return repr(by[:100]) if by else "a decision without `by`"


def vote(machine: Moves, token: Token, decision: Decision) -> Decision | Refusal:
    """Count a decision. The decision of all, when enough people have answered alike; else what became of this one."""
    need = policy_of(token).quorum
    if need == 1 or decision.choice in STOPS:
        return decision
    votes: list[dict[str, str]] = token.data.get("votes", [])
    message = decision.message if decision.choice == "respond" else ""
    content = digest(canonical_json([decision.choice, decision.edited_arguments, message]))[:16]
    before = next((given for given in votes if person(given["by"]) == person(decision.by)), None)
    if before is not None:
        same = before["content"] == content
        why = f"{decision.by} has answered already, and counts once; {_count(votes, before['content'], need)}"
        return ("already_done", why) if same else ("not_allowed", why)
    mine = {"by": decision.by, "content": content, "remember": decision.remember, "message": decision.message}
    mine |= {"key": decision.signature.key} if decision.signature else {}
    token.data["votes"] = votes = [*votes, mine]
    alike = [given for given in votes if given["content"] == content]
    have = {"choice": decision.choice, "by": decision.by, "have": len(alike), "need": need}
    if len(alike) < need:
        proof = proof_of(token, decision)
        machine.emit("approval_changed", approval_id=token.data["id"], what="vote", **have, **proof)
        return "recorded", f"{decision.choice} recorded: {_count(votes, content, need)}"
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
    votes = token.data.get("votes", ())
    if not votes or decision.choice in STOPS:
        return {}
    keys = [vote["key"] for vote in votes if vote["content"] == votes[-1]["content"] and "key" in vote]
    return {"keys": keys} if keys else {}


def rules_of(machine: Moves, token: Token) -> list[str]:
    """The rules that a decision may remember: only a pipeline's.

    What a question of a user's graph says may have been computed from what was read outside, and who answers it is
    asked about something else.
    """
    request = token.data["request"]
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
    if size_of(known) > LARGEST_TURN:
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


MOST_CHECKED = 50
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


def _do_what_was_due(machine: Moves, token: Token) -> None:
    """Do what was due before a decision came."""
    last, when = machine.state.last, wake(token)
    if when is None or when > last:
        return
    catch_up(machine, token, last)
    # A timer that each decision set anew would not fire while they keep coming.
    if wake(token) != when or not machine.patched(RULES):
        set_timer(machine, token)


def _is_late(machine: Moves, token: Token) -> bool:
    """Whether what is seen now counts only if it was sent before."""
    node, deadline = machine.node(token), token.data["deadline"]
    assert isinstance(node, Approval)
    over = deadline is not None and machine.state.last > deadline
    return over and node.approval.late == "reject" and ends_at_deadline(token)


def _late(token: Token) -> tuple[str, str]:
    return "expired", f"the decision came after the deadline: {token.data['id']}"


def _turn_down(machine: Moves, arrival: Arrival, verdict: str, why: str) -> None:
    """Do nothing about a decision; whoever sent it once more is told the same."""
    leave(machine, arrival)
    refuse(machine, arrival.signal, verdict, why)
    for signal in arrival.again:
        machine.answer(signal.answer_to, verdict, why)


def _closed(machine: Moves, name: str) -> tuple[str, str]:
    """Why nothing waits for a decision of this id."""
    if name in machine.state.decided:
        return "already_decided", f"this approval is already decided: {name}"
    if name + EXPIRED in machine.state.decided:
        return "expired", f"this approval has expired: {name}"
    return "unknown", f"no approval of this id is open: {name}"


def _again(decision: Decision) -> tuple[str, str]:
    return "already_done", f"{decision.choice}: {ONCE}"


def _weigh(machine: Moves, token: Token, arrival: Arrival, sent: float) -> None:
    """The decision came in time from somebody who may decide: count it, once its signature is verified."""
    name = arrival.decision.approval_id
    if arrival.decision.signature is None:
        arrival.count = lambda: _count_arrival(machine, arrival)
        join(machine, arrival)
        return settle(machine, name)

    def then(verdict: str, why: str) -> None:
        _verified(machine, arrival, verdict, why)

    if len(those(machine, name, VERIFYING)) >= MOST_VERIFIED:
        why = "too many signatures for this approval are being verified; try again"
        return _turn_down(machine, arrival, "full", why)
    join(machine, arrival)
    return verify(machine, token, arrival, sent, then)


def _verified(machine: Moves, arrival: Arrival, verdict: str, why: str) -> None:
    """A signature was held against the keys."""
    name = arrival.decision.approval_id
    arrival.doing = ""
    token = question(machine, name)
    if token is not None and verdict in TOO_LATE and arrival.takes_signal():
        # Of a signal the server's time can be looked up, so what is too late as an update may be in time.
        return _weigh(machine, token, arrival, machine.state.last)
    if verdict == VERIFIED or (token is None and verdict == UNVERIFIABLE):
        arrival.count = lambda: _count_arrival(machine, arrival)
    else:
        _turn_down(machine, arrival, verdict, why)
    settle(machine, name)
    _expire_if_held(machine, name)


def _expire_if_held(machine: Moves, name: str) -> None:
    """The time of a question was over while decisions were being looked at, and none of them counted."""
    token = question(machine, name)
    if token is not None and not machine.arrivals.get(name) and token.data.pop("fired", False):
        approval_due(machine, token)


def _count_arrival(machine: Moves, arrival: Arrival) -> None:
    """It is a decision's turn. Much may have happened since it came, so all else is looked at again."""
    decision = arrival.decision
    token = question(machine, decision.approval_id)
    if token is None and was_said(machine, decision) and machine.patched(SAID):
        return answer_all(machine, arrival, *_again(decision))
    if token is None:
        refused = was_counted(machine, decision) or _closed(machine, decision.approval_id)
        return _turn_down(machine, arrival, *refused)
    if refusal_now := refusal(machine, token, decision):
        return _turn_down(machine, arrival, *refusal_now)
    return _take(machine, token, arrival)


def _take(machine: Moves, token: Token, arrival: Arrival) -> None:
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
        return answer_all(machine, arrival, verdict, why)
    note_counted(machine, decision)
    keep(machine, decision, "recorded")
    apply_decision(machine, token, counted, proof)
    return answer_all(machine, arrival, "recorded", f"{decision.choice} recorded")


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


def _look_up_time(machine: Moves, token: Token, arrival: Arrival) -> None:
    """The deadline is past by the workflow's clock; only the server knows when the signal was sent."""
    others = len(those(machine, token.data["id"], LOOKING))
    if others >= MOST_CHECKED:
        return _turn_down(machine, arrival, "full", "too many decisions for this approval are being checked")
    arrival.doing = LOOKING
    join(machine, arrival)
    if not others:
        _look_up(machine, token, arrival)
    return None


def _look_up(machine: Moves, token: Token, arrival: Arrival) -> None:
    at = f"~late/{token.at}"
    machine.side_work[at] = lambda result, failed: _looked_up(machine, arrival, result)
    arguments = {"signal": DECISION, "digest": digest(canonical_json(arrival.signal.payload))}
    # It only looks, so events must not travel with it: they would count as stored.
    looking = RunActivity(at=at, activity="loom.signal.time", arguments=arguments, carries=False, timeout=10.0)
    machine.command(looking)


def _looked_up(machine: Moves, arrival: Arrival, result: Any) -> None:
    """The server's time of a decision is known, or could not be found; in doubt it is late."""
    name = arrival.decision.approval_id
    token, looking = question(machine, name), those(machine, name, LOOKING)
    if token is None:
        for other in looking:  # signals, which nobody waits for; but one may have come again as an update
            leave(machine, other)
            answer_all(machine, other, *_closed(machine, name))
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
