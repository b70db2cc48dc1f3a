"""Several policies about questions at once: inside another one, more people may be needed and never fewer."""

from collections.abc import Iterator, Sequence
from typing import Any

from loom_dsl.approvals.policy import ApprovalPolicy, is_among, read_policy
from loom_dsl.errors import ExpressionError
from loom_dsl.fields import format_duration
from loom_dsl.permissions.decide import PolicyLayer, Verdict
from loom_dsl.permissions.policy import MODES, Permissions
from loom_dsl.permissions.remembered import OWN, UNTRUSTED
from loom_dsl.permissions.rules import parse_rule
from loom_dsl.tools.risk import lowest

# Two policies at once: what a policy allows inside another one can only be less.


_STRICTEST = ("deny", None, "ask", "allow")
"""Defaults, the strictest first. None denies what no rule and no agent names."""


def widenings(inner: Permissions, outer: Permissions) -> Iterator[str]:
    """Say what a policy would allow that the one around it does not, or not surely."""
    if not outer.enabled:
        return
    if not inner.enabled:
        yield "`enabled: false` would let every call through, and the job's own policy does not"
    if MODES.index(inner.mode) > MODES.index(outer.mode) and inner.mode != "default":
        yield f"`mode: {inner.mode}` is wider than the job's own policy; leave it out"
    if inner.function not in (None, outer.function):
        yield f"`function: {inner.function}` would decide in place of the job's own policy; leave it out"
    for rule in inner.allow:
        if not _covered(rule, outer):
            yield f"the rule `{rule}` allows what the job's own policy does not surely allow; leave it out"
    if inner.default is not None and _STRICTEST.index(inner.default) > _STRICTEST.index(outer.default):
        yield f"`default: {inner.default}` is wider than the job's own policy; leave it out"


def narrowed(inner: Permissions, outer: Permissions, *, inherit: bool) -> Permissions:
    """Give the policy of both: what either denies is denied, what either asks is asked.

    Args:
        inner: A policy without `widenings`.
        outer: The one around it.
        inherit: What the outer one allows, the inner one does, too: it says nothing about it.
    """
    if not outer.enabled:
        mode = min(inner.mode, outer.mode, key=MODES.index)
        return (outer if inherit else inner).model_copy(update={"mode": mode})
    default = min(inner.default, outer.default, key=_STRICTEST.index)
    return Permissions(
        allow=list(outer.allow if inherit else inner.allow),
        ask=list(dict.fromkeys([*outer.ask, *inner.ask])),
        deny=list(dict.fromkeys([*outer.deny, *inner.deny])),
        default=outer.default if inherit else default,
        mode=min(inner.mode, outer.mode, key=MODES.index),
        function=outer.function,
    )


def _covered(rule: str, outer: Permissions) -> bool:
    """Whether a rule of the outer policy allows all that this one does: the same, or one about every call of it."""
    wanted = parse_rule(rule)
    for text in outer.allow:
        known = parse_rule(text)
        whole = known.pattern is None and known.tool in ("*", wanted.tool)
        if whole or (known.tool, known.argument, known.pattern) == (wanted.tool, wanted.argument, wanted.pattern):
            return True
    return False


_TIMES = ("expires", "on_expiry", "escalate", "remind")


def weakenings(inner: ApprovalPolicy, outer: ApprovalPolicy) -> Iterator[tuple[str, str]]:
    """Say where a policy lets others decide than the one around it: the field, and why."""
    named = [name for step in inner.escalate for name in step.to]
    people = [*outer.approvers, *(name for step in outer.escalate for name in step.to)] if outer.approvers else []
    for field, names in (("approvers", inner.approvers), ("escalate", named)):
        others = [name for name in names if people and not is_among(name, people)]
        if others:
            yield field, f"{', '.join(others)} may not decide in the job itself; those may: {', '.join(people)}"
    try:
        strengthened(inner, outer)
    except ExpressionError as error:
        yield "approvers", f"together with the job's own `approvals`, {error.message}"


