"""Running a confined command from a worker's thread: its output, its end, and how it is stopped."""

import atexit
import codecs
import contextlib
import io
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loom_dsl.errors import ToolError, ToolUnavailable
from loom_tools.sandbox.order import Means, SandboxOrder

MAX_OUTPUT = 4 << 20
"""Bytes of output after which a command is stopped."""
EVERY = 0.3
"""Seconds between two pieces of output that watchers are told."""
MAX_PIECE = 1_900
_LOOK = 0.05
_PATIENCE = 15.0
_REST = 2.0
_WHOLE_LINES = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended.

    Attributes:
        output: What it wrote, to both streams, as it came.
        status: Its exit status; minus the signal that ended it. None: it was stopped.
        stopped: Why it was stopped: timeout, aborted, output, memory, disk or processes; else empty.
        left: Processes that it had left running, which were ended.
        removed: Files that it had made and that must not be there, relative to the working directory.
    """

    output: str
    status: int | None
    stopped: str = ""
    left: int = 0
    removed: tuple[str, ...] = ()


class Launcher:
    """The process of this worker from which commands are forked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._means = Means()

    def means(self) -> Means:
        """Give what this machine offers to confine commands.

        Raises:
            ToolUnavailable: The launcher does not start.
        """
        with self._lock:
            self._started()
            return self._means

    def send(self, handed: list[int]) -> None:
        """Hand over an order: descriptors of its text, the line, what it reads and what it writes to.

        Raises:
            ToolUnavailable: The launcher does not start.
        """
        with self._lock:
            for _ in range(2):
                try:
                    socket.send_fds(self._started(), [b"o"], handed)
                    return
                except OSError:
                    self._close()  # it was killed; another is started
        raise ToolUnavailable("the process that starts commands could not be reached; try again")

    def close(self) -> None:
        """End it. Commands that run go on to their ends."""
        with self._lock:
            self._close()

    def _started(self) -> socket.socket:
        if self._line is not None and self._process is not None and self._process.poll() is None:
            return self._line
        self._close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [getattr(sys, "_base_executable", "") or sys.executable, "-I", "-S", "-B", str(_PROGRAM)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the worker
            )
        self._line = ours
        ours.settimeout(_PATIENCE)
        try:
            self._means = Means(**json.loads(ours.recv(65536)))
        except (OSError, ValueError) as error:
            self._close()
            raise ToolUnavailable(f"the process that starts commands does not start ({error})") from error
        ours.settimeout(None)
        return ours

    def _close(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        self._line = self._process = None


_PROGRAM = Path(__file__).with_name("launcher.py")
LAUNCHER = Launcher()
atexit.register(LAUNCHER.close)


def run_confined(
    order: SandboxOrder,
    *,
    timeout: float,
    given: bytes = b"",
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
    most_output: int = MAX_OUTPUT,
) -> Ended:
    """Run a command to its end.

    Args:
        order: What to run, and how.
        timeout: Seconds after which it is stopped.
        given: What it reads.
        cancelled: Asked often; once true, the command is stopped.
        progress: Told the output now and then, piece by piece.
        most_output: Bytes of output after which it is stopped.

    Raises:
        ToolUnavailable: It could not be confined as ordered; nothing of it ran.
        ToolError: Its guard was ended from outside, and so was the command.
    """
    until = time.monotonic() + timeout
    for _ in range(2):
        ours, output = _begin(order, given)
        with ours, output:
            watched = _Watched(ours, output.fileno(), until, cancelled, _Teller(progress), most_output)
            with contextlib.suppress(_NeverBegan):
                return watched.to_the_end()
    raise ToolUnavailable("the process that starts commands was ended twice before it could; try again")


def _begin(order: SandboxOrder, given: bytes) -> tuple[socket.socket, io.FileIO]:
    """Hand an order over, and give the line to its guard and its output."""
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    try:
        with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as source:
            for file, content in ((text, order.dump()), (source, given)):
                file.write(content)
                file.seek(0)
            LAUNCHER.send([text.fileno(), theirs.fileno(), source.fileno(), writing])
    except BaseException:
        ours.close()
        os.close(reading)
        raise
    finally:
        theirs.close()
        os.close(writing)
    return ours, io.FileIO(reading)


class _NeverBegan(Exception):
    """The launcher was ended with the order in its hands: nothing of the command ran."""


class _Watched:
    """A command at work."""

    def __init__(
        self,
        line: socket.socket,
        output: int,
        until: float,
        cancelled: Callable[[], bool],
        teller: "_Teller",
        most: int,
    ) -> None:
        self._line, self._output, self._until = line, output, until
        self._cancelled, self._teller, self._most = cancelled, teller, most
        self._parts: list[bytes] = []
        self._size = 0
        self._told = b""

    def to_the_end(self) -> Ended:
        """Read until the guard says how it ended."""
        stopped, sources = "", [self._line.fileno(), self._output]
        while self._line.fileno() in sources:
            ready, _, _ = select.select(sources, [], [], _LOOK)
            for source in ready:
                if not self._take(source):
                    sources.remove(source)
            if not stopped and (stopped := self._excess()):
                self._line.shutdown(socket.SHUT_WR)
                self._until = time.monotonic() + _PATIENCE
            elif stopped and time.monotonic() > self._until:
                break
            self._teller.tell_if_due()
        until = time.monotonic() + _REST  # whoever could write is gone, unless the guard was killed
        while self._output in sources and select.select([self._output], [], [], max(0, until - time.monotonic()))[0]:
            if not self._take(self._output):
                break
        self._teller.tell()
        return self._ended(stopped)

    def _take(self, source: int) -> bool:
        part = os.read(source, 65536)
        if source != self._output:
            self._told += part
        elif self._size < self._most:
            self._parts.append(part[: self._most - self._size])
            self._teller.take(part)
            self._size += len(part)
        return bool(part)

    def _excess(self) -> str:
        if self._cancelled():
            return "aborted"
        if self._size >= self._most:
            return "output"
        return "timeout" if time.monotonic() > self._until else ""

    def _ended(self, stopped: str) -> Ended:
        output = b"".join(self._parts).decode("utf-8", "replace")
        try:
            told = json.loads(self._told)
        except ValueError:
            if not self._told and not stopped:
                raise _NeverBegan from None
            if stopped:
                return Ended(output=output, status=None, stopped=stopped)
            raise ToolError("the command was ended from outside, with the process that watched it") from None
        if "refused" in told:
            raise ToolUnavailable(told["refused"])
        if "status" in told:  # it may have ended by itself just when it was to be stopped
            full = "output" if self._size >= self._most else ""
            removed = tuple(told["removed"])
            return Ended(output=output, status=told["status"], stopped=full, left=told["left"], removed=removed)
        return Ended(output=output, status=None, stopped=stopped or told["stopped"], removed=tuple(told["removed"]))


class _Teller:
    """Tells watchers the output in pieces, of whole lines where there are some: half a secret is not seen as one."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self._last = self._begun = time.monotonic()

    def take(self, part: bytes) -> None:
        """Take a part of the output."""
        if not self._waiting:
            self._begun = time.monotonic()
        self._waiting = (self._waiting + self._decoder.decode(part))[-65536:]

    def tell_if_due(self) -> None:
        """Tell what is waiting, if it was long enough ago that something was told."""
        now = time.monotonic()
        if self._waiting and now - self._last >= EVERY:
            end = self._waiting.rfind("\n") + 1
            if end or now - self._begun > _WHOLE_LINES:
                self._tell(end or len(self._waiting))

    def tell(self) -> None:
        """Tell all that is waiting."""
        self._tell(len(self._waiting))

    def _tell(self, end: int) -> None:
        text, self._waiting = self._waiting[:end], self._waiting[end:]
        self._last = self._begun = time.monotonic()
        if text:
            self._progress(text if len(text) <= MAX_PIECE else f"[...]{text[-MAX_PIECE:]}")
