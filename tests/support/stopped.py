"""Tools of a worker that is stopped: some look whether they are to end, some do not."""

import time
from pathlib import Path

from loom_dsl.errors import Aborted
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.hooks import HookAnswer, HookCall
from loom_dsl.tools.tool import tool

BEGUN, GO, RETURNS, ASKED = "stopped-begun", "stopped-go", "stopped-returns", "stopped-asked"


def _note(folder: Path, name: str) -> None:
    with (folder / name).open("a") as noted:
        noted.write(f"{name.removeprefix('stopped-')}\n")


def _until_cancelled(context: ToolContext) -> None:
    _note(context.working_dir, BEGUN)
    while not context.cancelled():
        time.sleep(0.02)


def _wait(folder: Path, longest: float = 120.0) -> None:
    _note(folder, BEGUN)
    end = time.monotonic() + longest
    while not (folder / GO).exists() and time.monotonic() < end:
        time.sleep(0.02)


@tool
def stubborn(text: str, context: ToolContext) -> str:
    """Work until the file is there, whatever happens.

    Args:
        text: What to say.
    """
    _wait(context.working_dir)
    (context.working_dir / RETURNS).touch()
    return f"done: {text}"


@tool
def nap(text: str, context: ToolContext) -> str:
    """Work for three seconds.

    Args:
        text: What to say.
    """
    _wait(context.working_dir, 3.0)
    return f"done: {text}"


@tool
def careful(text: str, context: ToolContext) -> str:
    """Work until it is told to end.

    Args:
        text: What to say.
    """
    _until_cancelled(context)
    return f"stopped early: {text}"


@tool(read_only=True)
def search(text: str, context: ToolContext) -> str:
    """Look for something, and give up when told to.

    Args:
        text: What to look for.
    """
    _note(context.working_dir, BEGUN)
    end = time.monotonic() + 120
    while not (context.working_dir / GO).exists() and time.monotonic() < end:
        if context.cancelled():
            raise Aborted("the search was stopped")
        time.sleep(0.02)
    return f"found: {text}"


def count(text: str, context: ToolContext) -> str:
    """Count words, for a graph, until it is told to end."""
    _until_cancelled(context)
    return f"{len(text.split())} words"


@tool(idempotent=True)
def late(text: str, context: ToolContext) -> str:
    """Do something, but not before the file is there.

    Args:
        text: What to say.
    """
    _wait(context.working_dir)
    return f"done: {text}"


def linger(call: HookCall) -> HookAnswer | None:
    """Keep a stage from its beginning for as long as a hook may, until the file is there."""
    _note(call.working_dir, ASKED)
    end = time.monotonic() + 2.5
    while not (call.working_dir / GO).exists() and time.monotonic() < end:
        time.sleep(0.02)
    return None
