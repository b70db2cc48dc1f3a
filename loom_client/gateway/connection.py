"""A connection of the gateway: what HTTP itself refuses is told as a problem, too."""

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from loom_client.gateway.answers import PROBLEM, SAFE, SOON, Problem, problem, problem_text

MOST_AT_ONCE = 200
"""Connections, and requests under way, beyond which requests are refused."""


class Connection(H11Protocol):
    """HTTP/1.1, as uvicorn speaks it, with our own words for refusals."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answer, self.app = self.app, self._if_not_too_many

    async def _if_not_too_many(self, scope: Any, receive: Any, send: Any) -> None:
        if max(len(self.connections), len(self.tasks)) <= MOST_AT_ONCE:
            await self._answer(scope, receive, send)
            return
        busy = problem(Problem(503, "too many requests at once; try again", after=SOON))
        busy.headers["Connection"] = "close"
        await busy(scope, receive, send)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP request, and close the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is under way
            self.transport.close()
            return
        text = problem_text(Problem(400, "this is no HTTP/1.1 request, or its headers are too long"))
        headers = {**SAFE, "Content-Type": PROBLEM, "Content-Length": str(len(text)), "Connection": "close"}
        answer = h11.Response(status_code=400, reason=b"Bad Request", headers=list(headers.items()))
        for event in (answer, h11.Data(data=text), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
