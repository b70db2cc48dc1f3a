"""The worker's side of processes with users' code: it starts one for a call, serves it, and ends it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loom_dsl.errors import ToolError, ToolUnavailable
from loom_dsl.tools.context import ToolContext
from loom_tools.background import BackgroundTasks
from loom_tools.isolation.frames import ANSWER, CALL, LENGTH, Message, RaisedThere, framed, read_there, shown
from loom_tools.user_code import Code, Raised

LOADING_SECONDS = 60.0
"""For how long modules may be imported."""
PARTING_SECONDS = 1.0
"""For what a call may still see that it is cancelled, before its process is killed."""
_ENDING_SECONDS = 5.0
_TAIL_LINES, _TAIL_BYTES = 20, 6_000
_START = Path(__file__).with_name("start.py")


class Died(Exception):
    """The process died; the text says how, and has the last lines that it wrote to its standard error."""


class ChildProcesses:
    """The processes with users' code of one worker."""

    def __init__(self) -> None:
        self._loading = asyncio.Semaphore(max(2, os.cpu_count() or 2))
        self._ending = BackgroundTasks()

    async def call(
        self, code: Code, keywords: Mapping[str, Any], seconds: float | None = None, *, is_async: bool = False
    ) -> Any:
        """Call users' code in a process of its own.

        Args:
            code: What is called.
            keywords: What it is given by name.
            seconds: How long the call may take, from when its modules are loaded; None: no limit of its own.
            is_async: Whether the result is to be awaited there.

        Raises:
            Raised: It raised something.
            TimeoutError: It did not end in time.
            ToolUnavailable: Its modules cannot be loaded there.
            Died: The process died.
        """
        child = _Child()
        try:
            async with self._loading:
                await child.start()
                await child.begin(code, keywords, is_async)
            async with asyncio.timeout(seconds):
                return await child.result()
        finally:
            self._ending.start(child.end())

    async def close(self) -> None:
        """Wait until the processes that were told to end are gone."""
        await self._ending.join()


class _Child:
    """One process, and one call."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._contexts: list[ToolContext] = []
        self._tail = b""
        self._tasks = BackgroundTasks()
        loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[None] = loop.create_future()
        self._done: asyncio.Future[Any] = loop.create_future()

    async def start(self) -> None:
        """Start the process. It gets the worker's environment, directory and path; secrets go over its line only."""
        ours, its = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", str(_START), str(its.fileno()), str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
                pass_fds=(its.fileno(),), start_new_session=True,
            )  # fmt: skip
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise ToolUnavailable(f"a process of its own cannot be started: {error.strerror}") from None
            raise
        finally:
            its.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._tasks.start(self._listen(reader, self._process))
        self._writer.write(json.dumps(sys.path).encode() + b"\n")

    async def begin(self, code: Code, keywords: Mapping[str, Any], is_async: bool) -> None:
        """Begin the call: give when its modules are loaded."""
        try:
            frame = framed((code, dict(keywords), is_async), CALL, self._number)
        except Exception as error:
            why = f"{code.name} cannot be called in a process of its own: its arguments cannot be handed over"
            raise Raised(ToolError(f"{why} ({type(error).__name__}: {error})")) from None
        self._send(frame)
        try:
            async with asyncio.timeout(LOADING_SECONDS):
                await asyncio.shield(self._loaded)
        except TimeoutError:
            raise ToolUnavailable(f"{code.name} was not loaded within {LOADING_SECONDS:g} s") from None
        except Raised as raised:
            why = f"{type(raised.error).__name__}: {raised.error}"
            raise ToolUnavailable(f"{code.name} cannot be loaded in a process of its own: {why}") from None

    async def result(self) -> Any:
        """Wait for what the call gives."""
        return await asyncio.shield(self._done)

    async def end(self) -> None:
        """End the process: in good order after its call, else when the call has had a moment to see that it is over."""
        process = self._process
        if process is None:
            return
        if not self._done.done() and self._loaded.done():
            await asyncio.wait([self._done], timeout=PARTING_SECONDS)
        is_over = self._done.done()
        for each in (self._loaded, self._done):
            each.cancel() or each.exception()  # looked at: maybe nobody waited for it
        if is_over and self._writer is not None:
            self._writer.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _ENDING_SECONDS)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await self._tasks.cancel()
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        process._transport.close()  # type: ignore[attr-defined] # a process that it left may hold its standard error

    def _number(self, context: ToolContext) -> int:
        self._contexts.append(context)
        return len(self._contexts) - 1

    def _send(self, frame: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame)

    async def _listen(self, reader: asyncio.StreamReader, process: asyncio.subprocess.Process) -> None:
        """Take what comes, until the process is gone."""
        tail = self._tasks.start(self._read_tail(process))
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                self._take(read_there(await reader.readexactly(size)))
        await process.wait()
        await asyncio.wait([tail], timeout=0.5)
        died = Died(_how(process.returncode or 0, self._tail))
        for future in (self._loaded, self._done):
            if not future.done():
                future.set_exception(died)

    async def _read_tail(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last lines of what it writes to its standard error, and pass all on to the worker's."""
        assert process.stderr is not None
        while data := await process.stderr.read(65_536):
            with contextlib.suppress(OSError):
                os.write(2, data)
            self._tail = (self._tail + data)[-_TAIL_BYTES:]

    def _take(self, message: Message) -> None:
        kind, *rest = message
        if kind in ("loaded", "unloaded"):
            _settle(self._loaded, None, Raised(rest[0].error()) if kind == "unloaded" else None)
        elif kind in ("done", "raised"):
            raised = kind == "raised"
            _settle(self._done, None if raised else shown(rest[0]), Raised(rest[0].error()) if raised else None)
        elif kind == "tell":
            number, name, text = rest
            _SAID[name](self._contexts[number])(text)
        elif kind == "ask":
            self._tasks.start(self._answer(*rest))

    async def _answer(self, number: int, context: int, name: str, arguments: tuple[Any, ...]) -> None:
        asked = _ASKED[name](self._contexts[context])
        try:
            # What a worker lends blocks, such as a look into the store.
            value = asked() if name == "cancelled" else await asyncio.to_thread(asked, *arguments)
            frame = framed((number, True, dict(value) if isinstance(value, Mapping) else value), ANSWER)
        except Exception as error:
            frame = framed((number, False, RaisedThere.of(error)), ANSWER)
        self._send(frame)


_SAID: Mapping[str, Callable[[ToolContext], Callable[[str], None]]] = {
    "progress": lambda context: context.progress,
    "leaves": lambda context: context.leaves,
}
_ASKED: Mapping[str, Callable[[ToolContext], Callable[..., Any]]] = {
    "cancelled": lambda context: context.cancelled,
    "secret": lambda context: context.services.secret,
    "output": lambda context: context.services.output,
    "todo": lambda context: context.services.todo,
    "runtime": lambda context: context.services.runtime,
}


def _settle(future: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _how(status: int, tail: bytes) -> str:
    """Say how a process ended."""
    if status >= 0:
        how = f"it ended with exit status {status}"
    else:
        try:
            how = f"it was ended by {signal.Signals(-status).name}"
        except ValueError:
            how = f"it was ended by signal {-status}"
    lines = tail.decode("utf-8", "replace").splitlines()
    if len(tail) == _TAIL_BYTES:
        del lines[0]  # what is left of a secret there would not be known
    said = "\n".join([line for line in lines if line.strip()][-_TAIL_LINES:])
    return (
        f"{how}; the last lines of its standard error:\n{said}"
        if said
        else f"{how}, and wrote nothing to its standard error"
    )
