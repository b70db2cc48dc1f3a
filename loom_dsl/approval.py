"""Approvals: the name of a request, and the decision that answers it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from loom_dsl.canonical import canonical_json, digest

CHOICES = ("approve", "edit", "reject")


def approval_id(job: str, turn: int, at: str, request: Any) -> str:
    """Name one request: opaque, safe in a URL and in a shell, and different for every turn, item and argument."""
    return "ap_" + digest(canonical_json([job, turn, at, request]))[:24]


class Decision(BaseModel):
    """What the signal ``loom.decision`` and the update ``loom.decide`` carry, from any system."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    approval_id: str = Field(max_length=100)
    """Which request is answered."""
    choice: str = Field(max_length=40)
    """One of the request's choices."""
    message: str = Field(default="", max_length=10_000)
    """Reason, told to the model."""
    edited_arguments: dict[str, JsonValue] | None = None
    """With ``edit``: the arguments to use instead; they are validated and authorized again."""
    remember: Literal["no", "job"] = "no"
    """``job``: later calls that the request's rule covers are allowed in this job."""
    by: str = Field(default="", max_length=200)
    """Who decided, as the sender says."""
    at: str | float | None = None
    """When, as the sender says; kept, but never trusted for lateness."""
    id: str = Field(default="", max_length=100)
    """The sender's name for this decision."""


class Control(BaseModel):
    """What the signal ``loom.control`` carries."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    op: Literal["pause", "resume", "abort", "inject"]
    """What to do."""
    id: str = Field(default="", max_length=100)
    """Sent twice with one id, it counts once. Ids that start with ``~`` are Loom's own."""
    by: str = Field(default="", max_length=200)
    """Who says so."""
    reason: str = Field(default="", max_length=2_000)
    """Why."""
    text: str = Field(default="", max_length=20_000)
    """With ``inject``: the message for the model."""
    ref: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    """With ``inject``: digest of the message in the store, in place of the text."""
    when: Literal["asap", "when_idle"] = "asap"
    """With ``inject``: before the next model call, or when the agent would finish."""

    @field_validator("id")
    @classmethod
    def _not_ours(cls, value: str) -> str:
        if value.startswith("~"):
            raise ValueError("an id cannot start with `~`")
        return value


def problem_of(error: ValidationError) -> str:
    """Say in one line what is wrong with a payload, without repeating its content."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
