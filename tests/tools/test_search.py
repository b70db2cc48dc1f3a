"""glob and grep over real trees."""

import os
import re
import threading
from pathlib import Path

import psutil
import pytest

from loom_dsl.errors import Aborted, PermissionDenied, ToolError, ToolTimeout
from loom_dsl.tools.context import ToolContext
from loom_tools.builtin import search as searching
from loom_tools.builtin.search import LineMatcher, grep
from tests.support.waiting import longer
from tests.tools.conftest import Call


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "README.md": "Hello world\nsecond line\n",
        "src/main.py": "import os\n\nclass Main:\n    pass\n",
        "src/deep/er.py": "class Deeper(Main):\n    hello = 'WORLD'\r\n",
        "src/deep/x.ts": "class X {}\n",
        ".git/HEAD": "class Hidden\n",
        "node_modules/m/i.js": "class Module {}\n",
        ".env": "class=secret\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "link.py").symlink_to("src/main.py")
    (tmp_path / "out").symlink_to("/")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "**/*.py"}, ["link.py", "src/deep/er.py", "src/main.py"]),
        ({"pattern": "*"}, [".env", "README.md", "link.py", "out", "src/"]),
        ({"pattern": "*", "directory": "src"}, ["src/deep/", "src/main.py"]),
        ({"pattern": "**/*.{ts,md}"}, ["README.md", "src/deep/x.ts"]),
        ({"pattern": "deep/*", "directory": "src"}, ["src/deep/er.py", "src/deep/x.ts"]),
        ({"pattern": "HEAD", "directory": ".git"}, [".git/HEAD"]),
    ],
)
def test_paths_are_listed(call: Call, tree: Path, arguments: dict[str, str], expected: list[str]) -> None:
    header, _, *paths = call("glob", **arguments).split("\n")
    assert sorted(paths) == expected
    assert header.startswith(f"{len(expected)} path")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pattern": "*.ts"}, r"No path matches \*\.ts in \.\. .*\*\*/\*\.ts looks below it too"),
        ({"pattern": "node_modules/**"}, "node_modules is skipped unless"),
        ({"pattern": "none/*"}, "No path matches"),
    ],
)
def test_nothing_found_says_what_to_try(call: Call, tree: Path, arguments: dict[str, str], words: str) -> None:
    assert re.search(words, call("glob", **arguments))


def test_a_long_list_ends_with_what_is_left(call: Call, tmp_path: Path) -> None:
    for number in range(1200):
        (tmp_path / f"a_rather_long_name_{number:05}.txt").touch()
    listed = call("glob", pattern="*.txt", max_results=3)
    assert listed.startswith("1200 paths match")
    assert listed.endswith("[1197 more; use a narrower pattern or directory]")
    assert len(listed.split("\n")) == 6
    assert len(call("glob", pattern="*.txt")) < 10_000


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("glob", {"pattern": "*", "directory": ".."}),
        ("glob", {"pattern": "*", "directory": "out/etc"}),
        ("glob", {"pattern": "*", "directory": "/etc"}),
        ("grep", {"pattern": "root", "path": "out/etc/passwd"}),
        ("grep", {"pattern": "root", "path": "/etc"}),
        ("grep", {"pattern": "root", "path": "../x"}),
    ],
)
def test_searching_outside_is_refused(call: Call, tree: Path, name: str, arguments: dict[str, str]) -> None:
    with pytest.raises(PermissionDenied):
        call(name, **arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("glob", {"pattern": "../*"}, "climbs"),
        ("glob", {"pattern": "/etc/*"}, "absolute"),
        ("glob", {"pattern": "*", "directory": "none"}, "no such file or directory"),
        ("grep", {"pattern": "(", "path": "."}, "is not a regular expression: missing"),
        ("grep", {"pattern": "x", "path": "none"}, "no such file or directory"),
        ("grep", {"pattern": "x", "include": "[z-a]"}, "backwards"),
    ],
)
def test_a_search_that_cannot_be_made_is_told(
    call: Call, tree: Path, name: str, arguments: dict[str, str], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        call(name, **arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"pattern": "^class "},
            ["src/deep/er.py:1: class Deeper(Main):", "src/deep/x.ts:1: class X {}", "src/main.py:3: class Main:"],
        ),
        ({"pattern": "^class ", "include": "*.ts"}, ["src/deep/x.ts:1: class X {}"]),
        ({"pattern": "^class ", "path": "src", "include": "deep/*.py"}, ["src/deep/er.py:1: class Deeper(Main):"]),
        ({"pattern": "^class ", "include": "src/*.py"}, ["src/main.py:3: class Main:"]),
        (
            {"pattern": "world", "ignore_case": True},
            ["README.md:1: Hello world", "src/deep/er.py:2:     hello = 'WORLD'"],
        ),
        ({"pattern": "second", "path": "README.md"}, ["README.md:2: second line"]),
        ({"pattern": "'$"}, ["src/deep/er.py:2:     hello = 'WORLD'"]),
        ({"pattern": "class", "path": "link.py"}, ["link.py:3: class Main:"]),
    ],
)
def test_lines_are_found(call: Call, tree: Path, arguments: dict[str, object], expected: list[str]) -> None:
    header, _, *lines = call("grep", **arguments).split("\n")
    assert sorted(lines) == expected
    assert header.startswith(f"{len(expected)} line")


