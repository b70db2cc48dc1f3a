"""Tools that their authors got wrong, as users would write them: nothing here knows of the tests."""

import asyncio
import contextlib
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import date
from typing import Any

from loom_dsl.errors import ToolError
from loom_dsl.fields import Retry
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import tool

CREDENTIAL = "sk-proj-1234567890abcdefABCDEF1234567890"
"""Looks like a key of a provider; nobody told the worker of it."""
KNOWN = "a-value-that-only-the-worker-knows-77"
"""Given to the worker as a secret."""
LONG = 30.0
"""Seconds for which the slow ones go on: so much longer than they may that a slow machine makes no difference."""


def look(text: str) -> str:
    """Look at something."""
    return f"saw {text}"


def typed(count: int, flag: bool = False, names: list[str] | None = None) -> str:
    """Take arguments of several types."""
    return f"{count} {flag} {names}"


def plain(what: str) -> Any:
    """Return or raise what its name says."""
    return _ODDITIES[what]()


@dataclass
class Pair:
    left: int
    right: date


class Opaque:
    def __str__(self) -> str:
        raise RuntimeError("no text of me")

    __repr__ = __str__


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text of me")


def _raise(error: BaseException) -> Any:
    raise error


def _exit_group() -> Any:
    sys.exit(3)


_ODDITIES: dict[str, Any] = {
    "none": lambda: None,
    "huge": lambda: "0123456789" * 500_000,
    "bytes": lambda: b"plain bytes",
    "binary": lambda: bytes(range(256)),
    "object": Opaque,
    "nan": lambda: {"mean": float("nan")},
    "pair": lambda: Pair(1, date(2026, 5, 4)),
    "surrogate": lambda: "half \ud800 a pair, and \x00 nothing",
    "keys": lambda: {1: "one", (2, 3): "pair"},
    "set": lambda: {"a"},
    "print": lambda: print("{not a protocol}", flush=True) or "printed",
    "raise": lambda: _raise(ValueError("the shelf is empty")),
    "raise told": lambda: _raise(ToolError("ask for a smaller shelf")),
    "raise long": lambda: _raise(ToolError("long " * 1_000_000)),
    "raise untold": lambda: _raise(Untold()),
    "raise timeout": lambda: _raise(TimeoutError("the database did not answer")),
    "raise stop": lambda: _raise(StopIteration("no more")),
    "raise cancelled": lambda: _raise(asyncio.CancelledError()),
    "raise interrupt": lambda: _raise(KeyboardInterrupt()),
    "raise group": lambda: _raise(ExceptionGroup("two things", [ValueError("first"), KeyError("second")])),
    "raise deep": lambda: _recurse(0),
    "exit": _exit_group,
    "credential": lambda: f"the key is {CREDENTIAL}, keep it",
    "known": lambda: {"value": KNOWN},
    "raise credential": lambda: _raise(RuntimeError(f"401 for {CREDENTIAL}")),
    "raise known": lambda: _raise(ToolError(f"cannot log in with {KNOWN}")),
}


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


async def plain_async(what: str) -> Any:
    """Return or raise what its name says, in a coroutine."""
    await asyncio.sleep(0)
    return _ODDITIES[what]()


@tool(read_only=True)
def whisper(text: str, context: ToolContext) -> str:
    """Tell the watchers what should stay unknown."""
    context.progress(f"using {KNOWN} and {CREDENTIAL}")
    return text


@tool(read_only=True)
def chatty(text: str, context: ToolContext) -> str:
    """Say where it is after every step of very many."""
    for number in range(20_000):
        context.progress(f"{text} {number}")
    return text


@tool(timeout=0.5)
def slow_sync(text: str) -> str:
    """Take longer than it may."""
    time.sleep(LONG)
    return text


@tool(timeout=0.5, read_only=True)
async def slow_async(text: str) -> str:
    """Take longer than it may, in a coroutine."""
    await asyncio.sleep(LONG)
    return text


@tool(timeout=0.5, read_only=True)
async def stubborn(text: str) -> str:
    """Go on although it was cancelled."""
    for _ in range(int(LONG / 0.3)):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.3)
    return text


@tool(timeout=1.0, read_only=True)
async def blocking(text: str) -> str:
    """Block the event loop, as a coroutine must not."""
    time.sleep(LONG)  # noqa: ASYNC251 - the mistake that is meant
    return text


def _refuse(*_: Any) -> Any:
    raise LookupError("the author did not think of this")


def _hang(*_: Any) -> Any:
    threading.Event().wait(120)


@tool(concurrency_key=_hang)
def hung_key(text: str) -> str:
    """Have a key for which one waits and waits."""
    return f"did {text}"


@tool(summarise=_hang, preview=_hang)
def hung_words(text: str) -> str:
    """Have a summary and a preview that never come."""
    return f"did {text}"


@tool(is_available=_hang)
def undecided(text: str) -> str:
    """Never says whether it is there."""
    return text


@tool(concurrency_key=_refuse)
def keyless(text: str) -> str:
    """Have a key that cannot be told."""
    return f"did {text}"


@tool(concurrency_key=lambda arguments: arguments["text"] * 500_000)
def long_key(text: str) -> str:
    """Have a key of many characters."""
    return f"did {text}"


@tool(summarise=_refuse)
def unsummarised(text: str) -> str:
    """Have no summary."""
    return f"did {text}"


@tool(preview=_refuse)
def unseen(text: str) -> str:
    """Have no preview."""
    return f"did {text}"


@tool(is_available=_refuse)
def uncertain(text: str) -> str:
    """Cannot tell whether it is there."""
    return text


@tool(is_available=lambda: False)
def absent(text: str) -> str:
    """Is not there."""
    return text


_SOON = Retry(attempts=3, initial=0.01)
called: Counter[str] = Counter()
"""By job: how often its function that is tried again was called."""


def _called(context: ToolContext) -> int:
    called[context.job] += 1
    return called[context.job]


@tool(idempotent=True, retry=_SOON)
def fickle(text: str, context: ToolContext) -> str:
    """Work at the third attempt."""
    if _called(context) < 3:
        raise OSError(f"the line to {CREDENTIAL} is busy")
    return f"did {text}"


@tool(read_only=True, retry=_SOON)
async def hopeless(text: str, context: ToolContext) -> str:
    """Fail each time."""
    raise OSError(f"no line, {_called(context)} times")


@tool(idempotent=True, retry=_SOON)
def decided(text: str, context: ToolContext) -> str:
    """Tell the model what to do."""
    raise ToolError(f"ask for a smaller shelf, {_called(context)} times")


@tool(idempotent=True, timeout=3.0, retry=Retry(attempts=3, initial=LONG))
def waiting(text: str, context: ToolContext) -> str:
    """Have attempts that its time does not suffice for."""
    _called(context)
    raise OSError("no line")


def unannotated(text) -> str:  # type: ignore[no-untyped-def]
    """Has no annotation."""
    return str(text)


NAMES = (
    "look", "typed", "plain", "plain_async", "whisper", "slow_sync", "slow_async", "stubborn", "blocking", "keyless",
    "long_key", "unsummarised", "unseen", "uncertain", "absent",
    "chatty", "hung_key", "hung_words", "undecided",
    "fickle", "hopeless", "decided", "waiting",
)  # fmt: skip
REFERENCES = tuple(f"{__name__}:{name}" for name in NAMES)
BUILTINS = ("read_file", "write_file", "edit_file", "glob", "grep")
