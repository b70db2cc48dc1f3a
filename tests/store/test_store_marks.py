"""Marks of jobs: once each, in order, gone with their job."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from loom_store.store import Store
from loom_store.transaction import Transaction

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def ended(tx: Transaction, job: str, above: str | None = None) -> None:
    tx.create_session(f"s-{job}")
    tx.create_job(job, session=f"s-{job}", agent="a", plan="", task="", workdir="/w", namespace="n", task_queue="q",
                  created_at=THEN, above=above)  # fmt: skip
    tx.update_job(job, ended_at=THEN)


def test_a_mark_is_kept_once_and_in_order(tmp_path: Path) -> None:
    with Store.open(tmp_path / "loom.db") as store:
        for value in ("b", "a", "b"):
            store.write_sync(lambda tx, value=value: tx.mark("job", "untrusted", value))
        store.write_sync(lambda tx: tx.mark("job", "words", "w"))
        assert store.read_sync(lambda tx: tx.marks("job", "untrusted")) == ["b", "a"]
        assert store.read_sync(lambda tx: tx.marks("other", "untrusted")) == []


def test_marks_of_child_jobs_are_found_and_no_others(tmp_path: Path) -> None:
    with Store.open(tmp_path / "loom.db") as store:
        for job, above in {"job": None, "job.a": "job", "b": "job.a", "job.own": None, "job.own.c": "job.own"}.items():
            store.write_sync(lambda tx, job=job, above=above: ended(tx, job, above))  # type: ignore[misc]
            store.write_sync(lambda tx, job=job: tx.mark(job, "untrusted", f"by {job}"))  # type: ignore[misc]
        assert store.read_sync(lambda tx: tx.marks_below("job", "untrusted")) == ["by b", "by job.a"]


def test_marks_go_with_their_job_and_keep_what_they_name_until_then(tmp_path: Path) -> None:
    old, new = b"a policy of an old job", b"a policy of a job that runs"
    with Store.open(tmp_path / "loom.db", clock=lambda: THEN.timestamp()) as store:

        def work(tx: Transaction) -> None:
            ended(tx, "old")
            tx.mark("old", "policy", tx.put_blob(old))
            tx.mark("runs", "policy", tx.put_blob(new))

        store.write_sync(work)
        store.write_sync(lambda tx: tx.prune(THEN + timedelta(days=9)))
        assert store.read_sync(lambda tx: tx.marks("old", "policy")) == []
        (name,) = store.read_sync(lambda tx: tx.marks("runs", "policy"))
        assert store.read_sync(lambda tx: tx.get_blob(name)) == new
