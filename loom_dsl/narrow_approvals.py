"""Several policies about questions at once: inside another one, more people may be needed and never fewer."""

from collections.abc import Iterator, Sequence
from typing import Any

from loom_dsl.approval_policy import Approvals, is_among, read_policy
from loom_dsl.duration import format_duration
from loom_dsl.errors import ExpressionError
from loom_dsl.risk import lowest

_TIMES = ("expires", "on_expiry", "escalate", "remind")


def weakenings(inner: Approvals, outer: Approvals) -> Iterator[tuple[str, str]]:
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


def strengthened(inner: Approvals, outer: Approvals) -> Approvals:
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


def held_by_all(own: Approvals, around: Sequence[Approvals], *, own_asks: bool, named: bool = False) -> Approvals:
    """Give the policy of a question that others than the agent ask, or others too.

    More people are needed where any of those who ask say so, never fewer. The times are those of the outermost that
    says any. What nobody answers runs only where everybody who asks says so, and then at the latest of their times.

    Args:
        own: The agent's.
        around: Those of the others who ask, the outermost first; `Approvals()` of one that says nothing.
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
