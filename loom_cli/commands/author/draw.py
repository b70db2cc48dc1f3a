"""``loom graph`` and ``loom diff``: a graph as a picture, where a job stands in it, and what differs between two."""

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli.errors import DONE, FAILED, guarded
from loom_cli.options import ConnectionOptions, Json, connection_options

if TYPE_CHECKING:
    from loom_client.settings import Settings
    from loom_dsl.authoring.overlay import Overlay
    from loom_dsl.authoring.view import Excerpt
    from loom_dsl.graph.plan import Plan


FORMATS = ("text", "mermaid", "dot", "svg")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("graph", help="Draw a graph: every node, and every edge with its condition.")(graph)
    app.command("diff")(guarded(diff))


@guarded
@connection_options()
async def graph(
    target: Annotated[
        str | None,
        typer.Argument(help="An agent's or a graph's file, or the name of a shipped graph.", metavar="[FILE]"),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="How it is drawn; text on a terminal, Mermaid elsewhere. SVG needs `loom-dsl[svg]`, or Graphviz.",
            metavar="|".join(FORMATS),
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option(help="Draw the graph of this job: visits, and where its tokens are.", metavar="JOB")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Draw what is behind tool nodes, too.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Draw this node (an id, or GRAPH/NODE) and what is next to it, or this whole sub-graph. Repeat it, "
            "or separate names by commas.",
            metavar="NODE",
        ),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(help="Draw sub-graphs that are nested deeper as one box each.", metavar="N")
    ] = None,
    *,
    connection: ConnectionOptions,
) -> int:
    """Draw a graph."""
    from loom_cli.project.files import ANY_MODEL, plan_of
    from loom_dsl.authoring.view import view
    from loom_dsl.errors import UserError

    chosen = form or ("text" if sys.stdout.isatty() else "mermaid")
    if chosen not in FORMATS:
        raise UserError(f"--format {chosen}: write one of {', '.join(FORMATS)}")
    if (target is None) == (job is None):
        raise UserError("give the file of a graph, or --job and a job's id")
    overlay = None
    if job is not None:
        plan, overlay = await _of_job(connection.settings(), job)
    else:
        plan = plan_of(target or "", os.environ, ANY_MODEL)
    names = [name.strip() for given in only or () for name in given.split(",") if name.strip()]
    _show(plan, chosen, view(plan, whole=whole, only=names, depth=depth), overlay)
    return DONE


def _show(plan: "Plan", form: str, part: "Excerpt", overlay: "Overlay | None") -> None:
    if form == "text":
        from loom_cli.render.flowchart import draw
        from loom_cli.render.terminal import terminal_for

        draw(terminal_for(), plan, overlay=overlay, part=part)
    elif form == "dot":
        from loom_dsl.authoring.dot import dot

        print(dot(plan, overlay=overlay, part=part), end="")
    elif form == "svg":
        from loom_cli.render.svg import svg

        print(svg(plan, overlay=overlay, part=part), end="")
    else:
        from loom_dsl.authoring.mermaid import MAX_EDGES, edges_of, mermaid_plan

        drawn = mermaid_plan(plan, overlay=overlay, part=part)
        print(drawn, end="")
        if (edges := edges_of(drawn)) > MAX_EDGES:
            print(
                f"the drawing has {edges} edges, and Mermaid draws at most {MAX_EDGES} unless its page says otherwise: "
                f"write `maxEdges: {edges}` where it calls mermaid.initialize, "
                "draw less by --only or --depth, or use --format svg or dot",
                file=sys.stderr,
            )


async def _of_job(settings: "Settings", job: str) -> "tuple[Plan, Overlay]":
    """Give the plan of a job, and where it stands, or which way it went if it has ended."""
    from loom_cli.opening import existing_store, find_job, opened
    from loom_dsl.authoring.overlay import overlay_of, overlay_of_events
    from loom_dsl.graph.plan import Plan

    with existing_store(settings) as opened_store:
        row = await find_job(opened_store, job)
        text = await opened_store.read(lambda tx: tx.get_blob(row["plan"]))
        plan = Plan.load(text.decode())
        if row["ended_at"]:
            return plan, await opened_store.read(
                lambda tx: overlay_of_events(plan, (event for _, event in tx.each_event(job)))
            )
    async with opened(settings) as loom:
        return plan, overlay_of(plan, await loom.job(job).status())


def diff(
    old: Annotated[
        str, typer.Argument(help="An agent's or a graph's file, or the name of a shipped graph.", metavar="OLD")
    ],
    new: Annotated[str, typer.Argument(help="What it is compared with.", metavar="NEW")],
    as_json: Json = False,
) -> int:
    """Tell what differs between two graphs, by node and by edge; 1 when something does."""
    from loom_cli.project.files import plan_of
    from loom_cli.render.reports import write_difference
    from loom_cli.render.terminal import terminal_for
    from loom_dsl.authoring.diff import diff as compare

    found = compare(plan_of(old, os.environ), plan_of(new, os.environ))
    if as_json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        write_difference(terminal_for(), found)
    return FAILED if found else DONE
