"""The JSON Schemas of what the gateway answers."""

from typing import Any

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
