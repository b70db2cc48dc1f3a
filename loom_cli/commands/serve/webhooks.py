"""``loom webhooks``: messages that no endpoint took, and whether an endpoint listens."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from loom_cli.errors import DONE, FAILED, guarded, say
from loom_cli.options import ConnectionOptions, Json, connection_options, named_by


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Messages to other systems that were not delivered.", rich_markup_mode=None)
    group.callback(invoke_without_command=True)(_by_default)
    group.command("list", help="List the dead letters; also `loom webhooks` alone.")(listed)
    group.command("retry", help="Have dead letters delivered after all.")(retry)
    group.command("test", help="Send an endpoint a message that says nothing; 1 when it is not taken.")(probe)
    app.add_typer(group, name="webhooks")


def _by_default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        listed()


@guarded
@connection_options("store")
async def listed(
    every: Annotated[bool, typer.Option("--all", help="Also what still waits for its delivery.")] = False,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """List dead letters."""
    from loom_cli.commands.show.tables import show_table
    from loom_cli.opening import existing_store
    from loom_dsl.text.printable import one_line

    with existing_store(connection.settings()) as opened_store:
        rows = await opened_store.read(lambda tx: tx.deliveries())
    rows = [row for row in rows if every or row.died_at]
    if as_json:
        for row in rows:
            print(json.dumps({key: value for key, value in asdict(row).items() if key != "number"}))
        return DONE
    heads = ("MESSAGE", "ENDPOINT", "JOB", "EVENT", "SINCE", "WHY")
    lines = [
        (row.message, row.endpoint, row.job, row.event, row.created_at[:19], one_line(row.problem or "it waits", 200))
        for row in rows
    ]
    show_table(heads, lines, "nothing waits" if every else "no dead letters")
    return DONE


@guarded
@connection_options("address", "namespace", "store")
async def retry(
    message: Annotated[str | None, typer.Argument(help="The message, `msg_…`.", metavar="[MESSAGE]")] = None,
    every: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Deliver dead letters after all."""
    from activities.webhooks.relay import begin
    from loom_cli.opening import opened
    from loom_cli.render.text import plural
    from loom_client.server.workers import pollers
    from loom_dsl.errors import NotFoundError, UserError
    from loom_dsl.queues import webhook_queue

    if (message is None) != every:
        raise UserError("name one message, or say --all; `loom webhooks` lists the dead letters")
    async with opened(connection.settings()) as loom:
        revived = await loom.store.write(lambda tx: tx.revive_deliveries(message))
        if message is not None and not revived:
            raise NotFoundError(f"there is no dead letter {message!r}; `loom webhooks` lists those that there are")
        queues: set[tuple[str, str]] = set()
        for job, endpoint in dict.fromkeys((row.job, row.endpoint) for row in revived):
            row = await loom.store.read(lambda tx, job=job: tx.job(job))  # type: ignore[misc]
            if row is not None:
                await begin(loom.client, loom.store, row["task_queue"], (job, endpoint))
                queues.add((webhook_queue(row["task_queue"], loom.store.id, endpoint), endpoint))
        missing = {name for queue, name in queues if not await pollers(loom.client, queue)}
    print(f"{plural(len(revived), 'message')} to be delivered")
    if missing:
        say(f"no worker has {' or '.join(sorted(missing))} now; they wait until one is started with --webhooks FILE")
    return DONE


@guarded
async def probe(
    name: Annotated[str, typer.Argument(help="The endpoint, as the file has it.", metavar="NAME")],
    file: Annotated[
        Path | None,
        typer.Option("--webhooks", help="The file (LOOM_WEBHOOKS).", metavar="FILE", envvar="LOOM_WEBHOOKS"),
    ] = None,
) -> int:
    """Send a test."""
    import os
    import secrets
    from datetime import UTC, datetime

    from activities.webhooks.sender import NotTaken, Senders, place_of
    from loom_dsl.errors import ConfigurationError

    if file is None:
        raise ConfigurationError("no file of webhooks is named; give --webhooks FILE, or set LOOM_WEBHOOKS")
    sender = Senders.load(file, os.environ, named_by("--webhooks", file)).get(name)
    told = {"type": "test", "timestamp": datetime.now(UTC).isoformat(), "data": {"endpoint": name}}
    try:
        status = await sender.send(f"msg_{secrets.token_hex(16)}", json.dumps(told))
    except NotTaken as error:
        # Host and port, and nothing more of the address: the rest of it may be a secret.
        say(f"error: {error.message} (at {place_of(sender.endpoint.url)}); check {error.check}")
        return FAILED
    print(f"{name} answered {status}")
    return DONE
