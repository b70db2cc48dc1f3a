"""Pending decisions, in a queue: they count in the order in which they came, and each of them once.

A signature is verified and a late signal's time is looked up outside the machine, which takes a while; what comes
meanwhile waits for its turn. What is refused needs no turn. None of this crosses a run: one ends when nothing is in
flight.
"""

from typing import Any

from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.policy import Approvals, read_policy
from loom_dsl.approvals.signature import VERIFIED, signed_text, subject_of
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.decision_states import Stage
from loom_dsl.machine.pending_decision import PendingDecision, digest_of, name_of
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import WAITING, Token
from loom_dsl.machine.tokens.core import SideWork
from loom_dsl.machine.tokens.moves import Moves
from loom_dsl.tools.risk import reaches

RULES = "loom.arrivals.1"
"""Marks the runs that follow these rules: decisions count in the order of their arrival, the same one again is answered
as the first, what comes after a question's timer is late, and no decision sets that timer anew. A run that came to
such a place before there were rules goes on without them."""
SAID = "loom.arrivals.2"
"""Marks the runs in which a decision that says the same as one that counted is no refusal when its question is gone."""
ONCE = "this was received before, and counts once"
MAX_KEPT = 100
"""Decisions of which a job knows that they counted."""


def answer_all(machine: Moves, pending: PendingDecision, verdict: str, why: str) -> None:
    """Answer whoever sent a decision and waits for that, each time that it came."""
    for signal in (pending.signal, *pending.again):
        machine.answer(signal.answer_to, verdict, why)


def find_question(machine: Moves, name: str) -> Token | None:
    """Give the token that waits for decisions about an approval."""
    waiting = (token for token in machine.state.tokens.values() if token.status == WAITING)
    tokens = (token for token in waiting if token.kept(ApprovalRecord).id == name)
    return next(tokens, None)


def join(machine: Moves, pending: PendingDecision) -> None:
    """Put a decision behind those about the same question that came before it, if it is not in the queue."""
    queue = machine.pending_decisions.setdefault(pending.decision.approval_id, [])
    if pending not in queue:
        queue.append(pending)


def leave(machine: Moves, pending: PendingDecision) -> None:
    """Take a decision out of the queue, if it is in it."""
    name = pending.decision.approval_id
    queue = [other for other in machine.pending_decisions.get(name, ()) if other is not pending]
    if queue:
        machine.pending_decisions[name] = queue
    else:
        machine.pending_decisions.pop(name, None)


def in_stage(machine: Moves, name: str, stage: Stage) -> list[PendingDecision]:
    """The decisions about an approval that stand there, the first one first."""
    return [pending for pending in machine.pending_decisions.get(name, ()) if pending.stage is stage]


def is_its_turn(machine: Moves, pending: PendingDecision) -> bool:
    """Whether nothing that came before it keeps a decision waiting whose question is open."""
    queue = machine.pending_decisions.get(pending.decision.approval_id)
    return not queue or queue[0] is pending or not machine.patched(RULES)


def next_queued(machine: Moves, name: str) -> PendingDecision | None:
    """Give the queued decision whose turn it is. When the question is gone, none waits for another."""
    pending = next(iter(in_stage(machine, name, Stage.QUEUED)), None)
    if pending is None or find_question(machine, name) is None or is_its_turn(machine, pending):
        return pending
    return None


# -- the same decision once more ---------------------------------------------------------------------------------------


def pending_twin(machine: Moves, decision: Decision) -> PendingDecision | None:
    """Give this very decision as it came before, while it is not settled."""
    queue = machine.pending_decisions.get(decision.approval_id, [])
    name = name_of(decision) if queue else ""
    return next((pending for pending in queue if name and pending.name == name), None)


def keep(machine: Moves, decision: Decision, verdict: str) -> None:
    """Remember what became of a decision that is not refused: under its sender's name for it, and by what it says."""
    name, content = name_of(decision), _content(decision)
    if name or content:
        entry = f"{verdict}/{name}/{content}" if content else f"{verdict}/{name}"
        machine.state.counted = [*machine.state.counted, entry][-MAX_KEPT:]


def outcome(machine: Moves, decision: Decision) -> tuple[str, str] | None:
    """Say what became of this very decision when it came first; None where it has not come, or was refused.

    A refusal is not remembered: what is judged again is refused again, or the reason is gone.
    """
    name = name_of(decision) if machine.state.counted else ""
    for verdict in ("recorded", "already_done"):
        wanted = f"{verdict}/{name}"
        if name and any(entry == wanted or entry.startswith(f"{wanted}/") for entry in machine.state.counted):
            return verdict, f"{decision.choice}: {ONCE}"
    return None


