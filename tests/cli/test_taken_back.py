"""What could not be taken back is told as such, while the job is watched and when it is shown later."""

import io
from typing import Any

import pytest

from loom_cli.commands.show.tables import show_job
from loom_cli.render.terminal import terminal_for
from loom_cli.render.timeline import Timeline
from loom_dsl.observe.events import decode

UNDONE: list[dict[str, Any]] = [
    {"node": "booked#1", "outcome": "failed", "message": "the ledger is closed"},
    {"node": "sent#1", "outcome": "unknown", "message": "its worker was lost"},
    {"node": "held#1", "outcome": "undone"},
]
SUMMARY: dict[str, Any] = {
    **{"job": "j", "status": "failed", "agent": "order", "plan": "cbe399bf9683", "task": "", "workdir": "/w"},
    **{"created_at": "2026-01-02T03:04:05Z", "ended_at": "2026-01-02T03:04:06Z", "events": 9, "graph": True},
    **{"todo": [], "effects": [], "approvals": [], "children": [], "forked_from": None, "go_on": ""},
    **{"outputs": [], "halted": None, "waiting": None, "workers": []},
}


def test_a_watcher_reads_what_could_not_be_undone() -> None:
    stream = io.StringIO()
    timeline = Timeline(terminal_for(stream))
    for offset, row in enumerate(UNDONE, 1):
        timeline.feed(decode("j", offset, {"t": "compensated", "n": 0, **row}))
    timeline.interrupt()
    for line in (
        "booked#1 could not be undone: the ledger is closed",
        "sent#1 may not be undone: its worker was lost",
        "held#1 undone",
    ):
        assert line in stream.getvalue()


def test_a_job_that_is_shown_later_lists_what_was_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": "broken", "message": "it broke"}
    show_job({**SUMMARY, "result": {"error": error, "compensations": UNDONE}})
    told = capsys.readouterr().out.splitlines()
    begin = told.index("  taken back")
    assert [line.split() for line in told[begin + 2 :]] == [
        ["booked", "failed", "the", "ledger", "is", "closed"],
        ["sent", "unknown", "its", "worker", "was", "lost"],
        ["held", "undone"],
    ]
    show_job({**SUMMARY, "result": {"error": error}})
    assert "taken back" not in capsys.readouterr().out
