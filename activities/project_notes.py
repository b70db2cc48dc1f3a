"""What a project tells the agents that work in it."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from activities.checkout import git_context
from activities.workspace import Workspace
from loom_dsl.errors import ConfigurationError, LoomError
from loom_dsl.turn import ExecutionContext

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Files of a project that tell an agent how to work in it."""
LARGEST_INSTRUCTIONS = 32 * 1024
"""Bytes of one such file that are used."""
LARGEST_GIT = 2_000
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
    return "\n".join(["Version control when the job started (git):", *lines])[:LARGEST_GIT]


def _instruction_files(place: Path) -> dict[str, str]:
    with contextlib.suppress(ConfigurationError), Workspace(place) as workspace:
        texts = {name: _instructions(workspace, name) for name in INSTRUCTION_FILES}
        return {name: text for name, text in texts.items() if text}
    return {}


def _instructions(workspace: Workspace, name: str) -> str:
    try:
        with workspace.open_read(name) as file:
            return file.read(LARGEST_INSTRUCTIONS).decode("utf-8", "replace").strip()
    except (LoomError, OSError):
        return ""
