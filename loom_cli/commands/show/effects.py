"""``loom effects``: what tools did to the world, and what became of it."""

import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli.errors import DONE, guarded
from loom_cli.options import ConnectionOptions, Json, connection_options

if TYPE_CHECKING:
    from loom_client.effects import EffectRecord, Undone

_COLOURS = {"settled": "green", "reconciled": "green", "compensated": "yellow", "under way": "cyan"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("effects", help="Show what tools did to the world, and what became of it.")(effects)


@guarded
@connection_options("store")
async def effects(
    job: Annotated[str | None, typer.Argument(help="The job's id; with --state, all jobs'.", metavar="[JOB]")] = None,
    as_json: Json = False,
    state: Annotated[
        str | None, typer.Option(help="Only those whose state begins so, such as unknown.", metavar="STATE")
    ] = None,
    *,
    connection: ConnectionOptions,
) -> int:
    """Show effects."""
    from loom_cli.opening import existing_store, find_job
    from loom_client.effects import effects_in_state, effects_of
    from loom_dsl.errors import ConfigurationError

    if job is None and not state:
        raise ConfigurationError("say which effects: `loom effects JOB`, or `loom effects --state unknown` of all jobs")
    point = None
    with existing_store(connection.settings()) as opened_store:
        if job is None:
            rows = await opened_store.read(lambda tx: effects_in_state(tx, state or ""))
        else:
            await find_job(opened_store, job)
            rows = await opened_store.read(lambda tx: effects_of(tx, job))
            rows = [row for row in rows if row.state.startswith(state or "")]
            point = await opened_store.read(lambda tx: tx.fork_point(job))
    if as_json:
        for row in rows:
            print(json.dumps(row.to_dict(), ensure_ascii=False))
    else:
        if point:
            print(f"forked from {point.job} {point.place}; effects up to there: `loom effects {point.job}`")
        _show(rows, of_all=job is None)
    return DONE


def _show(rows: "Iterable[EffectRecord]", *, of_all: bool) -> None:
    from loom_cli.render.terminal import terminal_for
    from loom_dsl.text.confusables import revealed
    from loom_dsl.text.printable import one_line

    paper, now, shown = terminal_for(sys.stdout), time.time(), False
    for row in rows:
        shown = True
        parts = ((row.job,) if of_all else ()) + (
            f"turn {row.turn + 1}",
            row.tool,
            row.state,
            row.call_id,
        )
        paper.line(
            "  ".join(revealed(one_line(part, 100)) for part in parts),
            f"bold {_COLOURS.get(row.state, 'red')}",
            hang=2,
        )
        for text in _facts(row, now):
            paper.line(f"    {revealed(one_line(text, 400))}", hang=6)
    if not shown:
        paper.line("no effects")
    paper.flush()


def _facts(row: "EffectRecord", now: float) -> Iterable[str]:
    from loom_cli.render.text import plural
    from loom_client.effects import unheard_line
    from loom_dsl.text.printable import clock

    yield row.summary or f"{row.tool}, whose arguments were not written down"
    ended = f", {row.status} {clock(row.settled_at, now)}" if row.settled_at else ""
    tries = f", {plural(row.attempts, 'attempt')}" if row.attempts > 1 else ""
    again = "; it may be repeated" if row.idempotent else ""
    yield f"begun {clock(row.begun_at, now)}{ended}{tries}; arguments {row.arguments_digest[:12]}{again}"
    if gone := unheard_line(row, now):
        yield gone
    if row.approved_by:
        yield f"approved by {row.approved_by} ({row.approval_id})"
    if row.note:
        yield row.note
    if row.reconciled:
        yield f"asked after a lost attempt, the tool said: {row.reconciled.replace('_', ' ')}"
    if row.undone:
        yield _taken_back(row.undone, now)


def _taken_back(undone: "Undone", now: float) -> str:
    from loom_dsl.text.printable import clock

    what = {"settled": "taken back", "pending": "being taken back", "failed": "could not be taken back"}
    told = what.get(undone.status, "it is not known whether it was taken back,")
    return f"{told} {clock(undone.begun_at, now)}" + (f": {undone.note}" if undone.note else "")
