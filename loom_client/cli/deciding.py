"""``loom approvals``, ``approve`` and ``reject``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_client.cli.failures import DONE, guarded, say
from loom_client.cli.options import Address, By, Json, Namespace, StorePath, TaskQueue, settings_of, user_name

if TYPE_CHECKING:
    from loom_store.store import Store

Names = Annotated[
    list[str] | None,
    typer.Argument(help="The job and the approval; may be left out while only one waits.", metavar="[JOB] [APPROVAL]"),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("approvals", help="List the approvals that wait.")(approvals)
    app.command("approve", help="Let a tool call that waits run.")(approve)
    app.command("reject", help="Refuse a tool call that waits; the agent is told and goes on.")(reject)


@guarded
async def approvals(
    job: Annotated[str | None, typer.Option(help="Only those of this job.", metavar="JOB")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are decided.")] = False,
    as_json: Json = False,
    namespace: Namespace = None,
    store: StorePath = None,
) -> int:
    """List approvals."""
    from loom_client.cli.opening import existing_store, find_job
    from loom_client.cli.tables import show_approvals

    with existing_store(settings_of(namespace=namespace, store=store)) as opened_store:
        if job is not None:
            await find_job(opened_store, job)
        status = None if every else "pending"
        rows = await opened_store.read(lambda tx: tx.approvals(status=status, job=job))
        if as_json:
            for row in rows:
                print(json.dumps(row))
        else:
            show_approvals(rows, opened_store, every)
    return DONE


@guarded
async def approve(  # noqa: PLR0913, PLR0917 - each is an option of the command
    names: Names = None,
    remember: Annotated[
        str, typer.Option(help="job: do not ask again in this job for the same tool and path.", metavar="no|job")
    ] = "no",
    edit: Annotated[
        Path | None, typer.Option(help="JSON file with other arguments to run the tool with.", metavar="FILE")
    ] = None,
    by: By = "",
    message: Annotated[str, typer.Option(help="A note that is kept with the decision.")] = "",
    as_json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    store: StorePath = None,
) -> int:
    """Approve."""
    from loom_dsl.errors import UserError

    if remember not in ("no", "job"):
        raise UserError(f"--remember {remember}: write job or no")
    fields: dict[str, Any] = {"message": message, "remember": remember, "by": by or user_name()}
    if edit is not None:
        if remember == "job":
            raise UserError("--edit and --remember job do not go together: what was edited is not asked for again")
        fields["edited_arguments"] = _arguments(edit)
    choice = "edit" if edit is not None else "approve"
    return await _decide((address, namespace, task_queue, store), names or [], choice, fields, as_json)


@guarded
async def reject(
    names: Names = None,
    reason: Annotated[str, typer.Option(help="Why; the agent reads it.")] = "",
    by: By = "",
    as_json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    store: StorePath = None,
) -> int:
    """Reject."""
    fields = {"message": reason, "by": by or user_name()}
    return await _decide((address, namespace, task_queue, store), names or [], "reject", fields, as_json)


async def _decide(
    place: tuple[str | None, str | None, str | None, str | None],
    names: list[str],
    choice: str,
    fields: dict[str, Any],
    as_json: bool,
) -> int:
    from loom_client.cli.opening import existing_store, opened

    settings = settings_of(*place)
    with existing_store(settings) as opened_store:
        row = await chosen(opened_store, names)
    async with opened(settings) as loom:
        said = await loom.job(row["job"]).decide(row["id"], choice, **fields)
    if as_json:
        print(json.dumps({"job": row["job"], "approval": row["id"], "choice": choice, **said}))
        return DONE
    words = {"approve": "approved", "edit": "approved with other arguments", "reject": "rejected"}
    print(f"{words[choice]}: {row['id']} ({row['tool']}) of job {row['job']}")
    if said["verdict"] == "unconfirmed":
        say(said["message"])
    return DONE


async def chosen(store: "Store", names: list[str]) -> dict[str, Any]:
    """Give the approval that is meant: by both ids, by one of them, or the only one that waits.

    Raises:
        UserError: None is meant, or more than one could be; lists them.
    """
    from loom_client.cli.opening import find_job
    from loom_dsl.errors import NotFoundError, UserError

    if len(names) > 2:
        raise UserError(f"give at most a job and an approval, not {len(names)} names")
    if names and (row := await store.read(lambda tx: tx.approval(names[-1]))) is not None:
        if len(names) == 2 and row["job"] != names[0]:
            raise NotFoundError(f"approval {row['id']} belongs to job {row['job']}, not to {names[0]}")
        return _still_open(row)
    job = names[0] if names and (len(names) == 2 or not names[0].startswith("ap_")) else None
    if job is not None:
        await find_job(store, job)
    waiting = await store.read(lambda tx: tx.approvals(status="pending", job=job))
    if len(names) == 2 or (names and job is None):
        raise NotFoundError(f"there is no approval {names[-1]!r}; {_listed(waiting)}")
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        where = f" in job {job}" if job else ""
        raise NotFoundError(f"no approval waits{where}; `loom approvals --all` lists them all")
    raise UserError(f"{len(waiting)} approvals wait; say which one:\n{_lines(waiting)}")


def _still_open(row: dict[str, Any]) -> dict[str, Any]:
    from loom_dsl.errors import ConflictError

    if row["status"] != "pending":
        by = f" by {row['by']}" if row.get("by") else ""
        raise ConflictError(f"approval {row['id']} is already decided: {row['status']}{by} at {row['at']}")
    return row


def _listed(waiting: list[dict[str, Any]]) -> str:
    return f"those that wait are:\n{_lines(waiting)}" if waiting else "none waits"


def _lines(waiting: list[dict[str, Any]]) -> str:
    from loom_client.render.text import one_line

    return "\n".join(f"  {row['job']} {row['id']}  {one_line(row['summary'] or row['tool'], 80)}" for row in waiting)


def _arguments(path: Path) -> dict[str, Any]:
    from loom_dsl.errors import NotFoundError, UserError

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"--edit: there is no file {path}") from None
    except OSError as error:
        raise UserError(f"--edit {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"--edit {path}: this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f'--edit {path}: the arguments must be a JSON object, such as {{"path": "a.txt"}}')
    return value
