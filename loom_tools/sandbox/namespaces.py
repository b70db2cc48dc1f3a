"""Processes, mounts and a network of a command's own, as an ordinary user."""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Sequence

from loom_tools.sandbox import syscalls

_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_MEMORY_FILES = "size=67108864,mode=1777"
_LEAST_PID_MAX = 320
"""Numbers below 300 are not given again, so the largest may not be much smaller."""


def enter(*, network: bool) -> None:
    """Leave for new namespaces; the next child is the first process of its own.

    Raises:
        OSError: This user may not.
    """
    user, group = os.geteuid(), os.getegid()
    wanted = (
        syscalls.NEWUSER | syscalls.NEWPID | syscalls.NEWIPC | syscalls.NEWUTS | (0 if network else syscalls.NEWNET)
    )
    syscalls.unshare(wanted)
    with contextlib.suppress(FileNotFoundError):
        _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    if not network:
        _raise_loopback()


def show_processes(most: int) -> bool:
    """Mount a /proc that shows only the processes in here. Say whether that is allowed.

    Args:
        most: Processes and threads that may be here at once, on kernels that count them by namespace.
    """
    syscalls.unshare(syscalls.NEWNS)
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    try:
        syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    except OSError:
        return False  # where parts of /proc are hidden, as in most containers
    if _numbers_are_counted_apart():
        with contextlib.suppress(OSError):
            _write("/proc/sys/kernel/pid_max", str(max(_LEAST_PID_MAX, 300 + most)))
    return True


def _numbers_are_counted_apart() -> bool:
    """Whether the largest process number is each namespace's own; before, it was the whole machine's."""
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in os.uname().release.split(".")[:2])
    return (major, minor) >= (6, 14)


def arrange_mounts(*, writable: str, temporary: str, read: Sequence[str]) -> None:
    """Make everything read-only but the working directory and /tmp, which becomes the temporary directory.

    What may only be read stays so inside the working directory too, and is still there when it lies in /tmp.
    """
    within = [path for path in read if _is_below(path, "/tmp") or _is_below(path, writable)]
    trees = {path: syscalls.copy_of_tree(path) for path in (*within, writable) if os.path.exists(path)}
    own = syscalls.copy_of_tree(temporary)
    syscalls.make_read_only("/")
    syscalls.attach_tree(own, "/tmp")
    for path in (writable, *within):
        if path not in trees:
            continue
        if _is_below(path, "/tmp") and not os.path.exists(path):
            os.makedirs(path)
        syscalls.attach_tree(trees[path], path)
        if path != writable:
            syscalls.make_read_only(path)
    with contextlib.suppress(OSError):
        syscalls.mount("tmpfs", "/dev/shm", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, _MEMORY_FILES)
    for tree in (own, *trees.values()):
        os.close(tree)


def protect(*, held: Sequence[str], kept: Sequence[str], hidden: Sequence[str]) -> None:
    """Take rights away inside the working directory; the mounts are arranged, and /tmp is the command's own.

    Args:
        held: Directories that can no longer be moved or removed.
        kept: What can only be read.
        hidden: Files that can neither be read nor written.

    Raises:
        OSError: One of them cannot be protected: it is gone, or a link leads to it.
    """
    nothing = "/tmp/.loom-hidden"
    os.close(os.open(nothing, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0))
    source = syscalls.open_without_links(nothing)
    covers = {**dict.fromkeys(held, "held"), **dict.fromkeys(kept, "kept"), **dict.fromkeys(hidden, "hidden")}
    try:
        for path in sorted(covers):  # a directory before what is in it
            place = syscalls.open_without_links(path)
            try:
                how = covers[path]
                syscalls.cover(place, source if how == "hidden" else None, read_only=how != "held")
            finally:
                os.close(place)
    finally:
        os.close(source)
        os.unlink(nothing)


def _is_below(path: str, above: str) -> bool:
    return path.startswith(above.rstrip("/") + "/")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        fcntl.ioctl(opened, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
