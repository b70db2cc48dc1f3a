"""``loom jobs`` and ``show``."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_cli.commands.show import effects
from loom_cli.errors import DONE, guarded, say
from loom_cli.options import ConnectionOptions, JobName, Json, connection_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_store.transaction import Transaction


STATUSES = ("running", "completed", "failed", "aborted", "lost", "halted")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("jobs", help="List the latest jobs.")(jobs)
    app.command(
        "show", help="Show where a job stands: why it waits, its turns, entries, effects, approvals and usage."
    )(show)
    effects.register(app)


@guarded
@connection_options("address", "namespace", "store")
async def jobs(
    status: Annotated[
        str | None,
        typer.Option(
            help="Only those; halted: of those that are running, the ones with a step that waits for a person.",
            metavar="|".join(STATUSES),
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """List jobs."""
    from loom_cli.commands.show.tables import show_jobs
    from loom_cli.opening import existing_store, reconciled
    from loom_client.server.liveness import LOST
    from loom_dsl.errors import UserError
    from loom_dsl.text.printable import visible

    if status is not None and status not in STATUSES:
        raise UserError(f"--status {status}: write one of {', '.join(STATUSES)}")
    settings = connection.settings()
    with existing_store(settings) as opened_store:

        async def listed() -> list[dict[str, Any]]:
            return await opened_store.read(lambda tx: tx.jobs(limit=limit, status=status))

        rows = await listed()
        changed = await reconciled(opened_store, settings, rows)
        if changed:
            rows = await listed()
        lost = [row for row in rows if row["status"] == LOST]
        lines = await opened_store.read(lambda tx: _lost_lines(tx, lost)) if lost else []
        lines += await opened_store.read(lambda tx: _unserved(tx, rows, opened_store.id))
    if changed is None:
        away = f"the Temporal server at {settings.address} does not answer"
        say(visible(f"{away}: what is listed of jobs that have not ended may be old"))
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        show_jobs(rows)
        for line in lines:
            say(visible(line))
    return DONE


def _lost_lines(tx: "Transaction", rows: "Sequence[Mapping[str, Any]]") -> list[str]:
    """Say of each job that was lost how to go on."""
    from loom_client.recovery import lost_line

    return [f"job {row['job']} is {lost_line(tx, row)}" for row in rows]


def _unserved(tx: "Transaction", rows: "Sequence[Mapping[str, Any]]", store: str) -> list[str]:
    """Say of each queue with jobs that run which worker of this store is missing, as far as the store can tell."""
    from loom_client.settings import worker_command
    from loom_store.queries.workers import ALIVE_SECONDS

    served = {(one.about.get("namespace"), one.about.get("queue")) for one in tx.workers(alive=True)}
    waiting = {(row["namespace"], row["task_queue"]) for row in rows if not row["ended_at"]}
    return [
        f"no worker of the queue {queue} was heard in the last {ALIVE_SECONDS:g} s by this store (id {store}), so its "
        f"jobs wait: start one with `{worker_command(queue)}`"
        for _, queue in sorted(waiting - served)
    ]


@guarded
@connection_options()
async def show(
    job: JobName,
    entries: Annotated[bool, typer.Option("--entries", help="Also every turn, and every entry.")] = False,
    turn: Annotated[int | None, typer.Option(min=1, help="Also this turn and its entries.")] = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Also its turns as a tree, with their tool calls and child jobs.")
    ] = False,
    node: Annotated[
        str | None,
        typer.Option(help="Print only what this node gave, as JSON, when it was kept because an expression failed."),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Also what each turn took: time and tokens.")] = False,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Show a job."""
    from loom_cli.commands.show.conversation import conversation
    from loom_cli.commands.show.outputs import kept_output
    from loom_cli.commands.show.recursion import chain, recursion_tree
    from loom_cli.commands.show.summary import summarise
    from loom_cli.commands.show.tables import show_job
    from loom_cli.opening import existing_store, find_job
    from loom_cli.render.text import result_text
    from loom_dsl.errors import UserError

    settings = connection.settings()
    with existing_store(settings) as opened_store:
        row = await find_job(opened_store, job)
        if node is not None:
            print(result_text(await opened_store.read(lambda tx: kept_output(tx, job, node))))
            return DONE
        summary = await summarise(opened_store, settings, row)
        by_turns = entries or profile or turn is not None
        if by_turns and summary["graph"]:
            raise UserError(f"job {job} is a graph's and has neither turns nor entries; see `loom watch {job}`")
        if entries or turn is not None:
            summary |= await opened_store.read(lambda tx: conversation(tx, row, turn))
        if profile:
            summary["profile"] = await opened_store.read(lambda tx: chain(tx, row))
        if tree:
            summary["tree"] = await opened_store.read(lambda tx: recursion_tree(tx, row))
    if as_json:
        print(json.dumps({**summary, "effects": [effect.to_dict() for effect in summary["effects"]]}))
    else:
        show_job(summary)
    return DONE
