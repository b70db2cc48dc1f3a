"""Running a command line, confined to the working directory."""

import os
from typing import Annotated

from pydantic import Field

from activities.confine.order import Order
from activities.confine.run import LAUNCHER, Ended, run_confined
from activities.confine.setting import check, mode_of, order_of
from loom_dsl.errors import Aborted, ToolError, ToolTimeout, ToolUnavailable
from loom_dsl.redaction import cut_middle
from loom_dsl.tools import Arguments, Risk, ToolContext, tool

LONGEST = 600.0
"""Seconds that a command may take."""
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/run/current-system/sw/bin/bash")
_OUTPUT_OF_STOPPED = 3_000
_MOST_PLACES = 10
_STOPPED = {
    "output": "it wrote more output than is kept (4 MiB), so it was stopped; write into a file, or filter it",
    "memory": "it was stopped, because it used more memory than a command may",
    "disk": "it was stopped, because it used more room on the disk than a command may",
    "processes": "it was stopped, because it started more processes than a command may",
}


def may_run() -> bool:
    """Say whether commands can run on this worker.

    Raises:
        ToolUnavailable: They cannot be confined as the worker's settings want; says what is missing.
    """
    mode = mode_of(os.environ)
    check(mode, LAUNCHER.means())
    return True


def _shell() -> str:
    found = next((place for place in _SHELLS if os.access(place, os.X_OK)), "")
    if not found:
        raise ToolUnavailable("there is no bash on this worker's machine")
    return found


def told(ended: Ended, what: str, seconds: float, order: Order | None = None) -> str:
    """Say to the model how it ended.

    Args:
        ended: How.
        what: What ran, for messages.
        seconds: How long it was allowed to take.
        order: How it was confined.

    Raises:
        ToolTimeout: It took too long.
        Aborted: Somebody ended the job.
        ToolError: It was stopped for another reason.
    """
    left = f"{ended.left} process{'' if ended.left == 1 else 'es'} that it left running"
    notes = [f"{left} {'was' if ended.left == 1 else 'were'} ended"] if ended.left else []
    notes += [f"{name} was removed, because it would lead git elsewhere" for name in ended.removed]
    if order is not None and ended.status and (closed := order.closed()):
        places = ", ".join(os.path.relpath(path, order.cwd) for path in closed[:_MOST_PLACES])
        more = ", …" if len(closed) > _MOST_PLACES else ""
        notes.append(f"on this machine a command makes nothing new in {places}{more}, beside what is protected there")
    if ended.stopped:
        shown = cut_middle(ended.output, _OUTPUT_OF_STOPPED)[0]
        wrote = f" It had written:\n{shown}" if shown else " It had written nothing."
        if ended.stopped == "timeout":
            raise ToolTimeout(f"{what} did not end within {seconds:g} s and was stopped.{wrote}")
        if ended.stopped == "aborted":
            raise Aborted(f"{what} was stopped, because the job was ended")
        raise ToolError(f"{what}: {_STOPPED.get(ended.stopped, ended.stopped)}.{wrote}")
    assert ended.status is not None
    status = f"exit status {ended.status}" if ended.status >= 0 else f"ended by signal {-ended.status}"
    text = ended.output if not ended.output or ended.output.endswith("\n") else f"{ended.output}\n"
    return f"{text}[{'; '.join([status, *notes])}]"


def _preview(arguments: Arguments, context: ToolContext) -> str:
    purpose = f"# {arguments.get('description')}\n" if arguments.get("description") else ""
    return f"{purpose}{arguments['command']}\n\nin {context.working_dir}, for at most {arguments['timeout']:g} s"


@tool(
    risk=Risk.HIGH,
    timeout=LONGEST + 20,
    summarise=lambda arguments: f"$ {arguments.get('command')}",
    preview=_preview,
    is_available=may_run,
)
def execute_bash(
    context: ToolContext,
    command: Annotated[str, Field(min_length=1, max_length=30_000)],
    timeout: Annotated[float, Field(gt=0, le=LONGEST)] = 120.0,
    description: Annotated[str, Field(max_length=300)] = "",
) -> str:
    """Run a command line with bash in the working directory. Gives what it wrote, to both streams, and its exit status.

    It can read the system's programs and the working directory, write into the working directory and $TMPDIR, which
    is removed afterwards, and reach no network and no other process. It cannot read keys and `.env` files, nor write
    the settings and hooks of git. What it leaves running is ended. Every call is a new shell: variables and `cd` last
    for one call. Nothing can be typed into it.

    Args:
        command: The command line.
        timeout: Seconds after which it is stopped.
        description: What it is for, in a few words, for the people who are asked.
    """
    if "\0" in command:
        raise ToolError("a command line cannot contain the character 0")
    argv = [_shell(), "--noprofile", "--norc", "-c", command]
    order = order_of(
        argv, context.working_dir, LAUNCHER.means(), os.environ, cpu=timeout, protected=context.services.protected
    )
    ended = run_confined(order, timeout=timeout, cancelled=context.cancelled, progress=context.progress)
    return told(ended, "the command", timeout, order)
