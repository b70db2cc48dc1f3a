"""``loom migrate``: a job goes on under another plan, at once or when what is in flight is done."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from loom_cli.errors import DONE, guarded
from loom_cli.options import ConnectionOptions, JobName, Json, connection_options, new_names


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("migrate", help="Let a job go on under a changed graph or agent.")(migrate)


@guarded
@connection_options()
async def migrate(
    job: JobName,
    to: Annotated[Path, typer.Option("--to", help="The file of the changed graph or agent.")],
    names: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OLD=NEW", help="A node's new name; may be repeated."),
    ] = None,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Move a job to another plan; what it has done stays done, and nothing that runs is begun again."""
    from loom_cli.project.files import plan_of
    from loom_client.connection import connect

    renamed = new_names(names)
    plan = plan_of(str(to), os.environ)
    async with connect(connection.settings()) as loom:
        answer = await (await loom.find(job)).migrate(plan, renamed)
    moved = answer.verdict == "recorded"
    if as_json:
        print(json.dumps({"job": job, "plan": plan.hash, "moved": moved, "message": answer.message}))
    else:
        print(f"job {job} goes on under {to}" if moved else f"job {job} is not under {to} yet: {answer.message}")
    return DONE
