"""Opening a file below a directory in one step that no rename or symbolic link can slip through.

Linux does it with `openat2(2)`. Elsewhere each part of the path is opened from the one before it and symbolic links
are not followed at all.
"""

import ctypes
import errno
import functools
import os
import stat
import sys

_NUMBER = 437
"""The system call's number, the same on every architecture."""
_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 32
_EXCHANGE = 0x02


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: int, path: str, flags: int, *, follow: bool = True, native: bool = True) -> int:
    """Open an existing file or directory below `root`.

    Args:
        root: Descriptor of a directory.
        path: Relative path in normal form; `.` is the root itself.
        flags: As for `os.open`, without `O_CREAT`.
        follow: Follow symbolic links that stay below the root.
        native: Use `openat2` where there is one.

    Returns:
        A descriptor that the caller closes.

    Raises:
        OSError: `EXDEV` when the path leaves the root, `ELOOP` when it goes through a link that is not followed.
    """
    flags |= os.O_CLOEXEC
    if native and native_support():
        resolve = _BENEATH | _NO_MAGIC_LINKS | (0 if follow else _NO_SYMLINKS)
        return _openat2(root, path, flags, resolve)
    return _walk(root, path, flags)


@functools.cache
def native_support() -> bool:
    """Say whether this system has `openat2` and lets us call it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.close(_openat2(-100, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, _NO_MAGIC_LINKS))
    except OSError as error:
        return error.errno not in (errno.ENOSYS, errno.EPERM)
    return True


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags, 0, resolve)
    name = os.fsencode(path)
    code = 0
    for _ in range(_TRIES):  # EAGAIN: something was renamed while the kernel looked
        found = _libc().syscall(
            ctypes.c_long(_NUMBER),
            ctypes.c_int(directory),
            ctypes.c_char_p(name),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if found >= 0:
            return int(found)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


def _walk(root: int, path: str, flags: int) -> int:
    parts = [part for part in path.split("/") if part != "."]
    if ".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    if not parts:
        return os.open(".", flags, dir_fd=root)
    current = os.dup(root)
    try:
        for part in parts[:-1]:
            following = open_directory(current, part)
            os.close(current)
            current = following
        return _open_part(current, parts[-1], flags)
    finally:
        os.close(current)


def exchange(directory: int, one: str, other: str) -> None:
    """Let two files in a directory take each other's name, in one step.

    Raises:
        OSError: `ENOENT` when one of them is not there; `ENOSYS` or `EINVAL` where this cannot be done.
    """
    rename = getattr(_libc(), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = os.fsencode(one), ctypes.c_int(directory), os.fsencode(other)
    if rename(ctypes.c_int(directory), names[0], names[1], names[2], ctypes.c_uint(_EXCHANGE)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), other)


def open_directory(parent: int, name: str) -> int:
    """Open a directory by its name in another one, unless the name is a symbolic link.

    Raises:
        OSError: `ELOOP` for a link, `ENOTDIR` for something else.
    """
    return _open_part(parent, name, os.O_RDONLY | os.O_DIRECTORY)


def _open_part(parent: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except NotADirectoryError as error:  # what Linux says of a link, too
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from error
        raise
