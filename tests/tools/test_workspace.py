"""A working directory that nothing leads out of, against a real file system."""

import contextlib
import itertools
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_dsl.errors import ConfigurationError, LoomError, PermissionDenied, ToolError
from loom_tools.workspace.listing import DirectoryEntry
from loom_tools.workspace.openat import native_support
from loom_tools.workspace.workspace import Workspace
from tests.support.waiting import PATIENCE

WAYS = [
    pytest.param(True, marks=pytest.mark.skipif(not native_support(), reason="no openat2 here"), id="openat2"),
    False,
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret.txt").write_text("secret")
    return place


@pytest.fixture(params=WAYS)
def space(request: pytest.FixtureRequest, tmp_path: Path, outside: Path) -> Iterator[Workspace]:
    root = tmp_path / "root"
    (root / "d" / "e").mkdir(parents=True)
    (root / "a.txt").write_text("inside")
    (root / "d" / "b.txt").write_text("deeper")
    (root / "out").symlink_to(outside)
    (root / "out_file").symlink_to(outside / "secret.txt")
    (root / "up").symlink_to("../outside")
    (root / "d" / "absolute").symlink_to("/")
    (root / "proc").symlink_to("/proc/self/root")
    with Workspace(root, native=request.param) as made:
        yield made


def read(space: Workspace, path: str) -> str:
    with space.open_read(path) as file:
        return file.read().decode()


def write(space: Workspace, path: str, text: str) -> None:
    with space.open_write(path) as file:
        file.write(text.encode())


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "d/../a.txt", "d//e/../../a.txt"])
def test_a_file_inside_is_read_whatever_its_spelling(space: Workspace, path: str) -> None:
    assert read(space, path) == "inside"
    assert read(space, str(space.root / path)) == "inside"


LEADING_OUT = [
    "../outside/secret.txt",
    "d/../../outside/secret.txt",
    "out/secret.txt",
    "out_file",
    "up/secret.txt",
    "d/absolute/etc/passwd",
    "proc/etc/passwd",
    "out/../a.txt/../../outside/secret.txt",
    "/etc/passwd",
    "/proc/self/environ",
    "/sys/kernel",
    "~/.ssh/id_rsa",
    "~",
    "/",
    "..",
]


@pytest.mark.parametrize("path", LEADING_OUT)
def test_what_leads_out_is_refused_for_reading_and_writing(space: Workspace, outside: Path, path: str) -> None:
    with pytest.raises(PermissionDenied):
        space.open_read(path)
    with pytest.raises(PermissionDenied):
        space.stat(path)
    with pytest.raises((PermissionDenied, ToolError)):
        write(space, path, "overwritten")
    assert (outside / "secret.txt").read_text() == "secret"
    assert [entry.name for entry in outside.iterdir()] == ["secret.txt"]


def test_the_message_names_the_working_directory(space: Workspace) -> None:
    with pytest.raises(PermissionDenied, match=f"outside the working directory '{space.root}'"):
        space.open_read("/etc/passwd")


def test_links_that_stay_inside_are_read_but_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "x").write_text("old")
    (tmp_path / "current").symlink_to("v2")
    (tmp_path / "x").symlink_to("v2/x")
    with Workspace(tmp_path) as space:
        if native_support():
            assert read(space, "current/x") == read(space, "x") == "old"
            assert space.real_path("current/new/y") == "v2/new/y"
        with pytest.raises(PermissionDenied, match="symbolic link"):
            write(space, "current/x", "new")
        with pytest.raises(PermissionDenied, match="symbolic link"):
            write(space, "x", "new")
    assert (tmp_path / "v2" / "x").read_text() == "old"
    assert (tmp_path / "x").is_symlink()


def test_a_real_path_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    with Workspace(tmp_path / "root") as space, pytest.raises(PermissionDenied):
        space.stat("link/anything")


