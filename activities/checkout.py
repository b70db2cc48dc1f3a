"""What git says of a working directory: branch and commit, read from git's files.

No git is run for it: the settings of a repository that a model has worked in may name programs that git would start,
also for its status. So whether files are changed is not told; a job's own work would make it wrong at once.
"""

import os
import re
import stat
from pathlib import Path

from pydantic import JsonValue

LARGEST_REFS = 8 * 1024 * 1024
"""Bytes of the file of packed references that are looked through."""
LARGEST_LINE = 4_096
LONGEST_BRANCH = 200
_BRANCH = "ref: refs/heads/"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_UNDER_WAY = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
"""Files of git that are there while something is not finished, and what."""


def git_context(place: Path) -> dict[str, JsonValue]:
    """Give the `branch` and the `commit` of a checkout, and what is `under_way` in it, such as a merge.

    Empty where the directory is not the top of a checkout. What is not as git writes it is left out: only names and
    digests are told, so that no link or pointer shows what is in another file.
    """
    found = _directories(place / ".git")
    if found is None:
        return {}
    own, shared = found
    told: dict[str, JsonValue] = {}
    head = _line(own / "HEAD")
    branch = head.removeprefix(_BRANCH) if head.startswith(_BRANCH) else ""
    if _is_branch(branch):
        told["branch"] = branch
    commit = _commit_of(shared, branch) if _is_branch(branch) else head
    if _COMMIT.fullmatch(commit):
        told["commit"] = commit
    if unfinished := next((what for name, what in _UNDER_WAY.items() if os.path.lexists(own / name)), ""):
        told["under_way"] = unfinished
    return told


def _directories(dot: Path) -> tuple[Path, Path] | None:
    """Git's directory of this checkout, and the one with the branches: another one for a linked worktree."""
    try:
        mode = dot.lstat().st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(mode):
        return dot, dot
    pointer = _line(dot)
    if not pointer.startswith("gitdir: "):
        return None
    own = dot.parent / pointer.removeprefix("gitdir: ")
    back = _line(own / "gitdir")
    # A worktree is known to the repository that it points at; anybody can write a pointer to any other.
    if not back or os.path.realpath(own / back) != os.path.realpath(dot):
        return None
    return own, own / (_line(own / "commondir") or ".")


def _is_branch(name: str) -> bool:
    plain = name.isprintable() and " " not in name and "//" not in name and len(name) <= LONGEST_BRANCH
    return bool(name) and plain and not any(part.startswith(".") or part == "" for part in name.split("/"))


def _commit_of(shared: Path, branch: str) -> str:
    if loose := _line(shared / "refs" / "heads" / branch):
        return loose
    lines = _read(shared / "packed-refs", LARGEST_REFS).splitlines()
    return next((line[: -len(branch) - 12] for line in lines if line.endswith(f" refs/heads/{branch}")), "")


def _line(path: Path) -> str:
    return _read(path, LARGEST_LINE).strip()


def _read(path: Path, most: int) -> str:
    """Read a regular file, without waiting for anybody: a pipe would hold up the start of a job."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
