"""``loom schedule``: jobs that the server starts at set times."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_cli.errors import DONE, guarded, say
from loom_cli.options import ConnectionOptions, InputFile, Json, Tools, Values, Workdir, connection_options

if TYPE_CHECKING:
    from loom_client.start.schedules import Schedule


Name = Annotated[str, typer.Argument(help="The schedule's name.", metavar="NAME")]
Note = Annotated[str, typer.Option(help="Why; it is kept with the schedule.")]
_WITHOUT_QUEUE = connection_options("address", "namespace", "store")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Jobs that the server starts at set times.", no_args_is_help=True, rich_markup_mode=None)
    group.command("create", help="Start a job of an agent or a graph at set times.")(create)
    group.command("list", help="List the schedules.")(list_all)
    group.command("show", help="Show when a schedule fires, what its jobs are, and its latest jobs.")(show)
    group.command("pause", help="Let a schedule fire no more; jobs under way go on.")(pause)
    group.command("resume", help="Let a paused schedule fire again.")(resume)
    group.command("trigger", help="Let a schedule fire now, besides its times.")(trigger)
    group.command("delete", help="Remove a schedule; its jobs stay.")(delete)
    app.add_typer(group, name="schedule")


@guarded
@connection_options()
async def create(  # noqa: PLR0913, PLR0917 - each is an option of the command
    name: Name,
    file: Annotated[Path, typer.Argument(help="The agent's file, or a graph's.", metavar="FILE.yaml")],
    task: Annotated[
        str | None, typer.Argument(help="What an agent is to do; - reads it from standard input.", metavar="[TASK]")
    ] = None,
    cron: Annotated[str, typer.Option(help="Minute, hour, day, month, day of the week.", metavar="'0 2 * * *'")] = "",
    every: Annotated[str, typer.Option(help="In place of --cron: the time between two firings.", metavar="1h")] = "",
    timezone: Annotated[str, typer.Option(help="Time zone of --cron; UTC when absent.", metavar="Europe/Berlin")] = "",
    overlap: Annotated[
        str,
        typer.Option(
            help="When the job before still runs: start none, one after it, abort it first, run both.",
            metavar="skip|buffer|cancel|allow",
        ),
    ] = "skip",
    catch_up: Annotated[
        str, typer.Option(help="How late a firing may be that the server's absence delayed.", metavar="DURATION")
    ] = "1h",
    paused: Annotated[bool, typer.Option("--paused", help="Wait for `loom schedule resume`.")] = False,
    values: Values = None,
    input_file: InputFile = None,
    workdir: Workdir = None,
    tools: Tools = None,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Make a schedule."""
    from loom_cli.commands.run.start_agent import Request, load
    from loom_cli.commands.run.start_graph import (
        GraphRequest,
        is_graph,
        load_graph,
        needed,
        read_once,
        refuse_for_graphs,
    )
    from loom_cli.opening import check_start, opened
    from loom_client.start.schedules import Times
    from loom_dsl.graph.plan import Plan

    options: dict[str, Any] = {"overlap": overlap, "catch_up": catch_up, "paused": paused, "workdir": workdir}
    options["times"] = Times(cron=cron, every=every, timezone=timezone)
    options["times"].spec()
    what: Any
    document = read_once(file)
    if is_graph(document):
        refuse_for_graphs(task=task)
        what, options["input"] = load_graph(GraphRequest(file, tuple(values or ()), input_file, document=document))
    else:
        wanted = needed(file, document, task or "", values, input_file)
        what, options["task"] = load(Request(file, wanted, tools=tuple(tools or ()), document=document))
        options["turn"] = file.parent / what.turn if what.turn else None
    check_start(what.root if isinstance(what, Plan) else what.name)
    async with opened(connection.settings(), create=True) as loom:
        made = await loom.schedules.create(name, what, **options)
        if as_json:
            print(json.dumps(_data(made)))
        else:
            print(f"schedule {name}: {made.what}, {made.times}; {_next(made)}")
        if not made.next and not made.paused:
            say(f"it never fires by itself: no moment fits {made.times}")
        if not await loom.has_worker():
            say(f"no worker serves the queue {loom.settings.task_queue} for this store; jobs will wait for one")
    return DONE


