"""What happens to a question while nobody answers it, and who may answer: an agent's `approvals`, a node's `policy`."""

import unicodedata
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from loom_dsl.errors import ExpressionError
from loom_dsl.fields import MAX_DURATION, Duration, Expiry, listed
from loom_dsl.tools.risk import Risk

SOONEST_REMINDER = 1.0
"""Seconds: each reminder costs a timer and an activity."""
Who = Annotated[str, Field(min_length=1, max_length=200)]


class Escalation(BaseModel):
    """A step of the escalation: more people are asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    after: Duration | None = None
    """How long after the question. Absent: when the question expires, with `on_expiry: escalate`."""
    to: Annotated[tuple[Who, ...], Field(min_length=1)]
    """Who is told, and may decide from then on besides those before."""

    _one = field_validator("to", mode="before")(listed)


class ApprovalPolicy(BaseModel):
    """What happens to a question that nobody answers, and who may answer it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    expires: Expiry = None
    """How long to wait."""
    on_expiry: Literal["deny", "allow", "halt", "escalate"] = "deny"
    """What counts then: it is refused, it is allowed, its step is halted until somebody decides or resumes it, or the
    next step of `escalate` is taken and the time starts again. `allow` holds only for what the agent's own rules
    ask."""
    remind: Duration | None = None
    """Tell again so often while nobody has decided; at least 1s."""
    escalate: tuple[Escalation, ...] = ()
    """Who is asked besides, and when: steps of `after` and `to`."""
    approvers: tuple[Who, ...] = ()
    """Who may decide; absent: anybody."""
    quorum: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    """How many people must answer alike. One `reject` or `terminate` is enough."""
    four_eyes: bool = Field(default=False, strict=True)
    """Whether who started the job, or asks, may not decide."""
    signed: Risk | None = None
    """From which risk on a decision counts only with a signature: `low` (every one), `medium` or `high`. A graph's
    question counts as `high`."""

    _one = field_validator("approvers", mode="before")(listed)

    @model_validator(mode="after")
    def _fits(self) -> "ApprovalPolicy":
        if self.remind is not None and self.remind < SOONEST_REMINDER:
            raise ValueError("`remind` must be at least 1s")
        untimed = any(step.after is None for step in self.escalate)
        if self.on_expiry == "escalate" and not untimed:
            raise ValueError("`on_expiry: escalate` needs a step in `escalate` without `after`, such as {to: [lead]}")
        if untimed and self.on_expiry != "escalate":
            raise ValueError("a step of `escalate` needs `after`, or the policy `on_expiry: escalate`")
        if self.on_expiry == "escalate" and self.expires is None:
            raise ValueError("`on_expiry: escalate` needs `expires`")
        if self.signed is not None and self.on_expiry == "allow":
            raise ValueError("`on_expiry: allow` lets run what nobody signed; beside `signed` write deny or halt")
        everybody = {person(name) for name in (*self.approvers, *(name for step in self.escalate for name in step.to))}
        if self.approvers and self.quorum > len(everybody):
            raise ValueError(f"`quorum: {self.quorum}` needs so many `approvers`, and there are {len(everybody)}")
        return self


def read_policy(value: Any) -> ApprovalPolicy:
    """Read the policy that a node computes.

    Raises:
        ExpressionError: It is not one; says what is wrong.
    """
    try:
        return ApprovalPolicy.model_validate(_timed(value) or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in ("policy", *first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = f"there is no such field; the fields are {', '.join(sorted(ApprovalPolicy.model_fields))}"
        raise ExpressionError(f"`{place}` of an approval: {message}") from None


def _timed(value: Any) -> Any:
    """What an expression computes has times as seconds; a document writes them with a unit."""
    if not isinstance(value, Mapping):
        return value
    steps = value.get("escalate")
    more = {"escalate": [_timed(step) for step in steps]} if isinstance(steps, list | tuple) else {}
    return {**value, **more, **{key: _span(value[key]) for key in ("expires", "remind", "after") if key in value}}


def _span(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return timedelta(seconds=value) if number and 0 <= value <= MAX_DURATION else value


def person(name: str) -> str:
    """Give the form in which two spellings of one person's name are equal."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    seen = "".join(character for character in folded if unicodedata.category(character) not in ("Cf", "Cc", "Mn"))
    return " ".join(seen.split())


def is_among(name: str, people: Iterable[str]) -> bool:
    """Whether a person is one of these."""
    wanted = person(name)
    return bool(wanted) and any(person(other) == wanted for other in people)
