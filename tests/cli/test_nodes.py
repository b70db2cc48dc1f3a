"""How the nodes of a graph's run are shown: at once or not, in maps short and long, failed, tried again, waiting."""

import io
import json
import logging
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from loom_cli.commands.serve.log import OncePerCause
from loom_cli.render.terminal import Terminal
from loom_cli.render.text import result_text
from loom_cli.render.timeline import Timeline
from loom_dsl.agent.run import GraphResult
from loom_dsl.observe.events import decode
from loom_dsl.text.printable import clock
from tests.cli.screen import Screen


def start(node: str, at: float = 0.0, kind: str = "activity", **more: Any) -> dict[str, Any]:
    return {"t": "node_start", "n": 0, "node": node, "kind": kind, "at": at, **more}


def end(node: str, at: float = 1.5, outcome: str = "done", **more: Any) -> dict[str, Any]:
    return {"t": "node_end", "n": 0, "node": node, "outcome": outcome, "at": at, **more}


def timeline_of(events: list[dict[str, Any]], **options: Any) -> tuple[Timeline, io.StringIO]:
    stream, columns = io.StringIO(), options.pop("columns", 80)
    timeline = Timeline(Terminal(stream, columns=lambda: columns, **options), turns=False, now=lambda: 0.0)
    for offset, raw in enumerate(events, 1):
        timeline.feed(decode("job-1", offset, raw))
    return timeline, stream


def shown(*events: dict[str, Any], **options: Any) -> str:
    timeline, stream = timeline_of(list(events), **options)
    timeline.interrupt()
    return stream.getvalue()


RUN = [
    start("a#1"),
    end("a#1", 0.2),
    start("n#1", 0.2, "map", items=2),
    start("n#1[0]/w#1", 0.2),
    start("n#1[1]/w#1", 0.2),
    end("n#1[0]/w#1", 1.2),
    {"t": "node_retry", "n": 0, "node": "n#1[1]/w#1", "attempt": 2, "code": "busy", "message": "try later"},
    end("n#1[1]/w#1", 3.2, "failed", code="broken", message="it broke", to="mend"),
    end("n#1", 3.2),
    start("s#2", 3.2, "graph"),
    start("s#2[0]/w#1", 3.2),
    end("s#2[0]/w#1", 3.3),
    end("s#2", 3.3),
    start("k#1", 3.3, "agent", child="job-1.k.1"),
    end("k#1", 9.3, "cancelled"),
    start("e#1", 9.3, "event", event="paid"),
]
AT_80 = """\
✓ a  200 ms
▸ n  2 items
  ▸ n[0] › w
  ▸ n[1] › w
  ✓ n[0] › w  1.0 s
  ↻ n[1] › w  attempt 2 · after busy: try later
  ✗ n[1] › w  3.0 s · broken: it broke · goes on at mend
✓ n  3.0 s
▸ s #2
  ✓ s #2 › w  100 ms
✓ s #2  100 ms
▸ k  job job-1.k.1
– k  6.0 s · cancelled
▸ e  waits for the event paid
"""


def test_a_run_reads_as_a_timeline_of_its_graph() -> None:
    assert shown(*RUN) == AT_80
    assert shown(*RUN, columns=200) == AT_80


def test_colour_and_a_terminal_change_nothing_but_how_it_looks() -> None:
    assert Screen().feed(shown(*RUN, colour=True, live=True)).text + "\n" == AT_80
    assert shown(*RUN, fancy=False).isascii()


@pytest.mark.parametrize("columns", [30, 80])
def test_a_long_reason_is_wrapped_below_its_node(columns: int) -> None:
    lines = shown(start("a#1"), end("a#1", 1, "failed", code="c", message="word " * 40), columns=columns).splitlines()
    assert max(map(len, lines)) < columns
    assert all(line.startswith("    | ") for line in lines[1:])