@guarded
@_WITHOUT_QUEUE
async def list_all(as_json: Json = False, *, connection: ConnectionOptions) -> int:
    """List schedules."""
    from loom_cli.commands.show.tables import show_table
    from loom_cli.opening import opened

    async with opened(connection.settings(), create=True) as loom:
        found = await loom.schedules.list()
    if as_json:
        for schedule in found:
            print(json.dumps(_data(schedule)))
        return DONE
    rows = [(each.name, each.what, each.times, _next(each), str(each.fired)) for each in found]
    show_table(("SCHEDULE", "WHAT", "WHEN", "NEXT", "JOBS"), rows, "no schedules")
    return DONE


@guarded
@_WITHOUT_QUEUE
async def show(name: Name, as_json: Json = False, *, connection: ConnectionOptions) -> int:
    """Show a schedule."""
    from loom_cli.opening import opened

    async with opened(connection.settings(), create=True) as loom:
        found = await loom.schedules.show(name)
    print(json.dumps(_data(found)) if as_json else "\n".join(_lines(found)))
    return DONE


@guarded
@_WITHOUT_QUEUE
async def pause(name: Name, note: Note = "", as_json: Json = False, *, connection: ConnectionOptions) -> int:
    """Pause."""
    return await _act("pause", name, "is paused", as_json, connection, note)


@guarded
@_WITHOUT_QUEUE
async def resume(name: Name, note: Note = "", as_json: Json = False, *, connection: ConnectionOptions) -> int:
    """Resume."""
    return await _act("resume", name, "fires again", as_json, connection, note)


@guarded
@_WITHOUT_QUEUE
async def trigger(name: Name, as_json: Json = False, *, connection: ConnectionOptions) -> int:
    """Trigger."""
    return await _act("trigger", name, "was told to fire now; its job comes in a moment", as_json, connection)


@guarded
@_WITHOUT_QUEUE
async def delete(name: Name, as_json: Json = False, *, connection: ConnectionOptions) -> int:
    """Delete."""
    return await _act("delete", name, "is gone; its jobs stay", as_json, connection)


async def _act(what: str, name: str, done: str, as_json: bool, connection: ConnectionOptions, *more: str) -> int:
    from loom_cli.opening import opened

    async with opened(connection.settings(), create=True) as loom:
        await getattr(loom.schedules, what)(name, *more)
    print(json.dumps({"schedule": name, "done": what}) if as_json else f"schedule {name} {done}")
    return DONE


def _next(schedule: "Schedule") -> str:
    from loom_dsl.text.printable import clock

    if schedule.paused:
        return "paused"
    if not schedule.next:
        return "never"
    import time

    return f"next {clock(schedule.next[0].isoformat(), time.time())}"


def _lines(schedule: "Schedule") -> list[str]:
    from loom_dsl.text.printable import one_line, visible

    lines = [f"{schedule.name}  {schedule.what}, {schedule.times}", f"  {_next(schedule)}"]
    lines += [f"  why      {schedule.note}"] if schedule.note else []
    lines.append(f"  overlap  {schedule.overlap}")
    order = schedule.order
    if order is None:
        lines.append("  what its jobs are is in another store (LOOM_STORE)")
    else:
        lines.append(f"  plan     {order.plan[:12]}, in {order.workdir}, queue {order.task_queue}")
        given = order.task if order.task is not None else json.dumps(order.input, ensure_ascii=False)
        lines.append(f"  with     {one_line(given, 200)}")
    lines.append(f"  jobs     {schedule.fired} started, {schedule.skipped} skipped, {schedule.missed} missed")
    lines += [f"           {job}{' (running)' if job in schedule.running else ''}" for job in schedule.jobs]
    return [visible(line) for line in lines]


def _data(schedule: "Schedule") -> dict[str, Any]:
    data = dataclasses.asdict(schedule)
    data["next"] = [moment.isoformat() for moment in schedule.next]
    return data
