"""The gateway's description in OpenAPI 3.1, for clients that are generated or tested from it."""

from typing import Any

from loom_dsl.approvals.decision import Signature
from loom_gateway.schemas import SCHEMAS, Body, ControlBody, DecisionBody, JobBody, LinksBody, MessageBody

_TEXT = {"type": "string"}
_NAME: dict[str, Any] = {"name": "id", "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}}
_LINK: dict[str, Any] = {**_NAME, "name": "text"}
_LIMIT: dict[str, Any] = {
    "name": "limit",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
}
_BODIES: tuple[type[Body], ...] = (DecisionBody, LinksBody, ControlBody, MessageBody, JobBody)
_JSON, _PROBLEM, _HTML = "application/json", "application/problem+json", "text/html"
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"required": True, "schema": _TEXT}},
    405: {"Allow": {"required": True, "schema": _TEXT}},
    503: {
        "Retry-After": {
            "description": "After so many seconds the same request may be taken. Absent: not by waiting alone.",
            "schema": {"type": "integer", "minimum": 1},
        }
    },
}
"""Headers that a refusal has."""
_MEANS = {
    400: "What was sent is no JSON, or no request.",
    401: "No token that counts was sent.",
    403: "No role of yours allows it, or the job says that you may not decide, or that a signature does not count.",
    404: "There is none of this id, or the job does not wait for it any more.",
    408: "The body did not come in time.",
    409: "Somebody else decided, the job has ended, or the id is another job's.",
    410: "The time was over.",
    413: "The body is larger than 64 KiB.",
    415: "The body is not `application/json`.",
    422: "The body or a parameter is not valid, or is about something else than what is asked (`wrong_digest`).",
    503: "It was not taken. With `Retry-After` send it again after so many seconds: the job is between two runs "
    "(`retry`), has as many messages waiting as it keeps (`full`), or the Temporal server, the store or this gateway "
    "is busy or away. Without it somebody must do something first, such as give the workers keys (`unverifiable`).",
}
"""What a refusal means; `verdict` says which it is where there are several."""


def description(url: str) -> dict[str, Any]:
    """Describe the gateway that is reached at a URL."""
    bodies = {model.__name__: _body_schema(model) for model in _BODIES}
    schemas = {**SCHEMAS, "Signature": Signature.model_json_schema(), **bodies}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Loom's gateway", "version": "1", "description": "Approvals and jobs of Loom."},
        "servers": [{"url": url}],
        "security": [{"token": []}],
        "paths": {**_approvals(), **_jobs(), **_open()},
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _body_schema(model: type[Body]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)  # any JSON value, which an empty schema says, too
    return {**schema, "properties": {name: _any_value(part) for name, part in schema["properties"].items()}}