@pytest.mark.skipif(not native_support(), reason="links are not followed here")
def test_a_link_to_what_is_not_there_yet_means_what_would_be_made(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, target in {"new": "sub/x", "again": "new", "sub/up": "../new", "far": "../outside"}.items():
        (tmp_path / name).symlink_to(target)
    with Workspace(tmp_path) as space:
        for path in ("new", "again", "sub/up"):
            assert space.real_path(path) == "sub/x"
        assert space.real_path("new/below") == "sub/x/below"
        with pytest.raises(PermissionDenied):
            space.real_path("far")


def test_a_working_directory_above_the_system_does_not_open_it() -> None:
    with Workspace(Path("/")) as space:
        for path in ("etc/passwd", "/etc/passwd", "proc/self/status", "sys/kernel"):
            with pytest.raises(PermissionDenied, match="may never touch"):
                space.open_read(path)


def test_the_keys_in_a_home_directory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("x")
    (tmp_path / "alias").symlink_to(".ssh")
    monkeypatch.setenv("HOME", str(tmp_path))
    with Workspace(tmp_path) as space:
        for path in (".ssh/config", "alias/config"):
            with pytest.raises(PermissionDenied):
                space.open_read(path)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "sub/.git/hooks/pre-commit",
        ".GIT/x",
        ".git",
        ".env",
        "d/.env.local",
        "key.pem",
        "d/id_rsa",
        "id_ed25519.pub",
    ],
)
def test_what_is_protected_is_not_written(space: Workspace, path: str) -> None:
    with pytest.raises(PermissionDenied, match="tools may not write"):
        write(space, path, "x")
    assert not (space.root / path).exists()


def test_writing_makes_directories_and_replaces_in_one_step(space: Workspace) -> None:
    write(space, "new/deep/er/x.md", "one")
    assert (space.root / "new/deep/er/x.md").read_text() == "one"
    target = space.root / "a.txt"
    target.chmod(0o754)
    before = target.stat().st_ino
    with space.open_read("a.txt") as old:
        write(space, "a.txt", "two")
        assert old.read() == b"inside"
    assert target.read_text() == "two"
    assert stat.S_IMODE(target.stat().st_mode) == 0o754
    assert target.stat().st_ino != before


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(space: Workspace) -> None:
    names = sorted(os.listdir(space.root))

    def fail_half_way() -> None:
        with space.open_write("a.txt") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert read(space, "a.txt") == "inside"
    assert sorted(os.listdir(space.root)) == names


def test_a_read_only_file_is_not_replaced(space: Workspace) -> None:
    (space.root / "a.txt").chmod(0o444)
    with pytest.raises(PermissionDenied, match="read-only"):
        write(space, "a.txt", "x")


def test_things_that_are_not_files_are_told_and_do_not_hang(space: Workspace) -> None:
    os.mkfifo(space.root / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(space.root / "s")[:100])
        for path, words in [("pipe", "not a regular"), ("s", "'s'"), ("d", "is a directory"), ("nothing", "no such")]:
            with pytest.raises(ToolError, match=words):
                space.open_read(path)
    with pytest.raises(ToolError, match="a part of it is a file"):
        space.open_read("a.txt/x")
    for path in ("pipe", "d", ".", "a.txt/x"):
        with pytest.raises(ToolError):
            write(space, path, "x")


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 300, "x/" * 3000])
def test_a_text_that_is_no_path_is_told(space: Workspace, path: str) -> None:
    with pytest.raises(ToolError, match=r"not a path|name is too long|no such file"):
        space.open_read(path)


def test_existence_and_size(space: Workspace) -> None:
    assert space.stat("a.txt").st_size == 6
    assert space.exists("d/b.txt")
    assert not space.exists("d/c.txt")
    assert not space.exists("a.txt/c")
    with pytest.raises(PermissionDenied):
        space.exists("../outside")