def strengthened(inner: ApprovalPolicy, outer: ApprovalPolicy) -> ApprovalPolicy:
    """Give the policy of both, for an inner one without `weakenings`.

    The larger quorum counts, four eyes of either, a signature where either wants one, and the approvers and the times
    of the outer one where the inner one says nothing of them. What nobody answers is never allowed.
    """
    fields: dict[str, Any] = inner.model_dump(mode="json", exclude_defaults=True)
    around = outer.model_dump(mode="json", exclude_defaults=True)
    if not fields.keys() & {*_TIMES}:
        fields |= {name: around[name] for name in _TIMES if name in around}
    if fields.get("on_expiry") == "allow":
        del fields["on_expiry"]
    if outer.approvers and not inner.approvers:
        fields["approvers"] = around["approvers"]
    quorum, four_eyes = max(inner.quorum, outer.quorum), inner.four_eyes or outer.four_eyes
    signed = lowest((inner.signed, outer.signed))
    return read_policy({**fields, "quorum": quorum, "four_eyes": four_eyes, "signed": signed})


def held_by_all(
    own: ApprovalPolicy, around: Sequence[ApprovalPolicy], *, own_asks: bool, named: bool = False
) -> ApprovalPolicy:
    """Give the policy of a question that others than the agent ask, or others too.

    More people are needed where any of those who ask say so, never fewer. The times are those of the outermost that
    says any. What nobody answers runs only where everybody who asks says so, and then at the latest of their times.

    Args:
        own: The agent's.
        around: Those of the others who ask, the outermost first; `ApprovalPolicy()` of one that says nothing.
        own_asks: Whether the agent's own rules ask as well.
        named: Whether the decision must be that of somebody with a role, or signed: then silence never stands for it.

    Raises:
        ExpressionError: Nobody could decide.
    """
    found = own
    for outer in reversed(around):
        if any(weakenings(found, outer)):
            found = found.model_copy(update={"approvers": (), **_UNTIMED})
        found = strengthened(found, outer)
    asking = [*around, *([own] if own_asks else [])]
    fields: dict[str, Any] = found.model_dump(mode="json", exclude_defaults=True)
    said = (policy.model_dump(mode="json", exclude_defaults=True) for policy in around)
    times = next((given for given in said if given.keys() & {*_TIMES}), None)
    if times is not None:
        rest = {name: value for name, value in fields.items() if name not in _TIMES}
        fields = rest | {name: times[name] for name in _TIMES if name in times}
    fields.pop("on_expiry") if fields.get("on_expiry") == "allow" else None
    if not named and found.signed is None and all(policy.on_expiry == "allow" for policy in asking):
        waits = [policy.expires for policy in asking]
        latest = None if None in waits else max(wait for wait in waits if wait is not None)
        fields |= {"on_expiry": "allow", "expires": "never" if latest is None else format_duration(latest)}
    return read_policy(fields)


_UNTIMED = {"escalate": (), "on_expiry": "deny"}


# Whose word about a question holds: that of an agent's `approvals` only for what its own rules ask.


_EXPIRES = {
    "deny": "it is refused",
    "allow": "it runs",
    "halt": "the job pauses until somebody decides or resumes it",
    "escalate": "others are asked too",
}


def approvals_for(
    verdict: Verdict, own: ApprovalPolicy, layers: Sequence[PolicyLayer], *, named: bool = False
) -> ApprovalPolicy:
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
    around = [layer.permissions.asking or ApprovalPolicy() for layer in layers if layer.key in verdict.asked_by]
    around += [ApprovalPolicy()] if UNTRUSTED in verdict.asked_by else []
    if not around and (own.on_expiry != "allow" or not (named or own.signed)):
        return own
    return held_by_all(own, around, own_asks=OWN in verdict.asked_by or not around, named=named)


def unanswered(policy: ApprovalPolicy, own: ApprovalPolicy, verdict: Verdict) -> str:
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