def _any_value(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_any_value(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref", "").endswith("/JsonValue"):
        return {}
    return {key: _any_value(value) for key, value in schema.items()}


def _approvals() -> dict[str, Any]:
    status: dict[str, Any] = {"name": "status", "in": "query", "schema": {"enum": ["pending", "all"]}}
    job: dict[str, Any] = {"name": "job", "in": "query", "schema": _TEXT, "description": "And the jobs below it."}
    one = "/v1/approvals/{id}"
    decide = _operation("decide", "Decide it.", "Answer", _NAME, body=DecisionBody, ends=(404, 409, 410, 503))
    make = "Make links that approve or reject it once, and need no token."
    return {
        "/v1/approvals": {
            "get": _operation("approvals", "List approvals.", "Approvals", status, job, _LIMIT, ends=(422,))
        },
        one: {"get": _operation("approval", "Show one, with its arguments.", "ApprovalInFull", _NAME, ends=(404,))},
        f"{one}/decision": {"post": _or_unconfirmed(decide)},
        f"{one}/links": {
            "post": _operation("links", make, "Links", _NAME, body=LinksBody, ends=(404, 409, 410), ok="201")
        },
    }


def _jobs() -> dict[str, Any]:
    status: dict[str, Any] = {
        "name": "status",
        "in": "query",
        "schema": {"enum": ["running", "completed", "failed", "aborted", "lost", "halted"]},
    }
    start = _operation("start", "Start a job of an agent.", "JobInFull", body=JobBody, ends=(404, 409, 503), ok="201")
    start["responses"]["200"] = _answer("It had been started by such a request before.", "JobInFull")
    paths: dict[str, Any] = {
        "/v1/jobs": {"get": _operation("jobs", "List jobs.", "Jobs", status, _LIMIT, ends=(422,)), "post": start},
        "/v1/jobs/{id}": {"get": _operation("job", "Show a job and what it asks.", "JobInFull", _NAME, ends=(404,))},
    }
    for op, what in (("abort", "End a job."), ("pause", "Pause a job."), ("resume", "Let a paused job go on."),
                     ("inject", "Send a job's agent a message.")):  # fmt: skip
        model = MessageBody if op == "inject" else ControlBody
        made = _operation(op, what, "Answer", _NAME, body=model, ends=(404, 409, 503))
        paths[f"/v1/jobs/{{id}}/{op}"] = {"post": _or_unconfirmed(made, _TWICE if op == "inject" else _ONCE)}
    return paths


def _open() -> dict[str, Any]:
    """What needs no token: this description, and links."""
    described = {"description": "Done.", "content": {_JSON: {"schema": {"type": "object"}}}}
    page: dict[str, Any] = {"content": {_HTML: {"schema": _TEXT}}}
    pages = {str(status): {"description": _MEANS[status], **page} for status in (403, 404, 409, 410, 422, 503)}
    pages["503"] |= {"headers": _HEADERS[503]}
    done = {"200": {"description": "Done.", **page}}
    link: dict[str, Any] = {"parameters": [_LINK], "security": []}
    sent = {"202": {"description": _SENT + _ONCE, **page}, "413": {"description": _MEANS[413], **page}}
    return {
        "/openapi.json": {
            "get": {"operationId": "openapi", "summary": "This.", "security": [], "responses": {"200": described}}
        },
        "/links/{text}": {
            "get": {"operationId": "look", "summary": "Show what a link decides.", **link, "responses": done | pages},
            "post": {"operationId": "follow", "summary": "Decide.", **link, "responses": done | sent | pages},
        },
    }


_SENT = (
    "Sent, and confirmed by no worker in time (`unconfirmed`). The Temporal server keeps it, and the job looks at it "
    "as soon as a worker is up; what comes of it is seen in the approval or the job. "
)
_ONCE = "Sending it again is harmless: it counts once."
_TWICE = "Do not send it again: that would be a second message."


def _or_unconfirmed(operation: dict[str, Any], again: str = _ONCE) -> dict[str, Any]:
    return {**operation, "responses": {**operation["responses"], "202": _answer(_SENT + again, "Answer")}}


def _operation(
    name: str,
    summary: str,
    answer: str,
    *parameters: Any,
    body: type[Body] | None = None,
    ends: tuple[int, ...] = (),
    ok: str = "200",
) -> dict[str, Any]:
    more = (400, 408, 413, 415, 422) if body else ()
    problems = {str(status): _problem(status) for status in sorted({400, 401, 403, *ends, *more})}
    made: dict[str, Any] = {"operationId": name, "summary": summary, "parameters": list(parameters)}
    if body:
        made["requestBody"] = {"required": True, "content": _content(_JSON, body.__name__)}
    return {**made, "responses": {ok: _answer("Done.", answer), **problems}}


def _answer(what: str, schema: str) -> dict[str, Any]:
    return {"description": what, "content": _content(_JSON, schema)}


def _problem(status: int) -> dict[str, Any]:
    told = {"headers": _HEADERS[status]} if status in _HEADERS else {}
    return {"description": _MEANS[status], **told, "content": _content(_PROBLEM, "Problem")}


def _content(kind: str, schema: str) -> dict[str, Any]:
    return {kind: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
