"""Whose word about a question holds: that of an agent's `approvals` only for what its own rules ask."""

from collections.abc import Sequence

from loom_dsl.approval_policy import Approvals
from loom_dsl.duration import format_duration
from loom_dsl.narrow_approvals import held_by_all
from loom_dsl.permissions import PolicyLayer, Verdict
from loom_dsl.remembered import OWN, UNTRUSTED

_EXPIRES = {
    "deny": "it is refused",
    "allow": "it runs",
    "halt": "the job pauses until somebody decides or resumes it",
    "escalate": "others are asked too",
}


def approvals_for(verdict: Verdict, own: Approvals, layers: Sequence[PolicyLayer], *, named: bool = False) -> Approvals:
    """Give what happens to a question, and who answers it.

    The agent's `approvals` are its own: they never let run what the deployment, the project, a job above or the check
    after untrusted content asks about, and lower nothing that a job above says.

    Args:
        verdict: Says who asks.
        own: The agent's.
        layers: All policies around the agent's, as `layers_around` gives them.
        named: Whether the decision must be that of somebody with a role, or signed.

    Raises:
        ExpressionError: Nobody could decide.
    """
    around = [layer.permissions.asking or Approvals() for layer in layers if layer.key in verdict.asked_by]
    around += [Approvals()] if UNTRUSTED in verdict.asked_by else []
    if not around and (own.on_expiry != "allow" or not (named or own.signed)):
        return own
    return held_by_all(own, around, own_asks=OWN in verdict.asked_by or not around, named=named)


def unanswered(policy: Approvals, own: Approvals, verdict: Verdict) -> str:
    """Say in a sentence what happens when nobody answers, and why not what the agent says; empty: it waits for ever.

    Args:
        policy: The question's.
        own: The agent's.
        verdict: Says who asks.
    """
    if policy.expires is None:
        return ""
    said = f"if nobody answers within {format_duration(policy.expires)}, {_EXPIRES[policy.on_expiry]}"
    if own.on_expiry != "allow" or policy.on_expiry == "allow":
        return said
    others = [asker for asker in verdict.asked_by if asker != OWN]
    why = f"{_listed(others)} asks" if others else "somebody must answer for it"
    return f"{said} (the agent's `on_expiry: allow` does not count: {why})"


def _listed(askers: Sequence[str]) -> str:
    words = {
        "deployment": "the deployment's policy",
        "project": "the project's policy",
        "parent": "a job above",
        UNTRUSTED: "the check after untrusted content",
    }
    return " and ".join(dict.fromkeys(words[asker.partition(":")[0]] for asker in askers))
