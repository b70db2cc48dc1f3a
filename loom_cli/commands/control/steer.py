"""``loom pause``, ``resume``, ``abort`` and ``inject``."""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_cli.errors import DONE, UNCLEAR, guarded, say
from loom_cli.options import By, ConnectionOptions, JobName, Json, connection_options
from loom_client.user import user_name

if TYPE_CHECKING:
    from loom_client.client import Loom
    from loom_client.job import Job
    from loom_client.records import Receipt
    from loom_client.settings import Settings
    from loom_dsl.permissions.roles import Right


Reason = Annotated[str, typer.Option(help="Why; it is kept with the job.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pause", help="Stop a job at its next safe point.")(pause)
    app.command("resume", help="Let a paused or halted job go on, or try again at once what waits for a model.")(resume)
    app.command("abort", help="End a job now; what runs is cancelled.")(abort)
    app.command("inject", help="Send a message to the agent of a running job.")(inject)


@guarded
@connection_options()
async def pause(
    job: JobName,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Pause."""
    who = _allowed(by, "pause")
    done = f"job {job} is paused; go on with `loom resume {job}`"
    return await _steer(connection, job, lambda j: j.pause(who, reason), done, as_json)


@guarded
@connection_options()
async def resume(
    job: Annotated[str | None, typer.Argument(help="The job's id.", metavar="[JOB]")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All jobs of the store that are halted, or wait for the end of an outage.")
    ] = False,
    cause: Annotated[
        str, typer.Option(help="Only what is halted, or waits, for this cause, such as model_unavailable.")
    ] = "",
    by: By = "",
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Resume."""
    from loom_dsl.errors import UserError

    who = _allowed(by, "pause")
    if every is (job is not None):
        raise UserError("name a job, or write --all for every job that is halted")
    if job is None:
        return await _resume_all(connection.settings(), who, cause, as_json)
    return await _resume_job(connection, job, who, cause, as_json)


async def _resume_job(connection: ConnectionOptions, name: str, who: str, cause: str, as_json: bool) -> int:
    """Resume one job, and say what it does now where nothing of it was to be resumed."""
    from loom_cli.commands.run.halt import is_held
    from loom_cli.opening import check_going, opened
    from loom_cli.required_action import why

    settings = connection.settings()
    await check_going(settings, name, "answer")
    async with opened(settings) as loom:
        held = await is_held(loom, name, cause)
        said = await loom.job(name).resume(who, cause=cause)
        now = await why(loom, name) if held is False and not as_json else ""
    if held is False and not as_json and said.verdict != "unconfirmed":
        of = f" for the cause {cause}" if cause else ""
        print(
            f"job {name} was neither paused nor halted{of}: there was nothing to resume" + (f"; {now}" if now else "")
        )
        return DONE
    return tell_answer(name, said, f"job {name} goes on", as_json)


async def _resume_all(settings: "Settings", who: str, cause: str, as_json: bool) -> int:
    """Resume every job that stands still; one that does not take it keeps none of the others from going on."""
    from loom_cli.opening import existing_store, opened

    with existing_store(settings) as store:
        rows = await store.read(lambda tx: tx.stuck_jobs())
    steps = {row["job"]: [*(row["halted"] or ()), *(row["waiting"] or ())] for row in rows}
    meant = [row for row in rows if not cause or any(step["cause"] == cause for step in steps[row["job"]])]
    if not meant:
        what = f" for the cause {cause}" if cause else ""
        say(f"no job is halted{what}, and none waits for the end of an outage")
        return DONE
    async with opened(settings) as loom:
        taken = [await _resume_one(loom, row, who, cause, as_json) for row in meant]
    return DONE if all(taken) else UNCLEAR


async def _resume_one(loom: "Loom", row: "Mapping[str, Any]", who: str, cause: str, as_json: bool) -> bool:
    """Resume one of several jobs, and tell in a line how it took it; whether it did."""
    from temporalio.service import RPCError

    from loom_dsl.errors import LoomError, NotFoundError
    from loom_dsl.text.printable import visible

    name = row["job"]
    try:
        if row["namespace"] != loom.client.namespace:
            raise NotFoundError(f"it is in the namespace {row['namespace']}; resume it with --namespace")
        said = await loom.job(name).resume(who, cause=cause)
    except (LoomError, RPCError) as error:
        problem = getattr(error, "message", str(error))
        if as_json:
            print(json.dumps({"job": name, "verdict": "failed", "message": problem}), flush=True)
        else:
            print(visible(f"job {name} was not resumed: {problem}"), flush=True)
        return False
    if as_json:
        print(json.dumps({"job": name, **said.model_dump()}), flush=True)
    else:
        unsure = said.verdict == "unconfirmed"
        print(f"job {name}: {said.message}" if unsure else f"job {name} goes on", flush=True)
    return True


@guarded
@connection_options()
async def abort(
    job: JobName,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Abort."""
    who = _allowed(by, "abort")
    done = f"job {job} is being aborted"
    return await _steer(connection, job, lambda j: j.abort(who, reason), done, as_json)


@guarded
@connection_options()
async def inject(
    job: JobName,
    text: Annotated[str, typer.Argument(help="The message; - reads it from standard input.")],
    when: Annotated[
        str, typer.Option(help="asap: before the next model call; idle: when it would finish.", metavar="asap|idle")
    ] = "asap",
    by: By = "",
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Inject."""
    from loom_dsl.errors import UserError

    moments = {"asap": "asap", "idle": "when_idle", "when_idle": "when_idle"}
    if when not in moments:
        raise UserError(f"--when {when}: write asap or idle")
    message = sys.stdin.read() if text == "-" else text
    if not message.strip():
        raise UserError("the message is empty; say something to the agent")
    who, moment = _allowed(by, "inject"), moments[when]
    return await _steer(
        connection,
        job,
        lambda j: j.inject(message, when=moment, by=who),
        f"message sent to job {job}",
        as_json,
    )


def _allowed(by: str, right: "Right") -> str:
    """Give the name of who steers, where a role allows it."""
    from loom_cli.opening import check_right

    who = by or user_name()
    check_right(who, right)
    return who


async def _steer(
    connection: ConnectionOptions,
    name: str,
    act: "Callable[[Job], Awaitable[Receipt]]",
    done: str,
    as_json: bool,
) -> int:
    from loom_cli.opening import check_going, opened

    settings = connection.settings()
    await check_going(settings, name, "answer")
    async with opened(settings) as loom:
        said = await act(loom.job(name))
    return tell_answer(name, said, done, as_json)


def tell_answer(name: str, said: "Receipt", done: str, as_json: bool) -> int:
    """Say how a job took what it was sent."""
    if as_json:
        print(json.dumps({"job": name, **said.model_dump()}))
    elif said.verdict == "unconfirmed":
        say(f"{said.message} (job {name})")
    else:
        print(done)
    return DONE
