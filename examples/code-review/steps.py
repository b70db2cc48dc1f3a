"""The steps of the review that need no model: plain functions, which `activity: steps:NAME` nodes call."""

import subprocess
import sys
from pathlib import Path

from loom_dsl import ToolContext


def checkout(repo: str, pr: int, context: ToolContext) -> dict[str, str]:
    """Make a worktree of the pull request's branch. Called again after a crash, it finds the one that is there."""
    path = context.working_dir / "worktrees" / f"pr-{pr}"
    if not path.exists():
        _git(context.working_dir / repo, "worktree", "add", str(path), f"pr-{pr}")
    return {"path": f"worktrees/pr-{pr}"}


def remove_worktree(repo: str, pr: int, context: ToolContext) -> None:
    """Take `checkout` back."""
    path = context.working_dir / "worktrees" / f"pr-{pr}"
    if path.exists():
        _git(context.working_dir / repo, "worktree", "remove", "--force", str(path))


def run_tests(path: str, context: ToolContext) -> dict[str, object]:
    """Run pytest there, and give the end of what it printed."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=context.working_dir / path, capture_output=True, text=True)
    return {"passed": done.returncode == 0, "output": done.stdout[-4_000:]}


def tell(who: str, text: str, context: ToolContext) -> None:
    """Tell somebody; here, by a line in a file."""
    with (context.working_dir / "messages.txt").open("a", encoding="utf-8") as file:
        file.write(f"{who}: {text}\n")


def merge(repo: str, pr: int, path: str, context: ToolContext) -> dict[str, str]:
    """Commit what was mended, merge the branch, and remove the worktree. Called again, it changes nothing more."""
    worktree, main = context.working_dir / path, context.working_dir / repo
    if worktree.exists():
        if _git(worktree, "status", "--porcelain"):
            _git(worktree, "commit", "--all", "--message", f"Mend what the tests of {pr} found")
        _git(main, "worktree", "remove", "--force", str(worktree))
    _git(main, "merge", "--no-edit", f"pr-{pr}")
    return {"sha": _git(main, "rev-parse", "HEAD")}


def _git(where: Path, *words: str) -> str:
    who = ["-c", "user.name=review", "-c", "user.email=review@example.org"]
    done = subprocess.run(["git", *who, *words], cwd=where, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
