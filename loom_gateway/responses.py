"""What the gateway answers: JSON, problem documents (RFC 9457) and the headers that all answers have."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from loom_dsl.errors import ConfigurationError, ConflictError, DecisionRefused, LoomError, NotFoundError, UserError
from loom_dsl.text.canonical import MAX_NESTING, read_json
from loom_gateway.schemas import ProblemDetails

SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
"""On every answer: nothing of it is kept, passed on, or shown inside another page."""
PROBLEM = "application/problem+json"
MAX_BODY = 64 * 1024
BODY_SECONDS = 10
STATUS = {
    "recorded": 200,
    "already_done": 200,
    "unconfirmed": 202,
    "not_allowed": 403,
    "unsigned": 403,
    "bad_signature": 403,
    "key_unknown": 403,
    "key_revoked": 403,
    "key_expired": 403,
    "wrong_person": 403,
    "wrong_job": 403,
    "signature_expired": 403,
    "replayed": 409,
    "unverifiable": 503,
    "unknown": 404,
    "already_decided": 409,
    "ended": 409,
    "expired": 410,
    "wrong_digest": 422,
    "invalid": 422,
    "full": 503,
    "retry": 503,
}
"""HTTP status of each verdict."""
SOON, LATER = 1, 10
"""Seconds after which what was not taken may be sent again: when the job is between two runs, and when something is
full, busy or away."""
AFTER = {"retry": SOON, "full": LATER}
"""The same for verdicts. What is not here is no matter of time alone."""
REFUSALS = {
    400: ("Not readable", "What was sent is no JSON, or no request."),
    401: ("Who are you?", "No token that counts was sent."),
    403: (
        "Not allowed",
        "No role of yours allows it, or the job says that you may not decide, or that a signature does not count.",
    ),
    404: ("Not found", "There is none of this id, or the job does not wait for it any more."),
    405: ("Not a method of this address", "this address has other methods"),
    408: ("Too slow", "The body did not come in time."),
    409: ("Already decided, taken or over", "Somebody else decided, the job has ended, or the id is another job's."),
    410: ("Expired", "The time was over."),
    413: ("Too large", "The body is larger than 64 KiB."),
    415: ("Not JSON", "The body is not `application/json`."),
    422: (
        "Not valid",
        "The body or a parameter is not valid, or is about something else than what is asked (`wrong_digest`).",
    ),
    429: ("Too many tries", "Too many tokens that do not count came from this address."),
    500: ("Our mistake", "something went wrong here; it is in the gateway's log"),
    503: (
        "Not now",
        "It was not taken. With `Retry-After` send it again after so many seconds: the job is between two runs "
        "(`retry`), has as many messages waiting as it keeps (`full`), or the Temporal server, the store or this "
        "gateway is busy or away. Without it somebody must do something first, such as give the workers keys "
        "(`unverifiable`).",
    ),
}
"""What the status of a refusal means, in few words and in many; `verdict` says which it is where there are several."""


class Problem(LoomError):
    """The gateway does not do what is asked.

    Attributes:
        status: The HTTP status.
        verdict: What the job says to it, as of the update `loom.decide`.
        after: Seconds after which the same request may be taken; None: not by waiting alone.
        mistake: The code of a mistake of the gateway's own.
    """

    code = "gateway_refused"

    def __init__(
        self, status: int, message: str, verdict: str = "", after: int | None = None, mistake: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.verdict, self.after = status, verdict, after or AFTER.get(verdict)
        self.mistake = mistake

    @property
    def headers(self) -> dict[str, str]:
        """What the answer has besides `SAFE`."""
        who = {"WWW-Authenticate": 'Bearer realm="loom"'} if self.status == 401 else {}
        return who | ({"Retry-After": str(self.after)} if self.after else {})


def document(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON."""
    return Response(json.dumps(value).encode(), status, {**SAFE, **(headers or {})}, "application/json")


def problem(found: Problem) -> Response:
    """Answer with a problem document."""
    return Response(problem_text(found), found.status, {**SAFE, **found.headers}, PROBLEM)


def problem_text(found: Problem) -> bytes:
    """Write a problem document."""
    details = ProblemDetails(
        title=title_of(found),
        status=found.status,
        detail=found.message,
        verdict=found.verdict,
        code=found.mistake,
    )
    return json.dumps(details.model_dump(exclude_defaults=True)).encode()


def title_of(found: Problem) -> str:
    """Say in few words what a status means."""
    return REFUSALS.get(found.status, ("Refused", ""))[0]


def problem_for(error: LoomError) -> Problem:
    """Say in HTTP what went wrong."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, DecisionRefused):
        return Problem(STATUS.get(error.verdict, 409), error.message, error.verdict)
    if isinstance(error, ConfigurationError):
        return Problem(503, "the Temporal server cannot be reached; try again later", after=LATER)
    kinds: tuple[tuple[type[LoomError], int], ...] = ((NotFoundError, 404), (ConflictError, 409), (UserError, 422))
    if found := next((status for kind, status in kinds if isinstance(error, kind)), None):
        return Problem(found, error.message)
    # What has no class of its own is said by the Temporal server, such as that it is too busy.
    return Problem(503, error.message, after=LATER if error.retryable or type(error) is LoomError else None)


def log(what: str) -> None:
    """Tell the operator, who alone may know."""
    print(f"gateway: {what}", file=sys.stderr, flush=True)


async def json_body(request: Request) -> dict[str, Any]:
    """Read a request's body: one JSON object of at most 64 KiB.

    Raises:
        Problem: It is something else.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "send the body as application/json")
    text = await body(request)
    try:
        value = read_json(text.decode(), object_pairs_hook=_object, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # a lone surrogate is no text, 1e999 no number
    except ValueError:
        what = f"the body is not JSON, has a key twice, or is nested over {MAX_NESTING} levels deep"
        raise Problem(400, what) from None
    if not isinstance(value, dict):
        raise Problem(422, "the body must be a JSON object")
    return value


async def body(request: Request) -> bytes:
    """Read a request's body of at most 64 KiB.

    Raises:
        Problem: It is larger, or too slow.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > MAX_BODY:
        raise Problem(413, "the body is larger than 64 KiB")
    read = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                read += part
                if len(read) > MAX_BODY:
                    raise Problem(413, "the body is larger than 64 KiB")
    except TimeoutError:
        raise Problem(408, f"the body did not come within {BODY_SECONDS} s") from None
    return bytes(read)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(name)
