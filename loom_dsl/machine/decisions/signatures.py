"""Signatures of decisions: verified outside the machine, once for each nonce, and told with what they prove."""

from typing import Any

from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.signature import VERIFIED, signed_text, subject_of
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.pending_decision import PendingDecision, Refusal
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import Token
from loom_dsl.machine.tokens.core import Core
from loom_dsl.machine.tokens.ending import VERIFICATIONS

VERIFY = "loom.approval.verify"
"""Holds a signature against the public keys of the worker. Remote: it reads a file, and perhaps the history."""
MAX_VERIFIED = 50
"""Signatures about one question that are verified at the same time."""
MAX_NONCES = 100
UNVERIFIABLE = "unverifiable"
"""What is said where it could not be found out whether a signature holds."""
_RETRY = (5, 0.5, 2.0, 10.0)
_UNVERIFIED = "it could not be verified"


def verification(token: Token, pending: PendingDecision) -> RunActivity:
    """Give the activity that verifies the signature of a decision; the question stays open meanwhile."""
    asked = token.kept(ApprovalRecord)
    asked.verified += 1
    signal = pending.signal
    tool, requester = subject_of(token.kept(ApprovalRecord).request)
    arguments = {
        "decision": signal.payload,
        "tool": tool,
        "requester": requester,
        "came": pending.sent,
        "signal": signal.name if signal.answer_to is None else "",
    }
    at = f"{VERIFICATIONS}{token.at}+{asked.verified}"
    # It only looks, so events must not travel with it: they would count as stored.
    return RunActivity(at=at, activity=VERIFY, arguments=arguments, carries=False, timeout=15.0, retry=_RETRY)


def read_verification(result: Any) -> Refusal:
    """Read what a verification gave: a verdict, and why. One that failed found nothing out."""
    told = result if isinstance(result, dict) else {}
    verdict = str(told.get("verdict", UNVERIFIABLE))
    return verdict, str(told.get("message", "" if verdict == VERIFIED else _UNVERIFIED))


def replay(machine: Core, decision: Decision) -> Refusal | None:
    """Refuse another decision with the nonce of one that has counted; a signature counts once."""
    if decision.signature is not None and _mark(decision) in machine.state.seen:
        return "replayed", "a decision with this nonce has been counted already, and a signature counts once"
    return None


def spend_nonce(machine: Core, decision: Decision) -> None:
    """A decision has counted: its signature never does again."""
    if decision.signature is not None:
        machine.state.seen = [*machine.state.seen, _mark(decision)][-MAX_NONCES:]


def _mark(decision: Decision) -> str:
    assert decision.signature is not None
    return f"~signed/{decision.signature.key}/{decision.signature.nonce}"


def proof_of(token: Token, decision: Decision) -> dict[str, Any]:
    """What is told of a decision that counts: by which key it was signed, and what is needed to verify that later."""
    if decision.signature is None:
        return {}
    text = signed_text(decision, *subject_of(token.kept(ApprovalRecord).request)).decode("utf-8", "surrogatepass")
    return {"keys": [decision.signature.key], "signed": {"text": text, "value": decision.signature.value}}
