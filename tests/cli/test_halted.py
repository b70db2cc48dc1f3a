"""What a person sees of a job that is halted, and how it goes on; rows and events are written as a worker does."""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_store.store import Store
from tests.cli.conftest import House
from tests.support.ports import own_port
from tests.support.waiting import longer, until

pytestmark = pytest.mark.server

STEP: dict[str, Any] = {"at": "model#1", "cause": "model_refused", "message": "the model says 401: no such key."}
STEP |= {"action": "set OPENAI_API_KEY at the worker", "since": time.time() - 60}
OUTAGE: dict[str, Any] = {
    "at": "model#1",
    "cause": "model_unavailable",
    "message": "127.0.0.1:9 refused the connection",
}
OUTAGE |= {"since": time.time() - 240, "next_at": time.time() + 3_600, "tries": 6}
TOLD = "the model says 401: no such key; set OPENAI_API_KEY at the worker, then `loom resume"


def write(house: House, job: str, *events: tuple[str, dict[str, Any]], **fields: Any) -> None:
    """Write what a worker writes of a job that is halted: its row, and what happened."""
    with Store.open(house.store) as store:
        store.write_sync(lambda tx: tx.update_job(job, **fields))
        for kind, data in events:
            raw = {"t": kind, "n": 0, "node": data["at"], **{key: data[key] for key in data if key != "at"}}
            store.write_sync(lambda tx, raw=raw: tx.append_events(job, uuid.uuid4().hex, [raw]))  # type: ignore[misc]


def asking(house: House, **fields: Any) -> str:
    """Start a job that waits for an approval without an end, so that nothing of it goes on by itself."""
    job = house.started("writer", **fields)
    house.pending(job)
    return job


def test_a_halted_job_is_shown_with_its_cause_and_what_to_do(house: House) -> None:
    job = asking(house)
    write(house, job, halted=[STEP])
    shown = " ".join(house.loom("show", job).out.split())
    assert f"why halted at model since {time.strftime('%H:%M', time.localtime(STEP['since']))}" in shown
    assert f"{TOLD} {job}`" in shown
    assert "STEP CAUSE SINCE WHAT model model_refused" in shown
    assert f"{job} halted" in " ".join(house.loom("jobs").out.split())
    row = next(row for row in map(json.loads, house.loom("jobs", "--json").out.splitlines()) if row["job"] == job)
    assert row["halted"] == [STEP]


def test_who_follows_a_halted_job_ends_with_3_and_is_told_what_to_do(house: House) -> None:
    job = asking(house)
    write(house, job, ("halted", STEP), halted=[STEP])
    said = house.loom("wait", job)
    assert said.code == 3, said
    (line,) = said.err.splitlines()
    assert line.startswith(f"error: job {job} is halted at model since ")
    assert f"{TOLD} {job}`" in line
    said = house.loom("watch", job)
    assert said.code == 3, said
    shown = " ".join(said.out.replace("│ ", "").replace("    | ", "").split())
    assert f"! halted at model since {time.strftime('%H:%M', time.localtime(STEP['since']))}" in shown
    assert f"{shown}{said.err}".count(f"{TOLD} {job}`") == 1
    brief = (
        f"job {job} is halted (model_refused), and nothing of it goes on by itself; `loom show {job}` says what to do"
    )
    assert said.err == f"error: {brief}\n"
    later = house.loom("watch", job, "--from", "10000")  # what was not shown is told whole
    assert f"{TOLD} {job}`" in later.err
    told = house.loom("result", job, "--json")
    assert (told.code, json.loads(told.out)["status"]) == (3, "halted")


def test_who_waits_goes_on_while_another_branch_does(house: House) -> None:
    job = house.started("steered")
    write(house, job, halted=[STEP])
    for seconds in longer(6, 48):  # on a slow machine it may be over before it is known why
        said = house.loom("wait", job, "--timeout", f"{seconds:g}s")
        assert said.code == 4, said
        if told := f"job {job} waits: halted at model since " in said.err:
            break
    assert told, said
    assert house.loom("abort", job).code == 0


def test_a_wait_for_the_model_is_shown_with_its_reason(house: House) -> None:
    job = house.started("hanging")
    write(house, job, ("waiting", OUTAGE), waiting=[OUTAGE])
    assert house.shows(job, "waits for the model: 127.0.0.1:9 refused the connection for ")
    assert house.shows(job, "; tries again in ")
    assert f"{job} running (waits)" in " ".join(house.loom("jobs").out.split())
    assert house.loom("abort", job).code == 0


def test_what_happened_to_a_halted_step_has_a_line_each_in_the_timeline(house: House) -> None:
    job = asking(house)
    resumed = {"at": "model#1", "cause": "model_refused", "by": "ann"}
    write(house, job, ("waiting", OUTAGE), ("halted", STEP), ("resumed", resumed))
    assert house.loom("reject", job).code == 0
    assert house.loom("wait", job).code == 0
    said = " ".join(house.loom("watch", job).out.replace("│ ", "").replace("    | ", "").split())
    assert "waits for the model: 127.0.0.1:9 refused the connection since " in said
    assert "(6 tries so far)" in said
    assert "! halted at model since " in said
    assert "model goes on by ann (model_refused)" in said


