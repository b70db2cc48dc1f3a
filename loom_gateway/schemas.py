"""What requests to the gateway carry and what it answers. The JSON Schemas of its description come from here."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, RootModel
from pydantic.json_schema import SkipJsonSchema

from loom_dsl.approvals.decision import Signature
from loom_store.rows import AnyText

MAX_LISTED = 500
_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"
"""No dot: the ids of child jobs have one, and none of those may be taken before the child begins."""
_SAYS_SOMETHING = r"\S"


class Schema(BaseModel):
    """A JSON object, of a request or of an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


# What requests carry. Nobody says who they are here: the token does.


class DecisionBody(Schema):
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


class LinksBody(Schema):
    """For whom links are made, and for how long."""

    for_: str = Field(default="", max_length=200, alias="for")
    """Who decides with them; the token's own name when absent."""
    seconds: int = Field(default=86_400, ge=10, le=30 * 86_400)
    """How long they count."""


class ControlBody(Schema):
    """Why a job is aborted, paused or resumed."""

    reason: str = Field(default="", max_length=2_000)
    """Why."""


class MessageBody(Schema):
    """A message for an agent."""

    text: str = Field(min_length=1, max_length=20_000, pattern=_SAYS_SOMETHING)
    """What it reads."""
    when: Literal["asap", "when_idle"] = "asap"
    """Before the next model call, or when it would finish."""


class JobBody(Schema):
    """A job that is to start."""

    agent: str = Field(pattern=_NAME)
    """Name of an agent in the gateway's directory of agents."""
    task: str = Field(min_length=1, max_length=50_000, pattern=_SAYS_SOMETHING)
    """What it is to do."""
    job: str | None = Field(default=None, pattern=_NAME)
    """The job's id; the same request with the same id again is the same job. A fresh one when absent."""
    directory: str | None = Field(default=None, pattern=_NAME)
    """Name of the gateway's directory that it works in; a new one, its own, when absent."""


def _plain_number(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch("[0-9]{1,3}", value):
        raise ValueError("write it in digits")
    return value


class ListQuery(BaseModel):
    """Which entries of a list are wanted; other parameters are passed over."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, BeforeValidator(_plain_number)] = Field(default=100, ge=1, le=MAX_LISTED)
    """At most so many."""


class ApprovalsQuery(ListQuery):
    """Which approvals are wanted."""

    job: str | SkipJsonSchema[None] = None
    """Only those of this job, and of the jobs below it."""
    status: Literal["pending", "all"] = "pending"
    """Those that wait, or all."""


class JobsQuery(ListQuery):
    """Which jobs are wanted."""

    status: Literal["running", "completed", "failed", "aborted", "lost", "halted"] | SkipJsonSchema[None] = None
    """Only those; of those that are running, `halted` are the ones with steps that wait for a person."""


# What is answered.


class Acknowledgement(Schema):
    """What became of a decision, or of a message to a job."""

    message: str
    verdict: Literal["recorded", "already_done", "unconfirmed"]


class ProblemDetails(Schema):
    """Why a request was not done, as RFC 9457 has it."""

    title: str
    status: int
    detail: str
    verdict: str = ""
    """What the job, or the gateway in its place, says to it."""
    code: str = ""
    """Of a mistake of the gateway's own: which."""


class Approval(Schema):
    """A request for an approval, and how it was decided."""

    id: str
    job: str
    status: str
    tool: AnyText
    arguments_digest: str
    """Of what is asked; send it back as `digest`."""
    summary: AnyText
    reason: AnyText
    requester: AnyText
    call_id: AnyText
    turn: int
    node: str
    arguments: JsonValue
    choices: list[str]
    policy: dict[str, JsonValue]
    details: dict[str, JsonValue]
    """risk, rule, layer, asked_by, unanswered, rules, deciders, changes"""
    created_at: str
    expires_at: str | None
    choice: str | None
    by: str | None
    at: str | None
    message: str | None
    keys: list[str] = []
    """Those with which it was decided, where it was signed."""
    remember: str = "no"
    edited: str = ""
    """Digest of the arguments that were approved in place of those asked for."""
    allowed: bool = False
    """That it is allowed although it expired."""


class ApprovalDetail(Approval):
    """An approval with what it is about."""

    content: JsonValue
    """The arguments; null where there are none, or more than 64 KiB."""
    preview: str


class Approvals(Schema):
    """Approvals, the oldest first."""

    approvals: list[Approval]


class Job(Schema):
    """A job as lists show it."""

    job: str
    agent: str
    task: str
    status: str
    state: str
    session: str
    created_at: str
    ended_at: str | None
    paused_by: str | None
    result: dict[str, JsonValue] | None
    """How it ended: status, answer or result, error, usage."""
    halted: list[dict[str, JsonValue]] | None
    """The steps that wait for a person: at, cause, message, action, since."""
    waiting: list[dict[str, JsonValue]] | None
    """Those that wait out an outage: at, cause, message, since, next_at."""


class JobDetail(Job):
    """A job with its whole answer, and what it and the jobs below it ask."""

    approvals: list[Approval]


class Jobs(Schema):
    """Jobs, the newest first."""

    jobs: list[Job]


class Links(Schema):
    """A link for each choice that one can say."""

    approve: str = Field(default="", json_schema_extra={"format": "uri"})
    reject: str = Field(default="", json_schema_extra={"format": "uri"})
    expires_at: str = Field(json_schema_extra={"format": "date-time"})


class Description(RootModel[dict[str, JsonValue]]):
    """The description in OpenAPI."""
