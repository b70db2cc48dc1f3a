"""Events and streamed text."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_dsl.errors import BlobMissing
from loom_dsl.observe.events import EventType, decode
from loom_store.queries.blobs import pack, unpack
from loom_store.store import Store


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place) as opened:
        yield opened


def append(store: Store, key: str, *names: str, job: str = "j", attempt: int | None = None) -> tuple[int, int]:
    batch = [{"t": "state", "name": name} for name in names]
    return store.write_sync(lambda tx: tx.append_events(job, key, batch, attempt=attempt))


def delta(store: Store, attempt: int, sequence: int, text: str) -> bool:
    return store.write_sync(lambda tx: tx.append_deltas("j", "1/model#1", attempt, sequence, text, turn=1))


def read(store: Store, after: int = 0, limit: int = 500, job: str = "j") -> list[tuple[int, dict[str, Any]]]:
    return store.read_sync(lambda tx: tx.read_events(job, after, limit))


def test_offsets_count_from_one_for_each_job_and_a_batch_is_kept_once(store: Store) -> None:
    assert append(store, "a", "1", "2") == (1, 2)
    assert append(store, "a", "1", job="other") == (1, 1)
    assert append(store, "b", "3") == (3, 1)
    assert append(store, "a", "different", "now", "!") == (1, 2)
    assert append(store, "empty") == (4, 0)
    assert [(offset, event["name"]) for offset, event in read(store)] == [(1, "1"), (2, "2"), (3, "3")]
    assert store.read_sync(lambda tx: tx.last_offset("j")) == 3
    assert store.read_sync(lambda tx: (tx.last_offset("unknown"), tx.read_events("unknown"))) == (0, [])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 4)), max_size=12), steps=st.integers(1, 7))
def test_a_reader_that_goes_on_after_its_last_offset_sees_every_event_once(
    store: Store, batches: list[tuple[str, int]], steps: int
) -> None:
    job = f"{batches}{steps}"
    expected: dict[str, int] = {}
    for key, count in batches:
        append(store, key, *[f"{key}{n}" for n in range(count)], job=job)
        expected.setdefault(key, count)

    seen: list[tuple[int, dict[str, Any]]] = []
    while part := read(store, after=len(seen), limit=steps, job=job):
        seen += part

    assert [offset for offset, _ in seen] == list(range(1, len(seen) + 1))
    assert [event["name"] for _, event in seen] == [
        f"{key}{n}" for key, count in expected.items() for n in range(count)
    ]


def test_a_limit_is_kept_and_none_is_none(store: Store) -> None:
    append(store, "a", *"12345")
    assert [offset for offset, _ in read(store, after=1, limit=2)] == [2, 3]
    assert read(store, limit=0) == []


def test_an_event_without_a_time_of_its_own_has_the_one_at_which_it_was_stored(place: str) -> None:
    now = 1_700_000_000.75
    with Store.open(place, clock=lambda: now) as store:
        append(store, "a", "1")
        now += 9
        store.write_sync(lambda tx: tx.append_events("j", "b", [{"t": "node_end", "at": 5.5}, {"t": "state"}]))
        timed = store.read_sync(lambda tx: tx.read_events("j", timed=True))
        assert [decode("j", offset, raw).at for offset, raw in timed] == [1_700_000_000, 5.5, 1_700_000_009]
        assert ["at" in event for _, event in read(store)] == [False, True, False]


def test_references_become_texts_when_asked_for(store: Store) -> None:
    digest = store.write_sync(lambda tx: tx.put_blob("größer".encode()))
    event = {"content": {"$blob": digest}, "list": [{"$blob": digest}, {"$blob": digest, "more": 1}, {"$blob": 3}]}
    store.write_sync(lambda tx: tx.append_events("j", "k", [event]))

    assert read(store) == [(1, event)]
    expanded = store.read_sync(lambda tx: tx.read_events("j", expand=True))
    assert expanded == [(1, {"content": "größer", "list": ["größer", {"$blob": digest, "more": 1}, {"$blob": 3}]})]


def test_a_reference_to_nothing_is_named(store: Store) -> None:
    store.write_sync(lambda tx: tx.append_events("j", "k", [{"content": {"$blob": "0" * 64}}]))
    with pytest.raises(BlobMissing, match="0" * 64):
        store.read_sync(lambda tx: tx.read_events("j", expand=True))


def test_an_older_attempt_cannot_write_once_a_newer_one_has(store: Store) -> None:
    assert delta(store, 1, 0, "Hel")
    assert delta(store, 1, 1, "lo")
    assert delta(store, 2, 0, "Good")
    assert not delta(store, 1, 2, " world")
    assert delta(store, 2, 1, " day")

    found = [decode("j", offset, event) for offset, event in read(store)]
    assert [(event.type, event.data.get("content")) for event in found] == [
        (EventType.LLM_DELTA, "Hel"),
        (EventType.LLM_DELTA, "lo"),
        (EventType.STREAM_RESET, None),
        (EventType.LLM_DELTA, "Good"),
        (EventType.LLM_DELTA, " day"),
    ]
    assert {event.turn for event in found} == {1}
    assert [event.offset for event in found] == [1, 2, 3, 4, 5]


def test_a_piece_that_is_sent_again_is_kept_once(store: Store) -> None:
    assert delta(store, 1, 5, "a")
    assert delta(store, 1, 5, "a")
    assert delta(store, 1, 4, "late")
    assert [event["content"] for _, event in read(store)] == ["a"]


def test_a_first_attempt_that_streamed_nothing_still_resets(store: Store) -> None:
    assert delta(store, 3, 0, "a")
    assert [event["type"] for _, event in read(store)] == ["stream_reset", "llm_delta"]


def test_a_batch_with_an_attempt_is_fenced_with_the_stream_of_its_key(store: Store) -> None:
    assert append(store, "1/model#1", "newer", attempt=2) == (1, 1)
    assert not delta(store, 1, 0, "old")
    assert delta(store, 2, 0, "new")
    assert [event.get("type") for _, event in read(store)] == [None, "stream_reset", "llm_delta"]
    assert store.write_sync(lambda tx: tx.append_deltas("j", "other", 3, 0, "x"))
    assert append(store, "other", "older", attempt=2) == (6, 0)
    assert append(store, "1/model#1", "newer", attempt=1) == (1, 1)


@given(st.binary(max_size=400))
def test_packing_gives_back_what_it_got(data: bytes) -> None:
    assert unpack(pack(data)) == data
    assert len(pack(data)) <= len(data) + 1


def test_a_row_of_a_form_from_the_future_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown row form"):
        unpack(b"\x09abc")


def test_rows_written_by_the_first_release_can_be_read_for_ever() -> None:
    """The dictionary is part of the format: this fails when somebody edits it."""
    packed = bytes.fromhex("018b860752660ad84ea0983151c11b0b00")
    assert unpack(packed) == b'[{"from":"idle","n":3,"state":"model_running","t":"state"}]'
