"""What an approver is shown of a change of a text file, and the state of the file that it is about."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.errors import ApprovalStale
from loom_dsl.tools.context import Preview, ToolContext
from loom_tools.builtin import BUILTIN_TOOLS
from loom_tools.builtin.text_file import MAX_READ
from loom_tools.builtin.write import MAX_DIFFERENCE, difference

TOOLS = {made.name: made for made in BUILTIN_TOOLS}


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("a\nb\n", "a\nb", ["@@ -1,2 +1,2 @@", " a", "-b", "+b", "\\ No newline at end of file"]),
        ("a", "a\n", ["@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+a"]),
        ("a\n", "a\n\n", ["@@ -1 +1,2 @@", " a", "+"]),
        ("a\nb\n", "a\r\nb\n", ["@@ -1,2 +1,2 @@", "-a", "+a\\r", " b"]),
        ("a\r\nb\r\n", "a\r\nc\r\n", ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]),
        ("x\n", "# check:\x0bverify(t)\n", ["@@ -1 +1 @@", "-x", "+# check:\\x0bverify(t)"]),
        ("x\n", "a\rb\x85c\u2028d\x1ce\x0cf\n", ["@@ -1 +1 @@", "-x", "+a\\rb\\x85c\\u2028d\\x1ce\\x0cf"]),
        ("a\x0bb\n", "a\\x0bb\n", ["@@ -1 +1 @@", "-a\\x0bb", "+a\\x0bb"]),
    ],
)
def test_each_line_end_and_what_looks_like_one_is_shown(old: str, new: str, shown: list[str]) -> None:
    assert difference("f", old, new).splitlines()[2:] == shown


def test_a_change_of_all_line_ends_is_said_in_words_too() -> None:
    assert difference("f", "a\nb\n", "a\r\nb\r\n").splitlines() == [
        "the line ends change from LF to CR LF", "--- a/f", "+++ b/f", "@@ -1,2 +1,2 @@", "-a", "-b", "+a\\r", "+b\\r",
    ]  # fmt: skip


def test_a_name_makes_no_lines() -> None:
    assert difference("f\n+evil\r\u2028+x", None, "a\n").splitlines()[:3] == [
        "--- /dev/null", "+++ b/f\\n+evil\\r\\u2028+x", "@@ -0,0 +1 @@",
    ]  # fmt: skip


def test_a_new_file_without_content_and_one_that_is_too_long_are_told() -> None:
    assert difference("f", None, "").splitlines() == ["--- /dev/null", "+++ b/f", "(a new file, which is empty)"]
    long = difference("f", "a\n", "z\n" * 100_000)
    assert long.startswith("f: 1 lines are replaced by 100000 lines; too many to compare here\n+z\n+z\n")
    assert len(long) <= MAX_DIFFERENCE
    assert "characters left out" in long or "cut" in long


@given(st.text(alphabet="ab\n\r\x0b\u2028 ", max_size=12), st.text(alphabet="ab\n\r\x0b\u2028 ", max_size=12))
def test_what_differs_is_shown_and_what_is_the_same_is_not(old: str, new: str) -> None:
    lines = difference("f", old, new).splitlines()
    assert bool(lines) == (old != new)
    # No line is there that the diff itself did not begin.
    assert all(line[:1] in ("+", "-", " ", "@", "\\") or line.startswith("the line ends") for line in lines)


def preview(tool: str, context: ToolContext, **arguments: object) -> Preview:
    made = TOOLS[tool].preview
    assert made is not None
    shown = made(arguments, context)
    assert isinstance(shown, Preview)
    return shown


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a\r\n", ["the line ends change from CR LF to LF", "--- a/f", "+++ b/f", "@@ -1 +1 @@", "-a\\r", "+a"]),
        (b"a", ["--- a/f", "+++ b/f", "@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+a"]),
        (b"\xef\xbb\xbfa\n", ["the file is utf-8-sig and becomes utf-8"]),
        ("a\n".encode("utf-16-le"), ["This write would replace something that cannot be shown: 'f' is a binary file,"]),
        (b"a\n", ["f: nothing changes"]),
        (b"\xe9\n", ["1 bytes of the file are no text, are shown as \ufffd, and go away", "--- a/f"]),
    ],
)
def test_a_write_that_changes_something_never_says_that_nothing_changes(
    context: ToolContext, tmp_path: Path, data: bytes, shown: list[str]
) -> None:
    (tmp_path / "f").write_bytes(data)
    found = preview("write_file", context, path="f", content="a\n").splitlines()
    assert len(found) >= len(shown)
    for line, beginning in zip(found, shown, strict=False):
        assert line.startswith(beginning)


def test_a_write_to_a_file_that_is_too_large_to_compare_shows_what_is_written(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"a" * MAX_READ + b"b")
    shown = preview("write_file", context, path="f", content="a\n")
    assert "cannot be shown: it has 8388.6 KB" in shown
    assert "\n+a" in shown


CALLS = [
    ("write_file", {"content": "new\n"}),
    ("edit_file", {"old": "old", "new": "new", "replace_all": False}),
    ("delete_file", {}),
]


@pytest.mark.parametrize(("tool", "arguments"), CALLS)
def test_an_approved_change_is_made_only_of_the_file_that_was_shown(
    tmp_path: Path, tool: str, arguments: dict[str, object]
) -> None:
    (tmp_path / "f").write_text("old\n")
    state = preview(tool, ToolContext(working_dir=tmp_path), path="f", **arguments).state
    approved = ToolContext(working_dir=tmp_path, approved_states=frozenset([state]))
    (tmp_path / "f").write_text("old\nof somebody else\n")
    with pytest.raises(ApprovalStale, match="'f' was changed after this call was shown to its approver"):
        TOOLS[tool](context=approved, path="f", **arguments)
    assert (tmp_path / "f").read_text() == "old\nof somebody else\n"
    (tmp_path / "f").write_text("old\n")  # the same content is the same state, whoever wrote it
    TOOLS[tool](context=approved, path="f", **arguments)
    assert not (tmp_path / "f").exists() or (tmp_path / "f").read_text() == "new\n"


@pytest.mark.parametrize("before", [None, "gone"])
def test_a_file_that_came_or_went_meanwhile_is_another_state(tmp_path: Path, before: str | None) -> None:
    if before:
        (tmp_path / "f").write_text(before)
    state = preview("write_file", ToolContext(working_dir=tmp_path), path="f", content="new\n").state
    approved = ToolContext(working_dir=tmp_path, approved_states=frozenset([state]))
    if before:
        (tmp_path / "f").unlink()
    else:
        (tmp_path / "f").write_text("of somebody else\n")
    with pytest.raises(ApprovalStale):
        TOOLS["write_file"](context=approved, path="f", content="new\n")
    assert not (tmp_path / "f").exists() or (tmp_path / "f").read_text() == "of somebody else\n"


def test_a_second_attempt_at_an_approved_write_finds_its_own_work(tmp_path: Path) -> None:
    left: list[str] = []
    state = preview("write_file", ToolContext(working_dir=tmp_path), path="f", content="new\n").state
    approved = ToolContext(working_dir=tmp_path, approved_states=frozenset([state]), leaves=left.append)
    for _ in range(2):
        TOOLS["write_file"](context=approved, path="f", content="new\n")
    assert (tmp_path / "f").read_text() == "new\n"
    assert left[0] == left[1] == preview("write_file", approved, path="f", content="").state
