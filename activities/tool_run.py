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

from activities.users_code import GUARD, Code, Raised
from loom_dsl.errors import LoomError, PermissionDenied, UnreadableResult
from loom_dsl.tool_output import Image, ToolOutput

ANSWER_SECONDS = 3.0
"""What a tool's author wrote besides its function gets this long: up to three of them in an activity of ten seconds."""
Answer = TypeVar("Answer")


_Outcome = tuple[Any, BaseException | None]


async def run_function(
    function: Callable[..., Any],
    keywords: Mapping[str, Any],
    *,
    is_async: bool = False,
    code: Code | None = None,
    seconds: float | None = None,
) -> Any:
    """Call a function of the user's. When the caller is cancelled, a coroutine is too; a thread goes on, unheard.

    Args:
        function: What is called here.
        keywords: What it is given by name.
        is_async: Whether it is a coroutine's function.
        code: Where another process finds what is called; None: it is Loom's own, which kills nobody.
        seconds: How long it may take when it runs in a process of its own. Here, the caller waits no longer.

    Raises:
        Raised: The function raised something.
        TimeoutError: It took longer in a process of its own.
        StepDied: That process died.
    """
    guard = GUARD.get() if code is not None else None
    if guard is not None and code is not None:
        await guard.begin()
        if guard.is_apart:
            return await guard.call_apart(code, keywords, seconds, is_async=is_async)
    waiting = _in_loop(function, keywords) if is_async else _in_thread(function, keywords)
    result, error = await asyncio.wrap_future(waiting)
    if error is not None:
        raise Raised(error)
    return result


def runs_apart(code: Code | None) -> bool:
    """Whether code runs in a process of its own, which keeps to its time itself: it begins when that has loaded it."""
    guard = GUARD.get()
    return code is not None and guard is not None and guard.is_apart


async def ask(function: Callable[..., Answer], *arguments: Any, code: Code | None = None) -> Answer:
    """Call what a tool's author wrote besides the tool's function: it may block or hang, and holds up nobody else.

    Args:
        function: What is called here.
        arguments: What it is given.
        code: Where another process finds it; what stands in it as arguments is given there. None: it is Loom's own.

    Raises:
        Raised: It raised something.
        TimeoutError: It did not answer in time.
        StepDied: It ended its process.
    """
    work = run_function(lambda: function(*arguments), {}, code=code, seconds=ANSWER_SECONDS)
    asking: asyncio.Future[Any] = asyncio.ensure_future(work)
    try:
        answer: Answer = await in_time(asking, code)
        return answer
    finally:
        asking.cancel()


async def in_time(asking: "asyncio.Future[Answer]", code: Code | None = None) -> Answer:
    """Wait for what a tool's author wrote besides the tool's function. It is not cancelled.

    An answer counts that is there when this looks, which on a busy machine may be long after the time was over.

    Raises:
        TimeoutError: There is no answer in time.
    """
    await asyncio.wait([asking], timeout=None if runs_apart(code) else ANSWER_SECONDS)
    if not asking.done():
        raise TimeoutError
    return asking.result()


async def check_call(
    check: Callable[[dict[str, Any]], None], arguments: dict[str, Any], code: Code | None = None
) -> None:
    """Let a tool's author look at a call. What cannot be looked at is not run.

    Raises:
        LoomError: It is not to run; says why.
    """
    try:
        await ask(check, arguments, code=code and code.given(arguments))
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
