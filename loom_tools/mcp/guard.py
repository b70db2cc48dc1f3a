"""The process between a worker and an MCP server that it started: when the worker ends, in whatever way, so does the
server with all that it started. What is said to the server and by it does not pass through here.

Run as a program, with the worker's process id, then the server's command and its arguments.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

_TICK = 0.5


def guard(worker: int, command: list[str]) -> NoReturn:
    """Start the command, and end what is left of it when it ends or the worker does."""
    from loom_tools.sandbox import syscalls

    signal.signal(signal.SIGTERM, _end)
    if syscalls.LINUX:
        syscalls.adopt_orphans()
        syscalls.die_with_parent(signal.SIGTERM)
    if os.getppid() != worker:
        os._exit(1)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)
    # The worker's end of the pipes is what the server must see closed, not this process's copies.
    for stream in (0, 1):
        os.close(stream)
    while True:
        pid, status = os.waitpid(-1, 0 if syscalls.LINUX else os.WNOHANG)
        if pid == child:
            _end_descendants()
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
        if pid == 0:
            if os.getppid() != worker:
                _end()
            time.sleep(_TICK)


def _end(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_descendants()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)


def _end_descendants() -> None:
    from loom_tools.sandbox import supervisor as confined

    confined.end_children()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    guard(int(sys.argv[1]), sys.argv[2:])
