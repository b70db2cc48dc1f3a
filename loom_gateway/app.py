"""The gateway as an ASGI application: who asks is checked first, then what, then the service does it."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from loom_client.records import Receipt
from loom_client.server.errors import is_away
from loom_dsl.approvals.decision import problem_of
from loom_dsl.errors import LoomError
from loom_gateway import pages
from loom_gateway.attempts import Attempts
from loom_gateway.openapi import Operation, StatusReply
from loom_gateway.operations import OPERATIONS
from loom_gateway.responses import (
    LATER,
    REFUSALS,
    STATUS,
    Problem,
    body,
    document,
    json_body,
    log,
    problem,
    problem_for,
)
from loom_gateway.service import Service
from loom_gateway.tokens import Tokens

MAX_DETAIL = 500
"""Characters of what is wrong with a body: the path to a mistake in it can be as long as the body."""
UNKNOWN = "send `Authorization: Bearer TOKEN` with a token that counts"
Handler = Callable[[Request], Awaitable[Response]]


def application(service: Service, tokens: Tokens) -> Starlette:
    """Give the application.

    Args:
        service: What does the work.
        tokens: Who may come in.
    """
    paths: dict[str, dict[str, Handler]] = {}
    door = _Door(service, tokens)
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _handler(operation, service, door)
    routes = [_route(path, **handlers) for path, handlers in paths.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _not_here})
    app.router.redirect_slashes = False  # where to would be what the request says of its host
    return app


def _handler(operation: Operation, service: Service, door: "_Door") -> Handler:
    async def answer(request: Request) -> Response:
        by = [] if operation.open else [door.person(request, operation)]
        said = await _said(request, operation)
        given = await operation.run(
            service, *(by if operation.method == "post" else []), *request.path_params.values(), *said
        )
        return given if operation.gives is None else answered(operation, operation.gives, given)

    return _guarded(answer, problem if operation.gives else pages.refused)


class _Door:
    """Looks who asks, and keeps out for a while who has sent too many tokens that do not count."""

    def __init__(self, service: Service, tokens: Tokens) -> None:
        self._service, self._tokens, self._attempts = service, tokens, Attempts()

    def person(self, request: Request, operation: Operation) -> str:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        token, address = given.strip(), request.client.host if request.client else ""
        if scheme.lower() != "bearer" or not token:
            raise Problem(401, UNKNOWN)
        if wait := self._attempts.wait(address, token):
            raise Problem(429, "too many tokens that do not count came from this address; wait", after=wait)
        by = self._tokens.owner(token)
        if by is None:
            self._attempts.failed(address, token)
            raise Problem(401, UNKNOWN)
        self._attempts.succeeded(address, token)
        self._service.check_known(by, operation.right)
        return by


async def _said(request: Request, operation: Operation) -> list[BaseModel]:
    """Read what a request says, if it is to say anything; another body is read and passed over."""
    if operation.takes is None:
        if operation.method == "post":
            await body(request)
        return []
    given = await json_body(request) if operation.method == "post" else dict(request.query_params)
    try:
        return [operation.takes.model_validate(given)]
    except ValidationError as error:
        raise Problem(422, problem_of(error)[:MAX_DETAIL], "invalid") from None


def answered(operation: Operation, model: type[BaseModel], given: Any) -> Response:
    """Answer with what an operation has given.

    Raises:
        Problem: It does not fit the model by which the answer is described: a mistake of ours, and nothing of it is
            sent.
    """
    if isinstance(given, Receipt):
        given = StatusReply(given.model_dump(), STATUS[given.verdict])
    elif not isinstance(given, StatusReply):
        given = StatusReply(given, operation.status)
    try:
        reply = model.model_validate(given.value)
    except ValidationError as error:
        log(f"the answer of {operation.name} does not fit {model.__name__}: {problem_of(error)[:MAX_DETAIL]}")
        raise Problem(500, REFUSALS[500][1], mistake="unfit_answer") from None
    return document(reply.model_dump(by_alias=True, exclude_unset=True), given.status, given.headers)


def _route(path: str, **handlers: Handler) -> Route:
    """Answer a path's methods; the others are told which it has."""

    async def answer(request: Request) -> Response:
        return await handlers["get" if request.method == "HEAD" else request.method.lower()](request)

    return Route(path, answer, methods=[name.upper() for name in handlers])


def _guarded(handler: Handler, show: Callable[[Problem], Response] = problem) -> Handler:
    """Tell every failure as a problem, and nothing of how it came about."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except LoomError as error:
            return show(problem_for(error))
        except ClientDisconnect:
            raise
        except Exception as error:
            if is_away(error):
                return show(Problem(503, "the Temporal server cannot be reached; try again later", after=LATER))
            log(f"{type(error).__name__}: {str(error)[:300]!r}")
            return show(Problem(500, REFUSALS[500][1], mistake="internal_error"))

    return answer


async def _not_here(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    answer = problem(Problem(status, "there is no such address" if status == 404 else REFUSALS[405][1]))
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    return answer
