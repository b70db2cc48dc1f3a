"""What prune removes, and what it must not touch; integrity; sizes."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, func, select, update

from loom_dsl.errors import BlobMissing, ConflictError, NotFoundError, SessionBusy
from loom_store.queries.retention import Pruned
from loom_store.rows import ApprovalRow, NewEntry
from loom_store.store import Store
from loom_store.tables import blobs, entries, events
from loom_store.transaction import Transaction
from tests.support.stores import beside, problems, sizes

DAY = timedelta(days=1)
T0 = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Pruned(jobs=0, sessions=0, entries=0, events=0, effects=0, approvals=0, blobs=0, blob_bytes=0)


class Clock:
    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> float:
        return self.now.timestamp()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(place: str, clock: Clock) -> Iterator[Store]:
    with Store.open(place, clock=clock) as opened:
        yield opened


@pytest.fixture
def use(store: Store, clock: Clock) -> Callable[..., None]:
    """Runs a job with a row in every table; `ended` days after T0."""

    def run(job: str, ended: float | None, session: str | None = None) -> None:
        name = session or f"session of {job}"

        def work(tx: Transaction) -> None:
            tx.create_session(name)
            tx.create_job(
                job,
                session=name,
                agent="a",
                plan=tx.put_blob(f"plan of {job}".encode()),
                task="t",
                workdir="/w",
                namespace="default",
                task_queue="loom",
                created_at=clock.now,
            )
            said = NewEntry(kind="message", head={"role": "user"}, content=f"said by {job}", job=job, turn=1)
            tx.append_entries(name, f"{job}/1/x/0", [said])
            tx.append_events(job, "k", [{"content": {"$blob": tx.put_blob(f"told by {job}".encode())}}, {"t": "state"}])
            tx.append_deltas(job, "s", 1, 0, "text")
            key = f"{job}/1/call"
            arguments = tx.put_blob(f"arguments of {job}".encode())
            tx.begin_effect(key, job=job, turn=1, call_id="call", tool="t", arguments_digest=arguments)
            tx.settle_effect(key, "settled", tx.put_blob(f"result of {job}".encode()))
            row = ApprovalRow(
                id=f"ap_{job}", job=job, tool="t", arguments_digest=arguments, summary="", created_at=clock.now
            )
            tx.upsert_approval(row)
            if ended is not None:
                tx.update_job(job, status="completed", ended_at=T0 + ended * DAY)

        store.write_sync(work)

    return run


def prune(store: Store, days: float, dry_run: bool = False) -> Pruned:
    return store.write_sync(lambda tx: tx.prune(T0 + days * DAY, dry_run))


def sound(store: Store) -> None:
    assert store.read_sync(problems) == []


def test_an_old_job_goes_with_all_that_only_it_used(store: Store, use: Callable[..., None]) -> None:
    use("old", 1)
    use("new", 20)

    dry = prune(store, 10, dry_run=True)
    assert dry == Pruned(
        jobs=1, sessions=1, entries=1, events=2, effects=1, approvals=1, blobs=5, blob_bytes=11 + 11 + 11 + 16 + 13
    )
    assert store.read_sync(lambda tx: tx.job("old")) is not None
    assert prune(store, 10) == dry
    assert prune(store, 10) == NOTHING

    assert store.read_sync(lambda tx: [job["job"] for job in tx.jobs()]) == ["new"]
    assert store.read_sync(lambda tx: (tx.read_events("old"), tx.effects("old"), tx.approvals(job="old"))) == (
        [],
        [],
        [],
    )
    with pytest.raises(NotFoundError):
        store.read_sync(lambda tx: tx.read_entries("session of old"))
    assert store.read_sync(lambda tx: tx.read_events("new", expand=True))[0][1] == {"content": "told by new"}
    assert len(store.read_sync(lambda tx: tx.read_entries("session of new"))) == 1
    sound(store)


def test_an_image_that_the_ledger_names_stays_as_long_as_its_job(store: Store, use: Callable[..., None]) -> None:
    def draw(tx: Transaction, job: str) -> str:
        key, digest = f"{job}/2/c", tx.put_blob(f"image of {job}".encode())
        tx.begin_effect(key, job=job, turn=2, call_id="c", tool="draw", arguments_digest="ab" * 32)
        image = {"digest": digest, "type": "image/png", "size": 12}
        tx.settle_effect(key, "settled", tx.put_blob(b"drawn"), images=[image])
        return digest

    use("old", 1)
    use("new", 20)
    names = store.write_sync(lambda tx: [draw(tx, job) for job in ("old", "new")])
    prune(store, 10)
    assert store.read_sync(lambda tx: [tx.has_blob(name) for name in names]) == [False, True]


def test_a_content_that_went_is_not_given_from_memory(store: Store, use: Callable[..., None]) -> None:
    use("old", 1)
    digest = store.write_sync(lambda tx: tx.put_blob(b"told by old"))
    assert prune(store, 10).blobs == 5
    assert store.cached_blob(digest) is None
    with pytest.raises(BlobMissing):
        store.read_sync(lambda tx: tx.get_blob(digest))


@pytest.mark.parametrize("ended", [None, 10, 11])
def test_a_job_that_runs_or_ended_later_is_never_touched(
    store: Store, use: Callable[..., None], ended: float | None
) -> None:
    use("j", ended)
    assert prune(store, 10) == NOTHING
    assert store.read_sync(lambda tx: len(tx.read_events("j"))) == 3
    sound(store)


def test_a_session_stays_while_a_later_job_uses_it_and_reads_as_before(store: Store, use: Callable[..., None]) -> None:
    use("old", 1, "shared")
    use("running", None, "shared")

    assert prune(store, 10).sessions == 0

    found = store.read_sync(lambda tx: tx.read_entries("shared"))
    assert [(entry.job, entry.key) for entry in found] == [("old", "old/1/x/0"), ("running", "running/1/x/0")]
    assert store.read_sync(lambda tx: tx.job("old")) is None
    sound(store)

    store.write_sync(lambda tx: tx.update_job("running", ended_at=T0 + 2 * DAY))
    later = prune(store, 10)
    assert (later.jobs, later.sessions, later.entries) == (1, 1, 2)
    assert store.read_sync(problems) == []


def test_a_session_that_was_forked_stays_as_long_as_the_fork(store: Store, use: Callable[..., None]) -> None:
    use("old", 1, "parent")
    store.write_sync(lambda tx: tx.create_session("fork", parent="parent"))
    use("child", 20, "fork")

    assert prune(store, 10).sessions == 0
    assert [entry.job for entry in store.read_sync(lambda tx: tx.read_entries("fork"))] == ["old", "child"]
    sound(store)

    assert prune(store, 30).sessions == 2
    sound(store)


def test_a_content_that_another_content_or_a_head_names_stays(store: Store, use: Callable[..., None]) -> None:
    use("new", 20)

    def work(tx: Transaction) -> None:
        leaf = tx.put_blob(b"leaf")
        inner = tx.put_blob(f'{{"leaf": "{leaf}"}}'.encode())
        root = NewEntry(kind="note", head={"segments": [inner]}, job="new", turn=2)
        tx.append_entries("session of new", "new/2/x/0", [root])
        tx.put_blob(b"named by nobody")

    store.write_sync(work)
    assert prune(store, 10) == Pruned(**{**_fields(NOTHING), "blobs": 1, "blob_bytes": 15})
    sound(store)


def test_a_content_put_since_a_running_job_began_stays_for_temporal_may_name_it(
    store: Store, use: Callable[..., None], clock: Clock
) -> None:
    early = store.write_sync(lambda tx: tx.put_blob(b"early"))
    again = store.write_sync(lambda tx: tx.put_blob(b"put again"))
    clock.now = T0 + 5 * DAY
    use("running", None)
    store.write_sync(lambda tx: tx.put_blob(b"put again"))
    late = store.write_sync(lambda tx: tx.put_blob(b"late"))

    assert prune(store, 10).blobs == 1
    assert store.read_sync(lambda tx: [tx.has_blob(digest) for digest in (early, again, late)]) == [False, True, True]


def test_a_content_put_again_soon_stays_for_the_running_job_that_put_it(
    store: Store, use: Callable[..., None], clock: Clock
) -> None:
    shared = store.write_sync(lambda tx: tx.put_blob(b"the same system message"))
    clock.now = T0 + timedelta(minutes=30)
    use("running", None)
    store.write_sync(lambda tx: tx.put_blob(b"the same system message"))
    clock.now = T0 + 40 * DAY

    assert prune(store, 20).blobs == 0
    assert store.read_sync(lambda tx: tx.has_blob(shared))


def test_a_pruned_name_can_be_used_again(store: Store, use: Callable[..., None]) -> None:
    use("j", 1)
    prune(store, 10)
    use("j", None)
    assert store.read_sync(lambda tx: [offset for offset, _ in tx.read_events("j")]) == [1, 2, 3]
    assert [entry.seq for entry in store.read_sync(lambda tx: tx.read_entries("session of j"))] == [0]


def test_a_job_under_a_pruned_name_whose_conversation_is_still_read_has_not_ended(
    store: Store, use: Callable[..., None]
) -> None:
    use("j", 1, "shared")
    use("other", None, "shared")
    prune(store, 10)
    use("j", None, "its own")
    row = store.read_sync(lambda tx: tx.job("j"))
    assert row is not None
    assert row["ended_at"] is None
    store.write_sync(lambda tx: tx.acquire_lease("its own", "j"))
    with pytest.raises(SessionBusy, match="in use by job 'j'"):
        store.write_sync(lambda tx: tx.acquire_lease("its own", "other"))
    assert prune(store, 20).jobs == 0
    sound(store)


def test_a_pruned_name_is_not_used_again_in_a_conversation_that_has_what_it_said(
    store: Store, use: Callable[..., None]
) -> None:
    use("j", 1, "shared")
    use("other", None, "shared")
    prune(store, 10)
    with pytest.raises(ConflictError, match="still holds what an earlier job 'j' said"):
        use("j", None, "shared")


def test_damage_is_found_and_named(store: Store, use: Callable[..., None], place: str) -> None:
    use("j", None)
    sound(store)
    with beside(place) as connection:
        damaged = update(blobs).where(blobs.c.id == select(func.max(blobs.c.id)).scalar_subquery())
        connection.execute(damaged.values(body=b"\0h"))
        connection.execute(delete(events).where(events.c.last == 2))
        connection.execute(update(entries).values(content=999))

    findings = store.read_sync(problems)
    assert [line.split(":")[0] for line in findings] == [
        "job j",
        "session number 1, entry 0",
        f"content {findings[2].split()[1]} is not what was put",
    ]


@pytest.mark.parametrize("places", ["sqlite"], indirect=True)
def test_sizes_are_those_of_the_file(store: Store, use: Callable[..., None], place: str) -> None:
    use("j", None)
    store.write_sync(lambda tx: tx.put_blob(bytes(range(256)) * 1000))
    before = sizes(store)
    assert before.tables["blobs"] < 30_000
    store.close()
    with Store.open(place) as again:
        report = sizes(again)
    assert report.tables == before.tables
    assert report.total + report.free == report.file


@pytest.mark.parametrize("places", ["sqlite"], indirect=True)
def test_compacting_gives_the_room_back_and_keeps_the_rest(store: Store, use: Callable[..., None]) -> None:
    use("j", None)
    garbage = store.write_sync(lambda tx: [tx.put_blob(random.Random(n).randbytes(50_000)) for n in range(20)])
    store.write_sync(lambda tx: tx.update_job("j", ended_at=T0 + 20 * DAY))
    assert prune(store, 10).blobs == len(garbage)
    assert sizes(store).free > 900_000

    store.compact()

    report = sizes(store)
    assert report.free == 0
    assert len(store.read_sync(lambda tx: tx.read_events("j"))) == 3
    sound(store)


def _fields(pruned: Pruned) -> dict[str, int]:
    return {name: getattr(pruned, name) for name in Pruned.__slots__}
