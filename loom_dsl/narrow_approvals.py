"""Two policies about questions at once: inside another one, more people may be needed and never fewer."""

from collections.abc import Iterator
from typing import Any

from loom_dsl.approval_policy import Approvals, is_among, read_policy
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
