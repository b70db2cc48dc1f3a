"""``loom run``, ``fork``, ``watch``, ``result`` and ``wait``."""

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_cli.errors import DONE, FAILED, UNCLEAR, following, say, tell_on_interrupt
from loom_cli.options import (
    ConnectionOptions,
    InputFile,
    JobName,
    Json,
    Mode,
    States,
    Tools,
    Values,
    Workdir,
    connection_options,
)
from loom_client.user import user_name

if TYPE_CHECKING:
    from loom_cli.commands.run.follow import Ended
    from loom_client.client import Loom


Detach = Annotated[bool, typer.Option("--detach", help="Print the job's id and do not wait.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Do not ask here about approvals.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run", help="Start a job and show it until it ends.")(run)
    app.command(
        "fork",
        help="Start a job that goes on from a turn of another one, or where a graph failed; show it until it ends.",
    )(fork)
    app.command("watch", help="Show a job from its beginning, or from an offset, until it ends.")(watch)
    app.command("result", help="Wait until a job has ended, and print its answer.")(result)
    app.command("wait", help="The same as `loom result`.")(result)


@following
@connection_options()
async def run(  # noqa: PLR0913, PLR0917 - each is an option of the command
    agent: Annotated[Path, typer.Argument(help="The agent's file, or a graph's.", metavar="FILE.yaml")],
    task: Annotated[
        str | None, typer.Argument(help="What an agent is to do; - reads it from standard input.", metavar="[TASK]")
    ] = None,
    values: Values = None,
    input_file: InputFile = None,
    workdir: Workdir = None,
    detach: Detach = False,
    job: Annotated[str | None, typer.Option(help="The job's id; the same id again is the same job.")] = None,
    session: Annotated[str | None, typer.Option(help="Conversation to go on with.")] = None,
    model: Annotated[str | None, typer.Option(help="Use this model in place of the file's.")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="End the job after so many turns.")] = None,
    mode: Mode = None,
    tools: Tools = None,
    states: States = False,
    as_json: Json = False,
    no_input: NoInput = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Start a job and follow it."""
    from loom_cli.commands.run.start_agent import Request, load, start
    from loom_cli.commands.run.start_graph import (
        GraphRequest,
        is_graph,
        load_graph,
        needed,
        read_once,
        refuse_for_graphs,
        start_graph,
    )
    from loom_cli.opening import check_start, opened

    settings = connection.settings()
    begin: Callable[[Loom], Awaitable[str]]
    document = read_once(agent)
    if is_graph(document):
        refuse_for_graphs(task=task, session=session, model=model, max_turns=max_turns, mode=mode)
        wanted = GraphRequest(agent, tuple(values or ()), input_file, workdir, job, document=document)
        plan, given = load_graph(wanted)
        check_start(plan.root)
        begin = partial(start_graph, request=wanted, plan=plan, given=given)
    else:
        request = Request(
            agent,
            needed(agent, document, task, values, input_file),
            workdir,
            job,
            session,
            model,
            max_turns,
            tuple(tools or ()),
            mode,
            document,
        )
        definition, text = load(request)
        check_start(definition.name)
        begin = partial(start, request=request, agent=definition, task=text)
    async with opened(settings, create=True) as loom:
        name = await begin(loom)
        return await _begun(loom, name, detach=detach, as_json=as_json, states=states, ask=not no_input)


@following
@connection_options()
async def fork(  # noqa: PLR0913, PLR0917 - each is an option of the command
    job: JobName,
    task: Annotated[
        str | None, typer.Argument(help="What to do now; - reads it from standard input.", metavar="[TASK]")
    ] = None,
    turn: Annotated[
        int | None,
        typer.Option(min=0, help="Of an agent's job: the last turn that is kept; 0 keeps only the task."),
    ] = None,
    workdir: Annotated[Path | None, typer.Option(help="Directory of file tools; the job's own by default.")] = None,
    detach: Detach = False,
    new: Annotated[str | None, typer.Option("--job", help="The new job's id; the same id is the same job.")] = None,
    agent: Annotated[Path | None, typer.Option(help="Go on with this file's agent.", metavar="FILE.yaml")] = None,
    model: Annotated[str | None, typer.Option(help="Use this model in place of the agent's.")] = None,
    graph: Annotated[
        Path | None, typer.Option(help="Of a graph's job: go on under this changed graph.", metavar="FILE.yaml")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OLD=NEW", help="With --graph: a node's new name; may be repeated."),
    ] = None,
    tools: Tools = None,
    states: States = False,
    as_json: Json = False,
    no_input: NoInput = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Fork a job and follow the new one."""
    from loom_cli.commands.run.fork_graph import ResumeRequest, refuse_graph_options, refuse_other_options, resume_graph
    from loom_cli.commands.run.start_agent import ForkRequest, load_definition, read_task, start_fork
    from loom_cli.opening import check_start, find_job, opened
    from loom_client.job import is_graph_job
    from loom_dsl.agent.run import check_id

    check_id("job", new)
    async with opened(connection.settings()) as loom:
        row = await find_job(loom.store, job)
        of_graph = await is_graph_job(loom.store, row)
        refuse_other_options(row, of_graph, turn=turn, task=task, agent=agent, model=model, tools=tools)
        refuse_graph_options(row, of_graph, graph=graph, names=names)
        if of_graph or turn is None:
            name = await resume_graph(loom, row, ResumeRequest(job, workdir, new, graph, tuple(names or ())))
        else:
            request = ForkRequest(job, turn, "" if task is None else read_task(task), workdir, new, agent, model)
            definition = None if agent is None else load_definition(agent, model, tuple(tools or ()))
            check_start(definition.name if definition else row["agent"])
            name = await start_fork(loom, request, definition)
        return await _begun(loom, name, detach=detach, as_json=as_json, states=states, ask=not no_input)


@following
@connection_options()
async def watch(
    job: JobName,
    offset: Annotated[int, typer.Option("--from", min=0, help="Show only events after this offset.")] = 0,
    states: States = False,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Show a job."""
    from loom_cli.opening import opened_for

    tell_on_interrupt(f"the job goes on; see it again with `loom watch {job}`")
    async with opened_for(connection.settings(), job) as (loom, _):
        return await _follow(loom, job, after=offset, as_json=as_json, states=states, ask=False)


@following
@connection_options()
async def result(
    job: JobName,
    within: Annotated[
        str,
        typer.Option(
            "--timeout", help="Give up after so long, such as 10m, with exit code 4; the job goes on.", metavar="TIME"
        ),
    ] = "",
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Wait for a job and print its answer."""
    from loom_cli.commands.run.follow import tell_how_to_go_on
    from loom_cli.opening import existing_store, find_job, opened_for
    from loom_dsl.errors import JobHalted

    settings = connection.settings()
    tell_on_interrupt(f"the job goes on; see it with `loom watch {job}`")
    with existing_store(settings) as opened_store:
        row = await find_job(opened_store, job)
    try:
        async with asyncio.timeout(_seconds_of(within)):
            async with opened_for(settings.model_copy(update={"task_queue": row["task_queue"]}), job) as (loom, _):
                ended = await _end_of(loom, row, as_json)
                status = _print_result(job, ended, as_json)
                if not as_json:
                    await tell_how_to_go_on(loom.store, job, ended)
                return status
    except TimeoutError:
        say(f"job {job} has not ended within {within}, as far as is known here; see it with `loom show {job}`")
        return UNCLEAR
    except JobHalted as halted:
        if as_json:
            print(json.dumps({"job": job, "status": "halted", "error": halted.message}))
        raise


async def _end_of(loom: "Loom", row: Mapping[str, Any], as_json: bool) -> "Ended":
    """Wait for the end of a job, and tell meanwhile what keeps it waiting."""
    from loom_cli.commands.run.follow import Told, final_result, telling_the_lost, telling_waits
    from loom_cli.commands.run.halt import shorten, unless_halted
    from loom_cli.commands.run.start_agent import announce_worker
    from loom_client.server.liveness import LOST
    from loom_client.server.reconcile import has_closed, reconcile
    from loom_dsl.errors import JobHalted

    job = str(row["job"])
    if row["ended_at"] and row["status"] != LOST:
        return (await final_result(loom, job))[0]
    await reconcile(loom.client, loom.store, [row])
    told = Told()
    if not await has_closed(loom.client, job, None):
        told.unserved = await announce_worker(loom, job)
    waits = contextlib.nullcontext() if as_json else telling_waits(loom, job, told)
    async with waits, telling_the_lost(loom, job):
        try:
            return (await unless_halted(loom, job, final_result(loom, job)))[0]
        except JobHalted as halted:
            raise shorten(job, halted) if told.has_told(halted.steps) else halted from None


def _seconds_of(text: str) -> float | None:
    from loom_dsl.errors import UserError
    from loom_dsl.fields import parse_duration

    if not text:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UserError(f"--timeout {text}: {error}") from None


async def _begun(loom: "Loom", name: str, *, detach: bool, as_json: bool, states: bool, ask: bool) -> int:
    """Show a job that was just started, or only tell its id."""
    from loom_cli.commands.run.start_agent import announce_worker

    await announce_worker(loom, name)
    if not detach:
        return await _follow(loom, name, as_json=as_json, states=states, ask=ask and not as_json)
    print(json.dumps({"job": name}) if as_json else name, flush=True)
    if not as_json:
        say(f"see it with `loom watch {name}`")
    return DONE


async def _follow(loom: "Loom", name: str, *, after: int = 0, as_json: bool, states: bool, ask: bool) -> int:
    from loom_cli.commands.run.follow import Follower, make_watcher, tell_how_to_go_on, telling_the_lost
    from loom_cli.commands.run.prompt import Prompter, can_ask
    from loom_cli.opening import find_job
    from loom_cli.render.timeline import Timeline
    from loom_client.signing import SigningKey

    row = await find_job(loom.store, name)
    goes_on = f"the job goes on; see it again with `loom watch {name}`"
    tell_on_interrupt("" if row["ended_at"] else goes_on)
    asking = ask and can_ask()
    watcher, calls = make_watcher(loom, row, as_json=as_json, states=states, tell=not asking)
    follower = Follower(loom, row, watcher, calls)
    if asking and isinstance(watcher, Timeline):
        key = os.environ.get("LOOM_SIGNING_KEY")
        sign = SigningKey.load(Path(key)) if key else None
        follower.ask = Prompter(loom.store, watcher.paper, user_name(), watcher.interrupt, sign)
    if after:
        await calls.read_on()
    async with telling_the_lost(loom, name):
        ended = await follower.run(after)
    if not as_json:
        await tell_how_to_go_on(loom.store, name, ended)
    return DONE if ended.status == "completed" else FAILED


def _print_result(job: str, ended: "Ended", as_json: bool) -> int:
    from loom_cli.render.text import result_text
    from loom_dsl.agent.run import GraphResult
    from loom_dsl.text.printable import visible

    if as_json:
        print(json.dumps({"job": job, **ended.model_dump(mode="json")}))
    elif isinstance(ended, GraphResult):
        if ended.result is not None:
            print(result_text(ended.result))
    elif ended.answer:
        print(visible(ended.answer).rstrip("\n"))
    if ended.status == "completed":
        return DONE
    if not as_json:
        why = f": {ended.error.beside(ended.status)}" if ended.error else ""
        say(visible(f"job {job} {'was aborted' if ended.status == 'aborted' else 'failed'}{why}"))
    return FAILED
