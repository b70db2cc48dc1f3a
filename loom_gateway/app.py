"""The gateway's addresses: who asks is checked first, then what, then the desk does it."""

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from loom_client.server.errors import is_away
from loom_dsl.approvals.decision import problem_of
from loom_dsl.errors import LoomError
from loom_gateway import pages
from loom_gateway.links import LINKED
from loom_gateway.openapi import description
from loom_gateway.responses import LATER, STATUS, Problem, body, document, json_body, problem, problem_for
from loom_gateway.schemas import Body, ControlBody, DecisionBody, JobBody, LinksBody, MessageBody
from loom_gateway.service import Service
from loom_gateway.tokens import Tokens

MAX_LISTED = 500
MAX_DETAIL = 500
"""Characters of what is wrong with a body: the path to a mistake in it can be as long as the body."""
Handler = Callable[[Request], Awaitable[Response]]
Known = Callable[[Request, str], Awaitable[Response]]
"""Answers a request of a person whose token was checked."""
B = TypeVar("B", bound=Body)


class Gateway:
    """The gateway as an ASGI application.

    Args:
        desk: What does the work.
        tokens: Who may come in.
        url: How others reach it, without a slash at the end; links begin with it.
    """

    def __init__(self, desk: Service, tokens: Tokens, url: str) -> None:
        self._desk, self._tokens, self._url = desk, tokens, url

    def app(self) -> Starlette:
        """Give the application."""
        known, asked, job = self._known, "/v1/approvals/{id}", "/v1/jobs/{id}"
        routes = [
            _route("/openapi.json", get=_guarded(self._openapi)),
            _route("/v1/approvals", get=known(self._approvals)),
            _route(asked, get=known(self._approval)),
            _route(f"{asked}/decision", post=known(self._decide)),
            _route(f"{asked}/links", post=known(self._links)),
            _route("/v1/jobs", get=known(self._jobs), post=known(self._start)),
            _route(job, get=known(self._job)),
            *(_route(f"{job}/{op}", post=known(self._control(op))) for op in _OPS),
            _route("/links/{text}", get=_guarded(self._ask, pages.refused), post=_guarded(self._follow, pages.refused)),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _not_here})
        app.router.redirect_slashes = False  # where to would be what the request says of its host
        return app

    def _known(self, handler: Known) -> Handler:
        async def answer(request: Request) -> Response:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            by = self._tokens.owner(given.strip()) if scheme.lower() == "bearer" else None
            if by is None:
                raise Problem(401, "send `Authorization: Bearer TOKEN` with a token that counts")
            self._desk.check_known(by)
            return await handler(request, by)

        return _guarded(answer)

    # -- approvals ---------------------------------------------------------------------------------

    async def _approvals(self, request: Request, by: str) -> Response:
        status = _choice(request, "status", ("pending", "all"), "pending")
        job, limit = request.query_params.get("job"), _limit(request)
        rows = await self._desk.approvals(job, None if status == "all" else status, limit)
        return document({"approvals": rows})

    async def _approval(self, request: Request, by: str) -> Response:
        return document(await self._desk.approval(request.path_params["id"]))

    async def _decide(self, request: Request, by: str) -> Response:
        said = await _read(request, DecisionBody)
        return _answered(await self._desk.decide(by, request.path_params["id"], said))

    async def _links(self, request: Request, by: str) -> Response:
        made = await self._desk.make_links(by, request.path_params["id"], await _read(request, LinksBody))
        urls = {choice: f"{self._url}/links/{made[choice]}" for choice in LINKED if choice in made}
        return document({**urls, "expires_at": datetime.fromtimestamp(made["expires"], UTC).isoformat()}, 201)

    # -- jobs --------------------------------------------------------------------------------------

    async def _jobs(self, request: Request, by: str) -> Response:
        status = _choice(request, "status", JOB_STATUSES, None)
        return document({"jobs": await self._desk.jobs(status, _limit(request))})

    async def _start(self, request: Request, by: str) -> Response:
        row, fresh = await self._desk.start(by, await _read(request, JobBody))
        answer = document(row, 201 if fresh else 200)
        answer.headers["Location"] = f"/v1/jobs/{row['job']}"
        return answer

    async def _job(self, request: Request, by: str) -> Response:
        return document(await self._desk.job(request.path_params["id"]))

    def _control(self, op: str) -> Known:
        model: type[ControlBody] | type[MessageBody] = MessageBody if op == "inject" else ControlBody

        async def answer(request: Request, by: str) -> Response:
            return _answered(await self._desk.control(by, request.path_params["id"], op, await _read(request, model)))

        return answer

    # -- without a token ---------------------------------------------------------------------------

    async def _openapi(self, request: Request) -> Response:
        return document(description(self._url))

    async def _ask(self, request: Request) -> Response:
        return pages.question(*await self._desk.linked(request.path_params["text"]))

    async def _follow(self, request: Request) -> Response:
        await body(request)
        link, answer = await self._desk.follow(request.path_params["text"])
        return pages.done(link, answer, STATUS[answer["verdict"]])


JOB_STATUSES = ("running", "completed", "failed", "aborted", "lost", "halted")
_OPS = ("abort", "pause", "resume", "inject")


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
            print(f"gateway: {type(error).__name__}: {str(error)[:300]!r}", file=sys.stderr, flush=True)
            return show(Problem(500, "something went wrong here; it is in the gateway's log"))

    return answer


async def _not_here(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    found = Problem(status, "there is no such address" if status == 404 else "this address has other methods")
    answer = problem(found)
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    return answer


def _answered(answer: dict[str, str]) -> Response:
    return document(answer, STATUS[answer["verdict"]])


async def _read(request: Request, model: type[B]) -> B:
    try:
        return model.model_validate(await json_body(request))
    except ValidationError as error:
        raise Problem(422, problem_of(error)[:MAX_DETAIL], "invalid") from None


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "100")
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and 1 <= int(text) <= MAX_LISTED):
        raise Problem(422, f"`limit` is a number from 1 to {MAX_LISTED}")
    return int(text)


def _choice(request: Request, name: str, choices: tuple[str, ...], default: str | None) -> str | None:
    text = request.query_params.get(name, default)
    if text is not None and text not in choices:
        raise Problem(422, f"`{name}` is one of {', '.join(choices)}")
    return text
