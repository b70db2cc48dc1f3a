"""Messages of webhooks in the store: in order, once each, until they are taken, given up or pruned."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from loom_store.store import Store
from loom_store.transaction import Transaction

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place, clock=NOW.timestamp) as opened:
        yield opened


def job_in(store: Store, name: str, queue: str = "q") -> None:
    place = {"workdir": "/", "namespace": "n", "task_queue": queue}
    store.write_sync(
        lambda tx: tx.create_job(name, session=name, agent="a", plan="p", task="t", created_at=1.0, **place)
    )


def told(store: Store, *messages: str, job: str = "one", endpoint: str = "chat") -> None:
    for message in messages:
        store.write_sync(lambda tx, message=message: tx.add_delivery(message, job, endpoint, "job_failed", {"n": 1}))  # type: ignore[misc]


def names(store: Store) -> list[str]:
    return [row.message for row in store.read_sync(lambda tx: tx.deliveries())]


def test_the_oldest_that_waits_is_next_for_its_job_and_endpoint(store: Store) -> None:
    job_in(store, "one")
    job_in(store, "two")
    told(store, "m1", "m2")
    told(store, "m3", endpoint="mail")
    told(store, "m4", job="two")
    told(store, "m1")  # again
    assert names(store) == ["m1", "m2", "m3", "m4"]
    seen = []
    while (found := store.read_sync(lambda tx: tx.next_delivery("one", "chat"))) is not None:
        seen.append((found.message, found.data, found.created_at))
        store.write_sync(lambda tx, found=found: tx.delivered(found.number))  # type: ignore[misc]
    assert seen == [(name, {"n": 1}, "2026-01-01T00:00:00.000Z") for name in ("m1", "m2")]
    assert names(store) == ["m3", "m4"]


def test_a_dead_letter_waits_no_more_until_it_is_revived(store: Store) -> None:
    job_in(store, "one")
    told(store, "m1", "m2")
    for found in store.read_sync(lambda tx: tx.deliveries()):
        store.write_sync(lambda tx, found=found: tx.bury_delivery(found.number, "gone"))  # type: ignore[misc]
    assert store.read_sync(lambda tx: tx.next_delivery("one", "chat")) is None
    assert store.read_sync(lambda tx: tx.waiting_deliveries("n", "q")) == []
    assert [row.problem for row in store.read_sync(lambda tx: tx.deliveries())] == ["gone", "gone"]
    assert [row.message for row in store.write_sync(lambda tx: tx.revive_deliveries("m2"))] == ["m2"]
    found = store.read_sync(lambda tx: tx.next_delivery("one", "chat"))
    assert found
    assert (found.message, found.problem, found.died_at) == ("m2", None, None)
    assert [row.message for row in store.write_sync(lambda tx: tx.revive_deliveries())] == ["m1"]


def test_each_queue_has_its_own_that_wait(store: Store) -> None:
    job_in(store, "one")
    job_in(store, "two", "other")
    told(store, "m1", "m2")
    told(store, "m3", job="two")
    assert store.read_sync(lambda tx: tx.waiting_deliveries("n", "q")) == [("one", "chat")]
    assert store.read_sync(lambda tx: tx.waiting_deliveries("n", "other")) == [("two", "chat")]
    assert store.read_sync(lambda tx: tx.waiting_deliveries("elsewhere", "q")) == []


def test_they_go_with_their_job(store: Store) -> None:
    for name in ("one", "two"):
        job_in(store, name)
        told(store, f"of {name}", job=name)
    store.write_sync(lambda tx: tx.update_job("one", status="failed", ended_at=NOW - timedelta(days=9)))
    store.write_sync(lambda tx: tx.prune(NOW - timedelta(days=1)))
    assert names(store) == ["of two"]


def test_nobody_is_woken_for_what_was_not_committed(store: Store) -> None:
    job_in(store, "one")
    woken: list[tuple[str, str]] = []
    store.subscribe([], lambda job, endpoint: woken.append((job, endpoint)))

    def write(tx: Transaction) -> None:
        tx.add_delivery("m1", "one", "chat", "job_failed", {})

    def write_and_fail(tx: Transaction) -> None:
        write(tx)
        raise KeyError

    with pytest.raises(KeyError):
        store.write_sync(write_and_fail)
    assert (woken, names(store)) == ([], [])
    store.write_sync(write)
    assert (woken, names(store)) == ([("one", "chat")], ["m1"])
