"""A command at a terminal: what a person types and sees."""

import codecs
import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cli.screen import Screen
from tests.support.waiting import PATIENCE


class Terminal:
    """Runs a command at a pseudo-terminal; leave it as a context manager, which ends the command.

    Args:
        command: What to run.
        environment: Its environment.
        folder: Where it runs.
        columns: Width of the terminal.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, columns: int = 80) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # what is read may end within a letter
        self.said = ""

    def expect(self, text: str, within: float = PATIENCE, *, since: int = 0) -> int:
        """Wait until `text` is shown after place `since`; the place behind it."""
        deadline = time.monotonic() + within
        while text not in self.said[since:]:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{text!r} was not shown; what was:\n{self.said}")
        return self.said.index(text, since) + len(text)

    def type(self, text: str) -> None:
        """Type; a line ends with a newline, and Ctrl-C is \\x03."""
        os.write(self._master, text.encode())

    def end(self, within: float = PATIENCE) -> int:
        """Wait until the command ends; its exit status."""
        deadline = time.monotonic() + within
        while self._read(deadline - time.monotonic()):
            continue
        return self._process.wait(max(0.1, deadline - time.monotonic()))

    @property
    def screen(self) -> str:
        """What stands on the screen."""
        return Screen().feed(self.said).text

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _read(self, seconds: float) -> bool:
        """Read what has come; False when no more will come, or not in time."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, seconds))
        piece = b""
        if ready:
            with contextlib.suppress(OSError):  # EIO: the other end is closed
                piece = os.read(self._master, 65536)
        self.said += self._decoder.decode(piece)
        return bool(piece)