def test_what_runs_on_is_said_when_nothing_happens_and_passes_at_a_terminal() -> None:
    timeline, stream = timeline_of([start("a#1")])
    assert stream.getvalue() == ""
    timeline.waiting("a running")
    timeline.waiting("a running")
    assert stream.getvalue() == "▸ a\n(waiting: a running)\n"
    timeline.feed(decode("job-1", 2, start("b#1")))
    timeline.feed(decode("job-1", 3, end("b#1")))
    timeline.waiting("a running")
    assert stream.getvalue().count("waiting") == 1, "the same reason is told once"
    assert Screen().feed(timeline_of([start("a#1")], live=True)[1].getvalue()).text == "▸ a"


def test_what_tells_too_early_that_it_is_inside_a_node_comes_after_it() -> None:
    text = shown(start("n#1[1]/w#1"), start("n#1", 0, "map", items=2), start("n#1[0]/w#1"), end("n#1[0]/w#1"))
    assert text.splitlines()[0] == "▸ n  2 items"
    assert text.splitlines()[1:3] == ["  ▸ n[1] › w", "  ✓ n[0] › w  1.5 s"]


def test_a_long_map_is_told_by_its_progress_and_its_failures() -> None:
    events = [start("n#1", 0, "map", items=1000)]
    for item in range(1000):
        bad = item % 10 == 7
        how: dict[str, Any] = {"outcome": "failed", "code": "c", "message": f"m{item}", "to": "z"} if bad else {}
        events += [start(f"n#1[{item}]/w#1"), end(f"n#1[{item}]/w#1", 1, **how)]
    lines = shown(*events, end("n#1", 60.0)).splitlines()
    assert lines[0] == "▸ n  1,000 items"
    assert "▸ n  500 of 1,000 items begun" in lines
    assert sum("✗" in line for line in lines) == 20
    assert lines[-1] == "✓ n  1 min"
    assert len(lines) < 40


def test_a_failure_is_told_where_it_was_and_at_the_end_and_not_between() -> None:
    why = "node `w`, item 1 (2) of `n`: it broke"
    events = [start("n#1", 0, "map", items=2), start("n#1[1]/w#1", 0)]
    events += [end("n#1[1]/w#1", 1, "failed", code="c", message="it broke"), end("n#1", 1, "failed", message=why)]
    timeline, stream = timeline_of([*events, {"t": "error", "n": 0, "error": "c", "message": why}])
    timeline.end(GraphResult.model_validate({"job": "j", "status": "failed", "error": {"code": "c", "message": why}}))
    assert stream.getvalue().splitlines()[1:] == [
        "  ✗ n[1] › w  1.0 s · c: it broke",
        "✗ n  1.0 s · failed",
        f"✗ failed: c: {why}",
    ]


def test_a_time_that_is_waited_for_is_told_as_one() -> None:
    assert shown(start("t#1", 100.0, "timer", until=160.0)) == f"▸ t  waits until {clock(160.0, 100.0)}\n"


def test_a_result_is_printed_unwrapped_and_can_be_read_back() -> None:
    value = {"text": "word " * 60, "é": ["ü", "\x1b[31m\u202e"]}
    stream = io.StringIO()
    result = GraphResult.model_validate({"job": "j", "status": "completed", "result": value})
    Timeline(Terminal(stream), turns=False).end(result, 2.0)
    head, _, written = stream.getvalue().partition("{")
    assert head == "✓ done\n  2.0 s\n"
    assert json.loads("{" + written) == value
    assert "\x1b" not in written
    assert "\u202e" not in written
    assert "é" in written
    assert result_text("a\x1bb\n") == "a\\x1bb"


@pytest.mark.parametrize("bad", [{}, {"node": None, "items": "x", "until": "x"}, {"node": "a#1[0]/b", "outcome": 3}])
@pytest.mark.parametrize("kind", ["node_start", "node_retry", "node_end"])
def test_a_node_event_with_odd_data_is_shown_somehow(kind: str, bad: dict[str, Any]) -> None:
    shown({"t": kind, "n": 0, **bad}, end("z#1"))


def test_a_question_names_its_node_and_how_it_is_answered() -> None:
    asked = {"t": "approval_requested", "n": 0, "approval_id": "ap_1", "node": "ask#1", "choices": ["yes", "no"]}
    text = shown({**asked, "tool": "", "request": {"summary": "Go on?"}, "expires_at": 7200.0})
    assert "? ask asks  ap_1\n" in text
    assert f"until {clock(7200, 0)}" in text
    assert "loom approve job-1 ap_1 --choice yes|no" in text


