"""read_file, write_file and edit_file on real files."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_dsl.errors import PermissionDenied, ToolError, ToolValidationError
from loom_dsl.tools.context import ToolContext
from loom_tools.builtin import BUILTIN_TOOLS
from loom_tools.builtin.text_file import MAX_READ, PAGE
from tests.tools.conftest import Call

TOOLS = {made.name: made for made in BUILTIN_TOOLS}


def test_a_file_is_read_with_its_size_and_lines(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    assert call("read_file", path="a.txt") == "a.txt: lines 1-3 of 3, 14 bytes\n\none\ntwo\nthree"
    assert call("read_file", path=str(tmp_path / "a.txt")).endswith("one\ntwo\nthree")


def test_a_part_is_read_and_the_rest_announced(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\nfour")
    assert call("read_file", path="a.txt", start_line=2, limit=2, line_numbers=True) == (
        "a.txt: lines 2-3 of 4, 18 bytes\n\n     2  two\n     3  three\n\n[1 more lines; read on with start_line=4]"
    )


def test_pages_of_a_long_file_give_every_line_once(call: Call, tmp_path: Path) -> None:
    lines = [f"line {number} " + "x" * (number % 90) for number in range(1500)]
    (tmp_path / "long.txt").write_text("\n".join(lines))
    seen: list[str] = []
    while len(seen) < len(lines):
        page = call("read_file", path="long.txt", start_line=len(seen) + 1)
        assert len(page) < 10_000
        seen += page.split("\n\n", 1)[1].split("\n\n[")[0].split("\n")
    assert seen == lines


def test_an_empty_file_says_so(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert call("read_file", path="a") == "a: the file is empty (0 bytes)"


def test_a_line_longer_than_a_page_is_cut_and_told(call: Call, tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("short\n" + "y" * 50_000 + "\nlast")
    assert "[2 more lines; read on with start_line=2]" in call("read_file", path="min.js")
    page = call("read_file", path="min.js", start_line=2)
    assert f"[line 2 has 50000 characters, of which the first {PAGE} are shown" in page
    assert "[1 more lines; read on with start_line=3]" in page


def test_only_the_beginning_of_a_huge_file_is_looked_at(call: Call, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.write(b"abcdefg\n" * (MAX_READ // 8))
        file.truncate(MAX_READ * 1000)
    assert f"lines 1-1 of more than {MAX_READ // 8}, 8.4 GB" not in call("read_file", path="huge", limit=1)
    assert f"lines 1-1 of more than {MAX_READ // 8}, 8388.6 MB" in call("read_file", path="huge", limit=1)
    last = call("read_file", path="huge", start_line=MAX_READ // 8)
    assert "the file goes on after its first 8388.6 KB" in last
    with pytest.raises(ToolError, match="all that read_file looks at; use grep"):
        call("read_file", path="huge", start_line=MAX_READ // 8 + 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("é\n".encode("latin-1"), "not UTF-8: 1 bytes are shown as \ufffd\n\n\ufffd"),
        ("\ufeffmark".encode(), "bytes\n\nmark"),
        ("wide é".encode("utf-16"), "utf-16\n\nwide é"),
        (b"a\r\nb\r\n", "lines end in CR LF\n\na\nb"),
        (b"a\nb\r\n", "bytes\n\na\nb"),
        (b"form\x0cfeed\xe2\x80\xa8still", "lines 1-1 of 1"),
    ],
)
def test_strange_text_is_read(call: Call, tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "f").write_bytes(data)
    assert words in call("read_file", path="f")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("none", "no such file or directory; use glob"),
        ("d", "is a directory; use glob"),
        ("picture.png", "an image .* not known to take images"),
        ("program", "binary file"),
        ("../x", "outside the working directory"),
        ("/etc/passwd", "outside the working directory"),
        ("", "not a path"),
    ],
)
def test_what_cannot_be_read_is_told(call: Call, tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (tmp_path / "program").write_bytes(b"\x7fELF\0\0\0")
    with pytest.raises((ToolError, PermissionDenied), match=words):
        call("read_file", path=path)


def test_lines_after_the_end_and_below_one_are_told(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    with pytest.raises(ToolError, match="'a' has 1 lines; start_line 2 is after its end"):
        call("read_file", path="a", start_line=2)
    with pytest.raises(ToolValidationError, match="'start_line': expected at least 1, got 0"):
        call("read_file", path="a", start_line=0)


def test_a_file_is_created_with_its_directories_and_then_replaced(call: Call, tmp_path: Path) -> None:
    assert call("write_file", path="r/s/x.md", content="é\nb\n") == "Created r/s/x.md: 5 bytes, 2 lines"
    assert (tmp_path / "r/s/x.md").read_bytes() == "é\nb\n".encode()
    assert call("write_file", path="r/s/x.md", content="b") == "Replaced r/s/x.md: 1 byte, 1 lines"
    assert call("write_file", path="r/s/x.md", content="") == "Replaced r/s/x.md: 0 bytes, 0 lines"


@pytest.mark.parametrize("path", ["../x", "/etc/x", ".git/config", ".env", "link/x"])
def test_what_may_not_be_written_is_not(call: Call, tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/tmp")
    with pytest.raises(PermissionDenied):
        call("write_file", path=path, content="x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["link"]


def test_content_that_is_no_text_is_told(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="not text"):
        TOOLS["write_file"](context=context, path="x", content="\ud800")


def test_a_preview_shows_what_a_write_would_change(context: ToolContext, tmp_path: Path) -> None:
    preview = TOOLS["write_file"].preview
    assert preview is not None
    (tmp_path / "a").write_text("one\ntwo\n")
    assert preview({"path": "a", "content": "one\n2\n"}, context).splitlines()[:2] == ["--- a/a", "+++ b/a"]
    assert "\n-two\n+2" in preview({"path": "a", "content": "one\n2\n"}, context)
    assert preview({"path": "n", "content": "x\n"}, context).startswith("--- /dev/null\n+++ b/n\n")
    assert preview({"path": "a", "content": "one\ntwo\n"}, context) == "a: nothing changes"
    assert len(preview({"path": "a", "content": "z\n" * 100_000}, context)) < 65_000
    assert "outside the working directory" in preview({"path": "../a", "content": ""}, context)
    assert (tmp_path / "a").read_text() == "one\ntwo\n"


def test_a_piece_is_replaced_where_it_stands(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    assert call("edit_file", path="a", old="two\n", new="2\n") == "Edited a: 1 replacement, at line 2"
    assert (tmp_path / "a").read_text() == "one\n2\nthree\n"
    assert (
        call("edit_file", path="a", old="e", new="E", replace_all=True) == "Edited a: 3 replacements, at line 1, 3, 3"
    )
    assert (tmp_path / "a").read_text() == "onE\n2\nthrEE\n"


@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        (b"\xe9 caf\xe9 x\n", "x", "y", b"\xe9 caf\xe9 y\n"),
        ("a é".encode("utf-16"), "é", "ü", "a ü".encode("utf-16")),
    ],
)
def test_an_edit_keeps_line_ends_marks_and_strange_bytes(
    call: Call, tmp_path: Path, data: bytes, old: str, new: str, expected: bytes
) -> None:
    (tmp_path / "f").write_bytes(data)
    call("edit_file", path="f", old=old, new=new)
    assert (tmp_path / "f").read_bytes() == expected


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return x", "return y", "'old' is in 'f' 2 times, at line 2, 5; give more of the text"),
        ("def g():\n  return x", "y", "differs only in white space from:\n4: def g\\(\\):\n5:     return x\nCopy"),
        ("def gg() :", "y", "closest lines are:\n1: def f\\(\\):\n4: def g\\(\\):"),
        ("something else entirely 12345", "y", "No line is like it; read the file again"),
        ("", "y", "'old' is empty"),
        ("return x", "return x", "are the same"),
        ("   ", "y", "'old' is in"),
        ("\n\n\n\n", "y", "'old' is not in"),
    ],
)
def test_an_edit_that_cannot_be_made_changes_nothing_and_says_why(
    call: Call, tmp_path: Path, old: str, new: str, words: str
) -> None:
    source = "def f():\n    return x\n\ndef g():\n    return x\n"
    (tmp_path / "f").write_text(source)
    with pytest.raises(ToolError, match=words):
        call("edit_file", path="f", old=old, new=new)
    assert (tmp_path / "f").read_text() == source


def test_the_nearest_lines_of_a_large_file_are_found_in_time(call: Call, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"value_{n} = compute({n}, {n * 7})\n" for n in range(60_000)))
    with pytest.raises(ToolError, match="closest lines"):
        call("edit_file", path="f", old="value_12 = compute(12, 99)", new="x")


def test_an_edit_is_previewed_and_its_failure_too(context: ToolContext, tmp_path: Path) -> None:
    preview = TOOLS["edit_file"].preview
    assert preview is not None
    (tmp_path / "a").write_text("one\ntwo\n")
    arguments = {"path": "a", "old": "two", "new": "2", "replace_all": False}
    assert "\n-two\n+2" in preview(arguments, context)
    assert preview(arguments | {"old": "9"}, context).startswith("This edit would fail: 'old' is not in 'a'")


@pytest.mark.parametrize(
    ("text", "old", "new", "outcome"),
    [
        ("b c", "a", "b", "happened"),
        ("a c", "a", "b", "not_happened"),
        ("a b", "a", "b", "unknown"),
        ("ab", "a", "ab", "unknown"),
        ("a", "a", "ab", "not_happened"),
        ("c", "a", "b", "unknown"),
        ("c", "a", "", "happened"),
        ("a c", "a", "", "not_happened"),
    ],
)
def test_an_edit_whose_end_nobody_saw_is_looked_for(
    context: ToolContext, tmp_path: Path, text: str, old: str, new: str, outcome: str
) -> None:
    reconcile = TOOLS["edit_file"].reconcile
    assert reconcile is not None
    (tmp_path / "f").write_text(text)
    assert reconcile({"path": "f", "old": old, "new": new}, context).outcome == outcome
    assert reconcile({"path": "gone", "old": old, "new": new}, context).outcome == "unknown"


def test_calls_on_one_file_have_one_key() -> None:
    key = TOOLS["write_file"].concurrency_key
    assert key is not None
    assert key({"path": "a/../b"}) == key({"path": "./b"}) == "file:b"
    assert TOOLS["read_file"].concurrency_key is key
    assert TOOLS["edit_file"].concurrency_key is key
    assert key({"path": "/w/b"}) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_what_is_written_is_what_is_there(call: Call, tmp_path: Path, content: str) -> None:
    call("write_file", path="f", content=content)
    assert (tmp_path / "f").read_bytes() == content.encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\ufeff"), max_size=20), min_size=1))
def test_what_is_read_is_what_was_written(call: Call, lines: list[str]) -> None:
    content = "\n".join(lines) + "\n"
    call("write_file", path="f", content=content)
    assert call("read_file", path="f").split("\n")[2:] == lines
