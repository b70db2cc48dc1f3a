"""Landlock: which files a process and its descendants may open, from now on and for good."""

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterable

from loom_tools.sandbox.syscalls import LINUX, call, open_without_links

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_ASK_VERSION = 1
_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_NODES = (1 << 6) | (1 << 11)
"""Making device files."""
_ALL_OF_FIRST = (1 << 13) - 1
_OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_TCP = 3
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

TRUNCATES, NETWORK, SCOPES = 3, 4, 6
"""The versions from which on it restricts truncating, TCP, and abstract sockets and signals."""

READ = EXECUTE | READ_FILE | READ_DIRECTORY
DEVICE = READ_FILE | WRITE_FILE | _TRUNCATE
ALL = -1
"""Everything but making device files."""


def version() -> int:
    """Give the kernel's version of it; 0 when there is none."""
    if not LINUX:
        return 0
    try:
        return call(_CREATE, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def restrict(rules: list[tuple[str, int]], *, known: int, network: bool, exact: Iterable[tuple[str, int]] = ()) -> None:
    """Restrict this process, which has forgone privileges, to the given paths.

    Args:
        rules: Paths with the rights at and beneath them; a path that is not there is left out.
        known: The version to speak: the kernel's, or an older one.
        network: Whether TCP may be used.
        exact: Paths like `rules`, of which none is a link or reached through one; one that is is left out.

    Raises:
        OSError: The kernel refuses.
    """
    handled = _rights_of(known)
    tcp = 0 if network or known < NETWORK else _TCP
    scopes = _ABSTRACT_SOCKETS | _SIGNALS if known >= SCOPES else 0
    attributes = struct.pack("QQQ", handled, tcp, scopes)
    size = 8 if known < NETWORK else 16 if known < SCOPES else 24
    ruleset = call(_CREATE, attributes[:size], size, 0)
    try:
        for opened, given in ((_open, rules), (open_without_links, exact)):
            for path, rights in given:
                _allow(ruleset, opened, path, (rights if rights >= 0 else handled & ~_NODES) & handled)
        call(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _rights_of(known: int) -> int:
    rights = _ALL_OF_FIRST
    for since, right in ((2, _REFER), (TRUNCATES, _TRUNCATE), (5, _IOCTL_DEVICE)):
        rights |= right if known >= since else 0
    return rights


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _allow(ruleset: int, opened: Callable[[str], int], path: str, rights: int) -> None:
    try:
        place = opened(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
            return  # what cannot be reached needs no rule
        raise
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_A_FILE
        call(_ADD, ruleset, _BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
