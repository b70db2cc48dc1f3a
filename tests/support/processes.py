"""Leave nothing behind: child processes, and the exit status of the tests."""

import atexit
import os
import sys

import psutil

from tests.support.waiting import PATIENCE


def children_left() -> list[str]:
    """End the processes that this one started and did not end; their command lines."""
    left = []
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
            # multiprocessing keeps one of these to the end of the interpreter, on purpose.
            if child.status() == psutil.STATUS_ZOMBIE or "resource_tracker" in line:
                continue
            child.kill()
            child.wait(PATIENCE)
            left.append(f"{child.pid}: {line}")
        except psutil.NoSuchProcess:
            continue
    return left


def exit_now(status: int) -> None:
    """End this process without the interpreter's own ending, where a process that ran workers sometimes aborts."""
    atexit._run_exitfuncs()  # pytest and logging put away their files here
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