def test_a_walk_lists_files_and_links_without_following_and_skips_what_is_not_the_users(space: Workspace) -> None:
    for name in (".git", "node_modules", "__pycache__", ".venv"):
        (space.root / name).mkdir()
        (space.root / name / "x").touch()
    (space.root / ".hidden").touch()
    (space.root / "d" / "round").symlink_to("..")
    found = list(space.walk())
    assert DirectoryEntry("d/b.txt", "file") in found
    assert DirectoryEntry(".hidden", "file") in found
    assert DirectoryEntry("out", "link") in found
    assert DirectoryEntry("d/round", "link") in found
    assert not [entry for entry in found if "/x" in entry.path or "secret" in entry.path]
    assert [entry.path for entry in space.walk("d")] == ["d/absolute", "d/b.txt", "d/e", "d/round"]
    assert DirectoryEntry("d/e", "directory") in found
    assert [entry.path for entry in space.walk(".git")] == [".git/x"]
    assert [entry.path for entry in space.walk(enter=lambda path: path != "d") if entry.kind == "file"] == [
        ".hidden",
        "a.txt",
    ]
    with pytest.raises(PermissionDenied):
        list(space.walk("out"))


def test_a_deep_tree_is_walked_without_running_out_of_anything(tmp_path: Path) -> None:
    place = tmp_path
    for _ in range(300):
        place = place / "d"
        place.mkdir()
    (place / "leaf").touch()
    before = len(os.listdir("/dev/fd"))
    with Workspace(tmp_path) as space:
        assert [entry.path for entry in space.walk() if entry.kind == "file"] == ["d/" * 300 + "leaf"]
    assert len(os.listdir("/dev/fd")) <= before  # other tests' connections may be closed meanwhile


def test_no_working_directory_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    for path in (tmp_path / "none", tmp_path / "f"):
        with pytest.raises(ConfigurationError, match="working directory"):
            Workspace(path)


def test_a_directory_that_turns_into_a_link_and_back_never_lets_anything_through(
    space: Workspace, outside: Path
) -> None:
    """Swap `d/swap` between a directory and a link that leads out, as fast as the system can, while using it."""
    (outside / "f").write_text("secret")
    real, link, name = space.root / "real", space.root / "link", space.root / "swap"
    real.mkdir()
    (real / "f").write_text("inside")
    link.symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        for turn in itertools.count():
            for source, target in ((real, name), (name, real), (link, name), (name, link)):
                with contextlib.suppress(OSError):
                    os.rename(source, target)
            if name.exists():  # a write made it while there was nothing
                os.rename(name, space.root / f"made{turn}")
            if stop.is_set():
                return

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes, end = Counter[str](), time.monotonic() + PATIENCE
    try:
        for turn in itertools.count():
            if turn >= 1500 and (swapped(outcomes) or time.monotonic() > end):  # a busy machine may let one thread wait
                break
            try:
                if turn % 3 == 0:
                    write(space, "swap/f", "inside, too")
                outcomes[read(space, "swap/f")] += 1
            except LoomError as error:
                outcomes[error.code] += 1
    finally:
        stop.set()
        swapper.join()
    assert set(outcomes) <= {"inside", "inside, too", "permission_denied", "tool_error"}
    assert swapped(outcomes), outcomes
    assert (outside / "f").read_text() == "secret"
    assert sorted(os.listdir(outside)) == ["f", "secret.txt"]


def swapped(outcomes: Counter[str]) -> bool:
    """Whether both were met: the directory, and the link."""
    return outcomes["permission_denied"] > 0 and outcomes["inside"] + outcomes["inside, too"] > 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "d", "e", "out", "up", "proc", "absolute", "a.txt", "", "out_file", "~"]),
        max_size=8,
    ),
    absolute=st.booleans(),
)
def test_no_combination_of_parts_escapes(space: Workspace, outside: Path, parts: list[str], absolute: bool) -> None:
    path = ("/" if absolute else "") + "/".join(parts)
    with contextlib.suppress(LoomError), space.open_read(path) as file:
        assert os.path.realpath(f"/proc/self/fd/{file.fileno()}").startswith(f"{space.root}/")
    with contextlib.suppress(LoomError):
        write(space, f"{path}/made", "x")
    assert os.listdir(outside) == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == "secret"
