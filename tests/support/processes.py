"""Leave nothing behind: child processes, and the exit status of the tests."""

import atexit
import os
import sys
import time

import psutil

from tests.support.waiting import PATIENCE

MOMENT = 60.0
"""Seconds for a process that is about to end: what is left behind stays for minutes."""


def gone(process: psutil.Process) -> bool:
    """Whether a process has ended; who started it may not have asked for its status yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def children_left() -> list[str]:
    """End the processes that this one started and did not end; their command lines.

    Those that were told to end have a moment for it, and more on a busy machine.
    """
    left = []
    ending = time.monotonic() + MOMENT
    while time.monotonic() < ending and any(map(_stays, psutil.Process().children(recursive=True))):
        time.sleep(0.1)
    for child in filter(_stays, psutil.Process().children(recursive=True)):
        try:
            line = " ".join(child.cmdline())
            child.kill()
            child.wait(PATIENCE)
            left.append(f"{child.pid}: {line}")
        except psutil.NoSuchProcess:
            continue
    return left


def _stays(process: psutil.Process) -> bool:
    """Whether a process lives, and is none that multiprocessing keeps to the end of the interpreter, on purpose."""
    try:
        return not gone(process) and "resource_tracker" not in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def exit_now(status: int) -> None:
    """End this process without the interpreter's own ending, where a process that ran workers sometimes aborts."""
    atexit._run_exitfuncs()  # pytest and logging put away their files here
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
