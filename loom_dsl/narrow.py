"""Two policies at once: what a policy allows inside another one can only be less."""

from collections.abc import Iterator

from loom_dsl.permission_lists import MODES, Permissions
from loom_dsl.permission_rules import parse_rule

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
