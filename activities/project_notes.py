"""What a project tells the agents that work in it."""

import contextlib
from pathlib import Path

from activities.workspace import Workspace
from loom_dsl.errors import ConfigurationError, LoomError

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Files of a project that tell an agent how to work in it."""
LARGEST_INSTRUCTIONS = 32 * 1024
"""Bytes of one such file that are used."""


def project_context(place: Path) -> str:
    """Give the texts of a project's instruction files, each under its name; empty when there are none.

    They are read as tools read files: a link that a model made shows no file from outside to the job after it.
    """
    parts = []
    with contextlib.suppress(ConfigurationError), Workspace(place) as workspace:
        for name in INSTRUCTION_FILES:
            if text := _instructions(workspace, name):
                parts.append(f"{name}:\n{text}")
    return "\n\n".join(parts)


def _instructions(workspace: Workspace, name: str) -> str:
    try:
        with workspace.open_read(name) as file:
            return file.read(LARGEST_INSTRUCTIONS).decode("utf-8", "replace").strip()
    except (LoomError, OSError):
        return ""
