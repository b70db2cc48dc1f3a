"""Whether a job is served, as the server tells who asks for work and the workers tell that they live."""

import time
from collections.abc import Iterator

import pytest

from loom_client.server.workers import is_served
from loom_store.queries.workers import ALIVE_SECONDS
from loom_store.store import Store

ONE, TWO = "1@host", "2@host"


class Past:
    """A clock that is behind, by as much as a test says."""

    behind = 0.0

    def __call__(self) -> float:
        return time.time() - self.behind


@pytest.fixture
def past() -> Past:
    return Past()


@pytest.fixture
def store(place: str, past: Past) -> Iterator[Store]:
    with Store.open(place, clock=past) as opened:
        yield opened


def register(store: Store, identity: str, queue: str = "blue") -> None:
    pid, _, host = identity.partition("@")
    about = {"queue": queue, "namespace": "default", "pid": int(pid), "host": host}
    store.write_sync(lambda tx: tx.register_worker(f"process {identity}", about))


def served(store: Store, **seen: float) -> bool | None:
    by_name = {f"{name.lstrip('w')}@host": age for name, age in seen.items()}
    return store.read_sync(lambda tx: is_served(tx, "default", "blue", by_name))


def test_a_worker_that_the_server_has_just_heard_serves(store: Store) -> None:
    assert served(store, w1=1.0) is True, "a worker of another release may tell the store nothing"
    register(store, ONE)
    assert served(store, w1=65.0) is True, "an idle worker is heard once a minute"


def test_a_server_that_has_heard_nobody_yet_proves_nothing_while_workers_say_that_they_live(
    store: Store, past: Past
) -> None:
    assert served(store) is False
    register(store, ONE, queue="green")
    assert served(store) is False
    past.behind = ALIVE_SECONDS - 1
    register(store, ONE)
    past.behind = 0
    assert served(store) is None
    store.write_sync(lambda tx: tx.stop_worker(f"process {ONE}"))
    assert served(store) is False


def test_a_worker_that_has_ended_serves_no_more_though_the_server_lists_it(store: Store, past: Past) -> None:
    past.behind = ALIVE_SECONDS + 5
    register(store, ONE)
    register(store, TWO)
    past.behind = 0
    assert served(store, w1=ALIVE_SECONDS + 6) is False
    assert served(store, w1=ALIVE_SECONDS + 6, w2=1.0) is True, "it asks for work, and cannot write into the store"
    register(store, TWO)
    assert served(store, w1=ALIVE_SECONDS + 6, w2=60.0) is True
    store.write_sync(lambda tx: tx.stop_worker(f"process {TWO}"))
    assert served(store, w1=ALIVE_SECONDS + 6, w2=0.0) is False


def test_the_same_process_id_is_judged_by_its_last_worker(store: Store, past: Past) -> None:
    past.behind = 3_600
    register(store, ONE)
    past.behind = 0
    about = {"queue": "blue", "namespace": "default", "pid": 1, "host": "host"}
    store.write_sync(lambda tx: tx.register_worker("a later process", about))
    assert served(store, w1=50.0) is True
