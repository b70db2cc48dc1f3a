"""Approvals: the name of a request, and the decision that answers it."""

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from loom_dsl.text.canonical import canonical_json, digest


class Signature(BaseModel):
    """Ed25519 over a decision, by somebody whose public key the workers have."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str = Field(pattern="^key_[0-9a-f]{24}$")
    """Which key signed."""
    job: str = Field(min_length=1, max_length=1_000)
    """Id of the job that the decision is for."""
    issued_at: int = Field(ge=0, lt=2**53)
    """From when on it counts, in seconds since 1970."""
    expires_at: int = Field(ge=0, lt=2**53)
    """Until when; at most seven days later. The server's time of the signal or update counts."""
    nonce: str = Field(pattern="^[A-Za-z0-9_-]{16,64}$")
    """Random text, another one in each decision."""
    value: str = Field(pattern="^[0-9a-f]{128}$")
    """The signature: 64 bytes as hexadecimal digits."""


CHOICES = ("approve", "edit", "reject", "respond", "terminate")
"""What can be answered about a tool call."""
_DIGEST = re.compile("[0-9a-f]{64}")
_PROBLEMS = {"extra_forbidden": "there is no such field", "missing": "this field is missing"}


def approval_id(job: str, turn: int, at: str, request: Any) -> str:
    """Name one request: opaque, safe in a URL and in a shell, and different for every turn, item and argument."""
    return "ap_" + digest(canonical_json([job, turn, at, request]))[:24]


def is_digest(value: Any) -> bool:
    """Whether a value is the name of a content."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


class Decision(BaseModel):
    """What the signal ``loom.decision`` and the update ``loom.decide`` carry, from any system."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    approval_id: str = Field(max_length=100)
    """Which request is answered."""
    choice: str = Field(max_length=40)
    """One of the request's choices."""
    message: str = Field(default="", max_length=10_000)
    """Reason, told to the model; with ``respond`` what the tool would have given."""
    edited_arguments: dict[str, JsonValue] | None = None
    """With ``edit``: the arguments to use instead; they are validated and authorized again."""
    remember: Literal["no", "job", "rule"] = "no"
    """With ``approve``. ``job``: later calls that the request's `rules` cover are allowed in this job, where nobody
    asks who did not ask now. ``rule``: also in later jobs of the same agent in the same directory, until it is taken
    back."""
    digest: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    """Digest of what was looked at. Another one than the request's is refused."""
    by: str = Field(default="", max_length=200)
    """Who decided, as the sender says."""
    at: str | float | None = None
    """When, as the sender says; kept, but never trusted for lateness."""
    id: str = Field(default="", max_length=100)
    """The sender's name for this decision. The same decision sent again with one id counts once, and is answered as the
    first time; a signed one needs none for that."""
    signature: Signature | None = None
    """Proves who decided what. Signed is everything but `at` and `id`."""


def problem_of(error: ValidationError) -> str:
    """Say in one line what is wrong with a payload, without repeating its content."""
    first = error.errors(include_url=False, include_input=False)[0]
    place, said = ".".join(str(part) for part in first["loc"]), _PROBLEMS.get(first["type"], first["msg"])
    return f"{place}: {said}" if place else said
