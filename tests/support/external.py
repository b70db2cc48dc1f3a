"""A world outside Loom: tools whose effects can be counted, and that wait while the test wants them to.

Everything is in the job's working directory: `ledger` has one line for each effect, `begun` one for each attempt, and
as long as `hold` exists, the tools that can wait do so after their effect.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loom_dsl.tools.context import Reconciliation, ToolContext
from loom_dsl.tools.tool import tool
from tests.support.waiting import PATIENCE

LEDGER, BEGUN, HOLD, CRASH = "ledger", "begun", "hold", "crash"


def lines(folder: Path, name: str = LEDGER) -> list[str]:
    """What has been written to one of the files so far."""
    file = folder / name
    return file.read_text().splitlines() if file.exists() else []


def _write(context: ToolContext, name: str, text: str) -> None:
    # One write of one short line to a file opened for appending: it is there whole or not at all, whoever is killed.
    number = os.open(context.working_dir / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(number, f"{text}\n".encode())
    finally:
        os.close(number)


def _held(context: ToolContext) -> Iterator[None]:
    end = time.monotonic() + PATIENCE
    while (context.working_dir / HOLD).exists() and time.monotonic() < end and not context.cancelled():
        yield


def _act(context: ToolContext, text: str) -> str:
    # The effect first: who waits for an attempt to be told, and then kills, finds its effect done.
    _write(context, LEDGER, f"{context.idempotency_key} {text}")
    _write(context, BEGUN, context.idempotency_key)
    for _ in _held(context):
        time.sleep(0.01)
    return f"done: {text}"


def _find(arguments: dict[str, Any], context: ToolContext) -> Reconciliation:
    wanted = f"{context.idempotency_key} {arguments['text']}"
    there = wanted in lines(context.working_dir)
    return Reconciliation(outcome="happened" if there else "not_happened", result=f"done: {arguments['text']}")


@tool
def send(text: str, context: ToolContext) -> str:
    """Send a letter. Sent is sent: twice would be two letters.

    Args:
        text: What to write.
    """
    return _act(context, text)


@tool(reconcile=_find)
def register(text: str, context: ToolContext) -> str:
    """Register something at an office that can be asked afterwards.

    Args:
        text: What to register.
    """
    return _act(context, text)


@tool(idempotent=True)
def put(text: str, context: ToolContext) -> str:
    """Put a text somewhere; putting it there again changes nothing.

    Args:
        text: What to put.
    """
    _write(context, BEGUN, context.idempotency_key)
    for _ in _held(context):
        time.sleep(0.01)
    if not any(line.startswith(context.idempotency_key) for line in lines(context.working_dir)):
        _write(context, LEDGER, f"{context.idempotency_key} {text}")
    return f"done: {text}"


@tool(read_only=True, quick=True)
def look(text: str) -> str:
    """Look at something, at once.

    Args:
        text: What to look at.
    """
    return f"saw {text}"


@tool(read_only=True)
async def linger(text: str, context: ToolContext) -> str:
    """Look at something for as long as the test wants.

    Args:
        text: What to look at.
    """
    _write(context, BEGUN, context.idempotency_key)
    for _ in _held(context):
        await asyncio.sleep(0.01)
    return f"saw {text}"


def _crash_if_told(arguments: dict[str, Any]) -> str:
    told = Path(os.environ.get("LOOM_TEST_CRASH", "/nonexistent"))
    if told.exists():
        told.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"post {arguments['text']}"


@tool(summarise=_crash_if_told)
def post(text: str, context: ToolContext) -> str:
    """Post a letter. Its summary for approvers, made in the stage `authorize`, kills the worker when a file says so.

    Args:
        text: What to post.
    """
    return _act(context, text)


NAMES = ("send", "register", "put", "look", "linger", "post")
REFERENCES = tuple(f"{__name__}:{name}" for name in NAMES)
