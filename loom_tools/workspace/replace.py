"""Putting a new file in the place of an old one: whole or not at all, and only of the one that was meant."""

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal

from loom_dsl.errors import ToolError
from loom_tools.workspace.openat import exchange

ABSENT: Final = "absent"
"""Expected is that there is no file."""
Expected = os.stat_result | Literal["absent"]
_PATIENCE = 5.0
TEMPORARY = ".loom-write-"
"""How the names of files begin that are being written."""


class FileChanged(ToolError):
    """Somebody else changed the file meanwhile; read it again."""


@contextlib.contextmanager
def replacing(name: str, directory: int, mode: int | None, expected: Expected | None = None) -> Iterator[BinaryIO]:
    """Write next to the file and put it in its place at the end, or leave nothing behind.

    Args:
        name: The file's name in its directory.
        directory: Descriptor of that directory.
        mode: Mode of the new file; None: as the process makes files.
        expected: What the file was when it was read, or `ABSENT`. None: whatever is there is replaced.

    Raises:
        FileChanged: The file is another one, or has another content, than the expected one. It stays.
    """
    temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            if mode is not None:
                os.fchmod(fd, mode)
            yield file
            file.flush()
            os.fsync(fd)
        with _turn(directory):
            if expected is None:
                os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            elif expected == ABSENT:
                _make(temporary, name, directory)
            else:
                _exchange(temporary, name, directory, expected)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


@contextlib.contextmanager
def _turn(directory: int) -> Iterator[None]:
    """Let one of Loom's writers at a time replace files of a directory, in whatever process: each could otherwise
    take what another is about to take back for what somebody else wrote."""
    lock = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        until = time.monotonic() + _PATIENCE
        while not _locked(lock):
            if time.monotonic() > until:
                raise ToolError("another program keeps the directory locked; try again later")
            time.sleep(0.002)
        yield
    finally:
        os.close(lock)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks; there is no turn to wait for
    return True


def _make(temporary: str, name: str, directory: int) -> None:
    """Give the new file its name unless something has it."""
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        raise FileChanged() from None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        with contextlib.suppress(FileNotFoundError):  # a file system without links: a look, and then the name
            os.stat(name, dir_fd=directory, follow_symlinks=False)
            raise FileChanged() from None
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    os.unlink(temporary, dir_fd=directory)


def _exchange(temporary: str, name: str, directory: int, expected: os.stat_result) -> None:
    """Take the old file out and look at what was taken out: a look before, alone, would be too early."""
    try:
        if not _same(os.stat(name, dir_fd=directory, follow_symlinks=False), expected):
            raise FileChanged()
        exchange(directory, temporary, name)
    except FileNotFoundError:
        raise FileChanged() from None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP):
            raise
        # This file system cannot; the moment between the look and the replacement stays.
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    if not _same(os.stat(temporary, dir_fd=directory, follow_symlinks=False), expected):
        exchange(directory, temporary, name)
        raise FileChanged()
    os.unlink(temporary, dir_fd=directory)


def _same(found: os.stat_result, expected: os.stat_result) -> bool:
    def identity(stat: os.stat_result) -> tuple[int, int, int, int]:
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns

    return identity(found) == identity(expected)
