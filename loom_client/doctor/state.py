"""The store: where it is, and whether it can be used."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from loom_client.doctor.check import Check, Status
from loom_client.settings import Settings
from loom_dsl.errors import LoomError

if TYPE_CHECKING:
    from loom_store.transaction import Transaction

BUSY_SECONDS = 2.0


def store(settings: Settings) -> tuple[Path | None, Check]:
    """Look at the store's file, which need not be there yet."""
    from loom_store.location import parse_location

    try:
        path = parse_location(settings.store_path()).path
    except LoomError as error:
        return None, Check(Status.FAIL, "store", error.message, "set LOOM_STORE to a file's path, or unset it")
    return path, _store_file(path)


def _store_file(path: Path) -> Check:
    what, fix = f"store {path}", "change its permissions, or set LOOM_STORE to another file"
    if not path.exists():
        above = next(place for place in path.parents if place.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            return Check(Status.FAIL, what, f"it is not there, and {above} cannot be written", fix)
        return Check(Status.OK, what, "it is not there yet; the first worker or job makes it")
    if not (os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        return Check(Status.FAIL, what, "the file or its directory cannot be written", fix)
    try:
        revision = _revision_when_locked(path)
    except sqlite3.OperationalError as error:
        busy = "locked" in str(error)
        fix = "end the process that holds it (fuser -v FILE shows it)" if busy else fix
        return Check(Status.FAIL, what, f"it cannot be used: {error}", fix)
    except sqlite3.DatabaseError as error:
        return Check(Status.FAIL, what, f"it is not a store: {error}", "set LOOM_STORE to another file")
    return _judged_revision(path, what, revision)


def _revision_when_locked(path: Path) -> str | None:
    """Take the write lock for a moment, as every writer must, and read which release's tables the file has."""
    address = f"{path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as opened:
        opened.execute("BEGIN IMMEDIATE")  # closing undoes it
        tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "loom_version" not in tables:
            return "" if tables else None
        row = opened.execute("SELECT version_num FROM loom_version").fetchone()
        return str(row[0]) if row else None


def _judged_revision(path: Path, what: str, revision: str | None) -> Check:
    from loom_store.looking import look
    from loom_store.migrate import HEAD

    shown = f"{path.stat().st_size / 1e6:.1f} MB, revision {revision}"
    if revision is None:
        return Check(Status.OK, what, "it is empty; the first worker or job fills it")
    if revision == "":
        return Check(Status.FAIL, what, "it belongs to another program", "set LOOM_STORE to another file")
    if revision > HEAD:
        fix = "upgrade Loom, or set LOOM_STORE to another file"
        return Check(Status.FAIL, what, f"{shown}, which is newer than this release's {HEAD}", fix)
    note = "" if revision == HEAD else f"; the next start brings it to {HEAD}"
    own = look(path, _named)
    return Check(Status.OK, what, f"writable, {shown}{note}{own or ''}")


def _named(tx: "Transaction") -> str:
    epoch = tx.epoch_began()
    since = "" if epoch is None else f", epoch {tx.epoch().number}"
    return f", id {tx.store_id()}{since}"
