"""Whether a decision can count: whether it answers what was asked, has the signature it needs, and who may decide.

Asked once, when the decision comes. Nothing of it changes while it waits: the question and who started the job stay,
and approvers only become more.
"""

from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.policy import is_among, person
from loom_dsl.graph.nodes import Approval
from loom_dsl.machine.kinds.approvals import deciders, digest_of, is_own_question, must_be_signed, policy_of
from loom_dsl.machine.pending_decision import Refusal
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import Token
from loom_dsl.machine.tokens.moves import Moves
from loom_dsl.text.confusables import mixes_scripts


def refusal(machine: Moves, token: Token, decision: Decision) -> Refusal | None:
    """Why a decision cannot count, or None."""
    return (
        _malformed(machine, token, decision)
        or _unsigned(machine, token, decision)
        or _not_allowed(machine, token, decision.by)
    )


def _malformed(machine: Moves, token: Token, decision: Decision) -> Refusal | None:
    node = machine.node(token)
    assert isinstance(node, Approval)
    choice, asked = decision.choice, digest_of(token.kept(ApprovalRecord).request)
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
    if decision.digest and decision.digest != asked:
        return "wrong_digest", f"what is asked has the digest {asked}, and not {decision.digest}"
    return None


def _unsigned(machine: Moves, token: Token, decision: Decision) -> Refusal | None:
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
    able = token.kept(ApprovalRecord).request.get("deciders") if is_own_question(machine, token) else None
    return [str(name) for name in able] if isinstance(able, list) else None


def _named(by: str) -> str:
    return repr(by[:100]) if by else "a decision without `by`"
