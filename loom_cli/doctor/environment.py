"""The machine: Python, the packages, the Temporal CLI, the disk, the kernel."""

import importlib.util
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import loom_client
from loom_cli.doctor.check import Check, Status
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError, LoomError, StoreError

if TYPE_CHECKING:
    from loom_store.location import ServerLocation
    from loom_store.transaction import Transaction


# How commands of agents would be confined on this machine.


_WHAT = "confinement of commands"
_HOW = "docs/howto/confinement.md"


def confinement(env: Mapping[str, str]) -> Check:
    """Whether execute_bash and python_repl can run here, and how; tried with a process that does nothing."""
    from loom_tools.sandbox.run import Launcher
    from loom_tools.sandbox.settings import SETTING, lacking, mode_of

    launcher = Launcher()
    try:
        mode, means = mode_of(env), launcher.means()
    except LoomError as error:
        return Check(Status.FAIL, _WHAT, error.message, f"correct it where the worker runs: {_HOW}")
    finally:
        launcher.close()
    if mode == "off":
        fix = f"unset {SETTING} where the worker runs, unless it runs in a container for one job"
        return Check(Status.WARN, _WHAT, f"switched off ({SETTING}=off): commands may do what the worker may", fix)
    missing = lacking(means)
    if missing:
        found = f"this machine lacks {' and '.join(missing)}"
        less = "commands run with less"
        if not means.landlock:
            less = "commands run, and read whatever this user may read"
            less += "" if means.namespaces else ", and write whatever it may write"
        refused = "execute_bash and python_repl do not run" if mode == "required" else less
        return Check(Status.WARN, _WHAT, f"{found}: {refused}", f"see {_HOW}")
    landlock = f"Landlock version {means.landlock}, seccomp"
    if means.namespaces:
        return Check(Status.OK, _WHAT, f"{landlock}, namespaces{'' if means.proc else ' without a /proc of their own'}")
    return without_namespaces(mode, landlock)


def without_namespaces(mode: str, landlock: str) -> Check:
    """Say what is different on a machine where this user may not make namespaces."""
    fix = f"allow namespaces for this user to lift that: {_HOW}"
    if mode == "best_effort":
        found = (
            f"{landlock}; no namespaces, so keys, .env, .git and .loom in a working directory are not protected: "
            "commands read the keys and change hooks, settings and the project's policy"
        )
        return Check(Status.WARN, _WHAT, found, f"{fix}; or unset LOOM_CONFINEMENT, which protects them even so")
    found = (
        f"{landlock}; no namespaces, so commands stay in one process group, cannot change attributes of files, and "
        "make no new files beside keys, .env, .git or .loom: no `git commit`; a hard link in a working directory opens "
        "its file wherever that lies"
    )
    return Check(Status.OK, _WHAT, found, fix)


LITTLE_ROOM, NO_ROOM = 1_000_000_000, 50_000_000
"""Bytes of free disk below which Loom warns, or cannot work."""


def python() -> Check:
    """Which Python this is; one that is too old cannot even import Loom."""
    return Check(Status.OK, "Python", f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})")


def package(name: str) -> Check:
    """Find out, without importing it, whether an import name means Loom's package."""
    home = Path(str(loom_client.__file__)).resolve().parent.parent
    spec = importlib.util.find_spec(name)
    what = f"package `{name}`"
    if spec is None or not spec.origin:
        return Check(Status.FAIL, what, "it is not there", "install Loom again: pip install --force-reinstall loom-dsl")
    place = Path(spec.origin).resolve()
    if place not in (home / name / "__init__.py", home / f"{name}.py"):
        fix = "install Loom into an environment of its own, or start it from another directory"
        return Check(Status.FAIL, what, f"{place} is found first, which is not Loom's", fix)
    return Check(Status.OK, what, "Loom's own")


