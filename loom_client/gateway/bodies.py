"""What requests to the gateway carry. Nobody says who they are here: the token does."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from loom_dsl.signature import Signature

_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"
"""No dot: the ids of child jobs have one, and none of those may be taken before the child begins."""
_SAYS_SOMETHING = r"\S"


class Body(BaseModel):
    """A JSON object of a request."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class DecisionBody(Body):
    """A decision about an approval."""

    choice: str = Field(min_length=1, max_length=40)
    """One of the approval's choices."""
    message: str = Field(default="", max_length=10_000)
    """Reason, told to the model; with `respond` what the tool would have given."""
    edited_arguments: dict[str, JsonValue] | None = None
    """With `edit`: the arguments to use instead."""
    remember: Literal["no", "job", "rule"] = "no"
    """With `approve`: do not ask again for the same."""
    digest: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    """Digest of what was looked at; another one than the request's is refused."""
    signature: Signature | None = None
    """Where the approval is `signed`: made with a key of the token's person."""


class LinksBody(Body):
    """For whom links are made, and for how long."""

    for_: str = Field(default="", max_length=200, alias="for")
    """Who decides with them; the token's own name when absent."""
    seconds: int = Field(default=86_400, ge=10, le=30 * 86_400)
    """How long they count."""


class ControlBody(Body):
    """Why a job is aborted, paused or resumed."""

    reason: str = Field(default="", max_length=2_000)
    """Why."""


class MessageBody(Body):
    """A message for an agent."""

    text: str = Field(min_length=1, max_length=20_000, pattern=_SAYS_SOMETHING)
    """What it reads."""
    when: Literal["asap", "when_idle"] = "asap"
    """Before the next model call, or when it would finish."""


class JobBody(Body):
    """A job that is to start."""

    agent: str = Field(pattern=_NAME)
    """Name of an agent in the gateway's directory of agents."""
    task: str = Field(min_length=1, max_length=50_000, pattern=_SAYS_SOMETHING)
    """What it is to do."""
    job: str | None = Field(default=None, pattern=_NAME)
    """The job's id; the same request with the same id again is the same job. A fresh one when absent."""
    directory: str | None = Field(default=None, pattern=_NAME)
    """Name of the gateway's directory that it works in; a new one, its own, when absent."""
