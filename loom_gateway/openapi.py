"""What an operation of the gateway is, and the description in OpenAPI 3.1 that a table of them gives."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from loom_dsl.permissions.roles import Right
from loom_gateway.responses import PROBLEM, REFUSALS
from loom_gateway.schemas import ProblemDetails


class StatusReply(NamedTuple):
    """What an operation gives where its status is not the usual one, or headers go with it."""

    value: Any
    status: int
    headers: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked of the gateway.

    Attributes:
        name: Its `operationId`.
        method: `get` or `post`.
        path: Its address, with the name of its parameter in braces.
        summary: What it does.
        run: Does it: with the service, the person (of a `post`, unless it is open), the parameter of the path, and what
            the request says, as far as there is any. Gives what fits `gives`, a `StatusReply` with that, or a page.
        takes: Reads what the request says: the body of a `post`, the query of a `get`.
        gives: What the answer holds; None: it is a page.
        open: Whether it needs no token.
        right: What a role must allow; None: the service looks at what is asked, or anybody with a role may.
        status: Of the usual answer.
        also: What other statuses of an answer mean.
        refusals: Statuses of refusals, besides those that follow from the rest.
    """

    name: str
    method: str
    path: str
    summary: str
    run: Callable[..., Awaitable[Any]]
    takes: type[BaseModel] | None = None
    gives: type[BaseModel] | None = None
    open: bool = False
    right: Right | None = None
    status: int = 200
    also: Mapping[int, str] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()


_TEXT = {"type": "string"}
_JSON, _HTML = "application/json", "text/html"
_REFERENCE = "#/components/schemas/{model}"
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"required": True, "schema": _TEXT}},
    429: {
        "Retry-After": {
            "description": "After so many seconds the address may send a token again.",
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
    },
    503: {
        "Retry-After": {
            "description": "After so many seconds the same request may be taken. Absent: not by waiting alone.",
            "schema": {"type": "integer", "minimum": 1},
        }
    },
}
"""Headers that a refusal has."""


def description(operations: Sequence[Operation], url: str) -> dict[str, Any]:
    """Describe the gateway that does these operations and is reached at a URL."""
    models: list[type[BaseModel] | None] = [ProblemDetails]
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
        models += [operation.gives, operation.takes if operation.method == "post" else None]
    used = dict.fromkeys(model for model in models if model is not None)
    _, schemas = models_json_schema([(model, "validation") for model in used], ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Loom's gateway", "version": "1", "description": "Approvals and jobs of Loom."},
        "servers": [{"url": url}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    has_body = operation.method == "post" and operation.takes is not None
    implied = {408, 413} if operation.method == "post" else set()
    implied |= set() if operation.open else {400, 401, 403, 429}
    implied |= {400, 415} if has_body else set()
    implied |= {422} if operation.takes else set()
    done = {operation.status: "Done.", **operation.also}
    answers = {status: _answer(operation, what) for status, what in done.items()}
    refusals = {status: _refusal(operation, status) for status in sorted(implied | set(operation.refusals))}
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        **({"description": f"Needs a role with `{operation.right}: true`."} if operation.right else {}),
        **({"security": []} if operation.open else {}),
        "parameters": _parameters(operation),
        **({"requestBody": {"required": True, "content": _content(_JSON, operation.takes)}} if has_body else {}),
        "responses": {str(status): said for status, said in {**answers, **refusals}.items()},
    }


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    named: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}}
        for name in re.findall("{(.+?)}", operation.path)
    ]
    if operation.method == "get" and operation.takes:
        for name, schema in operation.takes.model_json_schema()["properties"].items():
            said = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
            named.append({"name": name, "in": "query", "description": said.pop("description"), "schema": said})
    return named


def _answer(operation: Operation, what: str) -> dict[str, Any]:
    return {"description": what, "content": _content(_JSON if operation.gives else _HTML, operation.gives)}


def _refusal(operation: Operation, status: int) -> dict[str, Any]:
    told = {"headers": _HEADERS[status]} if status in _HEADERS else {}
    kind, model = (PROBLEM, ProblemDetails) if operation.gives else (_HTML, None)
    return {"description": REFUSALS[status][1], **told, "content": _content(kind, model)}


def _content(kind: str, model: type[BaseModel] | None) -> dict[str, Any]:
    """What has no model is a page."""
    schema = _TEXT if model is None else {"$ref": _REFERENCE.format(model=model.__name__)}
    return {kind: {"schema": schema}}
