"""The table of what the gateway does: its addresses, what they take, give and need, and who does it."""

from functools import cache
from typing import Any

from starlette.responses import Response

from loom_gateway import pages, schemas
from loom_gateway.openapi import Operation, StatusReply, description
from loom_gateway.responses import STATUS
from loom_gateway.service import Service


@cache
def _described(url: str) -> dict[str, Any]:
    return description(OPERATIONS, url)


async def _openapi(service: Service) -> dict[str, Any]:
    return _described(service.url)


async def _start(service: Service, by: str, said: schemas.JobBody) -> StatusReply:
    row, fresh = await service.start(by, said)
    return StatusReply(row, 201 if fresh else 200, {"Location": f"/v1/jobs/{row['job']}"})


async def _look(service: Service, text: str) -> Response:
    return pages.question(*await service.linked(text))


async def _follow(service: Service, text: str) -> Response:
    link, answer = await service.follow(text)
    return pages.done(link, answer, STATUS[answer.verdict])


_SENT = (
    "Sent, and confirmed by no worker in time (`unconfirmed`). The Temporal server keeps it, and the job looks at it "
    "as soon as a worker is up; what comes of it is seen in the approval or the job. "
)
_ONCE = {202: f"{_SENT}Sending it again is harmless: it counts once."}
_TWICE = {202: f"{_SENT}Do not send it again: that would be a second message."}
_APPROVAL, _JOB = "/v1/approvals/{id}", "/v1/jobs/{id}"
_DECIDED, _OVER = (404, 409, 410), (404, 409, 503)
_NO_LINK = (403, 404, 409, 410, 422, 503)

# fmt: off
OPERATIONS = (
    Operation(name="openapi", method="get", path="/openapi.json", summary="This.", run=_openapi,
              gives=schemas.Description, open=True),
    Operation(name="approvals", method="get", path="/v1/approvals", summary="List approvals.",
              run=Service.approvals, takes=schemas.ApprovalsQuery, gives=schemas.Approvals),
    Operation(name="approval", method="get", path=_APPROVAL, summary="Show one, with its arguments.",
              run=Service.approval, gives=schemas.ApprovalDetail, refusals=(404,)),
    Operation(name="decide", method="post", path=f"{_APPROVAL}/decision", summary="Decide it.", run=Service.decide,
              takes=schemas.DecisionBody, gives=schemas.Acknowledgement, also=_ONCE, refusals=(*_DECIDED, 503)),
    Operation(name="links", method="post", path=f"{_APPROVAL}/links", run=Service.make_links,
              summary="Make links that approve or reject it once, and need no token.",
              takes=schemas.LinksBody, gives=schemas.Links, status=201, refusals=_DECIDED),
    Operation(name="jobs", method="get", path="/v1/jobs", summary="List jobs.", run=Service.jobs,
              takes=schemas.JobsQuery, gives=schemas.Jobs),
    Operation(name="start", method="post", path="/v1/jobs", summary="Start a job of an agent.", run=_start,
              takes=schemas.JobBody, gives=schemas.JobDetail, status=201,
              also={200: "It had been started by such a request before."}, refusals=_OVER),
    Operation(name="job", method="get", path=_JOB, summary="Show a job and what it asks.", run=Service.job,
              gives=schemas.JobDetail, refusals=(404,)),
    Operation(name="abort", method="post", path=f"{_JOB}/abort", summary="End a job.", run=Service.abort,
              takes=schemas.ControlBody, gives=schemas.Acknowledgement, right="abort", also=_ONCE, refusals=_OVER),
    Operation(name="pause", method="post", path=f"{_JOB}/pause", summary="Pause a job.", run=Service.pause,
              takes=schemas.ControlBody, gives=schemas.Acknowledgement, right="pause", also=_ONCE, refusals=_OVER),
    Operation(name="resume", method="post", path=f"{_JOB}/resume", summary="Let a paused job go on.",
              run=Service.resume, takes=schemas.ControlBody, gives=schemas.Acknowledgement, right="pause", also=_ONCE,
              refusals=_OVER),
    Operation(name="inject", method="post", path=f"{_JOB}/inject", summary="Send a job's agent a message.",
              run=Service.inject, takes=schemas.MessageBody, gives=schemas.Acknowledgement, right="inject", also=_TWICE,
              refusals=_OVER),
    Operation(name="look", method="get", path="/links/{text}", summary="Show what a link decides.", run=_look,
              open=True, refusals=_NO_LINK),
    Operation(name="follow", method="post", path="/links/{text}", summary="Decide.", run=_follow, open=True,
              also=_ONCE, refusals=_NO_LINK),
)
# fmt: on
