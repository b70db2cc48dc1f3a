"""Settings of git are read as git reads them, and what they name is found."""

import subprocess
from pathlib import Path

import pytest

from loom_tools.sandbox.protected_files import directory_of, named_by, read_settings

FILES = {
    "plain": "[core]\n\thooksPath = .githooks\n",
    "on one line": '[core] hooksPath=a\n[filter "x"] clean = b c\n',
    "comments": '; x\n[core] # y\n  pager = less ; z\n  editor = "vi # no" # yes\n',
    "escapes": '[alias]\n  a = "!f() { echo \\"x\\"; }; f"\n  b = x\\ty\\\\z\n',
    "lines that go on": "[alias]\n  a = !sh \\\n    x.sh \\\n  y\n  b = c\n",
    "without a value": "[core]\n  bare\n  hooksPath = x\n",
    "capital letters": '[CORE]\n  HooksPath = X\n[IncludeIf "gitdir:~/X/"]\n  Path = Y\n[Filter "X.y"]\n  CLEAN = z\n',
    "an old section": "[filter.x]\n  clean = y\n",
    "quotes in a section": '[filter "a\\"b\\\\c"]\n  clean = y\n',
    "returns": "[core]\r\n  hooksPath = a\r\n  pager = b\r\n",
    "a mark before it": "\ufeff[core]\n  hooksPath = a\n",
    "other ends of lines": "[core]\n  pager = a\u2028b\n  editor = c\n",
    "an equals sign": "[alias]\n  a = x=y\n",
}


@pytest.mark.parametrize("what", FILES)
def test_settings_are_read_as_git_reads_them(tmp_path: Path, what: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(FILES[what].encode())
    told = subprocess.run(
        ["git", "config", "-f", file, "--list", "-z"], capture_output=True, check=True
    ).stdout.decode()
    expected = [tuple((entry + "\n").split("\n")[:2]) for entry in told.split("\0") if entry]
    assert list(read_settings(str(file))) == expected


def test_what_settings_name_is_found_through_what_they_include(tmp_path: Path) -> None:
    top = tmp_path / "work"
    (top / ".git").mkdir(parents=True)
    for name in ("clean.sh", "watch", "notes.md", "go"):
        (top / name).write_text("#!/bin/sh\n" if name == "go" else "x")
    (top / ".git" / "config").write_text(
        '[include] path = more\n[core] fsmonitor = watch\n[alias] a = !cat notes.md\n b = "!./go notes.md"\n c = log\n'
    )
    (top / ".git" / "more").write_text(
        '[includeIf "onbranch:x"] path = ../none\n[include] path = config\n'
        '[core] hooksPath = ~/hooks\n hooksPath = here\n worktree = ../elsewhere\n[filter "x"] clean = sh clean.sh %f\n'
    )
    named = named_by([str(top / ".git" / "config")], str(top))
    own = str(top)
    assert named.settings == (f"{own}/.git/more", f"{own}/none", f"{own}/.git/config")
    assert named.hooks == (str(Path("~/hooks").expanduser()), f"{own}/here")
    assert set(named.programs) == {f"{own}/watch", f"{own}/go", f"{own}/clean.sh"}, "what an alias shows may be edited"
    assert named.worktree == f"{own}/elsewhere"


@pytest.mark.parametrize(("text", "place"), [("gitdir: ../x\n", "x"), ("gitdir: /a/b", "/a/b"), ("", ""), ("x", "")])
def test_a_file_says_where_its_repository_is(tmp_path: Path, text: str, place: str) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / ".git").write_text(text)
    assert directory_of(str(tmp_path / "below" / ".git")) == (str(tmp_path / place) if place else "")
