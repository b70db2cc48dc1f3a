"""How a job's events are shown: recorded events at several widths, with and without colour, live and in a pipe."""

import io
from collections.abc import Mapping
from typing import Any

import pytest

from loom_cli.render.terminal import Terminal, WordWrap, cells, terminal_for
from loom_cli.render.timeline import RequestedCall, Timeline
from loom_dsl.agent.run import ErrorInfo, RunResult, RunUsage
from loom_dsl.observe.events import decode
from loom_dsl.text.printable import clock
from tests.cli.screen import Screen

LONG = "I look around first, and because this sentence is long it has to be wrapped at the width of the terminal."
DIFF = "--- a/x.md\n+++ b/x.md\n@@ -1 +1 @@\n-old\n+new\n"
RECORDED: list[dict[str, Any]] = [
    {"t": "iteration_start", "n": 0, "iteration": 0},
    {"t": "state", "n": 0, "from": "idle", "state": "preparing"},
    {"t": "llm_start", "n": 0},
    {"type": "llm_delta", "n": 0, "stream": "0/model#1", "attempt": 1, "sequence": 1, "content": LONG[:51]},
    {"type": "llm_delta", "n": 0, "stream": "0/model#1", "attempt": 1, "sequence": 2, "content": LONG[51:]},
    {"t": "llm_finish", "n": 0, "content": LONG},
    {"t": "tool_calls_start", "n": 0, "tool_count": 2, "tool_names": ["glob", "write_file"]},
    {"t": "tool_result", "n": 0, "tool_call_id": "c1", "tool": "glob", "status": "success", "content": "x", "ms": 12},
    {
        "t": "approval_requested",
        "n": 0,
        "approval_id": "ap_1",
        "request": {
            "tool": "write_file",
            "summary": "write x.md",
            "risk": "medium",
            "reason": "no rule",
            "preview": "d",
        },
        "expires_at": 7_200.0,
    },
    {"t": "state", "n": 0, "from": "tool_running", "state": "awaiting_human"},
    {"t": "approval_decided", "n": 0, "approval_id": "ap_1", "choice": "reject", "by": "ann", "message": "not now"},
    {"t": "recursion", "n": 1, "depth": 1},
    {"t": "iteration_start", "n": 1, "iteration": 1},
    {"t": "llm_finish", "n": 1, "content": "All is well."},
    {"t": "of_a_newer_release", "n": 1},
]
RESULT = RunResult(
    session_id="s",
    run_id="job-1",
    status="completed",
    usage=RunUsage(prompt_tokens=1200, completion_tokens=30, cached_tokens=200, model_calls=2, cost_usd=0.0123),
)
AT_80 = """\
job-1  scribe  /home/ann/project
task: look around
● turn 1
│ ┊ I look around first, and because this sentence is long it has to be wrapped
│ ┊ at the width of the terminal.
│ ✓ glob **/*.py path=src  1 · 12 ms
│ ? write_file needs approval  ap_1
│   write x.md
│   medium risk; no rule; until UNTIL
│     --- a/x.md
│     +++ b/x.md
│     @@ -1 +1 @@
│     -old
│     +new
│   loom approve job-1 ap_1
│   loom reject job-1 ap_1 --reason "..."
│   rejected by ann: not now
● turn 2  depth 1
│ ┊ All is well.
│ · of_a_newer_release
✓ done
  1 turn · 2 model calls · 0 tool calls · 1,200 tokens in (200 cached), 30 out
  · $0.0123 · 12 s
""".replace("UNTIL", clock(7200, 0))


def call(turn: int, call_id: str) -> RequestedCall:
    return RequestedCall("glob", '{"pattern": "**/*.py", "path": "src"}')


def preview(request: Mapping[str, Any]) -> str:
    return DIFF if request.get("preview") else ""


def shown(events: list[dict[str, Any]], *, columns: int = 80, **options: Any) -> str:
    """What is written for the events, and for nothing else."""
    stream = io.StringIO()
    timeline = Timeline(
        Terminal(stream, columns=lambda: columns, **options), call=call, preview=preview, now=lambda: 0.0
    )
    for offset, raw in enumerate(events, 1):
        timeline.feed(decode("job-1", offset, raw))
    timeline.interrupt()
    return stream.getvalue()


def whole(**options: Any) -> str:
    stream = io.StringIO()
    columns = options.pop("columns", 80)
    timeline = Timeline(
        Terminal(stream, columns=lambda: columns, **options), call=call, preview=preview, now=lambda: 0.0
    )
    timeline.begin({"job": "job-1", "agent": "scribe", "workdir": "/home/ann/project", "task": "look\naround"})
    for offset, raw in enumerate(RECORDED, 1):
        timeline.feed(decode("job-1", offset, raw))
    timeline.end(RESULT, 12.3)
    return stream.getvalue()


