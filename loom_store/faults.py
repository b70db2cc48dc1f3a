"""The last word of a process that the system ends because a file it has mapped into memory is not there any more.

`loom_store.files` looks before each transaction; what happens to the shared file in the middle of one cannot be caught,
as SQLite is at work in it then. By itself such a process would end without a word.
"""

import ctypes
import os
import signal
from pathlib import Path
from typing import Any

_kept: list[Any] = []
"""What the system may call must not be collected."""


def tell_bus_errors(store: Path, *, status: int = 1) -> None:
    """Have this process say a line when it ends by SIGBUS, and end with a status of its own.

    Python's own handlers run between two instructions of Python, to which a thread never comes that waits for memory
    which is not there, so this one is the system's.

    Args:
        store: The store that the process has open.
        status: The exit status.
    """
    line = (
        f"error: the file {store}-shm, which this process shares with others, was cut off, made immutable, or has no "
        f"room left on its disk (SIGBUS), so it ends; see to {store.parent} and start again: nothing that was "
        "committed is lost\n"
    ).encode()

    def told(number: int) -> None:
        os.write(2, line)
        os._exit(status)

    try:
        system = ctypes.CDLL(None)
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(told)
        system.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        system.signal.restype = ctypes.c_void_p
        system.signal(int(signal.SIGBUS), ctypes.cast(handler, ctypes.c_void_p))
    except (AttributeError, OSError, TypeError):  # a system without it: it ends as it did before
        return
    _kept.append(handler)
