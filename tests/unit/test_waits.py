"""What is said to whoever waits for a job: each thing once, whatever is looked up meanwhile."""

from dataclasses import replace
from typing import Any

from loom_cli.commands.run.follow import MAX_STILL, Told
from loom_cli.required_action import Facts, Pending

NOW = 1_000_000.0
ROW: dict[str, Any] = {"job": "job-1", "state": "model_running", "status": "running"}
ROW |= {"ended_at": None, "paused_by": None}
SERVED = Facts(ROW, queue="blue", store="0ff9e13a26e2", worker=True, pending=[Pending("loom.model.call", since=NOW)])
ALONE = replace(SERVED, worker=False)
NOBODY = (
    "waits: no worker serves this job's store (id 0ff9e13a26e2) on the queue blue; "
    "start one with `loom worker --task-queue blue`"
)
AGAIN = "is served by a worker again"
HALTED = {"at": "model#1", "cause": "auth", "message": "it says 401", "action": "set the key", "since": NOW}
BUSY = replace(SERVED, halted=[HALTED])
STILL = replace(BUSY, pending=[])


def said(told: Told, *looks: Facts) -> list[str]:
    return [line for facts in looks for line in told.take(facts, NOW)]


def test_that_nobody_serves_the_job_is_said_once_and_that_somebody_does_again() -> None:
    assert said(Told(), SERVED, ALONE, ALONE, ALONE, SERVED, SERVED, ALONE) == [NOBODY, AGAIN, NOBODY]


def test_what_was_said_before_the_waiting_began_is_not_said_again() -> None:
    assert said(Told(unserved=True), ALONE, ALONE, SERVED) == [AGAIN]


def test_nothing_is_said_of_workers_while_the_server_may_not_know_them_yet() -> None:
    unsure, away = replace(SERVED, worker=None), replace(SERVED, worker=None, server=False)
    assert said(Told(), SERVED, unsure, away, unsure, SERVED) == []
    assert said(Told(), ALONE, unsure, away, ALONE) == [NOBODY]


def test_what_else_a_person_has_to_do_is_said_beside_it() -> None:
    paused = replace(ALONE, row={**ROW, "paused_by": "ann"})
    first = "waits: paused by ann; go on with `loom resume job-1`"
    both = f"{first}; and {NOBODY.removeprefix('waits: ')}"
    assert said(Told(), paused, paused, ALONE, ALONE) == [both]
    assert said(Told(), replace(paused, worker=True), paused, ALONE) == [first, NOBODY]
    (halt,) = said(Told(), replace(BUSY, worker=None))
    assert said(Told(), replace(BUSY, worker=None), replace(BUSY, worker=False)) == [halt, NOBODY]
    lacking = replace(SERVED, pending=[], lacks=("tools",))
    (line,) = said(Told(), SERVED, lacking, lacking)
    assert line.startswith("waits: no worker has its tools tools")


def test_a_halt_is_said_once_while_something_else_goes_on() -> None:
    told = Told()
    (line,) = said(told, BUSY, BUSY, STILL)
    assert line.startswith("waits: halted at model since ")
    assert told.has_told([HALTED])
    assert not told.has_told([HALTED, HALTED])


def test_a_halt_that_ends_the_waiting_is_left_to_what_says_so() -> None:
    told = Told()
    assert said(told, *[STILL] * (MAX_STILL - 1)) == []
    assert not told.has_told([HALTED])
    (line,) = said(told, STILL, STILL)  # it has not ended: a job below goes on
    assert line.startswith("waits: halted at model since ")
