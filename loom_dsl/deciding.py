"""Who may decide about a question, when enough people have answered alike, and what is remembered of it."""

from typing import TYPE_CHECKING

from loom_dsl.approval import Decision
from loom_dsl.approval_policy import is_among, person
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.errors import PlanError
from loom_dsl.lookalike import mixes_scripts
from loom_dsl.machine_approvals import deciders, digest_of, policy_of
from loom_dsl.machine_signed import PIPELINES, proof_of, signature_refusal, was_counted
from loom_dsl.machine_state import Token
from loom_dsl.nodes_flow import Approval
from loom_dsl.turn import LARGEST_STATE as LARGEST_TURN
from loom_dsl.wire import size_of

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine

STOPS = frozenset({"reject", "terminate"})
"""Choices for which one person is enough, whatever the quorum."""
Refusal = tuple[str, str]
"""A verdict, and why."""


def refusal(machine: "Machine", token: Token, decision: Decision) -> Refusal | None:
    """Why a decision cannot count, or None."""
    return (
        was_counted(machine, decision)
        or _malformed(machine, token, decision)
        or signature_refusal(machine, token, decision)
        or _not_allowed(machine, token, decision.by)
    )


def _malformed(machine: "Machine", token: Token, decision: Decision) -> Refusal | None:
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


def _not_allowed(machine: "Machine", token: Token, by: str) -> Refusal | None:
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


def _same_eyes(machine: "Machine", token: Token, by: str) -> Refusal | None:
    request = token.data["request"]
    asks = request.get("requester") if isinstance(request, dict) else None
    if not machine.state.starter:
        return "not_allowed", "four eyes are needed, and it is not known who started the job"
    if is_among(by, [machine.state.starter, asks if isinstance(asks, str) else ""]):
        return "not_allowed", f"{_named(by)} started the job or asks, and four eyes are needed: somebody else decides"
    return None


def _with_a_role(machine: "Machine", token: Token) -> list[str] | None:
    """Those whom the deployment's policy lets decide; None: it does not say."""
    request = token.data["request"]
    if machine.state.frames[token.frame].graph not in PIPELINES or not isinstance(request, dict):
        return None
    able = request.get("deciders")
    return [str(name) for name in able] if isinstance(able, list) else None


def _named(by: str) -> str:
    return repr(by[:100]) if by else "a decision without `by`"


def vote(machine: "Machine", token: Token, decision: Decision) -> Decision | Refusal:
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


def rules_of(machine: "Machine", token: Token) -> list[str]:
    """The rules that a decision may remember: only a pipeline's.

    What a question of a user's graph says may have been computed from what was read outside, and who answers it is
    asked about something else.
    """
    request = token.data["request"]
    rules = request.get("rules") if isinstance(request, dict) else None
    known = machine.state.frames[token.frame].graph in PIPELINES
    return [str(rule) for rule in rules] if known and isinstance(rules, list) else []


def remember(machine: "Machine", rules: list[str]) -> None:
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


def _remember_in_graph(machine: "Machine", rules: list[str]) -> None:
    """A graph without turns keeps them beside its tokens, as long as they are few."""
    known = list(dict.fromkeys([*machine.state.remembered, *rules]))
    if size_of(known) > LARGEST_TURN:
        return machine.emit("warning", code="not_remembered", message="there are too many rules already")
    machine.state.remembered = known
    return None
