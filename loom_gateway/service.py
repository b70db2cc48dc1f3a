"""What the gateway does for a person whose token it has checked: as far as that person's roles go."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from loom_client.client import Loom
from loom_client.edited_arguments import is_repeated
from loom_client.job import JobHandle, with_whole_answer
from loom_client.records import Receipt
from loom_client.start.submission import new_id
from loom_dsl.agent.run import RunResult
from loom_dsl.errors import BlobMissing, ConflictError, NotFoundError
from loom_dsl.machine.decisions.queue import ONCE
from loom_dsl.permissions.roles import Right, Roles, is_known, may, may_decide, may_start
from loom_gateway import links, schemas
from loom_gateway.responses import Problem
from loom_gateway.starts import AGENTS, StartPolicy
from loom_store.job_facts import arguments_of
from loom_store.transaction import Transaction

MAX_SHOWN = 64 * 1024
"""Characters of the preview that are shown."""


class Service:
    """Approvals and jobs, for people with roles.

    Attributes:
        loom: The connection.
        roles: Who may do what.
        key: Signs links; empty: there are none.
        grounds: What jobs may be started with; None: none are started.
        url: How others reach the gateway, without a slash at the end; links begin with it.
    """

    def __init__(
        self, loom: Loom, roles: Roles, key: bytes = b"", grounds: StartPolicy | None = None, url: str = ""
    ) -> None:
        self.loom, self.roles, self.key, self.grounds, self.url = loom, roles, key, grounds, url

    # -- looking -----------------------------------------------------------------------------------

    async def approvals(self, said: schemas.ApprovalsQuery) -> dict[str, Any]:
        """List approvals, the oldest first; of a job also those of the jobs below it."""
        status = None if said.status == "all" else said.status
        return {"approvals": (await self._approvals(said.job, status))[: said.limit]}

    async def approval(self, name: str) -> dict[str, Any]:
        """Give an approval with the arguments and the preview.

        Raises:
            Problem: There is none.
        """
        row = await self.loom.store.read(lambda tx: _with_content(tx, name))
        if row is None:
            raise Problem(404, "there is no approval of this id", "unknown")
        return row

    async def jobs(self, said: schemas.JobsQuery) -> dict[str, Any]:
        """List jobs, the newest first."""
        rows = await self.loom.store.read(lambda tx: tx.jobs(said.limit, said.status))
        return {"jobs": [_shown(row) for row in rows]}

    async def job(self, name: str) -> dict[str, Any]:
        """Give a job, its whole answer, and what it and the jobs below it ask.

        Raises:
            Problem: There is none.
        """
        row = await self._row(name)
        if row is None:
            raise Problem(404, "there is no job of this id")
        result = row["result"]
        if result and "answer" in result:
            whole = await with_whole_answer(self.loom.store, name, RunResult.model_validate(result))
            result = {**result, "answer": whole.answer}
        return {**_shown(row), "result": result, "approvals": await self._approvals(name, "pending")}

    # -- doing -------------------------------------------------------------------------------------

    async def start(self, by: str, said: schemas.JobBody) -> tuple[dict[str, Any], bool]:
        """Start a job of an agent, or find it: the same request with the same id again is the same job.

        Returns:
            The job, and whether this request has made it.

        Raises:
            Problem: The person may not, there is no such agent or directory, or the job's own one holds something
                although there is no such job.
            LoomError: The id is another job's, or the server does not take the job.
        """
        if not may_start(self.roles, by, said.agent, said.directory):
            where = f" in the directory {said.directory}" if said.directory else ""
            raise Problem(403, f"{by} has no role that starts the agent {said.agent}{where}", "not_allowed")
        if self.grounds is None:
            raise Problem(404, f"this gateway starts no jobs; its operator has not set {AGENTS}")
        name = said.job or new_id()
        agent, turn = await asyncio.to_thread(self.grounds.agent, said.agent)
        place, used = await asyncio.to_thread(self.grounds.directory, said.directory, name)
        row = await self._row(name)  # after the directory: a job that writes into it is there by now
        if used and row is None:
            raise Problem(409, f"the directory of job {name} has files of an earlier one; take another id")
        wanted = {"agent": agent.name, "task": said.task, "workdir": str(place)}
        if not _has_ended(row, wanted):
            try:
                await self.loom.start(agent, said.task, workdir=place, job=name, turn=turn, by=by)
            except ConflictError:
                if not _has_ended(await self._row(name), wanted):  # as it may have, just then
                    raise
        return await self.job(name), row is None

    async def decide(self, by: str, name: str, said: schemas.DecisionBody) -> Receipt:
        """Send a decision, and give the job's answer. The same once more is answered so, also when the job is gone.

        Raises:
            Problem: The person may not, or it is over.
            LoomError: The job does not take it.
        """
        if is_repeated(await self.approval(name), by, said.model_dump(exclude_none=True)):
            return Receipt(verdict="already_done", message=f"{said.choice}: {ONCE}")
        row = await self._open(name)
        self._check_role(by, row)
        job = self.loom.job(row["job"])
        try:
            return await job.decide(name, by=by, **said.model_dump(exclude_none=True))
        except NotFoundError:
            await self._open(name)  # it may have been decided meanwhile
            raise Problem(404, "the job does not wait for this any more", "unknown") from None

    async def abort(self, by: str, name: str, said: schemas.ControlBody) -> Receipt:
        """End a job; raises as `_running`."""
        return await (await self._running(name)).abort(by, said.reason)

    async def pause(self, by: str, name: str, said: schemas.ControlBody) -> Receipt:
        """Pause a job; raises as `_running`."""
        return await (await self._running(name)).pause(by, said.reason)

    async def resume(self, by: str, name: str, said: schemas.ControlBody) -> Receipt:
        """Let a paused job go on; raises as `_running`."""
        return await (await self._running(name)).resume(by)

    async def inject(self, by: str, name: str, said: schemas.MessageBody) -> Receipt:
        """Send a job's agent a message; raises as `_running`."""
        return await (await self._running(name)).inject(said.text, when=said.when, by=by)

    async def _running(self, name: str) -> JobHandle:
        """Give a handle on a job that goes on.

        Raises:
            Problem: There is no such job, or it has ended.
        """
        if (await self.job(name))["ended_at"]:
            raise Problem(409, f"job {name} has ended", "ended")
        return self.loom.job(name)

    # -- links -------------------------------------------------------------------------------------

    async def make_links(self, by: str, name: str, said: schemas.LinksBody) -> dict[str, Any]:
        """Make a link for each choice; the person for whom they are decides with them.

        Returns:
            Each, by choice, and until when they count.

        Raises:
            Problem: Somebody may not, it is over, or there is no key.
        """
        if not self.key:
            raise Problem(404, "this gateway has no key for links; set LOOM_GATEWAY_KEY")
        whose = said.for_ or by
        if whose != by and not may(self.roles, by, "links"):
            raise Problem(403, f"{by} has no role with `links: true`, and makes links only for {by}", "not_allowed")
        row = await self._open(name)
        self._check_role(whose, row)
        if row["details"].get("signed"):
            raise Problem(422, "this is decided only by a signed decision, and a link signs nothing", "unsigned")
        expires = time.time() + said.seconds
        made = links.signed_links(self.key, self.url, row, whose, expires)
        if not made:
            raise Problem(422, f"this is answered with {', '.join(row['choices'])}, which no link says", "invalid")
        return {**made, "expires_at": datetime.fromtimestamp(expires, UTC).isoformat()}

    async def linked(self, text: str) -> tuple[links.Link, dict[str, Any]]:
        """Read a link, and give it with its approval.

        Raises:
            Problem: It is not ours, its time is over, it was used, or what it decides is decided.
        """
        link = links.read(self.key, text) if self.key else None
        if link is None:
            raise Problem(404, "this is no link of this gateway, or it was changed")
        if link.expires <= time.time():
            raise Problem(410, "the time of this link is over", "expired")
        row = await self._open(link.approval)
        if _was_used(row, link):
            raise Problem(409, f"{link.by} has answered this already; it waits for others", "already_done")
        self._check_role(link.by, row)
        return link, row

    async def follow(self, text: str) -> tuple[links.Link, Receipt]:
        """Decide as a link says.

        Raises:
            Problem: As `linked`.
            LoomError: The job does not take it.
        """
        link, _ = await self.linked(text)
        return link, await self.decide(
            link.by, link.approval, schemas.DecisionBody(choice=link.choice, digest=link.digest)
        )

    # -- checks ------------------------------------------------------------------------------------

    def check_known(self, name: str, right: Right | None = None) -> None:
        """Refuse people without a role, or without one that has a right.

        Raises:
            Problem: The person has none.
        """
        if not is_known(self.roles, name):
            raise Problem(403, f"{name} has no role in the deployment's policy", "not_allowed")
        if right and not may(self.roles, name, right):
            raise Problem(403, f"{name} has no role with `{right}: true`", "not_allowed")

    async def _row(self, name: str) -> dict[str, Any] | None:
        return await self.loom.store.read(lambda tx: tx.job(name))

    async def _approvals(self, job: str | None, status: str | None) -> list[dict[str, Any]]:
        return await self.loom.store.read(lambda tx: tx.approvals(status, job, below=True))

    async def _open(self, name: str) -> dict[str, Any]:
        row = await self.approval(name)
        if row["status"] == "expired":
            raise Problem(410, f"this approval expired at {row['at']}", "expired")
        if row["status"] != "pending":
            whose = f" by {row['by']}" if row["by"] else ""
            raise Problem(409, f"this approval is already decided: {row['status']}{whose}", "already_decided")
        return row

    def _check_role(self, by: str, row: Mapping[str, Any]) -> None:
        risk = str(row["details"].get("risk", ""))
        if not may_decide(self.roles, by, risk):
            raise Problem(403, f"{by} has no role that decides about a {risk or 'high'} risk", "not_allowed")


