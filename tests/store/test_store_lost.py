"""A store knows itself, and notices when its files are taken away, replaced, cut off or made immutable."""

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom_dsl.errors import StoreError, StoreLost, StoreReadOnly
from loom_store.queries.workers import ALIVE_SECONDS, KEPT_SECONDS
from loom_store.store import Store
from tests.support.copied import copied
from tests.support.waiting import PATIENCE


def put(store: Store, text: str) -> str:
    return store.write_sync(lambda tx: tx.put_blob(text.encode()))


def test_a_store_has_one_id_for_all_who_open_it_and_another_store_has_another(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as first, Store.open(tmp_path / "a.db") as second:
        assert first.id == second.id
        assert len(first.id) == 12
        known = first.id
    with Store.open(tmp_path / "a.db") as again, Store.open(tmp_path / "b.db") as other:
        assert again.id == known != other.id
        assert again.epoch.number == 1
        assert again.read_sync(lambda tx: tx.epoch_began()) is None


def test_a_copy_begins_an_epoch_and_a_file_that_was_renamed_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(tmp_path / "a.db", clock=lambda: 1_000.0) as store:
        known = store.id
    with Store.open(copied(tmp_path / "a.db", tmp_path / "b.db"), clock=lambda: 2_000.5) as copy:
        assert (copy.id, copy.epoch.number, copy.epoch.began_at) == (known, 2, 2_000.5)
        assert copy.read_sync(lambda tx: tx.epoch_began()) == 2_000.5
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "epoch 2 begins" in caplog.text
    (tmp_path / "b.db").rename(tmp_path / "c.db")
    with Store.open(tmp_path / "c.db") as moved:
        assert moved.epoch.number == 2
    shutil.copy(tmp_path / "c.db", tmp_path / "restored.db")
    (tmp_path / "restored.db").rename(tmp_path / "c.db")  # a backup put in the file's place
    with Store.open(tmp_path / "c.db") as restored:
        assert (restored.id, restored.epoch.number) == (known, 3)
        assert [epoch.number for epoch in restored.read_sync(lambda tx: tx.epochs())] == [1, 2, 3]


def test_a_backup_that_is_copied_into_the_file_begins_an_epoch(tmp_path: Path) -> None:
    path, now = tmp_path / "loom.db", [1_000.0]

    def served() -> int:
        with Store.open(path, clock=lambda: now[0]) as store:
            store.write_sync(lambda tx: tx.register_worker("one", {}))
            store.note_heard()
            return store.epoch.number

    assert served() == 1
    if not os.listxattr(path):
        pytest.skip(f"the file system of {path} has no attributes of files, so this is not noticed there")
    backup = path.read_bytes()
    now[0] += 3_600
    assert served() == 1
    path.write_bytes(backup)  # the same file, as `cp` and `.restore` leave it
    assert served() == 2
    now[0] += 3_600
    assert served() == 2


def test_an_epoch_can_be_begun_by_hand(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        begun = store.write_sync(lambda tx: tx.begin_epoch("a replica was promoted"))
        assert store.epoch == begun
        assert (begun.number, begun.why) == (2, "a replica was promoted")


def test_workers_are_alive_until_they_stop_or_are_not_heard_of(tmp_path: Path) -> None:
    now = [1_000.0]
    with Store.open(tmp_path / "a.db", clock=lambda: now[0]) as store:

        def alive() -> list[str]:
            return [row.process for row in store.read_sync(lambda tx: tx.workers(alive=True))]

        for name in ("one", "two"):
            store.write_sync(lambda tx, name=name: tx.register_worker(name, {"tools": [name]}))  # type: ignore[misc]
        now[0] += ALIVE_SECONDS - 1
        store.write_sync(lambda tx: tx.renew_worker("two"))
        assert alive() == ["one", "two"]
        now[0] += 1
        assert alive() == ["two"]
        store.write_sync(lambda tx: tx.stop_worker("two"))
        assert alive() == []
        (one, two) = store.read_sync(lambda tx: tx.workers())
        assert (one.stopped_at, two.stopped_at is None, one.about) == (None, False, {"tools": ["one"]})
        store.write_sync(lambda tx: tx.register_worker("one", {"tools": []}))
        assert alive() == ["one"]
        now[0] += KEPT_SECONDS + 1
        store.write_sync(lambda tx: tx.register_worker("three", {}))
        assert [row.process for row in store.read_sync(lambda tx: tx.workers())] == ["three"]


def deleted(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("other"))
    path.with_name("other").rename(path)


def cut_off(path: Path) -> None:
    os.truncate(path, 0)


def restored(path: Path) -> None:
    copied(path, path.with_name("backup.db")).rename(path)


LOSSES = {
    "deleted": (deleted, "", "it was deleted"),
    "replaced": (replaced, "", "it was replaced by another file"),
    "restored from a backup": (restored, "", "it was replaced by another file"),
    "its log deleted": (deleted, "-wal", "loom.db-wal was deleted"),
    "its log replaced": (replaced, "-wal", "loom.db-wal was replaced"),
    "its shared file deleted": (deleted, "-shm", "loom.db-shm was deleted"),
    "its shared file cut off": (cut_off, "-shm", "loom.db-shm was cut off"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_written_into_or_read_from_a_store_that_was_lost(tmp_path: Path, loss: str) -> None:
    lose, suffix, words = LOSSES[loss]
    path = tmp_path / "loom.db"
    with Store.open(path) as store:
        name = put(store, "kept")
        hidden = os.open(path, os.O_RDONLY)  # what is written into the file that was taken away would be seen here
        log = Path(f"{path}-wal")
        before = log.stat().st_size
        lose(tmp_path / f"loom.db{suffix}")
        for attempt in (lambda: put(store, "lost"), lambda: store.read_sync(lambda tx: tx.get_blob(name)), store.check):
            with pytest.raises(StoreLost, match=words) as caught:
                attempt()
            assert str(path) in caught.value.message
            assert "point LOOM_STORE at where it is now" in caught.value.message
        if not suffix:
            assert log.stat().st_size == before
        os.close(hidden)


def test_a_store_that_is_reached_by_a_link_is_lost_when_the_link_leads_elsewhere(tmp_path: Path) -> None:
    with Store.open(tmp_path / "one.db"), Store.open(tmp_path / "two.db"):
        pass
    link = tmp_path / "loom.db"
    link.symlink_to(tmp_path / "one.db")
    with Store.open(link) as store:
        put(store, "kept")
        (tmp_path / "new").symlink_to(tmp_path / "two.db")
        (tmp_path / "new").rename(link)
        with pytest.raises(StoreLost, match="replaced"):
            put(store, "lost")


def test_two_stores_of_one_file_in_one_process_keep_their_locks(tmp_path: Path) -> None:
    """To close a file ends the locks of the whole process; without them another process deletes the log."""
    with Store.open(tmp_path / "loom.db") as first:
        put(first, "kept")
        Store.open(tmp_path / "loom.db").close()
        subprocess.run([sys.executable, "-c", _OPEN_AND_CLOSE, str(tmp_path / "loom.db")], check=True)
        first.check()
        put(first, "more")


_OPEN_AND_CLOSE = """
import sys
from loom_store.store import Store
with Store.open(sys.argv[1]) as store:
    store.write_sync(lambda tx: tx.put_blob(b"other"))
"""


@contextmanager
def immutable(*paths: Path) -> Iterator[None]:
    """Make files immutable for a time, which not even root may write then.

    Skipped, and said so, where the system does not have it or this user may not.
    """
    names = [str(path) for path in paths]
    chattr = shutil.which("chattr")
    done = subprocess.run([chattr, "+i", *names], capture_output=True, text=True, check=False) if chattr else None
    if chattr is None or done is None or done.returncode:
        pytest.skip(f"chattr +i is not to be had here: {done.stderr if done else 'no such program'}")
    try:
        yield
    finally:
        subprocess.run([chattr, "-i", *names], check=True)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_store_with_an_immutable_file_says_so_and_goes_on_when_it_is_none_any_more(
    tmp_path: Path, suffix: str
) -> None:
    path, place = tmp_path / "loom.db", tmp_path / f"loom.db{suffix}"
    with Store.open(path) as store:
        name = put(store, "kept")
        with immutable(place):
            for attempt in (lambda: put(store, "not now"), lambda: store.read_sync(lambda tx: tx.get_blob(name))):
                with pytest.raises(StoreReadOnly, match=f"{place} cannot be written any more.*lsattr"):
                    attempt()
            with pytest.raises(StoreReadOnly, match=rf"cannot be written; .*\({place.name} is the one"):
                Store.open(path)
        again = put(store, "now")
        assert store.read_sync(lambda tx: tx.get_blob(again)) == b"now"


_DIE = """
import sys
from loom_store.files import tell_bus_errors
from loom_store.store import Store
store = Store.open(sys.argv[1])
store.write_sync(lambda tx: tx.put_blob(b"kept"))
if sys.argv[2] == "told":
    tell_bus_errors(store.path, status=7)
def work(tx):
    print("in a transaction", flush=True)
    sys.stdin.readline()
    tx.put_blob(b"lost" * 1000)
if sys.argv[3] == "in":
    store.write_sync(work)  # the shared file goes when nobody looks any more
else:
    print("in a transaction", flush=True)
    sys.stdin.readline()
store.close()
print("closed", flush=True)
"""


def after(path: Path, loss: Callable[[Path], None], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Have a process lose the shared file of its store, and give how it ended."""
    command = [sys.executable, "-c", _DIE, str(path), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        loss(path.with_name(f"{path.name}-shm"))
        out, err = process.communicate("go on\n", timeout=PATIENCE)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_a_process_that_the_system_ends_in_a_transaction_says_why_in_one_line(tmp_path: Path) -> None:
    silent = after(tmp_path / "a.db", cut_off, "silent", "in")
    assert (silent.returncode, silent.stderr) == (-7, "")  # what is to be mended: SIGBUS, without a word
    told = after(tmp_path / "b.db", cut_off, "told", "in")
    assert told.returncode == 7
    (line,) = told.stderr.splitlines()
    assert line.startswith(f"error: the file {tmp_path / 'b.db'}-shm, which this process shares with others, was cut")
    with sqlite3.connect(tmp_path / "b.db") as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    opened.close()


def test_a_process_closes_a_store_whose_shared_file_was_cut_off_without_being_ended(tmp_path: Path) -> None:
    done = after(tmp_path / "a.db", cut_off, "silent", "out")
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


def test_a_full_disk_under_the_shared_file_is_an_error_and_ends_no_process(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr}")
    try:
        with Store.open(place / "loom.db") as store:
            put(store, "kept")
            with pytest.raises(OSError, match="No space"):
                _fill(place / "rest")
            with pytest.raises(StoreError, match=r"disk is full|disk I/O error"):
                _put_many(store)
            (place / "rest").unlink()
            put(store, "again")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as rest:
        while True:
            rest.write(b"x" * 4096)


def _put_many(store: Store) -> None:
    for index in range(2_000):  # the log's index in the shared file outgrows its first pages
        put(store, f"{index} " * 500)
