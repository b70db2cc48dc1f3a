"""``loom pause``, ``resume``, ``abort`` and ``inject``."""

import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from loom_client.cli.failures import DONE, guarded, say
from loom_client.cli.options import By, JobName, Json, Place, placed, settings_of, user_name

if TYPE_CHECKING:
    from loom_client.job import Job
    from loom_dsl.roles import Right

Reason = Annotated[str, typer.Option(help="Why; it is kept with the job.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pause", help="Stop a job at its next safe point.")(pause)
    app.command("resume", help="Let a paused job go on.")(resume)
    app.command("abort", help="End a job now; what runs is cancelled.")(abort)
    app.command("inject", help="Send a message to the agent of a running job.")(inject)


@guarded
@placed
async def pause(
    job: JobName,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
    *,
    place: Place,
) -> int:
    """Pause."""
    who = _allowed(by, "pause")
    done = f"job {job} is paused; go on with `loom resume {job}`"
    return await _steer(place, job, lambda j: j.pause(who, reason), done, as_json)


@guarded
@placed
async def resume(
    job: JobName,
    by: By = "",
    as_json: Json = False,
    *,
    place: Place,
) -> int:
    """Resume."""
    who = _allowed(by, "pause")
    return await _steer(place, job, lambda j: j.resume(who), f"job {job} goes on", as_json)


@guarded
@placed
async def abort(
    job: JobName,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
    *,
    place: Place,
) -> int:
    """Abort."""
    who = _allowed(by, "abort")
    done = f"job {job} is being aborted"
    return await _steer(place, job, lambda j: j.abort(who, reason), done, as_json)


@guarded
@placed
async def inject(
    job: JobName,
    text: Annotated[str, typer.Argument(help="The message; - reads it from standard input.")],
    when: Annotated[
        str, typer.Option(help="asap: before the next model call; idle: when it would finish.", metavar="asap|idle")
    ] = "asap",
    by: By = "",
    as_json: Json = False,
    *,
    place: Place,
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
        place,
        job,
        lambda j: j.inject(message, when=moment, by=who),
        f"message sent to job {job}",
        as_json,
    )


def _allowed(by: str, right: "Right") -> str:
    """Give the name of who steers, where a role allows it."""
    from loom_client.cli.rights import check_right

    who = by or user_name()
    check_right(who, right)
    return who


async def _steer(
    place: Place, name: str, act: "Callable[[Job], Awaitable[dict[str, str]]]", done: str, as_json: bool
) -> int:
    from loom_client.cli.opening import check_going, opened

    settings = settings_of(*place)
    await check_going(settings, name, "answer")
    async with opened(settings) as loom:
        said = await act(loom.job(name))
    if as_json:
        print(json.dumps({"job": name, **said}))
    elif said["verdict"] == "unconfirmed":
        say(f"{said['message']} (job {name})")
    else:
        print(done)
    return DONE
