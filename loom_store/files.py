"""Whether an open store's files are still the ones that were opened, and can be written.

SQLite does not notice that its file was deleted or replaced while it is open, and goes on writing into one that nobody
will ever find. Nor does it survive that the file beside it which processes share (``-shm``) is cut off or made
immutable: it is mapped into memory, and touching it then ends the process with SIGBUS. So both are looked at before
each transaction, and once more before a commit; that takes some microseconds.
"""

import ctypes
import os
import signal
from pathlib import Path
from typing import Any, Final

from loom_dsl.errors import StoreError, StoreLost, StoreReadOnly

# The last word of a process that the system ends because a file it has mapped into memory is not there any more.
#
# `loom_store.files` looks before each transaction; what happens to the shared file in the middle of one cannot be
# caught, as SQLite is at work in it then. By itself such a process would end without a word.


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


BESIDE: Final = ("-wal", "-shm")
_DO: Final = (
    "nothing more is written to it. Put it back, or point LOOM_STORE at where it is now, and start again: jobs go on "
    "where they stood as soon as a worker has their store"
)


def is_write_protected(place: str | Path, mode: int = os.W_OK) -> bool:
    """Whether a file is there and this process may not use it so.

    A file that another process removes meanwhile, as the last one that closes a store does, is not write-protected.
    Root may not write either what is immutable, or what is on a disk that is mounted to be read only.
    """
    return not os.access(place, mode) and os.path.exists(place) and not os.access(place, mode) and os.path.exists(place)


class StoreFiles:
    """The file of an open store, and the two that SQLite has beside it.

    Args:
        path: The store's file, which is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        real = os.path.realpath(path)  # beside which SQLite has the others, also where the path is a link
        self._places = {"": os.fspath(path), **{suffix: f"{real}{suffix}" for suffix in BESIDE}}
        self._known: dict[str, tuple[int, int]] = {}
        self._shared = 0
        """The most bytes that the shared file ever had: it only grows while a process has it open."""
        self._look("")

    def check(self) -> None:
        """Look at the files.

        Raises:
            StoreLost: One was deleted, replaced or cut off.
            StoreReadOnly: One cannot be written any more.
        """
        problem = self.problem()
        if problem is not None:
            raise problem

    def problem(self) -> StoreError | None:
        """Say what is wrong with the files; None: nothing is."""
        for suffix in self._places:
            found = self._look(suffix)
            if found is not None:
                return found
        return None

    def _look(self, suffix: str) -> StoreError | None:
        place = self._places[suffix]
        least = self._shared  # before the look: another thread may see it grown, and say so, in between
        try:
            seen = os.stat(place)
        except FileNotFoundError:
            return self._lost(suffix, "was deleted") if suffix in self._known else None
        except OSError as error:
            return self._lost(suffix, f"cannot be reached any more ({error.strerror})")
        identity = (seen.st_dev, seen.st_ino)
        if self._known.setdefault(suffix, identity) != identity:
            return self._lost(suffix, "was replaced by another file")
        if suffix == "-shm":
            if seen.st_size < least:
                return self._lost(suffix, "was cut off")
            self._shared = max(self._shared, seen.st_size)
        return self._read_only(place) if is_write_protected(place) else None

    def _lost(self, suffix: str, what: str) -> StoreLost:
        name = f"its file {self._places[suffix]}" if suffix else "it"
        return StoreLost(f"the store {self._path} was lost while this process had it open: {name} {what}; {_DO}")

    def _read_only(self, place: str) -> StoreReadOnly:
        return StoreReadOnly(
            f"store {self._path}: {place} cannot be written any more; make it writable again (`ls -l`, `lsattr` and "
            "`findmnt` say why it is not); what waits for it goes on then"
        )
