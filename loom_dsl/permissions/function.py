"""A user's own function that decides about calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import JsonValue

from loom_dsl.permissions.decide import Verdict
from loom_dsl.permissions.traits import ToolTraits
from loom_dsl.tools.risk import Risk


@dataclass(frozen=True, kw_only=True)
class PermissionRequest:
    """What the function of ``permissions: {function: module:function}`` is asked.

    It gives `"allow"`, `"ask"` or `"deny"`, one of these and a reason, or None to leave the decision to the rules. A
    rule that denies goes before its `"allow"`. It is asked again when the call runs, so it should only look.

    Attributes:
        tool: What the model calls the tool.
        arguments: Its validated arguments.
        risk: The tool's risk.
        read_only: The tool changes nothing.
        paths: What the call touches, relative to the working directory.
        commands: The words of each command of a line that is nothing but literal commands; else empty.
        hosts: The hosts that it would ask; None for an address that cannot be read.
        agent: The agent's name.
        job: The job's id.
    """

    tool: str
    arguments: Mapping[str, JsonValue]
    risk: Risk
    read_only: bool
    paths: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    hosts: tuple[str | None, ...] = ()
    agent: str = ""
    job: str = ""

    @classmethod
    def of(cls, traits: ToolTraits, arguments: Mapping[str, Any], *, agent: str, job: str) -> Self:
        """Describe a call to the function.

        Args:
            traits: What the policy sees of the call.
            arguments: The call's validated arguments.
            agent: The agent's name.
            job: The job's id.

        Returns:
            The request, with empty tuples for what the call does not have.
        """
        return cls(
            tool=traits.name,
            arguments=arguments,
            risk=traits.risk,
            read_only=traits.read_only,
            paths=traits.paths or (),
            commands=traits.command.literal if traits.command else (),
            hosts=traits.hosts or (),
            agent=agent,
            job=job,
        )


def answer_of(reference: str, tool: str, given: object) -> Verdict | None:
    """Read what the function gave. What it may not give denies.

    Args:
        reference: The function, ``module:function``.
        tool: The tool's name.
        given: Its result.
    """
    decision, why = given if isinstance(given, tuple) and len(given) == 2 else (given, "")
    if decision is None and not why:
        return None
    words = {"allow": "may run", "ask": "must be approved", "deny": "is not allowed"}
    if not isinstance(decision, str) or decision not in words or not isinstance(why, str):
        return denied_by_error(reference, tool, f"gave {type(given).__name__} {str(given)[:80]!r}, and no decision")
    reason = f"{tool} {words[decision]}: {why or f'the function {reference} says so'}"
    return Verdict.model_validate({"decision": decision, "rule": reference, "layer": "function", "reason": reason})


def denied_by_error(reference: str, tool: str, what: str) -> Verdict:
    """Deny a call because the function failed."""
    reason = f"{tool} is not allowed: the function {reference}, which decides about it, {what}"
    return Verdict(decision="deny", rule=reference, layer="function", reason=reason)


def strictest(answers: Sequence[Verdict | None]) -> Verdict | None:
    """Give the strictest of several answers. Where one leaves the decision to the rules, no other one allows."""
    said = [answer for answer in answers if answer is not None]
    if len(said) < len(answers):
        said = [answer for answer in said if answer.decision != "allow"]
    return min(said, key=lambda answer: ("deny", "ask", "allow").index(answer.decision), default=None)
