"""What lists and `loom show` print of jobs, at the widths of real terminals."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from loom_cli.commands.show.tables import show_job, show_jobs

MESSAGE = "the model at models.example.com says 401: this key is of a project that was closed in the last year"
STEP: dict[str, Any] = {"at": "review#1/model#1", "cause": "model_access", "message": MESSAGE, "since": time.time()}
STEP |= {"action": "set OPENAI_API_KEY at the worker"}
KID = {"job": "job-1.a-child-with-quite-a-long-name", "agent": "researcher", "status": "failed", "state": "failed"}
KID |= {"created_at": "2026-01-02T03:04:05Z", "ended_at": "2026-01-02T03:04:06Z", "halted": None, "approvals": ()}
JOB: dict[str, Any] = {
    **{"job": "job-1", "status": "running", "agent": "order", "plan": "cbe399bf9683", "task": "t", "workdir": "/w"},
    **{"created_at": "2026-01-02T03:04:05Z", "ended_at": None, "events": 9, "graph": True, "paused_by": None},
    **{"todo": [], "effects": [], "approvals": [], "children": [], "forked_from": None, "go_on": "", "why": "it waits"},
    **{"outputs": [], "halted": None, "waiting": None, "workers": [], "result": None},
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "running"),
        ({"halted": [STEP]}, "halted"),
        ({"halted": [STEP], "paused_by": "ann", "waiting": [STEP]}, "halted"),
        ({"paused_by": "ann"}, "running (paused)"),
        ({"waiting": [STEP]}, "running (waits)"),
        ({"ended_at": "2026-01-02T03:04:06Z", "status": "aborted", "halted": [STEP]}, "aborted"),
    ],
)
def test_a_list_says_where_each_job_stands(
    capsys: pytest.CaptureFixture[str], fields: dict[str, Any], expected: str
) -> None:
    show_jobs([{**JOB, **fields}])
    heads, line = capsys.readouterr().out.splitlines()
    assert line[heads.index("STATUS") : heads.index("AGENT")].strip() == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "job-1  running"),
        ({"halted": [STEP]}, "job-1  halted (model_access)"),
        ({"halted": [STEP, STEP, {**STEP, "cause": "kills_worker"}]}, "job-1  halted (model_access, kills_worker)"),
        ({"halted": [{"at": "a#1", "cause": ""}]}, "job-1  halted"),
        ({"ended_at": "2026-01-02T03:04:06Z", "status": "failed", "halted": [STEP]}, "job-1  failed"),
    ],
)
def test_the_headline_says_that_a_job_is_halted_and_for_which_cause(
    capsys: pytest.CaptureFixture[str], fields: dict[str, Any], expected: str
) -> None:
    show_job({**JOB, **fields})
    assert capsys.readouterr().out.splitlines()[0] == expected


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[int], str]:
    """Give what is printed of a job with long texts, in so many columns."""
    error = {"code": "model_unavailable", "message": MESSAGE}
    many = {"why": f"{MESSAGE}; {MESSAGE}", "halted": [STEP], "waiting": [{**STEP, "tries": 4, "next_at": time.time()}]}

    def show(columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        show_job({**JOB, **many, "children": [{**KID, "error": error}]})
        return capsys.readouterr().out

    return show


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_what_is_shown_of_a_job_fits_the_width_and_nothing_of_it_is_cut(
    printed: Callable[[int], str], columns: int
) -> None:
    text = printed(columns)
    assert max(map(len, text.splitlines())) < columns
    whole = "".join(text.split())
    assert whole.count("".join(MESSAGE.split())) == 5
    assert "setOPENAI_API_KEYattheworker" in whole


def test_a_long_text_is_wrapped_below_its_beginning_or_below_its_row(printed: Callable[[int], str]) -> None:
    lines = printed(80).splitlines()
    begin = lines.index("  halted")
    column = lines[begin + 1].index("WHAT")
    assert lines[begin + 2][column:].startswith("the model at ")
    assert {line[:column].strip() for line in lines[begin + 3 : lines.index("  waits")]} == {""}
    row = next(number for number, line in enumerate(lines) if line.split()[:2] == [KID["job"], "failed"])
    assert lines[row + 1].startswith("      researcher model_unavailable: ")
    wide = printed(200).splitlines()
    assert any(line.split()[:2] == [KID["job"], "failed"] and "researcher" in line for line in wide)
