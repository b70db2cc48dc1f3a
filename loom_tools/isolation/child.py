"""The inside of a process with users' code: it finds what it is to call, calls it, and says what came of it.

One thread listens to the worker; the main thread calls. The tool's context asks the worker for what is not data.
"""

import asyncio
import contextlib
import importlib
import io
import itertools
import os
import pickle
import queue
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO

from loom_dsl.tools.context import ToolContext, ToolServices
from loom_dsl.tools.tool import tool
from loom_tools.isolation.frames import ANSWER, LENGTH, ContextData, Message, RaisedThere, framed, plain
from loom_tools.references import member
from loom_tools.user_code import Code


class Line:
    """The line to the worker: messages go out from any thread, calls come in for one."""

    def __init__(self, line: socket.socket, stream: BinaryIO) -> None:
        self._line, self._stream = line, stream
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, queue.SimpleQueue[Message]] = {}
        self.calls: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.is_busy = False

    def send(self, *message: Any) -> None:
        """Send a message. When nobody listens any more, this process ends."""
        frame = framed(message)
        with self._sending:
            try:
                self._line.sendall(frame)
            except OSError:
                os._exit(1)

    def ask(self, context: int, name: str, *arguments: Any) -> Any:
        """Ask the worker for something of a context, and wait for the answer."""
        number, answers = next(self._numbers), queue.SimpleQueue[Message]()
        self._waiting[number] = answers
        self.send("ask", number, context, name, arguments)
        is_fine, value = answers.get()
        if is_fine:
            return value
        raise value.error()

    def listen(self) -> None:
        """Take what comes, until the worker lets go of the line. Then a call that runs is over, too."""
        while (body := self._next()) is not None:
            if body[:1] == ANSWER:  # an answer; a call is read by the thread that does it
                number, *answer = pickle.loads(body[1:])
                self._waiting.pop(number).put(tuple(answer))
            else:
                self.calls.put(body[1:])
        if self.is_busy:
            os._exit(1)
        self.calls.put(None)

    def _next(self) -> bytes | None:
        with contextlib.suppress(OSError):
            head = self._stream.read(LENGTH.size)
            if len(head) == LENGTH.size:
                size = LENGTH.unpack(head)[0]
                body = self._stream.read(size)
                return body if len(body) == size else None
        return None


class _Reader(pickle.Unpickler):
    """Reads a call; a context of a tool becomes one that asks the worker."""

    def __init__(self, body: bytes, line: Line) -> None:
        super().__init__(io.BytesIO(body))
        self._asked = line

    def persistent_load(self, pid: Any) -> ToolContext:
        """Make the context."""
        number, data = pid
        return _context(self._asked, number, data)


def _context(line: Line, number: int, data: ContextData) -> ToolContext:
    ask = partial(line.ask, number)
    return ToolContext(
        working_dir=data.working_dir,
        job=data.job,
        turn=data.turn,
        call_id=data.call_id,
        idempotency_key=data.idempotency_key,
        progress=lambda text: line.send("tell", number, "progress", str(text)),
        cancelled=lambda: bool(ask("cancelled")),
        approved_states=data.approved_states,
        leaves=lambda state: line.send("tell", number, "leaves", str(state)),
        services=ToolServices(
            secret=lambda name, host: str(ask("secret", name, host)),
            output=lambda reference: str(ask("output", reference)),
            todo=lambda: tuple(ask("todo")),
            runtime=lambda: dict(ask("runtime")),
            private_hosts=data.private_hosts,
            images=data.images,
            protected=data.protected,
        ),
    )


def _found(reference: str, part: str) -> Callable[..., Any]:
    """Find what a reference means, in a module that the worker has, too."""
    module, _, name = reference.rpartition(":")
    found: Any = member(importlib.import_module(module), name)
    if part:
        made = tool(found)
        found = made if part == "tool" else getattr(made, part)
    if not callable(found):
        raise AttributeError(f"{reference} has no {part or 'such function'}")
    code: Callable[..., Any] = found
    return code


def _load(code: Code) -> list[Callable[..., Any]]:
    return [_found(reference, code.part) for reference in code.references]


def _do(
    runner: asyncio.Runner, found: list[Callable[..., Any]], code: Code, keywords: Mapping[str, Any], is_async: bool
) -> Any:
    work = partial(code.via, *found, *code.arguments, **keywords)
    if not is_async:
        return work()

    async def awaited() -> Any:
        return await work()

    return runner.run(awaited())


def serve(line: socket.socket, stream: BinaryIO) -> None:
    """Do what the worker says, until it lets go of the line."""
    told = Line(line, stream)
    threading.Thread(target=told.listen, name="loom-listener", daemon=True).start()
    with asyncio.Runner() as runner:
        while (body := told.calls.get()) is not None:
            told.is_busy = True
            _serve_one(told, runner, body)
            told.is_busy = False
    with contextlib.suppress(Exception):
        sys.stdout.flush()


def _serve_one(told: Line, runner: asyncio.Runner, body: bytes) -> None:
    try:
        code, keywords, is_async = _Reader(body, told).load()
        found = _load(code)
    except BaseException as error:
        return told.send("unloaded", RaisedThere.of(error))
    told.send("loaded")
    try:
        result = _do(runner, found, code, keywords, is_async)
    except BaseException as error:  # also SystemExit: in the worker it would not end it either
        return told.send("raised", RaisedThere.of(error))
    told.send("done", plain(result))
