"""Running Python code, confined to the working directory."""

import os
import sys
from typing import Annotated

from pydantic import Field

from activities.builtin.execute_bash import LONGEST, may_run, told
from activities.confine.run import LAUNCHER, run_confined
from activities.confine.setting import order_of
from loom_dsl.errors import PermissionDenied, ToolValidationError
from loom_dsl.python_check import check_python
from loom_dsl.tools import Arguments, Risk, ToolContext, tool

SETTING = "LOOM_PYTHON_ALLOW"
"""Variable of the worker: names that code may use although `check_python` finds them, with commas between."""
_MOST_FINDINGS = 5
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
    words = "; ".join(finding.message for finding in found[:_MOST_FINDINGS])
    more = f"; and {len(found) - _MOST_FINDINGS} more" if len(found) > _MOST_FINDINGS else ""
    if found[0].kind == "syntax":
        raise ToolValidationError(f"the code is no valid Python: {words}. Correct it and call again.")
    raise PermissionDenied(f"the code is not run: {words}{more}")


def _summary(arguments: Arguments) -> str:
    lines = str(arguments.get("code", "")).strip().splitlines() or [""]
    return f">>> {lines[0]}" + (f" ... ({len(lines)} lines)" if len(lines) > 1 else "")


@tool(
    risk=Risk.HIGH,
    timeout=LONGEST + 20,
    summarise=_summary,
    preview=lambda arguments, _: str(arguments["code"]),
    check=lambda arguments: check_code(str(arguments["code"])),
    is_available=may_run,
)
def python_repl(
    context: ToolContext,
    code: Annotated[str, Field(min_length=1, max_length=200_000)],
    timeout: Annotated[float, Field(gt=0, le=LONGEST)] = 120.0,
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
