"""The state of a file that a call is to change, by which it is known whether that is what the approver was shown."""

import hashlib
import os
from dataclasses import dataclass

from activities.builtin.text_file import LARGEST_READ
from activities.replace_file import ABSENT, Expected
from activities.workspace import Workspace
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.errors import LoomError


@dataclass(frozen=True, slots=True)
class FileState:
    """What is at a path.

    Attributes:
        name: The same as long as the file's content is.
        expected: What `Workspace.open_write` is to find there still.
        data: The content as far as it is read; None where there is no file, or one that cannot be read.
        size: The file's size in bytes.
        problem: Why it cannot be read, or empty.
    """

    name: str
    expected: Expected
    data: bytes | None = None
    size: int = 0
    problem: str = ""

    @property
    def is_there(self) -> bool:
        """Whether there is anything."""
        return self.expected is not ABSENT


def state_at(space: Workspace, path: str) -> FileState:
    """Look what is at a path.

    Raises:
        PermissionDenied: The path leads out of the working directory, or is always refused.
        ToolError: It is no path.
    """
    where = space.relative(path)
    if not space.exists(path):
        return FileState(_name(where, "absent"), ABSENT)
    try:
        with space.open_read(path) as file:
            as_read = os.fstat(file.fileno())
            data = file.read(LARGEST_READ)
            return FileState(state_name(where, data, as_read), as_read, data, as_read.st_size)
    except LoomError as error:
        as_seen = space.stat(path)
        return FileState(_name(where, *_identity(as_seen)), as_seen, size=as_seen.st_size, problem=error.message)


def state_name(where: str, data: bytes, as_read: os.stat_result | None = None) -> str:
    """Name the state of a file with this content; of a large one only the beginning is looked at, and its time."""
    more = _identity(as_read) if as_read is not None and as_read.st_size > LARGEST_READ else ()
    return _name(where, hashlib.sha256(data).hexdigest(), *more)


def _identity(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _name(where: str, *state: str | int) -> str:
    return digest(canonical_json([where, *state]))