def test_all_halted_jobs_are_resumed_and_one_that_does_not_take_it_keeps_none_from_it(
    house: House, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    # No worker serves its queue: the server keeps the order.
    idle = f"idle-{uuid.uuid4().hex[:6]}"
    own = replace(house, store=tmp_path / "loom.db", folder=tmp_path, queue=idle, answer_seconds=1.0)
    first, second, other = (own.started("writer") for _ in range(3))
    for job, cause in ((first, "model_refused"), (second, "model_refused"), (other, "tool_kills")):
        write(own, job, halted=[{**STEP, "cause": cause}])
    with Store.open(own.store) as store:
        row = store.read_sync(lambda tx: tx.job(first))
        assert row is not None
        lost = fresh("lost")
        kept = {key: row[key] for key in ("agent", "plan", "task", "workdir", "namespace", "task_queue")}
        store.write_sync(lambda tx: tx.create_job(lost, session=f"s-{lost}", created_at=time.time(), **kept))
        store.write_sync(lambda tx: tx.update_job(lost, halted=[STEP]))
    said = own.loom("resume", "--all", "--cause", "model_refused", "--by", "ann")
    assert said.code == 4, said
    lines = sorted(said.out.splitlines())
    assert len(lines) == 3, said
    assert any(line.startswith(f"job {lost} was not resumed: ") for line in lines)
    assert all(any(job in line for line in lines) for job in (first, second)), said
    assert other not in said.out
    assert own.loom("resume", "--all", "--cause", "none_such").err.startswith(
        "no job is halted for the cause none_such"
    )
    assert own.loom("resume").code == own.loom("resume", first, "--all").code == 2


def test_a_job_that_needs_no_resuming_is_said_to_need_none_and_what_it_does_is_told(house: House) -> None:
    job = asking(house)
    (asked,) = house.pending(job)
    said = house.loom("resume", job, "--by", "ann")
    assert (said.code, said.err) == (0, "")
    nothing = f"job {job} was neither paused nor halted: there was nothing to resume; approval {asked['id']}"
    assert said.out.startswith(nothing)
    assert house.loom("pause", job).code == 0
    other = house.loom("resume", job, "--cause", "model_access")
    assert (other.code, other.out.partition(";")[0]) == (
        0,
        f"job {job} was neither paused nor halted for the cause model_access: there was nothing to resume",
    )
    assert house.loom("resume", job).out == f"job {job} goes on\n"
    assert json.loads(house.loom("resume", job, "--json").out)["verdict"] == "recorded"


def test_a_job_that_has_ended_is_shown_and_watched_without_a_server(house: House) -> None:
    job = house.started("calm")
    assert house.loom("wait", job).code == 0
    away = replace(house, address=f"127.0.0.1:{own_port()}")
    said = {
        name: away.loom(*command, LOOM_CONNECT_SECONDS="1")
        for name, command in {
            "watch": ("watch", job),
            "json": ("watch", job, "--json"),
            "result": ("result", job),
            "show": ("show", job),
            "jobs": ("jobs", "--status", "completed"),
        }.items()
    }
    assert {one.code for one in said.values()} == {0}, said
    assert "All is well." in said["watch"].out
    assert "done" in said["watch"].out
    assert json.loads(said["json"].out.splitlines()[-1])["type"] == "result"
    assert said["result"].out == "All is well.\n"
    assert not any(one.err for one in said.values()), said


def test_a_server_that_does_not_come_in_the_time_that_was_set_leaves_it_unclear(house: House) -> None:
    job = asking(house)
    away = replace(house, address=f"127.0.0.1:{own_port()}")
    for command in ("wait", "watch"):
        said = away.loom(command, job, LOOM_CONNECT_SECONDS="1")
        assert said.code == 4, said
        first, *_, last = said.err.splitlines()
        assert first == f"the Temporal server at {away.address} does not answer; waiting for it"
        assert last.startswith(f"error: no Temporal server answers at {away.address}")
    assert until(lambda: house.loom("show", job).code == 0)


def test_a_list_says_that_the_server_is_away_only_where_jobs_have_not_ended(house: House) -> None:
    job = asking(house)
    away = replace(house, address=f"127.0.0.1:{own_port()}")
    line = f"the Temporal server at {away.address} does not answer: "
    line += "what is listed of jobs that have not ended may be old"
    for options in ((), ("--json",), ("--status", "running")):
        said = away.loom("jobs", *options, LOOM_CONNECT_SECONDS="1")
        assert (said.code, job in said.out) == (0, True)
        assert said.err.splitlines()[0] == line
    assert away.loom("jobs", "--status", "aborted").err == ""
    assert line not in house.loom("jobs").err
