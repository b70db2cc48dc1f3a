"""The approvals that wait: without those of jobs that are gone, and the one that a user means."""

import asyncio
from operator import methodcaller
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_client.settings import Settings
    from loom_store.store import Store
    from loom_store.transaction import Transaction


MAX_JOBS = 100
"""So many jobs are looked up on the server before a list is shown."""
SERVER_SECONDS = 3.0
"""A list waits at most so long for the server; without an answer it shows what the store has."""


async def waiting(
    store: "Store", settings: "Settings", job: str | None = None, *, below: bool = False
) -> list[dict[str, Any]]:
    """Give the approvals that wait. What jobs asked that the server has ended is withdrawn first.

    Args:
        store: Where they are.
        settings: The server; a list is shown without it, too.
        job: Only those of this job.
        below: Also those of the jobs below it.
    """
    rows = await store.read(lambda tx: tx.approvals(status="pending", job=job, below=below))
    if rows and await _settle(store, settings, list(dict.fromkeys(row["job"] for row in rows))[:MAX_JOBS]):
        rows = await store.read(lambda tx: tx.approvals(status="pending", job=job, below=below))
    return await store.read(lambda tx: [row for row in rows if not _is_lost(tx, row["job"])])


def _is_lost(tx: "Transaction", job: str) -> bool:
    """Whether nobody can decide what a job asked, as the server does not know it."""
    from loom_client.server.liveness import LOST

    row = tx.job(job)
    return row is not None and row["status"] == LOST


async def _settle(store: "Store", settings: "Settings", jobs: list[str]) -> bool:
    """Settle the jobs that have ended on the server; whether there were any."""
    from loom_client.connection import temporal
    from loom_client.server.reconcile import has_closed, settle_lost
    from loom_dsl.errors import LoomError

    there = settings.model_copy(update={"connect_seconds": min(settings.connect_seconds, 1.0)})
    try:
        async with asyncio.timeout(SERVER_SECONDS):
            client = await temporal(there, store)
            closed = await asyncio.gather(*(has_closed(client, job) for job in jobs))
            gone = [job for job, ended in zip(jobs, closed, strict=True) if ended]
            return any([await settle_lost(client, store, job) for job in gone])
    except (LoomError, TimeoutError):
        return False


async def chosen(store: "Store", settings: "Settings", names: list[str]) -> tuple[dict[str, Any], bool]:
    """Give the approval that is meant: by both ids, by one of them, or the only one that waits.

    Returns:
        The approval, and whether its own id was given.

    Raises:
        UserError: None is meant, or more than one could be; lists them.
    """
    from loom_cli.opening import find_job
    from loom_dsl.errors import NotFoundError, UserError

    if names and (row := await _by_id(store, names)) is not None:
        return still_open(row), True
    job = names[0] if names and (len(names) == 2 or not names[0].startswith("ap_")) else None
    if job is not None:
        await find_job(store, job)
    rows = await waiting(store, settings, job)
    if len(names) == 2 or (names and job is None):
        raise NotFoundError(f"there is no approval {names[-1]!r}; {_listed(rows)}")
    if len(rows) == 1:
        return rows[0], False
    if not rows:
        where = f" in job {job}" if job else ""
        below = await _asked_below(store, job) if job else []
        other = f"but below it:\n{_lines(below)}" if below else "`loom approvals --all` lists them all"
        raise NotFoundError(f"no approval waits{where}{', ' if below else '; '}{other}")
    raise UserError(f"{len(rows)} approvals wait; say which one:\n{_lines(rows)}")


async def _by_id(store: "Store", names: list[str]) -> dict[str, Any] | None:
    """Give the approval that the last of one or two names is the id of; the other one is its job."""
    from loom_dsl.errors import NotFoundError, UserError

    if len(names) > 2:
        raise UserError(f"give at most a job and an approval, not {len(names)} names")
    row = await store.read(lambda tx: tx.approval(names[-1]))
    if row is not None and row["job"] != names[0] and len(names) == 2:
        raise NotFoundError(f"approval {row['id']} belongs to job {row['job']}, not to {names[0]}")
    return row


async def named(store: "Store", settings: "Settings", names: list[str]) -> list[dict[str, Any]]:
    """Give the approvals that are to be seen: one by its id, also when it is decided, or those that wait in a job.

    Raises:
        NotFoundError: There is none of this name.
        UserError: More is named than a job and an approval.
    """
    from loom_cli.opening import find_job
    from loom_dsl.errors import NotFoundError

    if (row := await _by_id(store, names)) is not None:
        return [row]
    if len(names) == 2 or names[0].startswith("ap_"):
        raise NotFoundError(f"there is no approval {names[-1]!r}; {_listed(await waiting(store, settings))}")
    await find_job(store, names[0])
    rows = await waiting(store, settings, names[0], below=True)
    if not rows:
        raise NotFoundError(f"no approval waits in job {names[0]}; `loom approvals --all` lists them all")
    return rows


async def _asked_below(store: "Store", job: str) -> list[dict[str, Any]]:
    """Give what the child jobs of a job ask, and theirs: each is decided under its own name."""
    children = await store.read(lambda tx: tx.jobs_below(job))
    names = {child["job"] for child in children if not child["ended_at"]}
    asked = await store.read(lambda tx: tx.approvals(status="pending")) if names else []
    return [row for row in asked if row["job"] in names]


async def several(store: "Store", settings: "Settings", names: list[str], every: bool) -> list[dict[str, Any]]:
    """Give the approvals that are meant: those of these ids, or with `every` all that wait in a job.

    Args:
        store: Where they are.
        settings: The server.
        names: A job, ids of approvals, or a job and ids of its approvals.
        every: All that wait in the job that is named.

    Raises:
        UserError: None is meant, or one of them is not there, or not that job's.
    """
    from loom_cli.opening import find_job
    from loom_dsl.errors import NotFoundError, UserError

    found = [await store.read(methodcaller("approval", name)) for name in names]
    job = names[0] if names and found[0] is None else None
    if job is not None:
        await find_job(store, job)
    ids = [(name, row) for name, row in zip(names, found, strict=True) if job is None or name is not names[0]]
    if every:
        if job is None or ids:
            raise UserError("--all takes a job, and no approvals: it is all that wait there")
        rows = await waiting(store, settings, job)
        if not rows:
            raise NotFoundError(f"no approval waits in job {job}")
        return rows
    meant = {}
    for name, row in ids:
        if row is None:
            raise NotFoundError(f"there is no approval {name!r}; {_listed(await waiting(store, settings, job))}")
        if job is not None and row["job"] != job:
            raise NotFoundError(f"approval {name} belongs to job {row['job']}, not to {job}")
        meant[name] = row
    return list(meant.values())


def still_open(row: dict[str, Any]) -> dict[str, Any]:
    """Give an approval that waits.

    Raises:
        DecisionRefused: It is decided.
    """
    from loom_dsl.errors import DecisionRefused

    if row["status"] != "pending":
        by = f" by {row['by']}" if row.get("by") else ""
        verdict = "expired" if row["status"] == "expired" else "already_decided"
        raise DecisionRefused(f"approval {row['id']} is already decided: {row['status']}{by} at {row['at']}", verdict)
    return row


def _listed(rows: list[dict[str, Any]]) -> str:
    return f"those that wait are:\n{_lines(rows)}" if rows else "none waits"


def _lines(rows: list[dict[str, Any]]) -> str:
    from loom_dsl.text.confusables import revealed
    from loom_dsl.text.printable import one_line

    return "\n".join(
        f"  {row['job']} {row['id']}  {revealed(one_line(row['summary'] or row['tool'], 80))}" for row in rows
    )
