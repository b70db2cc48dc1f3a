"""What an approver is shown: nothing can be pushed out of sight by blanks, blank lines or a summary that is cut."""

import io

import pytest

from loom_cli.commands.show.tables import show_table
from loom_cli.render.approvals import MAX_PREVIEW_LINES, preview_lines, request_lines
from loom_cli.render.terminal import Terminal
from loom_dsl.text.confusables import gathered, in_one_line
from loom_gateway.links import Link
from loom_gateway.pages import question

SPACES, LINES, TABS = "echo ok" + " " * 3_000 + "; rm -rf x", "echo ok" + "\n" * 200 + "rm -rf x", "a" + "\t" * 60 + "b"
DIFF = "--- /dev/null\n+++ b/x\n" + "+\n" * 200 + "+rm -rf x\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SPACES, ["echo ok␠×3000; rm -rf x"]),
        (LINES, ["echo ok", "⏎×199", "rm -rf x"]),
        (TABS, ["a␠×60b"]),
        (DIFF.rstrip("\n"), ["--- /dev/null", "+++ b/x", "+⏎×200", "+rm -rf x"]),
        ("a" + "\n  \t" * 50 + "\nb", ["a", "⏎×50", "b"]),
        ("def f():\n\n\n" + " " * 40 + "x", ["def f():", "", "", " " * 40 + "x"]),
    ],
)
def test_blanks_in_a_row_are_counted(text: str, shown: list[str]) -> None:
    assert gathered(text.split("\n")) == shown


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("text", [SPACES, LINES, DIFF])
def test_what_is_dangerous_stands_in_the_first_lines_of_a_preview(text: str, width: int) -> None:
    stream = io.StringIO()
    paper = Terminal(stream, columns=lambda: width)
    for line, style in preview_lines(text, MAX_PREVIEW_LINES):
        paper.line(line, style)
    paper.flush()
    shown = stream.getvalue()
    assert "rm -rf x" in shown
    assert len(shown.splitlines()) <= 6
    assert max(map(len, shown.splitlines())) <= width


def test_of_what_is_cut_it_is_said_how_much() -> None:
    *_, last = preview_lines("\n".join(map(str, range(30))), 12)
    assert "18 more lines" in last[0]


def test_a_summary_tells_where_lines_end_and_how_long_it_is() -> None:
    assert in_one_line("$ echo ok\nrm -rf x", 300) == "$ echo ok ⏎ rm -rf x"
    assert in_one_line(f"$ {LINES}", 300) == "$ echo ok ⏎×200 rm -rf x"
    assert in_one_line(f"$ {SPACES}", 300) == "$ echo ok␠×3000; rm -rf x"
    cut = in_one_line("$ " + "a" * 5_000, 300)
    assert len(cut) == 300
    assert cut.endswith("a… (5002 characters)")
    (line, _), *_ = request_lines({"summary": cut}, None, 0)
    assert "(5002 characters)" in line


def test_the_page_of_a_link_shows_all_within_its_width() -> None:
    row = {"job": "j", "tool": "t", "summary": "s", "reason": "", "requester": "", "details": {},
           "content": {"command": SPACES}, "preview": f"{'a' * 500}; rm -rf y\n{LINES}"}  # fmt: skip
    link = Link(approval="ap_1", choice="approve", by="ann", digest="", expires=0, id="n")
    page = bytes(question(link, row).body).decode()
    assert "echo ok␠×3000; rm -rf x" in page
    assert "⏎×199" in page
    assert max(map(len, page.partition("<pre>")[2].partition("</pre>")[0].splitlines())) < 200
    assert "; rm -rf y" in page


def test_a_table_shows_what_imitates_or_hides_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("ID", "WHAT"), [("ap_1", "write n\u043etes.md\u200b")], "none")
    assert "ap_1  write n\\u043etes.md\\u200b" in capsys.readouterr().out
