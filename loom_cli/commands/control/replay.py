"""``loom replay``: a job once more, from what was recorded, in memory."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli.errors import DONE, FAILED, guarded
from loom_cli.options import ConnectionOptions, JobName, Json, connection_options

if TYPE_CHECKING:
    from loom_dsl.graph.plan import Plan
    from loom_dsl.simulation.recording import Record, Replayed


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "replay",
        help="Go through an agent's job again with what was recorded, without a server or effects; 1 when it differs.",
    )(replay)


@guarded
@connection_options("store")
async def replay(
    job: JobName,
    agent: Annotated[Path | None, typer.Option(help="Under this file's agent.", metavar="FILE.yaml")] = None,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Replay a job."""
    import asyncio

    from loom_cli.opening import existing_store, find_job
    from loom_client.recording import read_record
    from loom_dsl.simulation.replay import replay as go_through

    with existing_store(connection.settings()) as opened_store:
        row = await find_job(opened_store, job)
        record, plan = await opened_store.read(lambda tx: read_record(tx, row))
    if agent is not None:
        plan = _plan_of(agent)
        record = record.under(plan)
    replayed = await asyncio.to_thread(go_through, record, plan)
    if as_json:
        told = {"job": job, "recorded": {"status": record.status, "code": record.code}, **asdict(replayed)}
        print(json.dumps(told))
    else:
        _show(record, replayed)
    unproven = replayed.stopped and record.status != "running"
    return FAILED if replayed.differs or unproven else DONE


def _plan_of(agent: Path) -> "Plan":
    import os

    from loom_cli.project.files import ANY_MODEL, plan_of
    from loom_dsl.errors import UserError

    plan = plan_of(str(agent), os.environ, ANY_MODEL)
    if not plan.agent:
        raise UserError(f"--agent {agent}: this is a graph's file; give an agent's")
    return plan


def _show(record: "Record", replayed: "Replayed") -> None:
    from loom_cli.render.terminal import terminal_for
    from loom_dsl.text.confusables import revealed
    from loom_dsl.text.printable import one_line

    paper = terminal_for()
    dot, bar = paper.glyph("●", "*"), paper.glyph("│ ", "| ")
    for turn in replayed.turns:
        paper.line(f"{dot} turn {turn.number + 1}", "bold cyan")
        for text in turn.steps:
            paper.line(revealed(one_line(text, 300)), prefix=bar, hang=2)
        for text in turn.missing:
            paper.line(f"- then: {revealed(one_line(text, 300))}", "red", prefix=bar, hang=2)
        for text in turn.added:
            paper.line(f"+ now: {revealed(one_line(text, 300))}", "yellow", prefix=bar, hang=2)
    if replayed.stopped:
        paper.line(f"stopped: {revealed(one_line(replayed.stopped, 600))}", "yellow", hang=2)
    then, now = _ending(record.status, record.code), _ending(replayed.status, replayed.code)
    if replayed.differs:
        paper.line(f"{paper.glyph('✗', 'x')} it differs; then {then}, now {now}", "bold red", hang=2)
    elif replayed.stopped:
        paper.line("the same as far as it goes", "bold")
    else:
        paper.line(f"{paper.glyph('✓', '*')} the same: {then}", "bold green", hang=2)
    paper.flush()


def _ending(status: str, code: str) -> str:
    return f"{status} ({code})" if code else status