def test_a_job_is_a_tree_of_turns_at_80_columns() -> None:
    assert whole() == AT_80


def test_at_200_columns_nothing_is_wrapped() -> None:
    lines = whole(columns=200).splitlines()
    assert f"│ ┊ {LONG}" in lines
    assert len(lines) == len(AT_80.splitlines()) - 2


def test_changes_of_state_are_told_to_who_asks() -> None:
    stream = io.StringIO()
    timeline = Timeline(Terminal(stream), states=True)
    timeline.feed(decode("j", 1, {"t": "state", "n": 0, "from": "tool_running", "state": "awaiting_human"}))
    assert stream.getvalue() == "● turn 1\n│ · tool_running -> awaiting_human\n"


@pytest.mark.parametrize("columns", [20, 33, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert max(cells(line) for line in whole(columns=columns).splitlines()) < columns


def test_colour_changes_nothing_but_colours() -> None:
    coloured = whole(colour=True)
    assert "\x1b[1;33m? write_file needs approval  ap_1\x1b[0m\n" in coloured
    assert Screen().feed(coloured).text + "\n" == AT_80
    assert coloured.count("\x1b[0m") >= coloured.count("m│")


def test_a_plain_terminal_gets_ascii() -> None:
    assert whole(fancy=False).isascii()


def test_streamed_text_appears_word_by_word() -> None:
    stream = io.StringIO()
    flow = WordWrap(Terminal(stream), "| ")
    flow.add("one two thr")
    assert stream.getvalue() == "| one two"
    flow.add("ee")
    flow.end()
    assert stream.getvalue() == "| one two three\n"


@pytest.mark.parametrize("cut", range(1, 20))
def test_text_reads_the_same_however_it_is_cut(cut: int) -> None:
    text = "def f():\r\n    return '日本語のテキスト'  # \x1b[31m\r\n\n\tend" * 3
    pieces = [text[start : start + cut] for start in range(0, len(text), cut)]
    deltas = [{"type": "llm_delta", "n": 0, "stream": "s", "content": piece} for piece in pieces]
    once = [{"type": "llm_delta", "n": 0, "stream": "s", "content": text}]
    assert shown(deltas, columns=30) == shown(once, columns=30)


def test_a_written_graph_is_told_whether_it_runs_or_not() -> None:
    refused = {
        "t": "graph_refused",
        "n": 0,
        "node": "run#1",
        "message": "the written graph is refused:\nrun.yaml:5:7: no",
    }
    admitted = {
        "t": "graph_admitted",
        "n": 0,
        "node": "run#2",
        "child": "job.run.2",
        "graph": "g",
        "plan": "p",
        "nodes": 3,
    }
    text = shown([refused, admitted], columns=100)
    assert "· run#1: the written graph is refused: run.yaml:5:7: no\n" in text
    assert "· run#2: the written graph runs as job.run.2\n" in text


def test_code_keeps_its_indentation() -> None:
    assert shown([{"t": "llm_finish", "n": 0, "content": "x:\n    y = 1\n\n    z"}]) == (
        "● turn 1\n│ ┊ x:\n│ ┊     y = 1\n│ ┊ \n│ ┊     z\n"
    )


def test_a_word_longer_than_the_line_is_broken() -> None:
    written = shown([{"t": "llm_finish", "n": 0, "content": "a" * 50}], columns=30)
    assert written.splitlines()[1:] == ["│ ┊ " + "a" * 25] * 2


def delta(text: str, attempt: int = 1, stream: str = "0/m") -> dict[str, Any]:
    return {"type": "llm_delta", "n": 0, "stream": stream, "attempt": attempt, "content": text}


RESET = {"type": "stream_reset", "n": 0, "stream": "0/m", "attempt": 2}
AGAIN = [delta(LONG * 3), RESET, delta("Short.", 2), {"t": "llm_finish", "n": 0, "content": "Short."}]


def test_a_lost_attempt_is_taken_back_at_a_terminal() -> None:
    assert Screen().feed(shown(AGAIN, live=True)).text == "● turn 1\n│ ┊ Short."


def test_a_lost_attempt_is_marked_where_nothing_can_be_taken_back() -> None:
    lines = shown(AGAIN).splitlines()
    assert lines[-2:] == ["│ (the answer starts again: attempt 2)", "│ ┊ Short."]
    assert "\x1b" not in shown(AGAIN)


def test_text_that_has_scrolled_away_is_marked_and_not_taken_back() -> None:
    written = shown([delta("line\n" * 50), *AGAIN[1:]], live=True)
    assert "(the answer starts again: attempt 2)" in written
    assert "\x1b[J" not in written


def test_a_lost_attempt_before_an_answer_without_text_is_void() -> None:
    events = [delta("I will"), {"t": "llm_finish", "n": 0, "content": ""}]
    assert Screen().feed(shown(events, live=True)).text == "● turn 1"
    assert "(the text above was of an attempt that was lost)" in shown(events)


@pytest.mark.parametrize(
    ("seen", "lines"),
    [
        ([], ["│ ┊ one two three"]),
        (["one ", "two"], ["│ ┊ one two three"]),
        (["two three"], ["│ ┊ two three"]),  # watched from the middle on
    ],
)
def test_the_whole_answer_adds_what_was_not_streamed(seen: list[str], lines: list[str]) -> None:
    events = [*map(delta, seen), {"t": "llm_finish", "n": 0, "content": "one two three"}]
    events.append({"t": "agent_finish", "n": 0, "content": "one two three"})
    assert shown(events).splitlines()[1:] == lines


def test_why_nothing_happens_passes_at_a_terminal_and_is_told_once_in_a_pipe() -> None:
    for live, expected in ((True, "● turn 1\n│ ┊ one two"), (False, "● turn 1\n│ (waiting: no worker)\n│ ┊ one two")):
        stream = io.StringIO()
        timeline = Timeline(Terminal(stream, live=live))
        timeline.feed(decode("j", 1, {"t": "iteration_start", "n": 0}))
        timeline.waiting("no worker")
        timeline.waiting("no worker")
        timeline.feed(decode("j", 2, delta("one ")))
        timeline.waiting("the model is answering")
        timeline.feed(decode("j", 3, delta("two ")))
        timeline.interrupt()
        assert Screen().feed(stream.getvalue()).text == expected


@pytest.mark.parametrize("bad", [{}, {"status": None, "content": None, "ms": "x"}, {"request": 3, "message": ["x"]}])
@pytest.mark.parametrize(
    "kind",
    [
        "tool_result",
        "approval_requested",
        "approval_decided",
        "state",
        "control",
        "warning",
        "error",
        "progress",
        "compression_applied",
    ],
)
def test_an_event_with_odd_data_is_shown_somehow(kind: str, bad: dict[str, Any]) -> None:
    assert shown([{"t": kind, "n": 0, **bad}]).startswith("● turn 1")


def test_a_compression_says_how_much_is_left_on_one_line() -> None:
    sizes = {"messages_before": 124, "messages_after": 34, "tokens_before": 184_213, "tokens_after": 46_003}
    (line,) = shown([{"t": "compression_applied", "n": 0, **sizes}]).splitlines()[1:]
    assert line == "│ · conversation compressed: 124 -> 34 messages, 184,213 -> 46,003 tokens"


def test_a_failure_says_why() -> None:
    stream = io.StringIO()
    error = ErrorInfo(code="max_iterations", message="the limit\nwas \x1b[2Jreached")
    Timeline(Terminal(stream)).end(RunResult(session_id="s", run_id="j", status="failed", error=error))
    assert stream.getvalue().startswith("✗ failed: max_iterations: the limit was \\x1b[2Jreached\n")


class Pretended(io.StringIO):
    """A stream that says what it is."""

    def __init__(self, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal, self._encoding = terminal, encoding

    def isatty(self) -> bool:
        return self._terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


@pytest.mark.parametrize(
    ("stream", "env", "expected"),
    [
        (Pretended(True), {"TERM": "xterm"}, (True, True, True)),
        (Pretended(True), {"TERM": "xterm", "NO_COLOR": "1"}, (False, True, True)),
        (Pretended(True), {"TERM": "dumb"}, (False, False, False)),
        (Pretended(False), {"TERM": "xterm"}, (False, False, True)),
        (Pretended(False), {"TERM": "xterm", "FORCE_COLOR": "1"}, (True, False, True)),
        (Pretended(True, "ascii"), {"TERM": "xterm"}, (True, True, False)),
    ],
)
def test_a_stream_gets_what_it_can_show(stream: Pretended, env: dict[str, str], expected: tuple[bool, ...]) -> None:
    paper = terminal_for(stream, {**env, "COLUMNS": "132"})
    assert (paper.colour, paper.live, paper.fancy) == expected
    assert paper.columns() == 132
