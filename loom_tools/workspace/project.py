"""What a project tells the agents that work in it."""

import contextlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from loom_dsl.agent.turn import ExecutionContext
from loom_dsl.errors import ConfigurationError, LoomError
from loom_tools.workspace.openat import open_beneath
from loom_tools.workspace.workspace import Workspace

# What git says of a working directory: branch and commit, read from git's files.
#
# No git is run for it: the settings of a repository that a model has worked in may name programs that git would
# start, also for its status. So whether files are changed is not told; a job's own work would make it wrong at once.


MAX_REFS = 8 * 1024 * 1024
"""Bytes of the file of packed references that are looked through."""
MAX_LINE = 4_096
MAX_BRANCH = 200
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
    found = _directories(place)
    if found is None:
        return {}
    own, shared = found
    told: dict[str, JsonValue] = {}
    head = _line(own, "HEAD")
    branch = head.removeprefix(_BRANCH) if head.startswith(_BRANCH) else ""
    if _is_branch(branch):
        told["branch"] = branch
    commit = _commit_of(shared, branch) if _is_branch(branch) else head
    if _COMMIT.fullmatch(commit):
        told["commit"] = commit
    if unfinished := next((what for name, what in _UNDER_WAY.items() if os.path.lexists(own / name)), ""):
        told["under_way"] = unfinished
    return told


def _directories(place: Path) -> tuple[Path, Path] | None:
    """Git's directory of this checkout, and the one with the branches: another one for a linked worktree."""
    dot = place / ".git"
    try:
        if stat.S_ISDIR(dot.lstat().st_mode):
            return dot, dot
        pointer = _line(place, ".git")
        if not pointer.startswith("gitdir: "):
            return None
        own = place / pointer.removeprefix("gitdir: ")
        back, shared = own / _line(own, "gitdir"), own / _line(own, "commondir")
        # A worktree is known to the repository that it points at, and is kept there; anybody can write a pointer to any
        # other, or a directory that says that the branches are elsewhere.
        known = os.path.samestat(back.lstat(), dot.lstat()) and os.path.samefile(own / "..", shared / "worktrees")
    except (OSError, ValueError):
        return None
    return (own, shared) if known else None


def _is_branch(name: str) -> bool:
    plain = name.isprintable() and " " not in name and "//" not in name and len(name) <= MAX_BRANCH
    return bool(name) and plain and not any(part.startswith(".") or part == "" for part in name.split("/"))


def _commit_of(shared: Path, branch: str) -> str:
    if loose := _line(shared, f"refs/heads/{branch}"):
        return loose
    lines = _read(shared, "packed-refs", MAX_REFS).splitlines()
    return next((line[: -len(branch) - 12] for line in lines if line.endswith(f" refs/heads/{branch}")), "")


def _line(directory: Path, name: str) -> str:
    return _read(directory, name, MAX_LINE).strip()


def _read(directory: Path, name: str, most: int) -> str:
    """Read a regular file below a directory: through no link, and without waiting for a pipe's other end."""
    try:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        fd = open_beneath(root, name, os.O_RDONLY | os.O_NONBLOCK, follow=False)
    except OSError:
        return ""
    finally:
        os.close(root)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Files of a project that tell an agent how to work in it."""
MAX_INSTRUCTIONS = 32 * 1024
"""Bytes of one such file that are used."""
MAX_GIT = 2_000
"""Characters of what is told of version control."""


def project_context(place: Path, given: ExecutionContext | None = None) -> str:
    """Give what a job's agent is told of the directory as the job starts; empty when there is nothing.

    That is the branch and the commit of a git checkout, and the texts of a project's instruction files, each under its
    name. The files are read as tools read files: a link that a model made shows no file from outside to the job after
    it.

    Args:
        place: The working directory.
        given: What the caller says itself: what it has stands in place of what is found.
    """
    git = (given and given.git_context) or git_context(place)
    files = (given and given.project_context) or _instruction_files(place)
    parts = [_git_text(git)] if git else []
    return "\n\n".join([*parts, *(f"{name}:\n{text}" for name, text in files.items())])


def _git_text(git: Mapping[str, JsonValue]) -> str:
    lines = (f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in git.items())
    return "\n".join(["Version control when the job started (git):", *lines])[:MAX_GIT]


def _instruction_files(place: Path) -> dict[str, str]:
    with contextlib.suppress(ConfigurationError), Workspace(place) as workspace:
        texts = {name: _instructions(workspace, name) for name in INSTRUCTION_FILES}
        return {name: text for name, text in texts.items() if text}
    return {}


def _instructions(workspace: Workspace, name: str) -> str:
    try:
        with workspace.open_read(name) as file:
            return file.read(MAX_INSTRUCTIONS).decode("utf-8", "replace").strip()
    except (LoomError, OSError):
        return ""
