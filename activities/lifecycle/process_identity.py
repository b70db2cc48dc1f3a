"""Names of processes for others that read the store: whether the one that wrote something is gone."""

import os
from functools import lru_cache
from pathlib import Path

_PROC = Path("/proc")


@lru_cache(maxsize=4)
def place_of(pid: int) -> str:
    """Names this machine since its last start, as far as its process numbers mean something: ``""`` where none can."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}" if start_of(pid) else ""
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """When a process began, by its machine's clock: its number may be given again. Empty when it is gone."""
    try:
        # The name of the program, in brackets, may hold anything.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def this_process() -> str:
    """Names this process for others that read the ledger."""
    pid = os.getpid()
    return f"{place_of(pid)} {pid} {start_of(pid)}"


def is_gone(process: str) -> bool | None:
    """Whether a process, as `this_process` named it, is gone; None: it was on another machine, or is not to be told."""
    place, pid, started = [*process.rsplit(" ", 2), "", ""][:3]
    if not place or place != place_of(os.getpid()):
        return None
    return not started or start_of(int(pid)) != started
