"""``loom store``: which store this is, who serves it, and the beginning of an epoch."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_cli.errors import DONE, guarded
from loom_cli.options import ConnectionOptions, Json, connection_options

if TYPE_CHECKING:
    from loom_store.store import Store
    from loom_store.transaction import Transaction


Why = Annotated[str, typer.Option("--why", help="What happened to the store.", metavar="TEXT")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="The store itself: its id, its workers, its epochs.", no_args_is_help=True)
    group.command("info", help="Show the store's id, where it is, its epochs and the workers that serve it.")(info)
    group.command("epoch", help="Tell the store that it may lack what was done: it was restored, or promoted.")(epoch)
    app.add_typer(group, name="store")


@guarded
@connection_options("store")
async def info(
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Show the store."""
    from loom_cli.opening import existing_store

    with existing_store(connection.settings()) as opened:
        found = await opened.read(lambda tx: _told(tx, opened))
    if as_json:
        print(json.dumps(found))
        return DONE
    from loom_client.server.workers import told_worker
    from loom_dsl.text.printable import visible

    print(f"id       {found['id']}")
    print(f"place    {visible(found['path'])}")
    for number, one in enumerate(found["epochs"]):
        print(visible(f"{'' if number else 'epochs':8} {one['number']}, since {one['began_at'][:19]}: {one['why']}"))
    for number, one in enumerate(found["workers"]):
        print(visible(f"{'' if number else 'workers':8} {told_worker(one['about'])}"))
    if not found["workers"]:
        print("workers  none serves it now")
    return DONE


@guarded
@connection_options("store")
async def epoch(
    why: Why,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Begin an epoch."""
    from loom_cli.opening import existing_store
    from loom_dsl.errors import UserError

    if not why.strip():
        raise UserError("--why is empty; say what happened to the store, such as 'restored from the backup of Monday'")
    with existing_store(connection.settings()) as opened:
        begun = await opened.write(lambda tx: tx.begin_epoch(why.strip()))
    if as_json:
        print(json.dumps(asdict(begun)))
    else:
        print(
            f"epoch {begun.number} of the store {opened.id} has begun: a call of before it that the store does not "
            "know of may have been made, and is not made again unless its tool may be repeated"
        )
    return DONE


def _told(tx: "Transaction", store: "Store") -> dict[str, Any]:
    from datetime import UTC, datetime

    epochs = [{**asdict(one), "began_at": datetime.fromtimestamp(one.began_at, UTC).isoformat()} for one in tx.epochs()]
    workers = [asdict(row) for row in tx.workers(alive=True)]
    return {"id": store.id, "path": store.place, "epochs": epochs, "workers": workers}
