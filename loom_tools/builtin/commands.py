"""Running a command line, confined to the working directory."""

import os
import sys
from typing import Annotated

from pydantic import Field

from loom_dsl.errors import Aborted, PermissionDenied, ToolError, ToolTimeout, ToolUnavailable, ToolValidationError
from loom_dsl.permissions.python_code import check_python
from loom_dsl.text.redaction import cut_middle
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.tool import Arguments, tool
from loom_tools.sandbox.order import SandboxOrder
from loom_tools.sandbox.run import LAUNCHER, Ended, run_confined
from loom_tools.sandbox.settings import check, mode_of, order_of

MAX_SECONDS = 600.0
"""Seconds that a command may take."""
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/run/current-system/sw/bin/bash")
_OUTPUT_OF_STOPPED = 3_000
_MAX_PLACES = 10
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


def told(ended: Ended, what: str, seconds: float, order: SandboxOrder | None = None) -> str:
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
        places = ", ".join(os.path.relpath(path, order.cwd) for path in closed[:_MAX_PLACES])
        more = ", …" if len(closed) > _MAX_PLACES else ""
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
    timeout=MAX_SECONDS + 20,
    summarise=lambda arguments: f"$ {arguments.get('command')}",
    preview=_preview,
    is_available=may_run,
)
def execute_bash(
    context: ToolContext,
    command: Annotated[str, Field(min_length=1, max_length=30_000)],
    timeout: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = 120.0,
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


# Running Python code, confined to the working directory.


SETTING = "LOOM_PYTHON_ALLOW"
"""Variable of the worker: names that code may use although `check_python` finds them, with commas between."""
_MAX_FINDINGS = 5
_RUN = """
import ast, linecache, sys, traceback
def run(code):
    lines = code.splitlines(True)
    linecache.cache["<code>"] = (len(code), None, lines, "<code>")
    tree = ast.parse(code, "<code>")
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    names = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        exec(compile(tree, "<code>", "exec"), names)
        if last is not None:
            sys.displayhook(eval(compile(last, "<code>", "eval"), names))
    except SystemExit:
        raise
    except BaseException as error:
        sys.stdout.flush()
        shown = traceback.TracebackException.from_exception(error)
        while shown.stack and shown.stack[0].filename != "<code>":
            del shown.stack[0]
        print("".join(shown.format()), end="", file=sys.stderr)
        sys.exit(1)
code = sys.stdin.buffer.read().decode()
del sys.argv[1:]
run(code)
"""


def check_code(code: str) -> None:
    """Look through code before it runs, and before anybody is asked about it.

    Raises:
        ToolValidationError: It is no Python.
        PermissionDenied: It uses what is not allowed; says what and where.
    """
    allowed = [name.strip() for name in os.environ.get(SETTING, "").split(",")]
    found = check_python(code, allowed)
    if not found:
        return
    words = "; ".join(finding.message for finding in found[:_MAX_FINDINGS])
    more = f"; and {len(found) - _MAX_FINDINGS} more" if len(found) > _MAX_FINDINGS else ""
    if found[0].kind == "syntax":
        raise ToolValidationError(f"the code is no valid Python: {words}. Correct it and call again.")
    raise PermissionDenied(f"the code is not run: {words}{more}")


def _summary(arguments: Arguments) -> str:
    lines = str(arguments.get("code", "")).strip().splitlines() or [""]
    return f">>> {lines[0]}" + (f" ... ({len(lines)} lines)" if len(lines) > 1 else "")


@tool(
    risk=Risk.HIGH,
    timeout=MAX_SECONDS + 20,
    summarise=_summary,
    preview=lambda arguments, _: str(arguments["code"]),
    check=lambda arguments: check_code(str(arguments["code"])),
    is_available=may_run,
)
def python_repl(
    context: ToolContext,
    code: Annotated[str, Field(min_length=1, max_length=200_000)],
    timeout: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = 120.0,
) -> str:
    """Run Python code in the working directory. Gives what it printed and, as in a REPL, the last expression's value.

    Every call is a new process: variables of earlier calls are not there, so write what later calls need into a file.
    The modules os, sys and subprocess, and open, eval, exec and __import__, are not allowed: files are read and written
    with pathlib. It reaches no network.

    Args:
        code: The code of a module.
        timeout: Seconds after which it is stopped.
    """
    argv = [os.path.realpath(sys.executable), "-I", "-B", "-X", "utf8", "-c", _RUN]
    if sys.prefix != sys.base_prefix:
        argv[0] = sys.executable  # its place tells Python which packages belong to it
    order = order_of(
        argv, context.working_dir, LAUNCHER.means(), os.environ, cpu=timeout, protected=context.services.protected
    )
    given = code.encode("utf-8", "replace")
    ended = run_confined(order, timeout=timeout, given=given, cancelled=context.cancelled, progress=context.progress)
    return told(ended, "the code", timeout, order)
