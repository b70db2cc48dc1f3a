"""Approvals: the name of a request, and the decision that answers it."""

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from loom_dsl.canonical import canonical_json, digest
from loom_dsl.parts import Retry
from loom_dsl.signature import Signature

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


class Control(BaseModel):
    """What the signal ``loom.control`` carries."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    op: Literal["pause", "resume", "abort", "inject"]
    """What to do."""
    id: str = Field(default="", max_length=100)
    """Sent twice with one id, it counts once. Ids that start with ``~`` are Loom's own."""
    by: str = Field(default="", max_length=200)
    """Who says so. An injected message without it is nobody's words after something from outside was read."""
    reason: str = Field(default="", max_length=2_000)
    """Why."""
    cause: str = Field(default="", max_length=100)
    """With ``resume``: only the steps that are halted, or wait, for this cause go on."""
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


class OutsideEvent(BaseModel):
    """What the signal ``loom.event`` and the update ``loom.event`` carry, from any system."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=200)
    """Name of the event: that of the nodes that wait for it."""
    key: JsonValue = None
    """Which of several waiting nodes it is for."""
    data: JsonValue = None
    """The result of the node that takes it."""
    id: str = Field(default="", max_length=100)
    """Sent twice with one id, it counts once. Ids that start with ``~`` are Loom's own."""
    by: str = Field(default="", max_length=200)
    """Who says so."""


class UndoCall(BaseModel):
    """The activity that takes something back."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    activity: str
    timeout: float
    retry: Retry = Retry()


class UndoEntry(BaseModel):
    """How one thing that a child job did is taken back."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)

    at: str
    with_: dict[str, JsonValue] | None = Field(default=None, alias="with")
    sure: bool = False
    why: str = ""
    do: UndoCall


class ChildReport(BaseModel):
    """What the signal ``loom.child`` carries: how a child job ended."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    at: str
    """The execution that started it."""
    child: str
    """The child's job id."""
    result: JsonValue = None
    code: str = ""
    """Why it did not complete, or empty."""
    message: str = ""
    undo: list[UndoEntry] = Field(default_factory=list)
    """How what it did is taken back, oldest first."""


def problem_of(error: ValidationError) -> str:
    """Say in one line what is wrong with a payload, without repeating its content."""
    first = error.errors(include_url=False, include_input=False)[0]
    place, said = ".".join(str(part) for part in first["loc"]), _PROBLEMS.get(first["type"], first["msg"])
    return f"{place}: {said}" if place else said
