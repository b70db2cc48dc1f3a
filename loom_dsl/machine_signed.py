"""Signed decisions in the machine: which questions need one, and having a signature verified before it counts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loom_dsl.approval import Decision
from loom_dsl.approval_policy import Approvals, read_policy
from loom_dsl.commands import ActivityFailed, RunActivity
from loom_dsl.machine_arrivals import VERIFYING, Arrival
from loom_dsl.machine_state import Token
from loom_dsl.risk import reaches
from loom_dsl.signature import VERIFIED, signed_text, subject_of

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine

VERIFY = "loom.approval.verify"
"""Holds a signature against the public keys of the worker. Remote: it reads a file, and perhaps the history."""
PLACE = "~verify/"
PIPELINES = frozenset({"loom.tool_call", "loom.tool_node"})
"""Graphs whose requests Loom itself makes, so that what is in them is true. Others could ask for anything."""
MOST_VERIFIED = 50
"""Signatures about one question that are verified at the same time."""
MOST_NONCES = 100
UNVERIFIABLE = "unverifiable"
"""What is said where it could not be found out whether a signature holds."""
_RETRY = (5, 0.5, 2.0, 10.0)
_UNVERIFIED = "it could not be verified"


def needs_signature(graph: str, request: Any, policy: Approvals) -> bool:
    """Whether a question that a graph asks is decided only by signed decisions."""
    if graph not in PIPELINES or not isinstance(request, dict):
        return policy.signed is not None
    return request.get("signed") is True or reaches(request.get("risk"), policy.signed)


def must_be_signed(machine: "Machine", token: Token) -> bool:
    """Whether the question of a token is decided only by signed decisions."""
    graph = machine.state.frames[token.frame].graph
    return needs_signature(graph, token.data["request"], read_policy(token.data.get("policy")))


def signature_refusal(machine: "Machine", token: Token, decision: Decision) -> tuple[str, str] | None:
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


def was_counted(machine: "Machine", decision: Decision) -> tuple[str, str] | None:
    """Refuse another decision with the nonce of one that has counted; a signature counts once."""
    if decision.signature is not None and _mark(decision) in machine.state.seen:
        return "replayed", "a decision with this nonce has been counted already, and a signature counts once"
    return None


def note_counted(machine: "Machine", decision: Decision) -> None:
    """A decision has counted: its signature never does again."""
    if decision.signature is not None:
        machine.state.seen = [*machine.state.seen, _mark(decision)][-MOST_NONCES:]


def proof_of(token: Token, decision: Decision) -> dict[str, Any]:
    """What is told of a decision that counts: by which key it was signed, and what is needed to verify that later."""
    if decision.signature is None:
        return {}
    text = signed_text(decision, *subject_of(token.data["request"])).decode("utf-8", "surrogatepass")
    return {"keys": [decision.signature.key], "signed": {"text": text, "value": decision.signature.value}}


def _mark(decision: Decision) -> str:
    assert decision.signature is not None
    return f"~signed/{decision.signature.key}/{decision.signature.nonce}"


def verify(machine: "Machine", token: Token, arrival: Arrival, sent: float, then: Callable[[str, str], None]) -> None:
    """Have a signature verified; the question stays open meanwhile.

    Args:
        machine: The machine.
        token: What waits.
        arrival: A decision that has a signature.
        sent: When it came, in seconds since 1970, as far as it is known.
        then: Takes the verdict, and why; also when the question is gone by then.
    """
    number = token.data["verified"] = token.data.get("verified", 0) + 1
    at, signal = f"{PLACE}{token.at}+{number}", arrival.signal

    def take(result: Any, failed: ActivityFailed | None) -> None:
        told = result if isinstance(result, dict) else {}
        verdict = told.get("verdict", UNVERIFIABLE)
        then(str(verdict), str(told.get("message", "" if verdict == VERIFIED else _UNVERIFIED)))

    tool, requester = subject_of(token.data["request"])
    arrival.doing = VERIFYING
    machine.side_work[at] = take
    arguments = {
        "decision": signal.payload,
        "tool": tool,
        "requester": requester,
        "came": sent,
        "signal": signal.name if signal.answer_to is None else "",
    }
    # It only looks, so events must not travel with it: they would count as stored.
    machine.command(RunActivity(at=at, activity=VERIFY, arguments=arguments, carries=False, timeout=15.0, retry=_RETRY))
