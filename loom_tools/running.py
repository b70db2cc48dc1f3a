"""Running a tool's function, so that nothing that it does reaches the worker: neither what it raises nor how it waits.

A sync function gets a thread of its own: one that hangs beyond its timeout holds up no other call. Coroutines run in
an event loop of their own: one that blocks it holds up other tools' coroutines, and neither heartbeats nor jobs.
"""

import asyncio
import concurrent.futures
import contextvars
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Any, ParamSpec, TypeVar

import pydantic_core
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

from loom_dsl.errors import LoomError, PermissionDenied, UnreadableResult
from loom_dsl.fields import Retry
from loom_dsl.tools.context import Image, ToolOutput
from loom_tools.user_code import GUARD, Code, Raised

# Work on what a model wrote that may take long, beside the event loop, which all jobs of a worker share.


SMALL = 1_000
"""Characters of arguments on which any work is done at once."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


async def run_in_thread_if_large(
    arguments: Mapping[str, Any], work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
) -> _R:
    """Call a function; when the arguments of the tool call that it looks at are large, in a thread.

    A heartbeat is sent in time then, whatever the line is that a policy is held against.

    Args:
        arguments: Those of the tool call.
        work: The function, which must not touch what the event loop changes.
        args: What it is given.
        kwargs: What it is given by name.
    """
    if sum(len(value) for value in arguments.values() if isinstance(value, str)) <= SMALL:
        return work(*args, **kwargs)
    return await asyncio.to_thread(partial(work, *args, **kwargs))


# What a tool says while it works, for watchers: the latest, now and then, however often it says something.


EVERY = 0.25
"""Seconds between two texts that are told."""


class ProgressReporter:
    """Takes texts from any thread and tells the latest of them, the last one always.

    Args:
        tell: Tells a text. Called in the event loop that this is made in, one call at a time.
        most: Characters that are taken of a text.
        every: Seconds that are between two.
    """

    def __init__(self, tell: Callable[[str], Awaitable[None]], most: int, every: float = EVERY) -> None:
        self._tell, self._most, self._every = tell, most, every
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._latest: str | None = None
        self._awake = False
        self._telling = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, text: object) -> None:
        """Take a text; one that was not told yet is forgotten."""
        text = str(text)[: self._most]
        with self._lock:
            self._latest = text
            if self._awake:
                return
            self._awake = True
        self._loop.call_soon_threadsafe(self._begin)

    async def settle(self) -> None:
        """Tell what was said last, if that has not been told: what is told after this comes after it."""
        async with self._telling:
            if (text := self._taken()) is not None:
                await self._tell(text)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._tell_all())

    async def _tell_all(self) -> None:
        while True:
            async with self._telling:
                if (text := self._taken(sleeps=True)) is None:
                    return
                await self._tell(text)
            await asyncio.sleep(self._every)

    def _taken(self, *, sleeps: bool = False) -> str | None:
        with self._lock:
            text, self._latest = self._latest, None
            if sleeps:
                self._awake = text is not None
            return text


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


async def ask(
    function: Callable[..., Answer], *arguments: Any, code: Code | None = None, seconds: float = ANSWER_SECONDS
) -> Answer:
    """Call what a tool's author wrote besides the tool's function: it may block or hang, and holds up nobody else.

    Args:
        function: What is called here.
        arguments: What it is given.
        code: Where another process finds it; what stands in it as arguments is given there. None: it is Loom's own.
        seconds: How long it may take.

    Raises:
        Raised: It raised something.
        TimeoutError: It did not answer in time.
        StepDied: It ended its process.
    """
    work = run_function(lambda: function(*arguments), {}, code=code, seconds=seconds)
    asking: asyncio.Future[Any] = asyncio.ensure_future(work)
    try:
        answer: Answer = await in_time(asking, code, seconds)
        return answer
    finally:
        asking.cancel()


async def in_time(
    asking: "asyncio.Future[Answer]", code: Code | None = None, seconds: float = ANSWER_SECONDS
) -> Answer:
    """Wait for what a tool's author wrote besides the tool's function. It is not cancelled.

    An answer counts that is there when this looks, which on a busy machine may be long after the time was over.

    Raises:
        TimeoutError: There is no answer in time.
    """
    await asyncio.wait([asking], timeout=None if runs_apart(code) else seconds)
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


# A tool's own retries: its function is called again while it raises, within the time of one call.
#
# The attempts of the engine are for what no function can tell, such as a worker that died; they have no limit.


async def run_again(run: Callable[[], Awaitable[Any]], retry: Retry, progress: ProgressReporter) -> Any:
    """Run a function as often as its tool's `retry` says, and tell watchers of each failure that is not the last.

    Args:
        run: Calls the function once.
        retry: How often, and how soon.
        progress: Takes what is told.

    Raises:
        Raised: The function raised at last, or something that another attempt does not change.
    """

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        wait = state.upcoming_sleep
        why = describe(error.error) if isinstance(error, Raised) else ""
        progress(f"attempt {state.attempt_number} of {retry.attempts} failed ({why}); the next one in {wait:g} s")

    attempts = AsyncRetrying(
        stop=stop_after_attempt(retry.attempts),
        wait=wait_exponential(multiplier=retry.initial, exp_base=retry.backoff, max=retry.longest),
        retry=retry_if_exception(_may_pass),
        before_sleep=tell,
        reraise=True,
    )
    return await attempts(run)


def _may_pass(raised: BaseException) -> bool:
    """Whether another attempt may go better. What a tool says in Loom's own errors is meant for the model."""
    if not isinstance(raised, Raised):
        return False
    return isinstance(raised.error, Exception) and not isinstance(raised.error, LoomError)
