"""``loom pause``, ``resume``, ``abort`` and ``inject``."""

import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from loom_client.cli.failures import DONE, guarded, say
from loom_client.cli.options import Address, By, JobName, Json, Namespace, StorePath, TaskQueue, settings_of, user_name

if TYPE_CHECKING:
    from loom_client.job import Job

Place = tuple[str | None, str | None, str | None, str | None]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the job.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pause", help="Stop a job at its next safe point.")(pause)
    app.command("resume", help="Let a paused job go on.")(resume)
    app.command("abort", help="End a job now; what runs is cancelled.")(abort)
    app.command("inject", help="Send a message to the agent of a running job.")(inject)


@guarded
async def pause(
    job: JobName,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    store: StorePath = None,
) -> int:
    """Pause."""
    who = by or user_name()
    done = f"job {job} is paused; go on with `loom resume {job}`"
    return await _steer((address, namespace, task_queue, store), job, lambda j: j.pause(who, reason), done, as_json)


@guarded
async def resume(
    job: JobName,
    by: By = "",
    as_json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    store: StorePath = None,
) -> int:
    """Resume."""
    who = by or user_name()
    return await _steer(
        (address, namespace, task_queue, store), job, lambda j: j.resume(who), f"job {job} goes on", as_json
    )


@guarded
async def abort(
    job: JobName,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    store: StorePath = None,
) -> int:
    """Abort."""
    who = by or user_name()
    done = f"job {job} is being aborted"
    return await _steer((address, namespace, task_queue, store), job, lambda j: j.abort(who, reason), done, as_json)


@guarded
async def inject(  # noqa: PLR0913, PLR0917 - each is an option of the command
    job: JobName,
    text: Annotated[str, typer.Argument(help="The message; - reads it from standard input.")],
    when: Annotated[
        str, typer.Option(help="asap: before the next model call; idle: when it would finish.", metavar="asap|idle")
    ] = "asap",
    by: By = "",
    as_json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = None,
    store: StorePath = None,
) -> int:
    """Inject."""
    from loom_dsl.errors import UserError

    moments = {"asap": "asap", "idle": "when_idle", "when_idle": "when_idle"}
    if when not in moments:
        raise UserError(f"--when {when}: write asap or idle")
    message = sys.stdin.read() if text == "-" else text
    if not message.strip():
        raise UserError("the message is empty; say something to the agent")
    who, moment = by or user_name(), moments[when]
    return await _steer(
        (address, namespace, task_queue, store),
        job,
        lambda j: j.inject(message, when=moment, by=who),
        f"message sent to job {job}",
        as_json,
    )


async def _steer(
    place: Place, name: str, act: "Callable[[Job], Awaitable[dict[str, str]]]", done: str, as_json: bool
) -> int:
    from loom_client.cli.opening import existing_store, find_job, opened
    from loom_dsl.errors import ConflictError

    settings = settings_of(*place)
    with existing_store(settings) as opened_store:
        row = await find_job(opened_store, name)
    if row["ended_at"]:
        raise ConflictError(f"job {name} has already ended ({row['status']}); its answer: `loom result {name}`")
    async with opened(settings) as loom:
        said = await act(loom.job(name))
    if as_json:
        print(json.dumps({"job": name, **said}))
    elif said["verdict"] == "unconfirmed":
        say(f"{said['message']} (job {name})")
    else:
        print(done)
    return DONE
