"""grep with ripgrep finds what it finds without, and what leads ripgrep elsewhere does not."""

import os
import platform
import random
import re
import sys
from pathlib import Path

import pytest

from loom_tools.builtin.search import candidates, program, weakened
from loom_tools.workspace.workspace import Workspace
from tests.support.waiting import PATIENCE

BROUGHT = sys.platform == "linux" and platform.machine() == "x86_64"  # the tests' requirements have it there
needs_ripgrep = pytest.mark.skipif(not BROUGHT and program() is None, reason="ripgrep is not installed here")

PATTERNS = [
    *(
        "needle",
        "NEEDLE",
        "n.*e",
        "^needle$",
        r"\bneedle\b",
        r"a\sb",
        "x|y",
        "(ne)+dle",
        "[a-c]1",
        "[^a-z]",
        r"\.",
        "z{2}",
    ),
    *("(?i)needle", "(?=n)need", r"(n)\1", r"[\w]", "foo{", "", "ü", r"\d\d", r"\x41", r"\Z"),
    *("--version", "-e", "needle\n", r"--pre=/bin/sh"),
]


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        *[(pattern, True) for pattern in ("needle", r"a\.b", "(a|b)+", "[a-c]1", r"\w\d", "--pre=x", "")],
        *[(pattern, False) for pattern in ("(?i)a", "(?=n)a", r"(n)\1", r"[\w]", "[[:alpha:]]", "[a&&b]", r"\x41")],
        *[(pattern, False) for pattern in (r"\Z", r"\A", r"\W", r"\S", "[a--b]", "[]a]", "a\\", r"\N{DASH}")],
    ],
)
def test_only_what_both_read_alike_is_given_to_ripgrep(pattern: str, same: bool) -> None:
    assert (weakened(pattern) is not None) is same


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """Files of all kinds with what is in them; the first is their directory."""
    folder = tmp_path_factory.mktemp("tree")
    pieces = ["needle", "NEEDLE", "a b", "a\x1cb", "a\x85b", "x", "zz", "ü", "A", "b1", "12", ".", "--version", "", "{"]
    chosen = random.Random(4711)
    texts = {folder: ""}
    for number in range(200):
        end = chosen.choice(["\n", "\r\n"])
        text = end.join(" ".join(chosen.sample(pieces, 2)) for _ in range(3)) + chosen.choice(["", end])
        place = folder / chosen.choice(["", "sub", ".hidden"]) / f"{number}.txt"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(text.encode(chosen.choice(["utf-8", "utf-8-sig", "utf-16"])))
        texts[place] = text
    (folder / ".gitignore").write_text("*\n")
    return texts


@needs_ripgrep
def test_a_ripgrep_beside_the_interpreter_is_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert program() is not None


@needs_ripgrep
@pytest.mark.parametrize("pattern", PATTERNS)
def test_ripgrep_leaves_out_no_file_in_which_a_line_matches(tree: dict[Path, str], pattern: str) -> None:
    folder = next(iter(tree))
    for ignore_case in (False, True):
        wanted = re.compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)
        matching = {
            str(place.relative_to(folder))
            for place, text in tree.items()
            if place != folder and any(wanted.search(line.removesuffix("\r")) for line in text.split("\n"))
        }
        with Workspace(folder) as space:
            found = candidates(space, ".", pattern, ignore_case=ignore_case, seconds=PATIENCE, cancelled=lambda: False)
        assert found is None or matching <= found


@needs_ripgrep
def test_ripgrep_stays_in_the_directory_and_reads_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (tmp_path / "outside.txt").write_text("needle")
    (work / "sub/in.txt").write_text("needle")
    (work / "out").symlink_to(tmp_path)
    (work / "settings").write_text(f"--pre={tmp_path}/evil\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(work / "settings"))
    with Workspace(work) as space:
        found = candidates(space, ".", "needle", ignore_case=False, seconds=PATIENCE, cancelled=lambda: False)
        assert found == {"sub/in.txt"}
        below = candidates(space, "sub", "needle", ignore_case=False, seconds=PATIENCE, cancelled=lambda: False)
        assert below == {"in.txt"}


def test_a_ripgrep_in_the_working_directory_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "rg"
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    planted.chmod(0o755)
    with Workspace(tmp_path) as space:
        for path in (str(tmp_path), ".", ""):
            monkeypatch.chdir(tmp_path)
            monkeypatch.setenv("PATH", path)
            own = None if path == str(tmp_path) or program() is None else {"rg"}  # by the one beside the interpreter
            assert own == candidates(space, ".", "touch", ignore_case=False, seconds=PATIENCE, cancelled=lambda: False)
    assert os.listdir(tmp_path) == ["rg"]
