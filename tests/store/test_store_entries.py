"""Sessions, their entries and leases."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_dsl.errors import BlobMissing, ConflictError, NotFoundError, SessionBusy
from loom_store.queries.base import full_key, shorten_key
from loom_store.rows import Entry, EntryRange, NewEntry
from loom_store.store import Store
from loom_store.transaction import Transaction


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place) as opened:
        opened.write_sync(lambda tx: tx.create_session("s"))
        yield opened


def said(text: str, job: str = "j", turn: int = 1) -> NewEntry:
    return NewEntry(kind="message", head={"role": "user", "name": text}, content=text, job=job, turn=turn)


def append(store: Store, key: str, *texts: str, session: str = "s") -> EntryRange:
    return store.write_sync(lambda tx: tx.append_entries(session, key, [said(text) for text in texts]))


def texts(store: Store, session: str = "s", start: int = 0, end: int | None = None) -> list[str]:
    def read(tx: Transaction) -> list[str]:
        return [tx.get_blob(entry.content_digest or "").decode() for entry in tx.read_entries(session, start, end)]

    return store.read_sync(read)


def test_an_entry_comes_back_as_it_was_appended(store: Store) -> None:
    note = NewEntry(kind="note", head={"b": 1, "a": "ä\ud800"}, job="job", turn=7)

    store.write_sync(lambda tx: tx.append_entries("s", "job/7/x#1/0", [said("hello"), note]))

    first, second = store.read_sync(lambda tx: tx.read_entries("s"))
    assert (first.seq, first.key, first.kind, first.job, first.turn) == (0, "job/7/x#1/0", "message", "j", 1)
    assert second == Entry(1, "job/7/x#1/0", "note", '{"a":"ä\ud800","b":1}', None, "job", 7)
    assert second.head == {"a": "ä\ud800", "b": 1}


def test_changing_a_head_that_was_read_changes_nothing_for_others(store: Store) -> None:
    append(store, "k", "hello")

    store.read_sync(lambda tx: tx.read_entries("s"))[0].head["role"] = "changed"

    assert store.read_sync(lambda tx: tx.read_entries("s"))[0].head["role"] == "user"


def test_the_same_key_appends_once_and_gives_the_first_range(store: Store) -> None:
    assert append(store, "a", "1", "2") == EntryRange(0, 2)
    assert append(store, "b", "3") == EntryRange(2, 3)
    assert append(store, "a", "other", "texts", "now") == EntryRange(0, 2)
    assert texts(store) == ["1", "2", "3"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_sequence_of_repeated_appends_gives_the_entries_of_the_first_ones(
    store: Store, data: st.DataObject
) -> None:
    keys = st.sampled_from(["a", "j/a", "/a", "=a", "=/a", "j/", "j", "é", "jj/a"])
    jobs = st.sampled_from(["j", "jj", "j/a"])
    session = f"session {data.draw(st.integers())}"
    store.write_sync(lambda tx: tx.create_session(session))
    before = store.read_sync(lambda tx: {entry.key for entry in tx.read_entries(session)})
    expected = store.read_sync(lambda tx: [(entry.key, entry.job) for entry in tx.read_entries(session)])

    for key, job, count in data.draw(st.lists(st.tuples(keys, jobs, st.integers(1, 3)), max_size=12)):
        store.write_sync(lambda tx, k=key, j=job, n=count: tx.append_entries(session, k, [said(k, j)] * n))
        expected += [] if key in before else [(key, job)] * count
        before.add(key)

    found = store.read_sync(lambda tx: tx.read_entries(session))
    assert [(entry.key, entry.job) for entry in found] == expected
    assert [entry.seq for entry in found] == list(range(len(expected)))


@given(key=st.text(max_size=8), job=st.text(min_size=1, max_size=4))
def test_a_shortened_key_is_told_apart_from_every_other(key: str, job: str) -> None:
    assert full_key(shorten_key(key, job), job) == key


def test_nothing_to_append_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="no entries"):
        append(store, "k")


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, "012345"), (2, 4, "23"), (4, None, "45"), (0, 0, ""), (6, None, ""), (3, 100, "345"), (5, 2, "")],
)
@pytest.mark.parametrize("held", [(), (0, None), (2, 4), (5, 6)])
def test_a_range_is_the_same_whatever_is_in_memory(
    store: Store, start: int, end: int | None, expected: str, held: tuple[int, int | None]
) -> None:
    append(store, "k", *"012345")
    if held:
        texts(store, "s", *held)

    assert "".join(texts(store, "s", start, end)) == expected


def test_entries_in_memory_grow_with_what_is_appended_here_and_elsewhere(store: Store, place: str) -> None:
    append(store, "a", "1")
    assert texts(store) == ["1"]
    append(store, "b", "2")
    with Store.open(place) as other:
        append(other, "c", "3")
    assert texts(store) == ["1", "2", "3"]


def test_entries_of_a_write_that_failed_are_never_seen(store: Store) -> None:
    append(store, "a", "1")
    assert texts(store) == ["1"]

    def fail(tx: Transaction) -> None:
        tx.append_entries("s", "b", [said("2")])
        tx.read_entries("s")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        store.write_sync(fail)
    assert texts(store) == ["1"]
    assert append(store, "c", "3") == EntryRange(1, 2)
    assert texts(store) == ["1", "3"]


def test_memory_for_entries_is_bounded_and_reading_stays_right(place: str) -> None:
    with Store.open(place, entry_cache_bytes=3000, blob_cache_bytes=100) as store:
        for name in "abc":
            store.write_sync(lambda tx, n=name: tx.create_session(n))
            append(store, "k", *[f"{name}{n}" for n in range(20)], session=name)
        for name in "abcabc":
            assert texts(store, name) == [f"{name}{n}" for n in range(20)]
        assert store._shared.entries.held_bytes <= 3000
        assert store._shared.blobs.held_bytes <= 100


def test_a_fork_reads_its_parents_entries_and_then_its_own(store: Store) -> None:
    append(store, "a", "1", "2", "3")
    store.write_sync(lambda tx: tx.create_session("fork", parent="s", parent_entry=2))
    append(store, "b", "4")

    assert append(store, "a", "x", "y", session="fork") == EntryRange(2, 4)
    assert texts(store, "fork") == ["1", "2", "x", "y"]
    assert texts(store, "fork", 1, 3) == ["2", "x"]
    assert texts(store) == ["1", "2", "3", "4"]


def test_a_fork_of_a_fork_before_its_own_entries_reads_the_first_one(store: Store) -> None:
    append(store, "a", "1", "2", "3")
    store.write_sync(lambda tx: tx.create_session("b", parent="s", parent_entry=2))
    append(store, "b", "x", session="b")
    store.write_sync(lambda tx: tx.create_session("c", parent="b", parent_entry=1))
    append(store, "c", "y", session="c")
    store.write_sync(lambda tx: tx.create_session("d", parent="c"))

    assert texts(store, "c") == ["1", "y"]
    assert texts(store, "d") == ["1", "y"]
    assert append(store, "d", "z", session="d").first == 2


def test_creating_a_session_again_is_fine_and_with_another_parent_is_not(store: Store) -> None:
    append(store, "a", "1")
    for _ in range(2):
        store.write_sync(lambda tx: tx.create_session("fork", parent="s", parent_entry=1))
    append(store, "b", "2")
    store.write_sync(lambda tx: tx.create_session("fork", parent="s"))

    with pytest.raises(ConflictError, match="'fork' exists already"):
        store.write_sync(lambda tx: tx.create_session("fork", parent="s", parent_entry=0))
    with pytest.raises(ConflictError, match="'s' exists already"):
        store.write_sync(lambda tx: tx.create_session("s", parent="fork"))
    store.write_sync(lambda tx: tx.create_session("fork"))
    assert texts(store, "fork") == ["1"]


def test_what_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no session 'nope'"):
        texts(store, "nope")
    with pytest.raises(NotFoundError, match="no session 'nope'"):
        append(store, "k", "1", session="nope")
    with pytest.raises(NotFoundError, match="has 0 entries; it cannot be forked at 5"):
        store.write_sync(lambda tx: tx.create_session("fork", parent="s", parent_entry=5))
    with pytest.raises(BlobMissing, match="f" * 64):
        store.read_sync(lambda tx: tx.get_blob("f" * 64))
    with pytest.raises(ValueError, match="not a SHA-256 digest"):
        store.read_sync(lambda tx: tx.get_blob("abcd"))


@pytest.mark.parametrize(
    "data", [b"", b"x", b"hello " * 1000, bytes(range(256)) * 3, "ä\ud800".encode("utf8", "surrogatepass")]
)
def test_a_content_comes_back_byte_for_byte_from_the_file(store: Store, place: str, data: bytes) -> None:
    digest = store.write_sync(lambda tx: tx.put_blob(data))
    assert store.write_sync(lambda tx: tx.put_blob(data)) == digest
    assert store.cached_blob(digest) == data
    with Store.open(place) as other:
        assert other.cached_blob(digest) is None
        assert other.read_sync(lambda tx: tx.get_blob(digest)) == data


def test_one_job_at_a_time_has_the_lease(store: Store) -> None:
    store.write_sync(lambda tx: tx.acquire_lease("s", "first"))
    store.write_sync(lambda tx: tx.acquire_lease("s", "first"))

    with pytest.raises(SessionBusy, match="'s' is in use by job 'first'"):
        store.write_sync(lambda tx: tx.acquire_lease("s", "second"))
    with pytest.raises(SessionBusy, match="'first'"):
        store.write_sync(lambda tx: tx.create_session("s", job="second"))
