"""Opening a store: places, permissions, other people's files, migrations."""

import os
import re
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from loom_dsl.errors import ConfigurationError, NotAStore, StoreError, StoreMissing, StoreTooNew, StoreTooOld
from loom_store.engine import FIRST, HEAD, VERSION_TABLE, alembic_config
from loom_store.files import is_write_protected
from loom_store.location import default_store_path, parse_location
from loom_store.store import Store
from loom_store.tables import metadata
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]

# Root may write anywhere, so permissions are tested as somebody else. Everything is imported before, by using a store
# once: the code may be where only root can read it.
AS_ORDINARY_USER = """
import os, sys, tempfile
from loom_dsl.errors import LoomError
from loom_store.store import Store
with tempfile.TemporaryDirectory() as own, Store.open(own + "/loom.db") as store:
    store.write_sync(lambda tx: tx.put_blob(b"x"))
if os.getuid() == 0:
    os.setuid(65534)
try:
    with Store.open(sys.argv[1]) as store:
        store.write_sync(lambda tx: tx.put_blob(b"x"))
    print("written")
except LoomError as error:
    print(error.code, error.exit_code, error.message)
"""


def run(code: str, *arguments: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def public_dir() -> Iterator[Path]:
    """A directory that an ordinary user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="loom-test-") as name:
        path = Path(name)
        path.chmod(0o777)
        yield path


def test_a_new_store_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "loom.db"
    with Store.open(path) as store:
        store.write_sync(lambda tx: tx.put_blob(b"x"))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert modes == {"loom.db": 0o600, "loom.db-wal": 0o600, "loom.db-shm": 0o600}
    assert [file.name for file in path.parent.iterdir()] == ["loom.db"]


def test_a_store_that_must_be_there_and_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match=str(tmp_path / "no.db")):
        Store.open(tmp_path / "no.db", create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"hello, this is a text file\n" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_database_is_named_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(NotAStore, match=r"notes\.txt"):
        Store.open(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"other\.db: this SQLite file belongs to another program"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_directory_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="this is a directory"):
        Store.open(tmp_path)


def test_a_store_of_a_newer_release_names_its_migration_and_file(tmp_path: Path) -> None:
    path = store_at(tmp_path, "0099")
    with pytest.raises(StoreTooNew, match=rf"{path} is at migration 0099.*newest is {HEAD}.*upgrade Loom"):
        Store.open(path)


def test_a_store_of_before_the_first_tables_says_what_to_do_and_stays_as_it_is(tmp_path: Path) -> None:
    path = store_at(tmp_path, "0009")
    before = path.read_bytes()
    with pytest.raises(
        StoreTooOld, match=rf"{path} is at migration 0009.*begins with 0010.*let its jobs end.*new store"
    ):
        Store.open(path)
    assert path.read_bytes() == before


def store_at(directory: Path, revision: str) -> Path:
    """Make a store that says that it is at this migration."""
    path = directory / "loom.db"
    Store.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("what", ["file", "directory", "directory without a file"])
def test_what_cannot_be_written_is_named_to_an_ordinary_user(public_dir: Path, what: str) -> None:
    path = public_dir / "loom.db"
    if what != "directory without a file":
        Store.open(path).close()
        path.chmod(0o666)
        assert run(AS_ORDINARY_USER, str(path)) == "written\n"
        path.chmod(0o444 if what == "file" else 0o666)
    public_dir.chmod(0o777 if what == "file" else 0o555)

    told = run(AS_ORDINARY_USER, str(path))

    public_dir.chmod(0o777)
    assert told.startswith(f"store_read_only 2 store {path}: the file or its directory {public_dir} cannot be written")


@pytest.mark.parametrize(
    ("address", "path", "mode"),
    [
        ("/a/b.db", "/a/b.db", "full"),
        ("/a/b.db?synchronous=normal", "/a/b.db", "normal"),
        ("sqlite:////a/b.db", "/a/b.db", "full"),
        ("sqlite:////a/b%20c.db?synchronous=FULL", "/a/b c.db", "full"),
        ("/a/what?.db", "/a/what?.db", "full"),
        ("sqlite:///b.db", str(Path.cwd() / "b.db"), "full"),
    ],
)
def test_an_address_names_a_file_and_a_mode(address: str, path: str, mode: str) -> None:
    location = parse_location(address)
    assert (str(location.path), location.synchronous) == (path, mode)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("mysql://host/db", "mysql is not supported"),
        (":memory:", "names no file"),
        ("", "names no file"),
        ("sqlite://a.db", "three slashes"),
        ("/a.db?synchronous=off", "must be full or normal, not 'off'"),
        ("sqlite:////a.db?mode=ro", "unknown option 'mode'"),
    ],
)
def test_an_address_that_means_nothing_says_what_to_write(address: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Store.open(address)


@pytest.mark.parametrize("name", ["with space.db", "what?.db", "50%.db", "#1.db", "ä.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    with Store.open(tmp_path / name) as store:
        assert store.write_sync(lambda tx: tx.put_blob(b"x"))
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LOOM_STORE": "/x/y.db", "XDG_STATE_HOME": "/s"}, "/x/y.db"),
        ({"XDG_STATE_HOME": "/s"}, "/s/loom/my-ns.db"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/loom/my-ns.db"),
        ({"HOME": "/h"}, "/h/.local/state/loom/my-ns.db"),
    ],
)
def test_the_default_place_is_that_of_the_environment(environ: dict[str, str], expected: str) -> None:
    assert default_store_path("my-ns", environ) == expected


@pytest.mark.parametrize(
    ("namespace", "name"), [("a/../b", "a_.._b.db"), ("..", "default.db"), ("a.b-c_d", "a.b-c_d.db")]
)
def test_a_namespace_cannot_leave_the_directory(namespace: str, name: str) -> None:
    assert default_store_path(namespace, {"XDG_STATE_HOME": "/s"}) == f"/s/loom/{name}"


def test_the_migrations_lead_to_the_tables_and_to_the_revision_that_the_code_names(tmp_path: Path) -> None:
    path = tmp_path / "loom.db"
    Store.open(path).close()
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == HEAD
        scripts = ScriptDirectory.from_config(alembic_config(connection))
        assert (scripts.get_bases(), scripts.get_heads()) == ([FIRST], [HEAD])
        migrated = set(connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    engine.dispose()
    declared = create_engine("sqlite://")
    metadata.create_all(declared)
    with declared.connect() as connection:
        expected = set(connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    declared.dispose()
    assert {(n, _plain(s)) for n, s in migrated if n != VERSION_TABLE} == {(n, _plain(s)) for n, s in expected}


def test_an_up_to_date_store_opens_without_alembic(tmp_path: Path) -> None:
    path = tmp_path / "loom.db"
    Store.open(path).close()
    code = "import sys; from loom_store.store import Store; Store.open(sys.argv[1]).close(); "
    code += "print('alembic' in sys.modules)"
    assert run(code, str(path)) == "False\n"


def test_processes_that_open_a_new_store_at_once_migrate_it_once(tmp_path: Path) -> None:
    path = tmp_path / "loom.db"
    code = """
import sys
from loom_store.store import Store
import alembic.command
print("ready", flush=True)
sys.stdin.readline()
with Store.open(sys.argv[1]) as store:
    print(store.write_sync(lambda tx: tx.append_events("j", sys.argv[2], [{"t": "state"}])))
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(n)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    results = [opener.communicate("go\n", timeout=PATIENCE) for opener in openers]

    assert [error for _, error in results] == [""] * 4
    assert sorted(told for told, _ in results) == [f"({n}, 1)\n" for n in (1, 2, 3, 4)]


def test_threads_that_open_new_stores_at_once_do_not_mix_them_up(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def open_one(n: int) -> None:
        try:
            with Store.open(tmp_path / f"{n % 3}.db") as store:
                store.write_sync(lambda tx: tx.put_blob(b"x"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=open_one, args=(n,)) for n in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def _plain(sql: str) -> str:
    """Without the spaces in which a table that got a column later differs."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split()))


def test_a_file_that_others_make_and_remove_is_not_taken_for_write_protected(tmp_path: Path) -> None:
    place, ended = tmp_path / "s.db-shm", threading.Event()

    def others() -> None:
        while not ended.is_set():
            place.touch()
            place.unlink()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(others)
        try:
            assert not any(is_write_protected(place) for _ in range(20_000))
        finally:
            ended.set()
        running.result()