def _has_ended(row: Mapping[str, Any] | None, wanted: Mapping[str, str]) -> bool:
    """Whether this very job was there, and is over."""
    return row is not None and bool(row["ended_at"]) and all(row[key] == value for key, value in wanted.items())


def _was_used(row: Mapping[str, Any], link: links.Link) -> bool:
    """Whether the person's vote counts already, where several are needed."""
    changes = row["details"].get("changes", [])
    return any(
        change.get("what") == "vote" and (change.get("by"), change.get("choice")) == (link.by, link.choice)
        for change in changes
    )


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in schemas.Job.model_fields}


def _with_content(tx: Transaction, name: str) -> dict[str, Any] | None:
    row = tx.approval(name)
    if row is None:
        return None
    preview = _text(tx, row["details"].get("preview", ""))
    return {**row, "content": arguments_of(tx, row["arguments_digest"]), "preview": _cut(preview, row["id"])}


def _text(tx: Transaction, name: str) -> str:
    try:
        return tx.get_blob(name).decode("utf-8", "replace") if name else ""
    except BlobMissing:
        return ""


def _cut(preview: str, approval: str) -> str:
    left = len(preview) - MAX_SHOWN
    return (
        preview if left <= 0 else f"{preview[:MAX_SHOWN]}\n... {left} more characters; all: loom approvals {approval}"
    )
