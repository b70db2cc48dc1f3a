"""How a command ends: the exit status, and one line that says what is wrong and what to do."""

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec

if TYPE_CHECKING:
    from loom_dsl.errors import Diagnostic

P = ParamSpec("P")

DONE, FAILED, MISTAKE, HALTED, UNCLEAR, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""Of commands that follow a job FAILED is said of the job alone: what they could not find out is UNCLEAR."""
BROKEN_PIPE = 141
"""What a shell reports of a program that wrote into a closed pipe."""

_on_interrupt = ""


def tell_on_interrupt(message: str) -> None:
    """Choose what is said when the command is interrupted from here on."""
    global _on_interrupt
    _on_interrupt = message


def guarded(
    command: Callable[P, Coroutine[Any, Any, int | None] | int | None], failure: int = FAILED
) -> Callable[P, None]:
    """Make a command of a function or a coroutine: it gives the exit status, and every way to fail is told in a line.

    Args:
        command: The command.
        failure: The status where an error has none that tells more.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        raise SystemExit(outcome(lambda: _awaited(command(*args, **kwargs)), failure))

    return run


def following(command: Callable[P, Coroutine[Any, Any, int | None]]) -> Callable[P, None]:
    """Do as `guarded` does for a command that follows a job: what fails without the job is UNCLEAR, never FAILED."""
    return guarded(command, UNCLEAR)


def _awaited(result: Coroutine[Any, Any, int | None] | int | None) -> int | None:
    return asyncio.run(result) if isinstance(result, Coroutine) else result


def outcome(work: Callable[[], int | None], failure: int = FAILED) -> int:
    """Do the work of a command; the exit status.

    Args:
        work: Does it.
        failure: The status where an error has none that tells more.
    """
    try:
        return work() or DONE
    except KeyboardInterrupt:
        say(f"\ninterrupted{'; ' + _on_interrupt if _on_interrupt else ''}")
        return INTERRUPTED
    except BrokenPipeError:
        return leave_quietly()
    except Exception as error:
        code = _failure(error)
        return failure if code == FAILED and not _is_of_job(error) else code


def leave_quietly(descriptor: int = 1) -> int:
    """The reader of our output went away: say nothing more, also not when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return BROKEN_PIPE


def say(text: str) -> None:
    """Write a line to people, beside the output."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        leave_quietly(2)


def say_findings(findings: "Iterable[Diagnostic]") -> None:
    """Write what was found in documents, a line each, beside the output."""
    from loom_dsl.text.printable import visible

    for found in findings:
        say(visible(f"{found.severity}: {replace(found, severity='error')}"))


def _failure(error: Exception) -> int:
    from loom_dsl.errors import ConflictError, DocumentError, LoomError
    from loom_dsl.text.confusables import revealed
    from loom_dsl.text.printable import visible

    debug = os.environ.get("LOOM_DEBUG", "") not in ("", "0")
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, DocumentError):
        say_findings(error.diagnostics)
        return error.exit_code
    if isinstance(error, LoomError):
        # What was refused says names that somebody else wrote.
        message = revealed(error.message) if isinstance(error, ConflictError) else error.message
        say(visible(f"error: {message}"))
        return error.exit_code
    if isinstance(error, _rpc_error()):
        say(visible(f"error: the Temporal server does not do it: {error}"))
        return UNCLEAR
    hint = "" if debug else "; LOOM_DEBUG=1 shows where"
    text = " ".join(str(error).split())[:500]
    say(visible(f"error: {type(error).__name__}: {text}{hint}"))
    return UNCLEAR


def _is_of_job(error: Exception) -> bool:
    """Whether it says how the job ended."""
    outcomes = sys.modules.get("loom_client.job")
    return outcomes is not None and isinstance(error, outcomes.JobGone)


def _rpc_error() -> type[BaseException] | tuple[()]:
    """Give the SDK's error, if the SDK is loaded at all: most commands are quick without it."""
    service = sys.modules.get("temporalio.service")
    return service.RPCError if service is not None else ()