def record(job: str, attempt: int, error: BaseException) -> logging.LogRecord:
    made = logging.LogRecord(
        "temporalio", 30, __file__, 1, "Completing activity as failed", (), (type(error), error, None)
    )
    made.temporal_activity = {"workflow_id": job, "activity_id": "0/fetch#1", "attempt": attempt}
    return made


def test_a_worker_logs_a_failure_once_for_each_job_and_cause() -> None:
    once, error = OncePerCause(), ApplicationError("the site is down " * 50, type="busy")
    first = record("j", 1, error)
    assert once.filter(first)
    assert first.getMessage().startswith("job j: fetch#1 failed (attempt 1): busy: the site is down")
    assert len(first.getMessage()) < 400
    assert not once.filter(record("j", 2, ApplicationError("the site is down " * 50, type="busy")))
    assert once.filter(record("j", 3, ApplicationError("another", type="busy")))
    assert once.filter(record("k", 1, error))
    assert not once.filter(record("j", 1, ApplicationError("no module", type="missing_tools"))), "told by another line"


# -- what models say ---------------------------------------------------------------------------------------


def says(node: str, text: str) -> dict[str, Any]:
    return {"t": "llm_delta", "n": 0, "stream": f"0/{node}", "content": text}


def said(node: str, text: str) -> dict[str, Any]:
    return {"t": "llm_finish", "n": 0, "node": node, "content": text}


def test_the_text_of_one_model_call_follows_its_line() -> None:
    text = shown(start("ask#1", 0.0, "llm"), says("ask#1", "one "), says("ask#1", "two"), said("ask#1", "one two"))
    assert text == "▸ ask\n┊ one two\n"


MANY = [start("m#1", 0.0, "map", items=2), start("m#1[0]/ask#1", 0.0, "llm"), start("m#1[1]/ask#1", 0.0, "llm")]


def test_of_texts_that_come_together_each_is_told_whole_with_its_item() -> None:
    pieces = [says("m#1[0]/ask#1", "red "), says("m#1[1]/ask#1", "blue "), says("m#1[0]/ask#1", "roses")]
    ends = [said("m#1[0]/ask#1", "red roses"), says("m#1[1]/ask#1", "sky"), said("m#1[1]/ask#1", "blue sky")]
    assert shown(*MANY, *pieces, *ends).splitlines()[1:] == [
        "  ▸ m[0] › ask",
        "  ▸ m[1] › ask",
        "  m[0] › ask:",
        "┊ red roses",
        "  m[1] › ask:",
        "┊ blue sky",
    ]


def test_a_text_that_something_interrupts_goes_on_under_its_name_and_is_not_repeated() -> None:
    run = [*MANY, says("m#1[0]/ask#1", "red "), end("m#1[1]/ask#1"), said("m#1[0]/ask#1", "red roses")]
    assert shown(*run).splitlines()[3:] == [
        "  m[0] › ask:",
        "┊ red",
        "  ✓ m[1] › ask  1.5 s",
        "  m[0] › ask:",
        "┊ roses",
    ]


def test_what_a_lost_attempt_said_is_marked_with_its_node() -> None:
    again = {"t": "stream_reset", "n": 0, "stream": "0/m#1[0]/ask#1", "attempt": 2}
    run = [*MANY, says("m#1[0]/ask#1", "grey "), again, says("m#1[0]/ask#1", "red"), said("m#1[0]/ask#1", "red")]
    assert shown(*run).splitlines()[4:] == [
        "┊ grey",
        "(the answer of m[0] › ask starts again: attempt 2)",
        "  m[0] › ask:",
        "┊ red",
    ]
    lost = [*MANY, says("m#1[0]/ask#1", "grey"), said("m#1[0]/ask#1", "red")]
    assert shown(*lost).splitlines()[5:] == [
        "(the text above was of an attempt that was lost)",
        "  m[0] › ask:",
        "┊ red",
    ]
