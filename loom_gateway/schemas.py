"""The JSON Schemas of what the gateway answers."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from loom_dsl.approvals.decision import Signature

# What requests to the gateway carry. Nobody says who they are here: the token does.


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


_TEXT: dict[str, Any] = {"type": "string"}
_TEXT_OR_NONE: dict[str, Any] = {"type": ["string", "null"]}
_OBJECT_OR_NONE: dict[str, Any] = {"type": ["object", "null"]}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _list(schema: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{schema}"}}


_APPROVAL = {
    **dict.fromkeys(("id", "job", "status", "tool", "summary", "reason", "requester", "created_at"), _TEXT),
    "arguments_digest": {**_TEXT, "description": "Of what is asked; send it back as `digest`."},
    "choices": {"type": "array", "items": _TEXT},
    "details": {"type": "object", "description": "risk, rule, layer, asked_by, unanswered, rules, deciders, changes"},
    **dict.fromkeys(("expires_at", "choice", "by", "at", "message"), _TEXT_OR_NONE),
}
_STEPS_OR_NONE = {"type": ["array", "null"], "items": {"type": "object"}}
_JOB = {
    **dict.fromkeys(("job", "agent", "task", "status", "state", "session", "created_at"), _TEXT),
    **dict.fromkeys(("ended_at", "paused_by"), _TEXT_OR_NONE),
    "result": {**_OBJECT_OR_NONE, "description": "How it ended: status, answer or result, error, usage."},
    "halted": {**_STEPS_OR_NONE, "description": "The steps that wait for a person: at, cause, message, action, since."},
    "waiting": {**_STEPS_OR_NONE, "description": "Those that wait out an outage: at, cause, message, since, next_at."},
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "Answer": _object({"verdict": {"enum": ["recorded", "already_done", "unconfirmed"]}, "message": _TEXT}),
    "Problem": _object({"title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT}, {"verdict": _TEXT}),
    "Approval": _object(_APPROVAL),
    "ApprovalInFull": _object(
        {**_APPROVAL, "content": {"description": "The arguments; null where there are none, or more than 64 KiB."}},
        {"preview": _TEXT},
    ),
    "Approvals": _object({"approvals": _list("Approval")}),
    "Job": _object(_JOB),
    "JobInFull": _object({**_JOB, "approvals": _list("Approval")}),
    "Jobs": _object({"jobs": _list("Job")}),
    "Links": _object(
        {"expires_at": {**_TEXT, "format": "date-time"}},
        {name: {**_TEXT, "format": "uri"} for name in ("approve", "reject")},
    ),
}
