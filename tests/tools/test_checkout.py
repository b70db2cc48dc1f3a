"""What is told of a git checkout, held against what git itself says."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.agent.turn import ExecutionContext
from loom_tools.workspace.project import MAX_GIT, git_context, project_context

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
COMMIT = "0123456789" * 4


def git(place: Path, *arguments: str, check: bool = True) -> str:
    """Run git, with nobody's settings."""
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    command = ["git", *AUTHOR, *arguments]
    return subprocess.run(command, cwd=place, env=alone, check=check, capture_output=True, text=True).stdout.strip()


def commit(place: Path, text: str) -> None:
    (place / "a.txt").write_text(text)
    git(place, "add", "a.txt")
    git(place, "commit", "-q", "-m", text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit on the branch `feature/größe`."""
    place = tmp_path / "checkout"
    place.mkdir()
    git(place, "init", "-q")
    git(place, "checkout", "-q", "-b", "feature/größe")
    commit(place, "one")
    return place


def same(place: Path) -> Path:
    return place


def packed(place: Path) -> Path:
    git(place, "pack-refs", "--all")
    assert not (place / ".git" / "refs" / "heads" / "feature").exists()
    return place


def packed_and_moved(place: Path) -> Path:
    packed(place)
    commit(place, "two")
    return place


def worktree(place: Path) -> Path:
    git(place, "worktree", "add", "-q", "-b", "other", "../tree")
    commit(place.parent / "tree", "three")
    return place.parent / "tree"


@pytest.mark.parametrize("change", [same, packed, packed_and_moved, worktree])
def test_branch_and_commit_are_those_that_git_names(checkout: Path, change: Callable[[Path], Path]) -> None:
    place = change(checkout)
    branch, head = git(place, "symbolic-ref", "--short", "HEAD"), git(place, "rev-parse", "HEAD")
    assert git_context(place) == {"branch": branch, "commit": head}


def test_a_commit_without_a_branch_is_told_and_a_branch_without_a_commit(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "checkout", "-q", "--detach")
    assert git_context(checkout) == {"commit": git(checkout, "rev-parse", "HEAD")}
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q")
    git(tmp_path / "new", "checkout", "-q", "-b", "first")
    assert git_context(tmp_path / "new") == {"branch": "first"}


@pytest.mark.parametrize("what", ["merge", "rebase", "cherry-pick", "revert", "bisect"])
def test_what_is_not_finished_is_told(checkout: Path, what: str) -> None:
    git(checkout, "checkout", "-q", "-b", "theirs")
    commit(checkout, "two")
    git(checkout, "checkout", "-q", "-")
    commit(checkout, "three")
    arguments = {"bisect": ["start"], "revert": ["theirs"]}.get(what, ["theirs"])
    git(checkout, what, *arguments, check=False)
    told = git_context(checkout)
    assert (told["under_way"], told["commit"]) == (what, git(checkout, "rev-parse", "HEAD"))


def fake(place: Path, head: str = f"{COMMIT}\n", **files: str) -> Path:
    """Write what looks like a repository."""
    (place / ".git").mkdir()
    (place / ".git" / "HEAD").write_text(head)
    for name, text in files.items():
        (place / ".git" / name).write_text(text)
    return place


@pytest.mark.parametrize(
    "head",
    [
        "", "nonsense", "ref: refs/heads/", "ref: refs/heads/../../outside", "ref: refs/heads/a b",
        "ref: refs/heads/.invalid", "ref: refs/heads/a\x1b[2J", "ref: refs/heads/\u202eabc", "ref: refs/heads//x",
        f"ref: refs/heads/{'x' * 300}", "0" * 39, "ref: refs/tags/v1",
    ],
)  # fmt: skip
def test_a_head_that_git_would_not_write_tells_nothing(tmp_path: Path, head: str) -> None:
    (tmp_path / "outside").write_text(COMMIT)
    assert git_context(fake(tmp_path, head)) == {}


@pytest.mark.parametrize("kind", ["none", "pipe", "link", "pointer to nothing", "pointer to another", "head is a pipe"])
def test_what_is_no_checkout_tells_nothing_and_holds_nobody_up(tmp_path: Path, checkout: Path, kind: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    if kind == "pipe":
        os.mkfifo(place / ".git")
    elif kind == "link":
        (place / ".git").symlink_to(checkout / ".git")
    elif kind == "pointer to nothing":
        (place / ".git").write_text("gitdir: ../nowhere\n")
    elif kind == "pointer to another":
        (place / ".git").write_text(f"gitdir: {checkout / '.git'}\n")
    elif kind == "head is a pipe":
        (place / ".git").mkdir()
        os.mkfifo(place / ".git" / "HEAD")
    assert git_context(place) == {}


def test_a_reference_that_is_a_link_shows_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    place = tmp_path / "place"
    place.mkdir()
    fake(place, "ref: refs/heads/main\n")
    (place / ".git" / "refs" / "heads").mkdir(parents=True)
    (place / ".git" / "refs" / "heads" / "main").symlink_to(tmp_path / "secret")
    assert git_context(place) == {"branch": "main"}


def test_no_link_on_the_way_to_a_reference_shows_a_digest_of_another_place(tmp_path: Path) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    place.mkdir()
    outside.mkdir()
    (outside / "token").write_text(COMMIT)
    (outside / "packed-refs").write_text(f"{COMMIT} refs/heads/token\n")
    fake(place, "ref: refs/heads/token\n")
    (place / ".git" / "refs").mkdir()
    (place / ".git" / "refs" / "heads").symlink_to(outside)
    (place / ".git" / "packed-refs").symlink_to(outside / "packed-refs")
    assert git_context(place) == {"branch": "token"}


def pointer(place: Path, back: bytes, common: str = "") -> Path:
    """Write a `.git` that points to a directory of the same place, as only a repository may keep it."""
    (place / ".git").write_text("gitdir: own\n")
    (place / "own").mkdir()
    for name, text in (("gitdir", back), ("commondir", common.encode()), ("HEAD", b"ref: refs/heads/token\n")):
        (place / "own" / name).write_bytes(text)
    return place


def test_what_says_that_the_branches_are_elsewhere_shows_nothing_from_there(tmp_path: Path) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    place.mkdir()
    (outside / "refs" / "heads").mkdir(parents=True)
    (outside / "worktrees").mkdir()
    (outside / "refs" / "heads" / "token").write_text(COMMIT)
    assert git_context(pointer(place, b"../.git\n", str(outside))) == {}


@pytest.mark.parametrize("back", [b"", b"a\0b", b"links/0\n", b"x" * 5000], ids=["none", "null", "links", "long"])
def test_a_pointer_back_that_nobody_can_follow_breaks_nothing(tmp_path: Path, back: bytes) -> None:
    pointer(tmp_path, back)
    (tmp_path / "own" / "links").mkdir()
    for number in range(1500):
        (tmp_path / "own" / "links" / str(number)).symlink_to(str(number + 1))
    assert git_context(tmp_path) == {}


def test_it_is_told_before_the_projects_instructions(tmp_path: Path) -> None:
    (fake(tmp_path) / "AGENTS.md").write_text("Use tabs.")
    told = f"Version control when the job started (git):\ncommit: {COMMIT}"
    assert project_context(tmp_path) == f"{told}\n\nAGENTS.md:\nUse tabs."


def test_what_the_caller_says_stands_in_place_of_what_is_found_and_has_an_end(tmp_path: Path) -> None:
    (fake(tmp_path) / "AGENTS.md").write_text("Use tabs.")
    own: dict[str, Any] = {"git_context": {"branch": "release", "changed": ["a.py"]}}
    told = project_context(tmp_path, ExecutionContext.for_job("j", str(tmp_path), **own))
    assert told.startswith(
        'Version control when the job started (git):\nbranch: release\nchanged: ["a.py"]\n\nAGENTS.md:'
    )
    own = {"project_context": {"HOUSE.md": "Use spaces."}}
    told = project_context(tmp_path, ExecutionContext.for_job("j", str(tmp_path), **own))
    assert told.endswith("\n\nHOUSE.md:\nUse spaces.")
    assert "tabs" not in told
    own = {"git_context": {"log": "x" * 3 * MAX_GIT}, "project_context": {"A": ""}}
    assert len(project_context(tmp_path, ExecutionContext.for_job("j", str(tmp_path), **own))) < MAX_GIT + 10
