"""What a store knows of itself: its id, and its epochs.

The id is made once and goes with the file wherever it is copied. An epoch begins when what the file says may be older
than what was done: after a restore, when a replica was promoted, or when the file is a copy. In an older epoch's work
what is missing from the store proves nothing.
"""

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import bindparam, func, select

from loom_store.queries.base import Queries, storable
from loom_store.tables import meta, workers

FIRST: Final = "the store was made"
MOVED: Final = "the file is not the one that the store was in before"
MOVED_SERVER: Final = (
    "the database is not the one that the store was in before, but a copy, a restore or a replica of it"
)
OLDER: Final = "the file has an older content than it had before"
_HEARD: Final = "user.loom.heard"
_NAME: Final = "user.loom.name"
"""Attribute of the file: when a worker of the store was last heard, in milliseconds. A backup that is copied into the
file leaves the attribute as it is, and does not have that moment."""
_SLACK: Final = 60_000
"""Milliseconds that the store may be behind it: who writes that a worker lives does not wait for the disk."""
_ID, _EPOCHS, _FILE = "id", "epochs", "file"
_READ = select(meta.c.value).where(meta.c.name == bindparam("its_name"))


@dataclass(frozen=True, slots=True)
class Epoch:
    """A time in which the store has lost nothing.

    Attributes:
        number: From 1.
        began_at: Seconds since 1970.
        why: What it began with.
    """

    number: int
    began_at: float
    why: str


class IdentityQueries(Queries):
    """The part of a transaction that deals with the store itself."""

    def store_id(self) -> str:
        """Give the store's id, of 12 hexadecimal characters; empty before `settle_identity`."""
        return self._meta(_ID)

    def epochs(self) -> Sequence[Epoch]:
        """List the store's epochs, the oldest first."""
        return tuple(Epoch(**epoch) for epoch in json.loads(self._meta(_EPOCHS) or "[]"))

    def epoch(self) -> Epoch:
        """Give the store's present epoch."""
        return self.epochs()[-1]

    def epoch_began(self) -> float | None:
        """Say when the present epoch began, in seconds since 1970; None in the first, of which nothing is missing."""
        epoch = self.epoch()
        return None if epoch.number == 1 else epoch.began_at

    def begin_epoch(self, why: str) -> Epoch:
        """Begin an epoch: from now on, what the store lacks of earlier work may have been done all the same."""
        epochs = self.epochs()
        epoch = Epoch(len(epochs) + 1, self._clock(), storable(why))
        self._set_meta(_EPOCHS, json.dumps([asdict(one) for one in (*epochs, epoch)]))
        return epoch

    def is_settled(self, file: str, heard: int) -> bool:
        """Whether `settle_identity` would change nothing."""
        return bool(self._meta(_ID)) and self._meta(_FILE) == file and not self._is_older(heard)

    def settle_identity(self, file: str, heard: int) -> Epoch | None:
        """Make the store's id if it has none, and remember which file it is in.

        Args:
            file: Names the file or the database, as `Database.name` does.
            heard: What `heard_in` says of a file.

        Returns:
            The epoch that began, if the store was in another file before, or this one had a newer content.
        """
        begun = None
        if not self._meta(_ID):
            self._set_meta(_ID, secrets.token_hex(6))
            self.begin_epoch(FIRST)
        elif self._meta(_FILE) != file:
            begun = self.begin_epoch(MOVED if self._connection.dialect.name == "sqlite" else MOVED_SERVER)
        elif self._is_older(heard):
            begun = self.begin_epoch(OLDER)
        self._set_meta(_FILE, file)
        return begun

    def _is_older(self, heard: int) -> bool:
        """Whether a worker was heard in this file that the store does not know of."""
        return heard - (self._scalar(select(func.max(workers.c.seen_at))) or 0) > _SLACK

    def _meta(self, name: str) -> str:
        return str(self._scalar(_READ, {"its_name": name}) or "")

    def _set_meta(self, name: str, value: str) -> None:
        new = self._insert(meta).values(name=name, value=value)
        self._execute(new.on_conflict_do_update(index_elements=[meta.c.name], set_={"value": value}))


def file_name(path: Path) -> str:
    """Name a file so that a copy of it, or one restored in its place, has another name; it may be renamed.

    An attribute of the file is part of it, made at the first look: the number of a deleted file is given again at once.
    The number is, too, since some copies take attributes along. Where there are none, the number of the file system has
    to do.
    """
    try:
        return _named(path, os.getxattr(path, _NAME).decode())
    except OSError as error:
        if error.errno not in (errno.ENODATA, getattr(errno, "ENOATTR", errno.ENODATA)):
            return _numbers(path)
    except (AttributeError, ValueError):
        return _numbers(path)
    name = secrets.token_hex(16)
    try:
        os.setxattr(path, _NAME, name.encode(), os.XATTR_CREATE)
    except FileExistsError:
        return _named(path, os.getxattr(path, _NAME).decode())  # another process was quicker
    except OSError:
        return _numbers(path)
    return _named(path, name)


def _named(path: Path, name: str) -> str:
    return f"{name}/{path.stat().st_ino}"


def _numbers(path: Path) -> str:
    return f"{os.statvfs(path).f_fsid:x}/{path.stat().st_ino}"


def heard_in(path: Path) -> int:
    """Say when a worker was last heard in a file, whatever is in it now, in milliseconds; 0: it was not noted."""
    with contextlib.suppress(OSError, AttributeError, ValueError):  # not every system has attributes
        return int(os.getxattr(path, _HEARD))
    return 0


def note_heard(path: Path, millis: int) -> None:
    """Note on a file when a worker was last heard in it."""
    with contextlib.suppress(OSError, AttributeError):
        os.setxattr(path, _HEARD, str(millis).encode())
