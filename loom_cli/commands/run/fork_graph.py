"""`loom fork` of a graph's job: another job that goes on where it failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom_cli.commands.run.start_agent import chosen_id, told_of_other
from loom_cli.errors import say, say_findings
from loom_cli.opening import check_start
from loom_cli.options import new_names
from loom_client.client import Loom
from loom_client.start.graph_fork import read_resuming
from loom_client.start.submission import plan_of
from loom_dsl.errors import JobExists, UserError
from loom_dsl.text.abridgement import abridge

MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """What `loom fork` was told about a graph's job.

    Attributes:
        parent: The job that failed.
        job: The new job's id.
        graph: The file of a changed graph.
        names: ``old=new`` texts of ``--map``.
    """

    parent: str
    workdir: Path | None = None
    job: str | None = None
    graph: Path | None = None
    names: tuple[str, ...] = ()


def refuse_other_options(row: Mapping[str, Any], of_graph: bool, *, turn: int | None, **given: Any) -> None:
    """Refuse for a graph's job what is said of agents' jobs.

    Raises:
        UserError: There is such a thing.
    """
    job = row["job"]
    if of_graph and turn is not None:
        what = f"job {job} runs the graph {row['agent']}, which has no turns"
        raise UserError(f"{what}; `loom fork {job}` goes on where it failed")
    for name, value in given.items():
        if of_graph and value:
            option = "a task" if name == "task" else f"--{name}"
            raise UserError(f"{option} is for an agent's job, and job {job} is a graph's")


def refuse_graph_options(
    row: Mapping[str, Any], of_graph: bool, *, graph: Path | None, names: Sequence[str] | None
) -> None:
    """Refuse for an agent's job what is said of graphs' jobs.

    Raises:
        UserError: There is such a thing, or new names of nodes come without the graph that has them.
    """
    if (graph or names) and not of_graph:
        raise UserError(f"--graph and --map are for a graph's job, and job {row['job']} is an agent's; see --agent")
    if names and graph is None:
        raise UserError("--map gives nodes of a changed graph; give that with --graph FILE.yaml")


async def resume_graph(loom: Loom, row: Mapping[str, Any], request: ResumeRequest) -> str:
    """Start the job that goes on where a graph's failed, or find it; its id.

    Raises:
        UserError: It cannot go on.
    """
    names = new_names([*request.names])
    plan = None if request.graph is None else plan_of(request.graph, lambda found: say_findings([found]))
    check_start(plan.root if plan else row["agent"])
    name = await chosen_id(loom.store, request.job, "result")
    known = await loom.store.read(lambda tx: tx.job(name)) is not None
    try:
        await loom.fork(request.parent, workdir=request.workdir, job=name, graph=plan, names=names)
    except JobExists as error:
        raise told_of_other(error, name) from None
    started = await loom.store.read(lambda tx: tx.job(name)) or {}
    again = [] if known else await _entered(loom, request, name, plan, names)
    say(
        f"job {name} goes on where {request.parent} failed{_listed(again)}; what was finished is not done again, and "
        f"files in {started['workdir']} stay as they are now"
    )
    return name


async def _entered(loom: Loom, request: ResumeRequest, name: str, plan: Any, names: Mapping[str, str]) -> list[str]:
    """Name what the new job has entered at first."""
    found = await loom.store.read(lambda tx: read_resuming(tx, request.parent, name, plan=plan, names=names))
    return list(found.again)


def _listed(again: list[str]) -> str:
    return f", at {abridge(again, MAX_NAMED, '`{}`'.format)}" if again else ""
