"""Tools, functions and hooks that end the process that they run in, and some beside them that harm nobody.

Each writes the process that it ran in to the file `deaths` of the job's directory before it ends it.
"""

import ctypes
import os
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from loom_dsl.errors import OutcomeUnknown, ToolError
from loom_dsl.permissions.function import PermissionRequest
from loom_dsl.tools.context import Image, Reconciliation, ToolContext, ToolOutput
from loom_dsl.tools.hooks import HookAnswer, HookCall
from loom_dsl.tools.tool import tool

DEATHS, GO = "deaths", "go"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def note(folder: Path) -> None:
    """Write down that this process is about to end."""
    with (folder / DEATHS).open("a") as file:
        file.write(f"{os.getpid()}\n")


@tool(read_only=True)
def die(text: str, context: ToolContext) -> str:
    """Look something up in a library that ends the process."""
    note(context.working_dir)
    print(f"the library gives up on {text}", file=sys.stderr, flush=True)
    os._exit(7)


@tool(read_only=True, quick=True)
def die_quickly(text: str, context: ToolContext) -> str:
    """Look something up locally, and end the process."""
    note(context.working_dir)
    os._exit(7)


@tool(read_only=True)
def crash(text: str, context: ToolContext) -> str:
    """Read memory that is not there."""
    note(context.working_dir)
    return ctypes.string_at(0).decode()


@tool
def die_writing(text: str, context: ToolContext) -> str:
    """Change something, and end the process."""
    note(context.working_dir)
    os._exit(7)


def _kill_key(arguments: dict[str, Any]) -> str:
    note(Path(arguments["folder"]))
    os._exit(7)


@tool(read_only=True, concurrency_safe=False, concurrency_key=_kill_key)
def keyed(folder: str) -> str:
    """Have a key that kills."""
    return "never"


@tool(read_only=True)
def hold(text: str, context: ToolContext) -> str:
    """Work until the file `go` is there."""
    while not (context.working_dir.parent / GO).exists():
        time.sleep(0.02)
    return f"held {text}"


@tool(read_only=True)
def look(text: str) -> str:
    """Look at something."""
    return f"saw {text}"


@tool(read_only=True, timeout=1.0)
def hang(text: str, context: ToolContext) -> str:
    """Never return."""
    note(context.working_dir)
    while True:
        time.sleep(1)


@tool(read_only=True)
def tell(text: str, context: ToolContext) -> dict[str, Any]:
    """Use all that a context has."""
    context.progress(f"working on {text}")
    context.leaves("later")
    context.check_state("now", "the file")
    return {
        "process": os.getpid(),
        "secret": context.secret("SHELF"),
        "output": context.services.output("abc"),
        "todo": [item.text for item in context.services.todo()],
        "runtime": dict(context.runtime),
        "cancelled": context.cancelled(),
        "place": [str(context.working_dir), context.job, context.turn, context.call_id, context.idempotency_key],
        "thread": threading.current_thread() is threading.main_thread(),
    }


@tool(read_only=True)
def wait_for_end(text: str, context: ToolContext) -> str:
    """Work until it is cancelled."""
    context.progress("at work")
    while not context.cancelled():
        time.sleep(0.02)
    (context.working_dir / "seen").write_text(text)
    return "cancelled"


@dataclass
class Pair:
    left: int
    right: date


class Refused(Exception):
    code = "refused"
    retryable = False


class Odd(ToolError):
    code = "odd"


class Opaque:
    pass


def _raise(error: BaseException) -> Any:
    raise error


GIVEN: dict[str, Any] = {
    "text": lambda: "a text",
    "nothing": lambda: None,
    "pair": lambda: Pair(1, date(2026, 5, 4)),
    "nan": lambda: [float("inf")],
    "image": lambda: ToolOutput(text="look", images=(Image(data=PNG),)),
    "large": lambda: "x" * 3_000_000,
    "opaque": Opaque,
    "unsaid": lambda: _raise(ValueError("the shelf is empty")),
    "refused": lambda: _raise(Refused("not you")),
    "told": lambda: _raise(ToolError("ask for less")),
    "odd": lambda: _raise(Odd("in a way")),
    "unknown": lambda: _raise(OutcomeUnknown("maybe")),
    "exit": lambda: sys.exit(3),
}


@tool(read_only=True)
def give(what: str) -> Any:
    """Return or raise what its name says."""
    return GIVEN[what]()


@tool(read_only=True)
async def give_later(what: str) -> Any:
    """Return or raise what its name says, in a coroutine."""
    return GIVEN[what]()


def _find(given: dict[str, Any], asked: ToolContext) -> Reconciliation:
    asked.progress("asked")
    return Reconciliation(outcome="happened", result=Pair(2, date(2026, 5, 5)))


@tool(reconcile=_find)
def write(text: str) -> str:
    """Write something."""
    return text


def kill_before(call: HookCall) -> HookAnswer | None:
    """Stand before a stage, and end the process."""
    note(call.working_dir)
    os._exit(7)


def answer(call: HookCall) -> HookAnswer | None:
    """Change the arguments."""
    return HookAnswer(arguments={**call.arguments, "on": date(2026, 5, 4)}, note=call.point)


def allow(request: PermissionRequest) -> tuple[str, str]:
    """Decide about a call."""
    return "ask", f"{request.tool} of {request.job}"


def kill_function(folder: str) -> str:
    """Be called by a graph's node, and end the process."""
    note(Path(folder))
    os._exit(7)


def add(left: int, right: int, context: ToolContext) -> dict[str, int]:
    """Be called by a graph's node."""
    context.progress("adding")
    return {"sum": left + right, "process": os.getpid()}
