"""Say what is being waited for, once it has taken longer than two seconds.

Standard library only: the Makefile runs this file before anything is installed
(``python3 -I loom_cli/dev/progress.py "what" -- command ...``).
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TextIO

QUIET_SECONDS = 2.0
LINE_SECONDS = 10.0
POLL_SECONDS = 0.1


class Progress:
    """One line that tells what is going on and since when.

    At a terminal the line is redrawn every second; elsewhere a new one is written every ten.

    Args:
        what: The activity, such as ``Building the Temporal CLI``.
        stream: Where to write; standard error by default.
        quiet: Seconds in which nothing is shown.
    """

    def __init__(self, what: str, stream: TextIO | None = None, quiet: float = QUIET_SECONDS) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._redraws = self._stream.isatty()
        self._started = time.monotonic()
        self._next = self._started + quiet
        self._shown = False

    def tick(self, detail: str = "") -> None:
        """Show the line again if it is time to.

        Args:
            detail: What is happening right now, such as the last line of a command's output.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._shown = True
        text = f"{self._what}: {now - self._started:.0f} s" + (f"  {detail}" if detail else "")
        if self._redraws:
            self._next = now + 1.0
            self._write(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._next = now + LINE_SECONDS
            self._write(f"{text}\n")

    def done(self, outcome: str = "done") -> None:
        """End the line; says nothing when it was never shown."""
        if self._shown:
            start = "\r\033[K" if self._redraws else ""
            self._write(f"{start}{self._what}: {outcome} after {time.monotonic() - self._started:.0f} s\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _last_line(output: Path) -> str:
    with output.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 400))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the command and what it started; harmless when it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_shown(
    command: Sequence[str],
    what: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    give_up: Callable[[], str | None] = lambda: None,
    detail: Callable[[], str] | None = None,
    stream: TextIO | None = None,
    quiet: float = QUIET_SECONDS,
) -> tuple[int, str]:
    """Run a command, showing that it is still at work.

    Args:
        command: Program and arguments.
        what: The activity in words.
        env: Environment of the command; this process's by default.
        cwd: Where it runs.
        give_up: Asked ten times a second; a text ends the command and stands at the end of the output.
        detail: What is happening right now; the last line of the output by default.
        stream: Where progress goes; standard error by default.
        quiet: Seconds in which nothing is shown.

    Returns:
        Exit status and combined output. The status is 124 when `give_up` ended it.
    """
    progress = Progress(what, stream, quiet)
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        output = Path(folder) / "output"
        with output.open("wb") as sink:
            process = _spawn(command, sink, env, cwd)
        try:
            while process.poll() is None:
                reason = give_up()
                if reason is not None:
                    _end(process)
                    progress.done("given up")
                    return 124, output.read_text(errors="replace") + reason
                progress.tick(detail() if detail else _last_line(output))
                time.sleep(POLL_SECONDS)
        finally:
            _end(process)
        progress.done("done" if process.returncode == 0 else f"failed ({process.returncode})")
        return process.returncode, output.read_text(errors="replace")


def _spawn(
    command: Sequence[str], sink: IO[bytes], env: Mapping[str, str] | None, cwd: Path | None
) -> "subprocess.Popen[bytes]":
    # A group of its own: what the command starts ends with it.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )


def main(arguments: Sequence[str]) -> int:
    """Run ``WHAT -- COMMAND...``; the output is shown only when the command fails."""
    what, _, *command = arguments
    try:
        status, output = run_shown(command, what)
    except KeyboardInterrupt:
        return 130
    if status:
        sys.stderr.write(f"{output}\n{what} failed: `{' '.join(command)}` ended with status {status}.\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
