"""Functions and tools for graphs, as a user would write them. What they do is in the job's working directory."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import tool
from tests.support.external import _held, _write, lines

DONE, UNDONE = "done", "undone"


class Busy(Exception):
    """A failure with a code of its own."""

    code = "busy"


class Hopeless(Exception):
    """A failure that another attempt cannot mend."""

    code = "hopeless"
    retryable = False


@dataclass
class Weighed:
    """What a scale says."""

    grams: int
    path: Path


def weigh(grams: int, path: Path = Path("scale"), *, unit: str = "g") -> Weighed:
    """Give a dataclass."""
    return Weighed(grams if unit == "g" else grams * 1000, path)


def untyped(first, second=2, **others):  # type: ignore[no-untyped-def]
    """Give what came."""
    return [first, second, others]


async def wait_and_tell(text: str, context: ToolContext) -> dict[str, Any]:
    """Say who one is."""
    await asyncio.sleep(0)
    context.progress(f"working on {text}")
    return {"text": text, "key": context.idempotency_key, "dir": str(context.working_dir), "call": context.call_id}


def fail(kind: str) -> None:
    """Raise something."""
    raise {"busy": Busy, "hopeless": Hopeless, "plain": ValueError, "exit": SystemExit}[kind](f"no {kind}: s3cr3t-pw")


def falter(seconds: float, context: ToolContext) -> None:
    """Say that one is called, work for a while, and raise."""
    _write(context, DONE, "called")
    context.progress("called")
    time.sleep(seconds)
    raise Busy("not now")


def large(size: int) -> str:
    """Give a long text."""
    return "x" * size


def length(text: str) -> int:
    """Count the characters of a text."""
    return len(text)


def unreadable() -> object:
    """Give what is no JSON."""
    return object()


def reveal() -> dict[str, str]:
    """Give a secret away."""
    return {"password": "s3cr3t-pw"}


def note(text: str, context: ToolContext) -> dict[str, str]:
    """Do something that can be taken back, and wait while the test holds it."""
    _write(context, DONE, text)
    for _ in _held(context):
        pass
    return {"noted": text}


def contents(name: str, context: ToolContext) -> str:
    """Give what is in a file."""
    return (context.working_dir / name).read_text(encoding="utf-8")


def count(context: ToolContext) -> int:
    """Count how often this was called in the directory."""
    _write(context, "count", context.idempotency_key)
    return len(lines(context.working_dir, "count"))


def take_back(text: str | None, context: ToolContext) -> None:
    """Take a note back."""
    _write(context, UNDONE, str(text))


@tool(read_only=True)
def version() -> str:
    """Give a text that looks like a number."""
    return "1.10"


@tool(read_only=True)
def report(lines: int) -> dict[str, Any]:
    """Give a mapping."""
    return {"lines": ["line"] * lines}
