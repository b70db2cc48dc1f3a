"""Votes: when enough people have answered a question alike, and what they have decided together."""

from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.policy import person
from loom_dsl.machine.decision_states import CheckVerdict
from loom_dsl.machine.decisions.queue import keep
from loom_dsl.machine.decisions.signatures import proof_of, spend_nonce
from loom_dsl.machine.kinds.approvals import policy_of
from loom_dsl.machine.pending_decision import Found
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import Token
from loom_dsl.machine.tokens.core import Core
from loom_dsl.text.canonical import canonical_json, digest

STOPS = frozenset({"reject", "terminate"})
"""Choices for which one person is enough, whatever the quorum."""
Vote = dict[str, str]
"""By whom, a digest of what it says, how long it is to be remembered, its message, and the key that signed it."""


def vote(machine: Core, token: Token, decision: Decision) -> Found:
    """Count a decision with those that say the same, and remember that it came."""
    need = policy_of(token).quorum
    if need == 1 or decision.choice in STOPS:
        _note(machine, decision)
        return Found(CheckVerdict.DECIDED, decided=decision)
    votes: list[Vote] = token.kept(ApprovalRecord).votes
    message = decision.message if decision.choice == "respond" else ""
    content = digest(canonical_json([decision.choice, decision.edited_arguments, message]))[:16]
    before = next((given for given in votes if person(given["by"]) == person(decision.by)), None)
    if before is not None:
        count = _count(_alike(votes, before["content"]), need)
        why = f"{decision.by} has answered already, and counts once; {count}"
        if before["content"] != content:
            return Found(CheckVerdict.REFUSED, ("not_allowed", why))
        keep(machine, decision, "already_done")
        return Found(CheckVerdict.REPEATED, ("already_done", why))
    _note(machine, decision)
    mine = {"by": decision.by, "content": content, "remember": decision.remember, "message": decision.message}
    mine |= {"key": decision.signature.key} if decision.signature else {}
    token.kept(ApprovalRecord).votes = [*votes, mine]
    alike = _alike(token.kept(ApprovalRecord).votes, content)
    if len(alike) >= need:
        return Found(CheckVerdict.DECIDED, decided=_decision_of_all(decision, alike, message))
    have = {"choice": decision.choice, "by": decision.by, "have": len(alike), "need": need}
    proof = proof_of(token, decision)
    machine.emit("approval_changed", approval_id=token.kept(ApprovalRecord).id, what="vote", **have, **proof)
    return Found(CheckVerdict.RECORDED, ("recorded", f"{decision.choice} recorded: {_count(alike, need)}"))


def _note(machine: Core, decision: Decision) -> None:
    spend_nonce(machine, decision)
    keep(machine, decision, "recorded")


def _alike(votes: list[Vote], content: str) -> list[Vote]:
    return [given for given in votes if given["content"] == content]


def _count(alike: list[Vote], need: int) -> str:
    """Say how many have answered alike, and who."""
    return f"{len(alike)} of {need} ({', '.join(given['by'][:80] for given in alike)[:500]})"


def _decision_of_all(decision: Decision, alike: list[Vote], message: str) -> Decision:
    """Put together what several people have decided: their names, and the shortest reach that one of them gave it."""
    reach = ("no", "job", "rule")
    remember = reach[min(reach.index(given["remember"]) for given in alike)]
    messages = message or "; ".join(dict.fromkeys(given["message"] for given in alike if given["message"]))
    names = ", ".join(given["by"] for given in alike)
    return decision.model_copy(update={"by": names, "message": messages[:10_000], "remember": remember})


def keys_of(token: Token, decision: Decision) -> dict[str, list[str]]:
    """What is told of a decision that several people made: by which keys it was signed, if it was."""
    votes = token.kept(ApprovalRecord).votes
    if not votes or decision.choice in STOPS:
        return {}
    keys = [given["key"] for given in _alike(votes, votes[-1]["content"]) if "key" in given]
    return {"keys": keys} if keys else {}
