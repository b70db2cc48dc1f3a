"""Why a job waits, from what is known about it."""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from loom_cli.commands.serve.log import OneLine
from loom_cli.required_action import Facts, Pending, reason, required_action, stands_still
from loom_dsl.machine.status import Wait
from loom_dsl.text.printable import clock

NOW = 1_000_000.0
ROW: dict[str, Any] = {"job": "job-1", "state": "model_running", "status": "running"}
ROW |= {"ended_at": None, "paused_by": None}
APPROVAL = {"id": "ap_1", "tool": "write_file", "created_at": NOW - 60, "expires_at": None}
SINCE = clock(NOW - 60, NOW)
NOBODY = "no worker serves this job's store (id 0ff9e13a26e2)"
HALTED = {"at": "review#1/model#1", "cause": "auth", "message": "127.0.0.1:9 says 401.", "since": NOW - 60}
HALTED |= {"action": "set OPENAI_API_KEY at the worker"}
TOLD = (
    f"halted at review/model since {SINCE}: 127.0.0.1:9 says 401; "
    "set OPENAI_API_KEY at the worker, then `loom resume job-1`"
)
OUTAGE = {"at": "model#1", "cause": "model_unavailable", "message": "127.0.0.1:9 refused the connection."}
OUTAGE |= {"since": NOW - 240, "next_at": NOW + 60, "tries": 6}
LOST = Pending("loom.tool.execute", 8, 0, None, NOW + 20, "activity Heartbeat timeout", NOW - 60)


def facts(*, row: dict[str, Any] | None = None, **known: Any) -> Facts:
    return Facts({**ROW, **(row or {})}, queue="loom", store="0ff9e13a26e2", address="127.0.0.1:7233", **known)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (facts(), "waiting for the model"),
        (facts(row={"ended_at": "2026-01-01T00:00:00Z", "status": "aborted"}), "it has ended: ended by a person"),
        (facts(closed="terminated"), "it was ended on the server (terminated), outside Loom"),
        (
            facts(server=False),
            "the Temporal server at 127.0.0.1:7233 does not answer; start it with `loom dev`",
        ),
        (
            facts(halted=[{**HALTED, "approval": "ap_1"}], approvals=[APPROVAL]),
            "halted: nobody decided ap_1 in time; decide it with `loom approve job-1 ap_1` or `loom reject`, "
            "or have it asked anew with `loom resume job-1`",
        ),
        (facts(halted=[HALTED]), TOLD),
        (facts(halted=[HALTED], worker=False), f"{TOLD}; and {NOBODY} on the queue loom; start one with `loom worker`"),
        (facts(halted=[HALTED], row={"paused_by": "ann"}), TOLD),
        (
            facts(halted=[{**HALTED, "job": "job-1.kid", "action": ""}]),
            f"halted at review/model in job job-1.kid since {SINCE}: 127.0.0.1:9 says 401; "
            "go on with `loom resume job-1.kid`",
        ),
        (
            facts(halted=[HALTED], pending=[Pending("loom.model.call", 1, 0, NOW - 60)]),
            f"{TOLD}; meanwhile the model is answering since {SINCE}",
        ),
        (
            facts(outages=[OUTAGE]),
            "waits for the model: 127.0.0.1:9 refused the connection for 4 min; tries again in 1 min",
        ),
        (
            facts(outages=[{**OUTAGE, "next_at": NOW - 1}], worker=False),
            "waits for the model: 127.0.0.1:9 refused the connection for 4 min; tries again now; "
            f"and {NOBODY} on the queue loom; start one with `loom worker`",
        ),
        (
            facts(worker=True, pending=[LOST]),
            f"tool: no worker could finish this step: 7 tries since {SINCE}; last: its worker was lost",
        ),
        (
            facts(worker=True, pending=[replace(LOST, attempt=2, failure="")]),
            f"tool: no worker could finish this step: 1 try since {SINCE}",
        ),
        (facts(row={"paused_by": "ann\x1b"}), "paused by ann\\x1b; go on with `loom resume job-1`"),
        (facts(approvals=[APPROVAL]), f"approval ap_1 (write_file) since {SINCE}"),
        (
            facts(approvals=[{**APPROVAL, "expires_at": NOW + 7200}]),
            f"approval ap_1 (write_file) since {SINCE} (until {clock(NOW + 7200, NOW)})",
        ),
        (
            facts(approvals=[{**APPROVAL, "expires_at": NOW - 1}]),
            f"approval ap_1 (write_file) since {SINCE} (it is past its time)",
        ),
        (facts(approvals=[APPROVAL, APPROVAL]), f"approval ap_1 (write_file) since {SINCE} and 1 more approval"),
        (
            facts(approvals=[APPROVAL], worker=False),
            f"approval ap_1 (write_file) since {SINCE}; and {NOBODY} on the queue loom; start one with `loom worker`",
        ),
        (
            facts(worker=False),
            f"{NOBODY} on the queue loom; start one with `loom worker`",
        ),
        (
            replace(facts(worker=False), queue="blue"),
            f"{NOBODY} on the queue blue; start one with `loom worker --task-queue blue`",
        ),
        (
            facts(worker=True, pending=[Pending("loom.model.call", 3, 4, None, NOW + 20, "busy\n(503)")]),
            f"model retry 2 of 3 at {clock(NOW + 20, NOW)}: busy (503)",
        ),
        (facts(pending=[Pending("loom.model.call", 2, 0, None, NOW - 1)]), "model retry 1 now"),
        (
            facts(worker=True, pending=[Pending("loom.model.call", 2, 0, None, NOW - 60)]),
            f"model retry 1 now; no worker has taken it since {SINCE}: if none is up start one with `loom worker`",
        ),
        (
            facts(worker=True, pending=[Pending("loom.tool.execute", 1, 0, None, NOW - 60)]),
            f"tool due; no worker has taken it since {SINCE}: if none is up start one with `loom worker`",
        ),
        (facts(worker=True, pending=[Pending("loom.tool.execute", 1, 0, None, NOW - 1)]), "waiting for the model"),
        (
            facts(missing="the job waits for --tools x", pending=[Pending("loom.model.call", 2, 0, None, NOW - 1)]),
            "the job waits for --tools x",
        ),
        (facts(pending=[Pending("loom.model.call", 1, 4, NOW - 60)]), f"the model is answering since {SINCE}"),
        (
            facts(pending=[Pending("loom.context.compress", 2, 3, NOW - 60)]),
            f"the conversation is being compressed since {SINCE}, attempt 2",
        ),
        (
            facts(pending=[Pending("loom.tool.execute", 2, 3, NOW - 60)], tools=["grep", "shell"]),
            f"tool grep, shell running since {SINCE}, attempt 2",
        ),
        (
            facts(step=Pending("", 4, next_at=NOW - 60)),
            f"the worker fails to carry it on (attempt 4 since {SINCE}); its log says why",
        ),
        (
            facts(step=Pending("", 1, next_at=NOW - 60)),
            f"no worker has taken its work since {SINCE}; start one with `loom worker`",
        ),
        (facts(step=Pending("", 1, next_at=NOW - 1)), "waiting for the model"),
        (facts(row={"state": "of_a_newer_release"}), "of_a_newer_release"),
    ],
)
def test_the_most_telling_reason_is_given_in_one_line(known: Facts, expected: str) -> None:
    assert reason(known, NOW) == expected


