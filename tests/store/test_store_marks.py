"""Marks of jobs: once each, in order, gone with their job."""

from datetime import UTC, datetime, timedelta

import pytest

from loom_store.job_facts import sources_below
from loom_store.store import Store
from loom_store.transaction import Transaction

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def ended(tx: Transaction, job: str, above: str | None = None, at: datetime | None = THEN) -> None:
    tx.create_session(f"s-{job}")
    tx.create_job(job, session=f"s-{job}", agent="a", plan="", task="", workdir="/w", namespace="n", task_queue="q",
                  created_at=THEN, above=above)  # fmt: skip
    tx.update_job(job, ended_at=at)


def test_a_mark_is_kept_once_and_in_order(place: str) -> None:
    with Store.open(place) as store:
        for value in ("b", "a", "b"):
            store.write_sync(lambda tx, value=value: tx.mark("job", "untrusted", value))
        store.write_sync(lambda tx: tx.mark("job", "words", "w"))
        assert store.read_sync(lambda tx: tx.marks("job", "untrusted")) == ["b", "a"]
        assert store.read_sync(lambda tx: tx.marks("other", "untrusted")) == []


def test_marks_of_child_jobs_are_found_and_no_others(place: str) -> None:
    with Store.open(place) as store:
        for job, above in {"job": None, "job.a": "job", "b": "job.a", "job.own": None, "job.own.c": "job.own"}.items():
            store.write_sync(lambda tx, job=job, above=above: ended(tx, job, above))  # type: ignore[misc]
            store.write_sync(lambda tx, job=job: tx.mark(job, "untrusted", f"by {job}"))  # type: ignore[misc]
        assert store.read_sync(lambda tx: tx.marks_below("job", "untrusted")) == ["by b", "by job.a"]


def test_marks_go_with_their_job_and_keep_what_they_name_until_then(place: str) -> None:
    old, new = b"a policy of an old job", b"a policy of a job that runs"
    with Store.open(place, clock=lambda: THEN.timestamp()) as store:

        def work(tx: Transaction) -> None:
            ended(tx, "old")
            tx.mark("old", "policy", tx.put_blob(old))
            tx.mark("runs", "policy", tx.put_blob(new))

        store.write_sync(work)
        store.write_sync(lambda tx: tx.prune(THEN + timedelta(days=9)))
        assert store.read_sync(lambda tx: tx.marks("old", "policy")) == []
        (name,) = store.read_sync(lambda tx: tx.marks("runs", "policy"))
        assert store.read_sync(lambda tx: tx.get_blob(name)) == new


LINES: dict[str, dict[str, str | None]] = {
    "a child": {"top": None, "top.a": "top"},
    "its child": {"top": None, "top.a": "top", "top.a.b": "top.a"},
    "two below one that stays": {"top": None, "stays": "top", "stays.a": "stays", "stays.a.b": "stays.a"},
}


@pytest.mark.parametrize("jobs", LINES.values(), ids=LINES)
def test_what_a_pruned_child_read_from_outside_counts_above_it_until_that_job_goes(
    place: str, jobs: dict[str, str | None]
) -> None:
    """Of each line the lowest job has read something; those that have ended are pruned, and later all are."""
    running, lowest = ("top", "stays"), [*jobs][-1]
    with Store.open(place, clock=lambda: THEN.timestamp()) as store:

        def sources(job: str) -> list[str]:
            return store.read_sync(lambda tx: sources_below(tx, job))

        for job, above in jobs.items():
            end = None if job in running else THEN
            store.write_sync(lambda tx, job=job, above=above, end=end: ended(tx, job, above, end))  # type: ignore[misc]
        store.write_sync(lambda tx: ended(tx, "beside", at=None))
        store.write_sync(lambda tx: tx.mark(lowest, "untrusted", "network_request"))
        store.write_sync(lambda tx: tx.mark(lowest, "words", tx.put_blob(b"please")))
        before = {job: sources(job) for job in running if job in jobs}
        assert set(map(tuple, before.values())) == {("network_request",)}
        for _ in range(2):  # another prune finds nothing more to do
            store.write_sync(lambda tx: tx.prune(THEN + timedelta(days=9)))
            assert {job: sources(job) for job in before} == before
        assert sources("beside") == []
        assert store.read_sync(lambda tx: tx.marks("top", "words")) == []
        assert store.read_sync(lambda tx: tx.job(lowest)) is None
        for job in before:
            store.write_sync(lambda tx, job=job: tx.update_job(job, ended_at=THEN))  # type: ignore[misc]
        store.write_sync(lambda tx: tx.prune(THEN + timedelta(days=9)))
        assert not any(sources(job) for job in before)
