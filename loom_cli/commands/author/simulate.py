"""``loom simulate``: a graph played in memory, against what a scenario says."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli.errors import DONE, FAILED, guarded, say_findings
from loom_cli.options import ConnectionOptions, Json, connection_options

if TYPE_CHECKING:
    from loom_cli.project.scenarios import Prepared
    from loom_cli.project.scenarios_on_server import Compared
    from loom_client.settings import Settings
    from loom_dsl.simulation.run import Rehearsal


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(guarded(simulate))


@connection_options("address", "namespace")
def simulate(
    target: Annotated[
        str,
        typer.Argument(help="A graph's file, or that of a scenario that names its graph.", metavar="GRAPH"),
    ],
    mock: Annotated[
        Path | None,
        typer.Option("--mock", help="The scenario: what the world answers, and what must come of it.", metavar="FILE"),
    ] = None,
    server: Annotated[
        bool, typer.Option("--server", help="Run it on the Temporal server, too, and compare what came of it.")
    ] = False,
    *,
    connection: ConnectionOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Leave out what went on in cases that are ok.")] = False,
    as_json: Json = False,
) -> int:
    """Play a graph in memory on a clock that jumps, without a server; 1 when a case goes another way than it is to."""
    from loom_cli.project.scenarios import prepare

    prepared = prepare(target, mock, os.environ)
    say_findings(prepared.warnings)
    if prepared.scenario is None:
        if server:
            from loom_dsl.errors import UserError

            raise UserError("--server runs the cases of a scenario; give one with --mock FILE")
        return _without_scenario(prepared, as_json)
    from loom_cli.render.reports import write_rehearsal
    from loom_cli.render.terminal import terminal_for
    from loom_dsl.simulation.report import failed, to_json
    from loom_dsl.simulation.run import play_scenario

    played = play_scenario(prepared.plan, prepared.scenario)
    if not as_json:
        write_rehearsal(terminal_for(), played, quiet=quiet)
    compared = _on_server(prepared, connection.settings()) if server else []
    if as_json:
        _print({**to_json(played), **({"server": [asdict(one) for one in compared]} if server else {})})
    else:
        _write_compared(compared)
    return FAILED if failed(played) or any(one.differences for one in compared) else DONE


def _on_server(prepared: "Prepared", settings: "Settings") -> "list[Compared]":
    import asyncio

    from loom_cli.project.scenarios_on_server import compare

    assert prepared.scenario is not None
    return asyncio.run(compare(prepared.plan, prepared.scenario, settings))


def _write_compared(compared: "list[Compared]") -> None:
    from loom_cli.render.terminal import terminal_for
    from loom_dsl.text.printable import one_line

    paper = terminal_for()
    if compared:
        paper.line()
        paper.line("On the server:", "bold")
    for one in compared:
        sign, style = ("DIFFERS", "bold red") if one.differences else ("the same", "bold green")
        sign, style = ("not run", "yellow") if one.skipped else (sign, style)
        paper.line(f"{sign:<8}  {one_line(one.case)}", style, hang=10)
        for line in (*one.differences, *([one.skipped] if one.skipped else [])):
            paper.line(f"          {one_line(line)}", hang=12)


def _without_scenario(prepared: "Prepared", as_json: bool) -> int:
    """Play the graph with nothing in the results, and say what a scenario has to fill in."""
    from loom_cli.render.reports import write_rehearsal
    from loom_cli.render.terminal import terminal_for
    from loom_dsl.simulation.draft import assumptions, starting_point
    from loom_dsl.simulation.report import failed, to_json
    from loom_dsl.text.printable import visible

    played, assumed = _empty(prepared), assumptions(prepared.plan)
    text = starting_point(prepared.plan, file=prepared.file)
    if as_json:
        _print({**to_json(played), "assumed": assumed, "start": text})
    else:
        paper = terminal_for()
        paper.line("There is no scenario (--mock FILE), so this is assumed:", "bold")
        for line in assumed or ["nothing: the graph asks for nothing"]:
            paper.line(f"  {visible(line)}", hang=4)
        write_rehearsal(paper, played)
        paper.line()
        paper.line("Say what is true instead, as a scenario:", "dim")
        paper.end_line()
        print(visible(text), end="")
        paper.line(f"Then: loom simulate {prepared.file} --mock FILE", "dim")
    return FAILED if failed(played) else DONE


def _empty(prepared: "Prepared") -> "Rehearsal":
    from loom_dsl.simulation.draft import empty_input, empty_results
    from loom_dsl.simulation.run import play_scenario
    from loom_dsl.simulation.scenario import Scenario

    results = {name: {"result": value} for name, value in empty_results(prepared.plan).items()}
    given = {"input": empty_input(prepared.plan), "results": results}
    head = {"loom": 1, "kind": "scenario", "name": "empty"}
    played = play_scenario(prepared.plan, Scenario.model_validate({**head, **given}))
    return replace(played, unused=())


def _print(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
