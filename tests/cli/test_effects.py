"""`loom effects`: what a job's tools did, what became of it, and who approved it, within 80 columns."""

import json
import time
from pathlib import Path

import pytest

from loom_cli.app import run
from loom_store.queries.effects import undo_key
from loom_store.rows import ApprovalRow
from loom_store.store import Store

DIGEST = "ab" * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with a job whose effects ended in every way."""
    path = tmp_path / "loom.db"
    with Store.open(path) as store:
        store.write_sync(lambda tx: tx.create_session("s"))
        known = {"session": "s", "agent": "a", "plan": DIGEST, "task": "t", "workdir": "/", "namespace": "default"}
        store.write_sync(lambda tx: tx.create_job("job", **known, task_queue="q", created_at=time.time()))
        for number, tool in enumerate(("send", "refund", "register", "post", "order")):
            key, summary = f"job/{number}/c{number}", f'{tool}({{"text":"{"long words " * 8}"}})'
            given = {"job": "job", "turn": number, "call_id": f"c{number}", "tool": tool, "arguments_digest": DIGEST}
            store.write_sync(
                lambda tx, key=key, given=given, summary=summary: tx.begin_effect(key, summary=summary, **given)  # type: ignore[misc]
            )
        asked = {"arguments_digest": DIGEST, "summary": "Send the letter", "created_at": time.time(), "call_id": "c0"}
        request = ApprovalRow(id="ap_1", job="job", tool="send", **asked)  # type: ignore[arg-type]
        store.write_sync(lambda tx: tx.upsert_approval(request))
        store.write_sync(lambda tx: tx.decide_approval("ap_1", "approved", "approve", "eve"))
        store.write_sync(lambda tx: tx.settle_effect("job/0/c0", "settled", DIGEST))
        store.write_sync(lambda tx: tx.settle_effect("job/1/c1", "unknown", note="nobody saw its end"))
        store.write_sync(lambda tx: tx.reconcile_effect("job/2/c2", "happened"))
        store.write_sync(lambda tx: tx.settle_effect("job/2/c2", "settled", DIGEST))
        store.write_sync(lambda tx: tx.settle_effect("job/4/c4", "settled", DIGEST))
        order = store.read_sync(lambda tx: tx.effect("job/4/c4"))
        assert order is not None
        undo = {"job": "job", "turn": 4, "call_id": "c4", "tool": "order", "arguments_digest": DIGEST}
        store.write_sync(lambda tx: tx.begin_effect(undo_key(order), **undo))  # type: ignore[arg-type]
        store.write_sync(lambda tx: tx.settle_effect(undo_key(order), "failed", note="closed today (3 attempts)"))
    return path


STATES = ["settled", "unknown", "reconciled", "under way", "settled, not taken back"]


def test_every_effect_is_told_with_what_became_of_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["effects", "job", "--store", str(file)]) == 0
    told = capsys.readouterr().out
    assert all(len(line) <= 80 for line in told.splitlines())
    heads = [line for line in told.splitlines() if not line.startswith(" ")]
    assert [head.split("  ")[2] for head in heads] == STATES
    for words in ("turn 1  send", "Send the letter", "approved by eve (ap_1)", "nobody saw its end", "closed today"):
        assert words in told


def test_programs_get_one_json_object_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["effects", "job", "--store", str(file), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["state"] for row in rows] == STATES
    assert (rows[0]["approved_by"], rows[1]["approved_by"], rows[4]["undone"]["status"]) == ("eve", "", "failed")
    assert run(["effects", "job", "--store", str(file), "--json", "--state", "unknown"]) == 0
    assert [json.loads(line)["tool"] for line in capsys.readouterr().out.splitlines()] == ["refund"]


def test_what_has_no_outcome_when_its_job_has_ended_is_unknown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a graph that was aborted while no worker lived: no attempt comes any more that would find it."""
    with Store.open(file) as store:
        store.write_sync(lambda tx: tx.update_job("job", status="aborted", ended_at=time.time()))
    assert run(["effects", "job", "--store", str(file), "--json", "--state", "unknown"]) == 0
    assert [json.loads(line)["tool"] for line in capsys.readouterr().out.splitlines()] == ["refund", "post"]


def test_what_is_under_way_in_a_worker_that_has_gone_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "its worker has not been heard of since "

    def told() -> tuple[bool, list[bool]]:
        assert run(["effects", "job", "--store", str(file)]) == 0
        said = line in " ".join(capsys.readouterr().out.split())
        assert run(["effects", "job", "--store", str(file), "--json"]) == 0
        rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
        return said, [row["unheard_since"] is not None for row in rows if row["state"] == "under way"]

    def at(behind: float) -> None:
        with Store.open(file, clock=lambda: time.time() - behind) as store:
            store.write_sync(lambda tx: tx.register_worker("machine 1 2", {"queue": "q"}))

    assert told() == (False, [False]), "nothing is known of its worker"
    with Store.open(file) as store:
        (row,) = (row for row in store.read_sync(lambda tx: tx.effects("job")) if row.tool == "post")
        store.write_sync(lambda tx: tx.hold_effect(row.key, "machine 1 2", 5.0))
    at(0.0)
    assert told() == (False, [False]), "it lives"
    at(60.0)
    assert told() == (True, [True])
    with Store.open(file) as store:
        store.write_sync(lambda tx: tx.update_job("job", status="aborted", ended_at=time.time()))
    assert told() == (False, []), "it is unknown now"


def test_a_job_that_is_not_there_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["effects", "jbo", "--store", str(file)]) != 0
    assert "there is no job 'jbo'" in capsys.readouterr().err


def test_what_is_unknown_is_listed_of_all_jobs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(file) as store:
        known = {"session": "s2", "agent": "a", "plan": DIGEST, "task": "t", "workdir": "/", "namespace": "default"}
        store.write_sync(lambda tx: tx.create_session("s2"))
        store.write_sync(lambda tx: tx.create_job("other", **known, task_queue="q", created_at=time.time()))
        given = {"job": "other", "turn": 0, "tool": "pay", "arguments_digest": DIGEST}
        for name in ("c0", "c1", "c2"):
            store.write_sync(lambda tx, name=name: tx.begin_effect(f"other/0/{name}", call_id=name, **given))  # type: ignore[misc]
        store.write_sync(lambda tx: tx.settle_effect("other/0/c0", "unknown"))
        store.write_sync(lambda tx: tx.settle_effect("other/0/c1", "settled", DIGEST))
    assert run(["effects", "--state", "unknown", "--store", str(file), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["job"], row["call_id"]) for row in rows] == [("job", "c1"), ("other", "c0")]
    assert run(["effects", "--state", "unknown", "--store", str(file)]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [head.split("  ")[0] for head in heads] == ["job", "other"]
    assert run(["effects", "--state", "settled", "--store", str(file), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_neither_a_job_nor_a_state_is_a_mistake_that_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["effects", "--store", str(file)]) == 2
    told = capsys.readouterr().err
    assert "loom effects JOB" in told
    assert "--state unknown" in told
