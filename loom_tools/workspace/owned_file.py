"""Files that say whom to trust, one a line: nobody but their owner may write them."""

import stat
from pathlib import Path

from loom_dsl.errors import ConfigurationError

MAX_FILE = 1024 * 1024


def read_lines(path: Path, named: str, mode: str) -> list[tuple[int, bytes]]:
    """Read the lines of such a file that are not empty, each with its number from 1.

    Args:
        path: The file.
        named: How its operator named it, for messages: a flag or a variable.
        mode: What `chmod` makes it right with.

    Raises:
        ConfigurationError: Others than its owner may write it, or it is larger than 1 MiB.
        OSError: It cannot be read.
    """
    where = f"{path} ({named})"
    if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(f"others may write {where}; say `chmod {mode} {path}`")
    with path.open("rb") as file:
        text = file.read(MAX_FILE + 1)
    if len(text) > MAX_FILE:
        raise ConfigurationError(f"{where} is larger than 1 MiB")
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def state_of(path: Path) -> tuple[int, ...]:
    """Give what changes whenever the file does, so that it is read anew only then.

    Raises:
        OSError: It cannot be looked at.
    """
    state = path.stat()
    return state.st_mtime_ns, state.st_size, state.st_ino, state.st_mode