def test_no_line_found_says_how_much_was_searched_and_left_out(call: Call, tree: Path) -> None:
    (tree / "picture").write_bytes(b"\0\1class")
    with (tree / "large.log").open("wb") as file:
        file.truncate(5_000_000)
    text = call("grep", pattern="not there at all")
    assert text.startswith(
        "No line matches not there at all in . (4 files searched; left out: 1 binary, 1 over 4194.3 KB, 1 protected)"
    )


def test_a_search_stops_at_its_limits_and_says_so(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("match\n" * 500)
    text = call("grep", pattern="match", max_results=10)
    assert text.startswith("10 or more lines in 1 file match match in . (1 file searched)")
    assert text.endswith("[stopped at 10 lines; use a narrower pattern, path or include]")
    (tmp_path / "a").write_text("match\n" * 10)
    assert "stopped" not in call("grep", pattern="match", max_results=10)
    (tmp_path / "a").write_text(("match " + "x" * 150 + "\n") * 150)
    text = call("grep", pattern="match")
    assert len(text) < 10_000
    assert "more lines do not fit here" in text


def test_a_long_line_is_cut_around_its_match(call: Call, tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("a" * 100_000 + "needle" + "b" * 100_000)
    line = call("grep", pattern="needle").split("\n")[2]
    assert "needle" in line
    assert len(line) < 300
    assert line.startswith("min.js:1: ...a")
    assert line.endswith("b...")


def test_other_encodings_are_searched(call: Call, tmp_path: Path) -> None:
    (tmp_path / "utf16").write_bytes("größe\nzwei".encode("utf-16"))
    (tmp_path / "latin").write_bytes("größe eins".encode("latin-1"))
    (tmp_path / "utf8").write_bytes("größe".encode())
    assert call("grep", pattern="größe").startswith("2 lines in 2 files")
    assert call("grep", pattern="eins").startswith("1 line in 1 file")


@pytest.fixture(autouse=True)
def before() -> set[int]:
    """What ran before the test: other tests of this process share a server."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def children(before: set[int]) -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True) if child.pid not in before]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*a){20}b"])
def test_a_catastrophic_pattern_is_stopped(pattern: str, before: set[int]) -> None:
    for seconds in longer(0.5):  # on a slow machine the time may be over before the pattern is compiled
        with pytest.raises(ToolTimeout) as stopped:
            search(pattern, seconds)
        if stopped.value.message.startswith("searching"):
            break
    assert stopped.value.message.startswith(f"searching f took more than {seconds:g} seconds; simplify")
    assert children(before) == []


def search(pattern: str, seconds: float) -> None:
    with LineMatcher(pattern, ignore_case=False, seconds=seconds, cancelled=lambda: False) as matcher:
        matcher.find("f", b"a" * 60 + b"!", 10)


def test_a_search_ends_when_the_job_is_cancelled(
    tmp_path: Path, before: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "program", lambda: None)  # which would see that nothing matches
    (tmp_path / "f").write_text("a" * 60 + "!")
    cancelled = threading.Event()
    context = ToolContext(working_dir=tmp_path, cancelled=cancelled.is_set)
    threading.Timer(0.3, cancelled.set).start()
    with pytest.raises(Aborted):  # to find that nothing matches would take centuries
        grep(context=context, pattern="(a+)+$")
    assert cancelled.is_set()
    assert children(before) == []


def test_a_search_leaves_no_process_and_no_descriptor(call: Call, tree: Path, before: set[int]) -> None:
    call("grep", pattern="class")
    open_files = len(os.listdir("/dev/fd"))
    for _ in range(3):
        call("grep", pattern="class")
        with pytest.raises(ToolError):
            call("grep", pattern="(")
    assert len(os.listdir("/dev/fd")) <= open_files  # other tests' connections may be closed meanwhile
    assert children(before) == []
