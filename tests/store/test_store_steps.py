"""Notes of steps: who is at them, what earlier attempts left behind, and when they are forgotten."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from loom_store.queries.steps import Step
from loom_store.store import Store

KEY = "job/0/execute#1"


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place, clock=lambda: 1_000.0) as opened:
        opened.write_sync(lambda tx: tx.append_events("job", "begun", [{"t": "control", "n": 0}]))
        yield opened


def begin(store: Store, process: str | None, key: str = KEY) -> Step:
    return store.note(lambda tx: tx.begin_step("job", key, process)).result()


def noted(store: Store) -> Step | None:
    return store.read_sync(lambda tx: tx.step("job", KEY))


def test_a_step_is_begun_and_ended(store: Store) -> None:
    begun = begin(store, "p1")
    assert noted(store) == begun == Step("job", KEY, "p1", 1_000_000, 0, 0)
    store.note(lambda tx: tx.end_step(begun, answered=True)).result()
    assert noted(store) is None


def test_the_end_of_an_attempt_does_not_touch_the_one_that_follows_it(store: Store) -> None:
    first = begin(store, "p1")
    second = begin(store, "p2")
    assert second.begun_at > first.begun_at
    for answered in (True, False):
        store.note(lambda tx, answered=answered: tx.end_step(first, answered=answered)).result()
        assert noted(store) == second


def test_what_is_broken_off_is_forgotten_when_nothing_was_before_it(store: Store) -> None:
    begun = begin(store, "p1")
    store.note(lambda tx: tx.end_step(begun, answered=False)).result()
    assert noted(store) is None
    marked = replace(begin(store, "p1"), suspected=1)
    store.note(lambda tx: tx.mark_step(marked)).result()
    store.note(lambda tx: tx.end_step(marked, answered=False)).result()
    assert noted(store) == replace(marked, process=None)


def test_a_process_is_known_by_its_steps(store: Store) -> None:
    begin(store, "p1")
    begin(store, "p1", "job/0/execute#2")
    begin(store, "p2", "job/0/execute#3")
    assert [step.key for step in store.read_sync(lambda tx: tx.steps_of("p1"))] == [KEY, "job/0/execute#2"]
    assert len(store.read_sync(lambda tx: tx.steps_under_way())) == 3


def test_of_an_unknown_job_nothing_is_noted(store: Store) -> None:
    store.note(lambda tx: tx.begin_step("other", "other/0/x", "p1")).result()
    assert store.read_sync(lambda tx: tx.steps_under_way()) == []


async def test_a_note_does_not_take_along_what_waits_for_the_disk(store: Store) -> None:
    async with store.together() as waiting:
        await store.write_later(lambda tx: tx.mark("job", "words", "w"))
        begin(store, "p1")
        assert waiting.waits
    assert store.read_sync(lambda tx: tx.marks("job", "words")) == ["w"]


def test_a_job_that_is_pruned_takes_its_steps_along(store: Store, place: str) -> None:
    begin(store, "p1")
    with Store.open(place) as again:
        again.write_sync(lambda tx: tx.create_job("job", session="s", agent="a", plan="p", task="t", workdir="/",
                                                  namespace="n", task_queue="q", created_at=1.0))  # fmt: skip
        again.write_sync(lambda tx: tx.update_job("job", status="completed", ended_at=2.0))
        assert again.write_sync(lambda tx: tx.prune(datetime(2100, 1, 1, tzinfo=UTC))) is not None
        assert again.read_sync(lambda tx: tx.steps_under_way()) == []
