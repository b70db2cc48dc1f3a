"""Running a tool's function, so that nothing that it does reaches the worker: neither what it raises nor how it waits.

A sync function gets a thread of its own: one that hangs beyond its timeout holds up no other call. Coroutines run in
an event loop of their own: one that blocks it holds up other tools' coroutines, and neither heartbeats nor jobs.
"""

import asyncio
import concurrent.futures
import contextvars
import json
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import pydantic_core

from loom_dsl.errors import LoomError, PermissionDenied, UnreadableResult
from loom_dsl.tool_output import Image, ToolOutput

ANSWER_SECONDS = 3.0
"""What a tool's author wrote besides its function gets this long: up to three of them in an activity of ten seconds."""
Answer = TypeVar("Answer")


class Raised(Exception):
    """A tool's function raised `error`, whatever kind of exception that is."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


_Outcome = tuple[Any, BaseException | None]


async def run_function(function: Callable[..., Any], keywords: Mapping[str, Any], *, is_async: bool = False) -> Any:
    """Call a function of the user's. When the caller is cancelled, a coroutine is too; a thread goes on, unheard.

    Raises:
        Raised: The function raised something.
    """
    waiting = _in_loop(function, keywords) if is_async else _in_thread(function, keywords)
    result, error = await asyncio.wrap_future(waiting)
    if error is not None:
        raise Raised(error)
    return result


async def ask(function: Callable[..., Answer], *arguments: Any) -> Answer:
    """Call what a tool's author wrote besides the tool's function: it may block or hang, and holds up nobody else.

    Raises:
        Raised: It raised something.
        TimeoutError: It did not answer in time.
    """
    asking = asyncio.ensure_future(run_function(lambda: function(*arguments), {}))
    try:
        answer: Answer = await in_time(asking)
        return answer
    finally:
        asking.cancel()


async def in_time(asking: "asyncio.Future[Answer]") -> Answer:
    """Wait for what a tool's author wrote besides the tool's function. It is not cancelled.

    An answer counts that is there when this looks, which on a busy machine may be long after the time was over.

    Raises:
        TimeoutError: There is no answer in time.
    """
    await asyncio.wait([asking], timeout=ANSWER_SECONDS)
    if not asking.done():
        raise TimeoutError
    return asking.result()


async def check_call(check: Callable[[dict[str, Any]], None], arguments: dict[str, Any]) -> None:
    """Let a tool's author look at a call. What cannot be looked at is not run.

    Raises:
        LoomError: It is not to run; says why.
    """
    try:
        await ask(check, arguments)
    except Raised as raised:
        error = raised.error
        raise (error if isinstance(error, LoomError) else PermissionDenied(describe(error))) from None
    except TimeoutError:
        why = f"the tool could not look at the call's arguments within {ANSWER_SECONDS:g} s"
        raise PermissionDenied(why) from None


def describe(error: BaseException) -> str:
    """Say in one line what an exception is, also one whose own text cannot be had."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(result: Any) -> str:
    """Write what a tool returned as text: text as it is, nothing as nothing, everything else as JSON.

    Raises:
        UnreadableResult: It cannot be written; says why.
    """
    if isinstance(result, Image):
        return f"an image ({result.media_type}, {len(result.data):,} bytes)"
    if isinstance(result, ToolOutput):
        return result.text
    if result is None or isinstance(result, str):
        return result or ""
    if isinstance(result, bytes | bytearray | memoryview):
        try:
            return bytes(result).decode()
        except UnicodeDecodeError:
            raise UnreadableResult(f"it returned {len(bytes(result))} bytes that are not text") from None
    try:
        # Not the canonical form: NaN is no JSON, but a model can read it.
        plain = pydantic_core.to_jsonable_python(result)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except Exception as error:
        raise UnreadableResult(
            f"it returned an object of the type {type(result).__name__}, which cannot be written as JSON "
            f"({describe(error)[:300]}); a tool returns text or JSON values"
        ) from None


def _in_thread(function: Callable[..., Any], keywords: Mapping[str, Any]) -> "concurrent.futures.Future[_Outcome]":
    future: concurrent.futures.Future[_Outcome] = concurrent.futures.Future()
    context = contextvars.copy_context()

    def work() -> None:
        outcome: _Outcome
        try:
            outcome = context.run(function, **keywords), None
        except BaseException as error:  # also SystemExit, which would end the worker
            outcome = None, error
        if future.set_running_or_notify_cancel():
            future.set_result(outcome)

    # A daemon: a function that never returns must not keep the worker from ending.
    threading.Thread(target=work, name="loom-tool", daemon=True).start()
    return future


def _in_loop(function: Callable[..., Any], keywords: Mapping[str, Any]) -> "concurrent.futures.Future[_Outcome]":
    async def work() -> _Outcome:
        try:
            return await function(**keywords), None
        except BaseException as error:  # also SystemExit, which would end the loop
            return None, error

    return asyncio.run_coroutine_threadsafe(work(), _tool_loop())


@lru_cache(maxsize=1)
def _tool_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="loom-tool-loop", daemon=True).start()
    return loop
