"""What a project tells the agents that work in it."""

import os
from pathlib import Path

import pytest

from loom_tools.workspace.project import MAX_INSTRUCTIONS, project_context


def test_the_instruction_files_of_a_project_are_told_under_their_names(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("use tabs\n")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    assert project_context(tmp_path) == "AGENTS.md:\nuse tabs\n\nCLAUDE.md:\nuse tabs"
    (tmp_path / "AGENTS.md").write_text("x" * 2 * MAX_INSTRUCTIONS)
    assert len(project_context(tmp_path)) < 2 * MAX_INSTRUCTIONS + 100


@pytest.mark.parametrize("kind", ["absent", "link out", "link to a key", "pipe", "directory", "no such project"])
def test_what_is_no_file_of_the_project_tells_nothing_and_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    place, notes = tmp_path / "project", tmp_path / "project" / "AGENTS.md"
    place.mkdir()
    (tmp_path / "outside").write_text("secret")
    if kind == "link out":
        notes.symlink_to(tmp_path / "outside")
    elif kind == "link to a key":
        (place / ".env").write_text("KEY=secret")
        notes.symlink_to(".env")
    elif kind == "pipe":
        os.mkfifo(notes)
    elif kind == "directory":
        notes.mkdir()
    elif kind == "no such project":
        place = tmp_path / "nowhere"
    assert project_context(place) == ""
