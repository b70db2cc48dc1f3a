"""What is in a directory."""

import os
from dataclasses import dataclass
from typing import Literal

from loom_tools.workspace.replace import TEMPORARY

SKIPPED_DIRECTORIES = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
)
"""Directories that a walk does not enter; a walk that starts in one does."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """Something that a walk found.

    Attributes:
        path: Relative to the working directory.
        kind: A symbolic link is a link, whatever it leads to.
    """

    path: str
    kind: Literal["file", "link", "directory"]


def list_directory(fd: int, prefix: str) -> tuple[list[str], list[DirectoryEntry]]:
    """List a directory, sorted by name.

    Args:
        fd: Its descriptor.
        prefix: Put before each name.

    Returns:
        The directories to enter, and everything that is there.
    """
    directories: list[str] = []
    found: list[DirectoryEntry] = []
    with os.scandir(fd) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_symlink():
                found.append(DirectoryEntry(prefix + entry.name, "link"))
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_DIRECTORIES:
                    directories.append(prefix + entry.name)
                    found.append(DirectoryEntry(prefix + entry.name, "directory"))
            elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(TEMPORARY):
                found.append(DirectoryEntry(prefix + entry.name, "file"))
    return directories, found