ASKED = {**APPROVAL, "job": "job-1", "choices": ["approve", "reject"]}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (facts(worker=True), ""),
        (facts(worker=True, pending=[Pending("loom.model.call", 1, 4, NOW - 60)]), ""),
        (
            facts(approvals=[ASKED]),
            f"approval ap_1 (write_file) since {SINCE}; decide with `loom approve job-1 ap_1`",
        ),
        (
            facts(approvals=[{**ASKED, "job": "job-1.kid", "choices": ["left", "right"]}]),
            f"approval ap_1 (write_file) of job job-1.kid since {SINCE}; "
            "decide with `loom approve job-1.kid ap_1 --choice left|right`",
        ),
        (facts(row={"paused_by": "ann"}, approvals=[ASKED]), "paused by ann; go on with `loom resume job-1`"),
        (
            facts(worker=True, waits=[Wait(at="gate", event="paid")]),
            "gate waits for the event paid: `loom event job-1 paid`",
        ),
        (facts(worker=True, waits=[Wait(at="gate", until=NOW + 60)]), ""),
        (facts(worker=False), f"{NOBODY} on the queue loom; start one with `loom worker`"),
        (facts(halted=[HALTED]), TOLD),
        (
            facts(outages=[OUTAGE]),
            f"waits for the model: 127.0.0.1:9 refused the connection since {clock(NOW - 240, NOW)}",
        ),
        (facts(approvals=[ASKED], server=False), ""),
        (facts(approvals=[ASKED], closed="terminated"), ""),
        (facts(row={"ended_at": "2026-01-01T00:00:00Z", "status": "aborted"}), ""),
    ],
)
def test_what_a_person_has_to_do_is_told_and_nothing_where_nobody_has_to(known: Facts, expected: str) -> None:
    assert required_action(known, NOW) == expected


QUIET = facts(worker=True, halted=[HALTED])


@pytest.mark.parametrize(
    ("known", "still"),
    [
        (QUIET, True),
        (replace(QUIET, halted=[]), False),
        (replace(QUIET, server=False), False),
        (replace(QUIET, row={**ROW, "ended_at": "2026-01-01T00:00:00Z"}), False),
        (replace(QUIET, pending=[Pending("loom.model.call")]), False),
        (replace(QUIET, step=Pending("")), False),
        (replace(QUIET, outages=[OUTAGE]), False),
        (replace(QUIET, waits=None), False),
        (replace(QUIET, waits=[Wait(at="pause", until=NOW + 60)]), False),
        (replace(QUIET, waits=[Wait(at="gate", event="paid")]), True),
        (replace(QUIET, approvals=[APPROVAL]), True),
        (replace(QUIET, approvals=[{**APPROVAL, "expires_at": NOW + 60}]), False),
        (
            replace(QUIET, approvals=[{**APPROVAL, "expires_at": NOW + 60}], halted=[{**HALTED, "approval": "ap_1"}]),
            True,
        ),
    ],
)
def test_a_job_stands_still_when_it_is_halted_and_nothing_else_of_it_goes_on_by_itself(
    known: Facts, still: bool
) -> None:
    assert stands_still(known, NOW) is still


def test_a_worker_logs_one_line_without_a_traceback() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        record = logging.LogRecord("temporalio", 30, __file__, 1, "failed\x1b[2J", (), (type(error), error, None))
    line = OneLine("%(message)s").format(record)
    assert line.startswith("failed\\x1b[2J json.decoder.JSONDecodeError: Expecting property name")
    assert "\n" not in line