def temporal_cli(env: Mapping[str, str], *, needed: bool) -> Check:
    """Where the Temporal CLI is; nothing is fetched. It is needed when no server runs."""
    from loom_cli.dev.temporal_cli import find_temporal

    try:
        return Check(Status.OK, "Temporal CLI", str(find_temporal(env, sources=())))
    except ConfigurationError as error:
        if env.get("TEMPORAL_CLI"):
            return Check(Status.FAIL, "Temporal CLI", error.message, "set TEMPORAL_CLI to a Temporal CLI, or unset it")
        fix = "`loom dev` gets it by itself; or install it: https://docs.temporal.io/cli/setup-cli"
        found = "not on PATH and not in Loom's cache; only `loom dev` needs it"
        return Check(Status.WARN if needed else Status.OK, "Temporal CLI", found, fix)


def room(path: Path) -> Check:
    """How much the disk has left where the store is."""
    place = next(folder for folder in path.parents if folder.exists())
    free = shutil.disk_usage(place).free
    status = Status.FAIL if free < NO_ROOM else Status.WARN if free < LITTLE_ROOM else Status.OK
    fix = "" if status is Status.OK else "make room, for example with `loom prune --compact`"
    return Check(status, "disk", f"{free / 1e9:.1f} GB free at {place}", fix)


def openat2() -> Check:
    """How file tools are kept inside the working directory."""
    from loom_tools.workspace.openat import native_support

    if native_support():
        return Check(Status.OK, "openat2", "file tools are confined by the kernel")
    return Check(Status.OK, "openat2", "not on this system: file tools follow no symbolic links instead")


# The store: where it is, and whether it can be used.


BUSY_SECONDS = 2.0


def store(settings: Settings) -> tuple[str | Path | None, Check]:
    """Look at the store, whose file need not be there yet; and say where it is, if it can be."""
    from loom_store.location import Location, parse_location

    try:
        location = parse_location(settings.store_path())
        if isinstance(location, Location):
            return location.path, _store_file(location.path)
        return str(settings.store_path()), _store_on_server(location)
    except LoomError as error:
        return None, Check(Status.FAIL, "store", error.message, "set LOOM_STORE to a file's path, or unset it")


def _store_on_server(location: "ServerLocation") -> Check:
    from loom_store.store import READERS, look, look_at_server

    what = f"store {location.shown}"
    try:
        found = look_at_server(location)
    except StoreError as error:
        return Check(Status.FAIL, what, error.message, "make the server reachable, or set LOOM_STORE to another place")
    shown = f"PostgreSQL {found.version}, {found.size / 1e6:.1f} MB, revision {found.revision}"
    shown += f"; each process has at most {READERS + 1} of the server's {found.connections} connections"
    if found.revision is None:
        return Check(Status.OK, what, "it is empty; the first worker or job fills it")
    if not found.fsync:
        fix = "set `fsync = on` in postgresql.conf and start it again"
        return Check(
            Status.WARN, what, f"{shown}; its server does not wait for the disk, so a crash may lose jobs", fix
        )
    return _judged(what, shown, found.revision, lambda: look(location.address, _named), "database")


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
    from loom_store.store import look

    if revision is None:
        return Check(Status.OK, what, "it is empty; the first worker or job fills it")
    if revision == "":
        return Check(Status.FAIL, what, "it belongs to another program", "set LOOM_STORE to another file")
    shown = f"{path.stat().st_size / 1e6:.1f} MB, revision {revision}"
    return _judged(what, shown, revision, lambda: look(path, _named), "file")


def _judged(what: str, shown: str, revision: str, named: Callable[[], str | None], kind: str) -> Check:
    from loom_store.engine import FIRST, HEAD

    if revision > HEAD:
        fix = f"upgrade Loom, or set LOOM_STORE to another {kind}"
        return Check(Status.FAIL, what, f"{shown}, which is newer than this release's {HEAD}", fix)
    if revision < FIRST:
        fix = (
            f"let its jobs end under the release that wrote it; then move the {kind} away, or set LOOM_STORE to another"
        )
        return Check(Status.FAIL, what, f"{shown}, which is older than this release's first, {FIRST}", fix)
    note = "" if revision == HEAD else f"; the next start brings it to {HEAD}"
    return Check(Status.OK, what, f"writable, {shown}{note}{named() or ''}")


def _named(tx: "Transaction") -> str:
    epoch = tx.epoch_began()
    since = "" if epoch is None else f", epoch {tx.epoch().number}"
    return f", id {tx.store_id()}{since}"
