"""All commands of ``loom`` under one name."""

import importlib
import importlib.util
import os
import sys

import typer

from loom_client.cli import deciding, listing, running, serving, steering
from loom_client.cli.failures import leave_quietly

PROJECT = "loom_client.cli.project"
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
    deciding.register(app)
    steering.register(app)
    listing.register(app)
    if importlib.util.find_spec(PROJECT) is not None:
        importlib.import_module(PROJECT).register(app)
    serving.register(app)
    app.command("version", help="Show the release of Loom.")(_version)
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


def _version() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        print(version("loom-dsl"))
    except PackageNotFoundError:
        print(f"not installed; run from {os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}")
