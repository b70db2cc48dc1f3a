"""Paths of extreme depth, length and names: a tool answers, or says what is wrong; nothing of the system shows bare."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_dsl.errors import LoomError, PermissionDenied, ToolError
from loom_dsl.permissions.traits import traits_of
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import Tool, validate_arguments
from loom_tools.builtin import BUILTIN_TOOLS
from loom_tools.workspace.workspace import MAX_PATH, Workspace

TOOLS = {made.name: made for made in BUILTIN_TOOLS}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {}),
    ("write_file", {"content": "x"}),
    ("edit_file", {"old": "x", "new": "y"}),
    ("delete_file", {}),
    ("grep", {"pattern": "x"}),
    ("grep", {"pattern": "x", "include": "PATH"}),
    ("glob", {"pattern": "**/*", "directory": "PATH"}),
    ("glob", {"pattern": "PATH"}),
    ("file_search", {"pattern": "x", "directory": "PATH"}),
    ("file_search", {"pattern": "PATH"}),
]
PATHS = [
    "a/" * 3000 + "x", "a/" * 300 + "x", "/" * 5000 + "x", "./" * 5000 + "x",
    "x/../" * 2000 + "x", "x" * 255, "x" * 256, "x" * 5000, "é" * 127, "é" * 128, "\U0001f600" * 64,
    ("x" * 200 + "/") * 30, "x" * 4096, "a\nb", "a\rb", "a\tb", "\x01", "\x7f", "\x1b[2J", " ", "  x  ", ".", "..",
    "...", "....//", "-rf", "--", "~", "~/x", "~root/x", "$HOME/x", "*", "?", "[", "[a", "{a,b}", "{", "}", "\\",
    "a\\b", "C:\\x", "//x", "x//y", "x/", "x/.", "x/..", "file/x", "file/", "file/..", "dir/", "dir/.", "link/x",
    "loop/x", "loop", "fifo", "fifo/x", "gone", "gone/x", "dir", "\ud800", "a/\udfff/b", "\udcff", "\u202e", "\u2028",
    "\ufeff", "con", "nul", "a:b", '"', "'", "`id`", "$(id)", ".loom-write-0", ".git", "x\u0301", "\x00", "a\x00b",
    "", "proc", "none/" * 800 + "x", "file\n/x", "!x", "!**", "**" * 500,
]  # fmt: skip


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ToolContext]:
    root = tmp_path / "root"
    (root / "dir").mkdir(parents=True)
    (root / "file").write_text("x\n")
    (root / "link").symlink_to("dir")
    (root / "loop").symlink_to("loop")
    (root / "gone").symlink_to("nowhere")
    (root / "proc").symlink_to("/proc/self/fd")
    os.mkfifo(root / "fifo")
    yield ToolContext(working_dir=root)
    # pytest removes directories by their paths, which are too long here.
    subprocess.run(["rm", "-rf", str(root)], check=True)


def all_ways(made: Tool, arguments: dict[str, Any], context: ToolContext) -> None:
    """Do with a call whatever is done with calls: a failure is one that a model is told."""
    try:
        valid = validate_arguments(made, arguments)
    except LoomError:
        return
    with Workspace(context.working_dir) as space:
        steps = [
            lambda: made.summarise(valid) if made.summarise else None,
            lambda: made.concurrency_key(valid) if made.concurrency_key else None,
            lambda: traits_of(
                made, valid, builtin=True, working_dir=str(context.working_dir), real_path=space.real_path, reference=""
            ),
            lambda: made.preview(dict(valid), context) if made.preview else None,
            lambda: made(**made.bind(valid, context)),
            lambda: made.reconcile(dict(valid), context) if made.reconcile else None,
        ]
        for step in steps:
            with contextlib.suppress(LoomError):
                step()


def with_path(made: Tool, arguments: dict[str, Any], path: str) -> dict[str, Any]:
    given = {name: path if value == "PATH" else value for name, value in arguments.items()}
    takes = "path" in made.parameters["properties"]
    return {"path": path, **given} if takes and "PATH" not in arguments.values() else given


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=lambda value: str(value)[:40])
def test_every_file_tool_answers_for_every_path(name: str, arguments: dict[str, Any], context: ToolContext) -> None:
    for path in PATHS[::4] if name == "grep" else PATHS:  # each of its calls starts a process
        all_ways(TOOLS[name], with_path(TOOLS[name], arguments, path), context)
    # And it still does after all of them were written.
    all_ways(TOOLS[name], with_path(TOOLS[name], arguments, "."), context)


PART = st.sampled_from([*"/.*[]{}?!\\~ \n\0x", "..", "dir", "file", "link", "loop", "x" * 250, "\ud800", "\udcff", "é"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(parts=st.lists(PART, max_size=12), times=st.sampled_from([1, 1, 1, 300]), call=st.sampled_from(CALLS))
def test_no_path_that_is_drawn_shows_an_error_of_the_system(
    context: ToolContext, parts: list[str], times: int, call: tuple[str, dict[str, Any]]
) -> None:
    name, arguments = call
    all_ways(TOOLS[name], with_path(TOOLS[name], arguments, "".join(parts) * times), context)


def deep(root: Path, parts: int) -> None:
    """Make directories deeper than a path can say, as a command can."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(parts):
        os.mkdir("d" * 100, dir_fd=fd)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("needle", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_a_directory_deeper_than_a_path_can_say_is_searched_as_far_as_it_goes(context: ToolContext) -> None:
    deep(context.working_dir, 60)
    (context.working_dir / ("d" * 100) / "needle").write_text("x needle\n")
    for name, arguments in CALLS:
        all_ways(TOOLS[name], with_path(TOOLS[name], arguments, "."), context)
    made = TOOLS["grep"]
    assert "needle:1: x needle" in str(made(**made.bind({"pattern": "needle", "path": "."}, context)))
    found = TOOLS["glob"]
    listed = str(found(**found.bind({"pattern": "**/needle", "directory": "."}, context)))
    assert f"{'d' * 100}/needle" in listed


def test_a_path_that_is_too_long_is_told_with_what_may_be(context: ToolContext) -> None:
    with Workspace(context.working_dir) as space, pytest.raises(ToolError, match=f"too long; .* {MAX_PATH} bytes"):
        space.relative("a/" * 3000 + "x")


def test_a_file_whose_name_is_no_text_is_listed_and_searched(context: ToolContext) -> None:
    (context.working_dir / os.fsdecode(b"bad-\xff")).write_text("needle\n")
    for name, arguments in (("glob", {"pattern": "*"}), ("grep", {"pattern": "needle"})):
        made = TOOLS[name]
        assert "bad-" in str(made(**made.bind(dict(arguments), context)))


def test_what_leads_out_is_still_refused(context: ToolContext) -> None:
    with Workspace(context.working_dir) as space, pytest.raises(PermissionDenied):
        space.relative("../" * 2000 + "etc/passwd")
