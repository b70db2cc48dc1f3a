"""System calls that Python has no function for."""

import contextlib
import ctypes
import functools
import os
import platform
import struct
import sys
from collections.abc import Callable

LINUX = sys.platform.startswith("linux")
MACHINE = platform.machine()

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECUREBITS = 1, 4, 28
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 36, 38, 47, 4
_NO_ROOT_LOCKED = 0b11  # SECBIT_NOROOT and its lock: user 0 gets nothing from an exec
_CAPABILITY_VERSION = 0x20080522

_CAPSET = {"x86_64": 126, "aarch64": 91}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # from here on, the same on every architecture
_CLONE, _RECURSIVE, _EMPTY_PATH, _CLOEXEC = 1, 0x8000, 0x1000, os.O_CLOEXEC
_FROM_EMPTY_PATH, _TO_EMPTY_PATH = 4, 0x40
_OPENAT2, _NO_SYMLINKS = 437, 4
_READ_ONLY = 1
_CWD = -100


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call.

    Raises:
        OSError: It failed.
    """
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    function: Callable[..., int] = _libc().syscall
    return _checked(function(ctypes.c_long(number), *words))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _prctl(option: int, *arguments: int) -> int:
    function: Callable[..., int] = _libc().prctl
    padded = [*arguments, 0, 0, 0, 0][:4]
    return _checked(function(ctypes.c_int(option), *(ctypes.c_ulong(word) for word in padded)))


def die_with_parent(signal: int) -> None:
    """Get a signal when the parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def be_undumpable() -> None:
    """Let no process of this user look into this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forgo_privileges() -> None:
    """Make sure that no exec gives privileges, whatever the file's owner and bits."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability for good: after `forgo_privileges`, no exec gives user 0 any back either."""
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    with contextlib.suppress(OSError):  # nobody without capabilities may; no_new_privs then does it
        _prctl(_PR_SET_SECUREBITS, _NO_ROOT_LOCKED)
    _prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    call(_CAPSET[MACHINE], header, bytes(24))


def unshare(flags: int) -> None:
    """Go into new namespaces."""
    function: Callable[..., int] = _libc().unshare
    _checked(function(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount a file system."""
    function: Callable[..., int] = _libc().mount
    _checked(function(source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode()))


def copy_of_tree(path: str) -> int:
    """Give a descriptor of a copy, not mounted anywhere, of what is mounted at and below a directory."""
    return call(_OPEN_TREE, _CWD, os.fsencode(path) + b"\0", _CLONE | _RECURSIVE | _CLOEXEC)


def attach_tree(tree: int, path: str) -> None:
    """Mount such a copy."""
    call(_MOVE_MOUNT, tree, b"\0", _CWD, os.fsencode(path) + b"\0", _FROM_EMPTY_PATH)


def make_read_only(path: str) -> None:
    """Let nothing be changed at and below a mount, whatever is mounted there."""
    attributes = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    call(_MOUNT_SETATTR, _CWD, os.fsencode(path) + b"\0", _RECURSIVE, attributes, len(attributes))


def open_without_links(path: str) -> int:
    """Give a descriptor of a place that no symbolic link leads to.

    Raises:
        OSError: It is not there, or a part of the path is a link.
    """
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, _NO_SYMLINKS)
    return call(_OPENAT2, _CWD, os.fsencode(path) + b"\0", how, len(how))


def cover(place: int, source: int | None = None, *, read_only: bool) -> None:
    """Mount something over a place: itself, or something else.

    Args:
        place: Descriptor of it.
        source: Descriptor of what is mounted; None: the place itself.
        read_only: Nothing can be changed there any more.
    """
    whole = _CLONE | _RECURSIVE | _EMPTY_PATH | _CLOEXEC
    tree = call(_OPEN_TREE, place if source is None else source, b"\0", whole)
    try:
        if read_only:
            attributes = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
            call(_MOUNT_SETATTR, tree, b"\0", _EMPTY_PATH | _RECURSIVE, attributes, len(attributes))
        call(_MOVE_MOUNT, tree, b"\0", place, b"\0", _FROM_EMPTY_PATH | _TO_EMPTY_PATH)
    finally:
        os.close(tree)


def install_filter(program: bytes) -> None:
    """Let a seccomp program decide about this process's system calls from now on.

    Args:
        program: Instructions of eight bytes each. Nothing means: only find out whether filters can be had.
    """
    held = ctypes.create_string_buffer(program, max(1, len(program)))
    described = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(held))
    call(_SECCOMP[MACHINE], 1, 0, described)
