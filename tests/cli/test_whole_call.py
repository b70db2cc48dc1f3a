"""All of an approval can be seen, what is cut says so, and what others wrote makes no line of Loom's."""

import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_cli.app import run
from loom_cli.commands.approve.approve import done_line
from loom_cli.render.approvals import FOLLOWING, decided_line, preview_lines, waiting_lines
from loom_cli.render.terminal import Terminal, cells
from loom_client.records import Receipt
from loom_dsl.observe.events import decode
from loom_dsl.text.canonical import canonical_json, digest
from loom_store.rows import ApprovalRow
from loom_store.store import Store

LINES = [f"line {number}" for number in range(900)]
ARGUMENTS = {"path": "a.py", "content": "\n".join(LINES), "mode": {"a": 1}}
OTHER = {"path": "b.py", "content": "short\n"}
PREVIEW = "--- a/a.py\n+++ b/a.py\n@@ -1 +1,900 @@\n" + "\n".join(f"+{line}" for line in LINES)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A store with a job, an approval that waits, and one that was edited."""
    path = tmp_path / "loom.db"
    with Store.open(path) as store:
        store.write_sync(lambda tx: tx.create_session("s"))
        known = {"session": "s", "agent": "a", "plan": "ab" * 32, "task": "t", "workdir": "/", "namespace": "default"}
        store.write_sync(lambda tx: tx.create_job("job-1", **known, task_queue="q", created_at=time.time()))
        texts = (canonical_json(ARGUMENTS), PREVIEW, canonical_json(OTHER))
        arguments, preview, edited = store.write_sync(lambda tx: [tx.put_blob(text.encode()) for text in texts])
        asked = {
            "tool": "write_file",
            "arguments_digest": arguments,
            "summary": "write a.py",
            "created_at": time.time(),
        }
        for name in ("ap_waits", "ap_edited"):
            row = ApprovalRow(id=name, job="job-1", **asked, details={"preview": preview})  # type: ignore[arg-type]
            store.write_sync(lambda tx, row=row: tx.upsert_approval(row))  # type: ignore[misc]
        store.write_sync(lambda tx: tx.decide_approval("ap_edited", "edited", "edit", "ann", more={"edited": edited}))
    return path


Loom = Callable[..., tuple[int, str]]


@pytest.fixture
def loom(kept: Path, capsys: pytest.CaptureFixture[str]) -> Loom:
    """A command: its exit status, and all that it says."""

    def call(*words: str) -> tuple[int, str]:
        code = run([*words, "--store", str(kept), "--address", "127.0.0.1:1"])
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


@pytest.mark.parametrize("names", [("ap_waits",), ("job-1", "ap_waits"), ("job-1",)])
def test_all_that_runs_is_shown_by_name(loom: Loom, names: tuple[str, ...]) -> None:
    code, shown = loom("approvals", *names)
    assert code == 0, shown
    lines = shown.splitlines()
    assert [line for line in lines if line.startswith("    +line")] == [f"    +{line}" for line in LINES]
    assert [line for line in lines if line.startswith("    | line")] == [f"    | {line}" for line in LINES]
    assert '    "content": 900 lines, the last one without a line end' in lines
    assert f"  arguments {digest(canonical_json(ARGUMENTS))}:" in lines
    assert '    "path": "a.py"' in lines


def test_of_an_edited_call_both_arguments_are_shown(loom: Loom) -> None:
    lines = loom("approvals", "ap_edited")[1].splitlines()
    assert f"  runs with {digest(canonical_json(OTHER))}:" in lines
    assert lines[-3:] == ['    "content": 1 line', "    | short", '    "path": "b.py"']
    (found,) = [json.loads(line) for line in loom("approvals", "ap_edited", "--json")[1].splitlines()]
    assert (found["content"], found["edited_content"], found["preview"]) == (ARGUMENTS, OTHER, PREVIEW)


def test_what_is_cut_says_how_much_is_missing_and_how_to_see_it(loom: Loom) -> None:
    listed = loom("approvals")[1]
    assert "  ... 891 more lines; all of it: loom approvals ap_waits\n" in listed
    assert loom("approvals", "ap_none")[0] == 2
    assert "belongs to job job-1" in loom("approvals", "job-2", "ap_waits")[1]


HOSTILE = "x" * 70 + " ? rm needs approval  ap_1 +harmless -gone loom approve job-1 ap_1 ● turn 2 " * 4


@pytest.mark.parametrize("columns", range(20, 200, 7))
@pytest.mark.parametrize("text", [HOSTILE, "+" + HOSTILE.replace(" ", "\t"), "+" + "漢字" * 200, "y" * 600])
def test_no_part_of_a_wrapped_line_begins_where_a_line_of_looms_or_a_sign_of_a_diff_does(
    columns: int, text: str
) -> None:
    stream = io.StringIO()
    paper = Terminal(stream, columns=lambda: columns)
    for line, style in preview_lines(f"{text}\n+next"):
        paper.line(line, style, follow=FOLLOWING)
    lines = stream.getvalue().splitlines()
    begun = [line for line in lines if not line.startswith(FOLLOWING)]
    assert len(begun) == 2
    assert begun[-1] == "    +next"
    assert all(line.startswith("    ") and cells(line) < columns for line in lines)


def test_every_sign_that_is_not_seen_is_seen_at_the_end_of_a_line_too() -> None:
    shown = [line for line, _ in preview_lines("-a\n+a\r\n+# check:\x0bverify(t)\u2028x\x85y\n")]
    assert shown == ["    -a", "    +a\\r", "    +# check:\\x0bverify(t)\\u2028x\\x85y"]


def test_who_has_voted_and_that_a_job_is_halted_is_shown_until_it_is_asked_anew() -> None:
    vote = {"what": "vote", "choice": "approve", "by": "ann", "have": 1, "need": 2}
    halted = [vote, {"what": "halted"}]
    shown = [text for text, _ in waiting_lines("job-1", halted)]
    assert shown == [
        "  approve by ann: 1 of 2",
        "  nobody decided in time: the job is halted; decide, or `loom resume job-1` asks anew",
    ]
    assert [text for text, _ in waiting_lines("job-1", [*halted, {"what": "renewed"}])] == shown[:1]


def test_an_expiry_that_lets_a_call_run_looks_like_none_that_does_not() -> None:
    raw = {"t": "approval_decided", "n": 0, "approval_id": "ap_1", "choice": "expired", "by": "", "message": "m"}
    texts = [decided_line(decode("j", 1, {**raw, **more}))[0] for more in ({}, {"allowed": True})]
    assert texts == [
        "  expired: nobody decided in time",
        "  expired: nobody decided in time, and `on_expiry: allow` lets it run",
    ]


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"verdict": "recorded", "message": "approve recorded"}, "approved: ap_1 (send) of job j"),
        (
            {"verdict": "recorded", "message": "approve recorded: 1 of 2 (аnn)"},
            "recorded, and it still waits: ap_1 (send) of job j: approve recorded: 1 of 2 (\\u0430nn)",
        ),
        ({"verdict": "unconfirmed", "message": "sent"}, "sent: approve: ap_1 (send) of job j"),
        ({"verdict": "already_done", "message": "x"}, "counted before: ap_1 (send) of job j: x"),
    ],
)
def test_a_decision_is_said_to_be_what_became_of_it(said: dict[str, str], line: str) -> None:
    assert (
        done_line({"id": "ap_1", "tool": "send", "job": "j", "details": {}}, "approve", Receipt.model_validate(said))
        == line
    )


def test_no_line_of_a_shown_approval_is_at_the_margin_but_its_head(loom: Loom) -> None:
    lines = loom("approvals", "ap_waits")[1].splitlines()
    assert [line for line in lines if not re.match("  ", line)] == lines[:1]