def was_said(machine: Moves, decision: Decision) -> bool:
    """Whether an unsigned decision that counted says the very same, whatever its sender calls it."""
    content = _content(decision) if machine.state.counted else ""
    return bool(content) and any(entry.endswith(f"/{content}") for entry in machine.state.counted)


def _content(decision: Decision) -> str:
    """Name what an unsigned decision says; empty for a signed one, whose signature counts once."""
    return "" if decision.signature is not None else digest_of(decision, "")[:16]


# Signed decisions in the machine: which questions need one, and having a signature verified before it counts.


VERIFY = "loom.approval.verify"
"""Holds a signature against the public keys of the worker. Remote: it reads a file, and perhaps the history."""
PLACE = "~verify/"
PIPELINES = frozenset({"loom.tool_call", "loom.tool_node"})
"""Graphs whose requests Loom itself makes, so that what is in them is true. Others could ask for anything."""
MAX_VERIFIED = 50
"""Signatures about one question that are verified at the same time."""
MAX_NONCES = 100
UNVERIFIABLE = "unverifiable"
"""What is said where it could not be found out whether a signature holds."""
_RETRY = (5, 0.5, 2.0, 10.0)
_UNVERIFIED = "it could not be verified"


def needs_signature(graph: str, request: Any, policy: Approvals) -> bool:
    """Whether a question that a graph asks is decided only by signed decisions."""
    if graph not in PIPELINES or not isinstance(request, dict):
        return policy.signed is not None
    return request.get("signed") is True or reaches(request.get("risk"), policy.signed)


def must_be_signed(machine: Moves, token: Token) -> bool:
    """Whether the question of a token is decided only by signed decisions."""
    graph = machine.state.frames[token.frame].graph
    asked = token.kept(ApprovalRecord)
    return needs_signature(graph, asked.request, read_policy(asked.policy))


def signature_refusal(machine: Moves, token: Token, decision: Decision) -> tuple[str, str] | None:
    """Why a decision cannot count for its signature, as far as that can be told without keys; or None."""
    signature = decision.signature
    if signature is None:
        if not must_be_signed(machine, token):
            return None
        return "unsigned", "this is decided only by a signed decision; say `loom decide --sign KEYFILE`"
    if signature.job != machine.job:
        return "wrong_job", "the decision was signed for another job"
    if not decision.digest:
        return "wrong_digest", "a signed decision names the digest of what was looked at"
    return None


def was_counted(machine: Moves, decision: Decision) -> tuple[str, str] | None:
    """Refuse another decision with the nonce of one that has counted; a signature counts once."""
    if decision.signature is not None and _mark(decision) in machine.state.seen:
        return "replayed", "a decision with this nonce has been counted already, and a signature counts once"
    return None


def note_counted(machine: Moves, decision: Decision) -> None:
    """A decision has counted: its signature never does again."""
    if decision.signature is not None:
        machine.state.seen = [*machine.state.seen, _mark(decision)][-MAX_NONCES:]


def proof_of(token: Token, decision: Decision) -> dict[str, Any]:
    """What is told of a decision that counts: by which key it was signed, and what is needed to verify that later."""
    if decision.signature is None:
        return {}
    text = signed_text(decision, *subject_of(token.kept(ApprovalRecord).request)).decode("utf-8", "surrogatepass")
    return {"keys": [decision.signature.key], "signed": {"text": text, "value": decision.signature.value}}


def _mark(decision: Decision) -> str:
    assert decision.signature is not None
    return f"~signed/{decision.signature.key}/{decision.signature.nonce}"


def start_verification(machine: Moves, token: Token, pending: PendingDecision, take: SideWork) -> None:
    """Have the signature of a decision verified, and the result handed on; the question stays open meanwhile."""
    asked = token.kept(ApprovalRecord)
    asked.verified += 1
    at, signal = f"{PLACE}{token.at}+{asked.verified}", pending.signal
    tool, requester = subject_of(asked.request)
    machine.side_work[at] = take
    arguments = {
        "decision": signal.payload,
        "tool": tool,
        "requester": requester,
        "came": pending.sent,
        "signal": signal.name if signal.answer_to is None else "",
    }
    # It only looks, so events must not travel with it: they would count as stored.
    machine.command(RunActivity(at=at, activity=VERIFY, arguments=arguments, carries=False, timeout=15.0, retry=_RETRY))


def verification_of(result: Any) -> tuple[str, str]:
    """Read what the verification of a signature gave: a verdict, and why. One that failed found nothing out."""
    told = result if isinstance(result, dict) else {}
    verdict = str(told.get("verdict", UNVERIFIABLE))
    return verdict, str(told.get("message", "" if verdict == VERIFIED else _UNVERIFIED))
