"""All commands of ``loom`` under one name."""

import importlib
import importlib.util
import os
import sys
from typing import Annotated

import typer

from loom_cli.commands.approve import approve, audit, decide, keys
from loom_cli.commands.control import migrate, steer, store
from loom_cli.commands.run import run as running
from loom_cli.commands.run import start_graph
from loom_cli.commands.serve import gateway, serve, webhooks
from loom_cli.commands.show import show
from loom_cli.errors import leave_quietly

PROJECT = (
    "loom_cli.commands.author.project",
    "loom_cli.commands.author.draw",
    "loom_cli.commands.author.new",
    "loom_cli.commands.author.simulate",
    "loom_cli.commands.control.replay",
    "loom_cli.commands.author.policy",
    "loom_cli.commands.control.schedule",
)
"""The commands about a project's files."""


def build() -> typer.Typer:
    """Put the commands together."""
    app = typer.Typer(
        name="loom",
        help="Durable agents on Temporal: run them, watch them, decide what they ask.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Where the server and the store are: LOOM_ADDRESS, LOOM_NAMESPACE, LOOM_TASK_QUEUE, LOOM_STORE, or the "
        "flags of the same names. LOOM_DEBUG=1 shows the traceback of an error.",
    )
    running.register(app)
    approve.register(app)
    decide.register(app)
    audit.register(app)
    keys.register(app)
    gateway.register(app)
    webhooks.register(app)
    steer.register(app)
    start_graph.register(app)
    migrate.register(app)
    store.register(app)
    show.register(app)
    for module in PROJECT:
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).register(app)
    serve.register(app)
    app.command("version", help="Show the release of Loom.")(_version)
    app.callback()(_options)
    return app


def run(argv: list[str]) -> int:
    """Run one command; its exit status."""
    if sys.stdout is None:  # a shell can start us with `>&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open to the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what an encoding lacks is shown as an escape, and never an error
            stream.reconfigure(errors="backslashreplace")
    try:
        build()(argv, prog_name="loom")
        sys.stdout.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        return leave_quietly()
    else:
        return 0
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return leave_quietly()
    return code


def _show_version(wanted: bool) -> None:
    if wanted:
        _version()
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the release of Loom.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def _version() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        print(version("loom-dsl"))
    except PackageNotFoundError:
        print(f"not installed; run from {os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}")
