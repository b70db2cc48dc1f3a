"""A Temporal server for development, run natively as a child process that cannot outlive its starter."""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from temporalio.client import Client
from temporalio.service import RPCError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from loom_cli.dev import guardian
from loom_cli.dev.file import DevServerSettings
from loom_cli.dev.temporal_cli import find_temporal
from loom_dsl.errors import ConfigurationError
from loom_store.location import state_directory

# What a development server needs for itself: ports, a database file, a log. Each refusal says what to do.


_LOG_BYTES = 10 * 2**20


def free_port(ip: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((ip, 0))
        return int(probe.getsockname()[1])


def require_port(ip: str, port: int, option: str) -> None:
    """Make sure that a server can listen on a port.

    Args:
        ip: The address to listen on.
        port: The port.
        option: The option of `loom dev` that chooses it.

    Raises:
        ConfigurationError: The port is in use, or not ours to use.
    """
    with socket.socket() as probe:
        # As the server does it: a port whose last server was killed a moment ago is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError as error:
            raise ConfigurationError(
                f"Port {port} on {ip} cannot be used: {error.strerror}. Stop what listens there (another `loom dev`?), "
                f"or choose another with --{option} (0 takes a free one)."
            ) from error


def lock_database(db: Path) -> BinaryIO:
    """Claim a server's SQLite file: two servers on one file would ruin it.

    Returns:
        The open lock; the claim lasts as long as any process holds it.

    Raises:
        ConfigurationError: It cannot be written, or another server has it.
    """
    try:
        db.parent.mkdir(parents=True, exist_ok=True)
        lock = db.with_name(db.name + ".lock").open("ab")
    except OSError as error:
        raise _unwritable(db, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if db.exists():
            with db.open("r+b"):
                pass
            # The server makes its tables only in a file that it makes itself.
            if db.stat().st_size == 0:
                db.unlink()
    except BlockingIOError as error:
        lock.close()
        raise ConfigurationError(
            f"The server's database {db} is in use by another development server. Use that server, stop it, or choose "
            "another database with --db."
        ) from error
    except OSError as error:
        lock.close()
        raise _unwritable(db, error) from error
    return lock


def database_is_free(db: Path) -> bool:
    """Whether no server holds the file."""
    try:
        lock_database(db).close()
    except ConfigurationError:
        return False
    return True


def open_log(path: Path) -> BinaryIO:
    """Open a log to append to; one that has grown past 10 MiB starts again.

    Raises:
        ConfigurationError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        grown = path.exists() and path.stat().st_size > _LOG_BYTES
        return path.open("wb" if grown else "ab")
    except OSError as error:
        raise ConfigurationError(f"The server's log {path} cannot be written: {error.strerror}.") from error


def _unwritable(db: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The server's database {db} cannot be written: {error.strerror}. Choose another with --db."
    )


READY_SECONDS = 60.0
_POLL_SECONDS = 0.05
_PORT_ATTEMPTS = 3
_NO_OWN_PORT = "failed assigning ephemeral port"
"""How the server says that a port which it had found free for itself was taken."""
_RELEASE_SECONDS = 5.0


class ServerStopped(ConfigurationError):
    """The development server ended while it was starting."""

    code = "dev_server_stopped"


class DevServer:
    """A Temporal development server; start it, or use it as an async context manager.

    It can be started again after `stop` or `kill`, on the same ports and database.

    Args:
        settings: What the dev file says; that of this installation by default.
        binary: The Temporal CLI; found, or got, by default.
        ip: Address to listen on.
        port: gRPC port; None takes the dev file's, 0 a free one. The same holds for the other two.
        http_port: Port of the HTTP API.
        ui_port: Port of the web console.
        db: The server's SQLite file; `temporal.db` in Loom's state directory by default.
        log: Where its output goes; beside the database by default.
        namespaces: Namespaces to have besides `default`.
        headless: Leave the web console out.
        stock: Leave the dev file's dynamic configuration out.
    """

    def __init__(  # noqa: PLR0913 - each is an option of `loom dev`
        self,
        *,
        settings: DevServerSettings | None = None,
        binary: Path | None = None,
        ip: str = "127.0.0.1",
        port: int | None = None,
        http_port: int | None = None,
        ui_port: int | None = None,
        db: Path | None = None,
        log: Path | None = None,
        namespaces: tuple[str, ...] = (),
        headless: bool = False,
        stock: bool = False,
    ) -> None:
        self._settings = settings or DevServerSettings.load()
        self._binary = binary
        self._ip = ip
        self._wanted = {
            "port": self._settings.port if port is None else port,
            "http-port": self._settings.http_port if http_port is None else http_port,
            "ui-port": self._settings.ui_port if ui_port is None else ui_port,
        }
        if headless:
            del self._wanted["ui-port"]
        self._ports: dict[str, int] = {}
        self._log_begins = 0
        self._db = (db or state_directory() / "temporal.db").absolute()
        self._log = log or self._db.with_suffix(".log")
        self._namespaces = ("default", *namespaces)
        self._stock = stock
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port` of the gRPC API."""
        return f"{self._ip}:{self._port('port')}"

    @property
    def http_address(self) -> str:
        """`host:port` of the HTTP API."""
        return f"{self._ip}:{self._port('http-port')}"

    @property
    def ui_url(self) -> str | None:
        """URL of Temporal's web console; None when the server is headless."""
        return f"http://{self._ip}:{self._port('ui-port')}" if "ui-port" in self._wanted else None

    @property
    def db(self) -> Path:
        """The server's SQLite file."""
        return self._db

    @property
    def log(self) -> Path:
        """Where the server's output goes."""
        return self._log

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> Self:
        """Start the server and wait until it answers; nothing happens when it runs.

        Raises:
            ConfigurationError: A port or the database is in use, the database cannot be written, there is no
                Temporal CLI, or the server ended or did not answer in a minute.
        """
        if self.running:
            return self
        await self.stop()  # what is left of one that died
        if self._binary is None:
            self._binary = await asyncio.to_thread(find_temporal)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            await self._choose_ports()
            self._spawn(self._binary)
            try:
                await self._ready()
            except ServerStopped as error:
                await self.stop()
                # A port chosen as free can be taken before the server listens on it: choose again.
                chosen = 0 in self._wanted.values() and "in use" in error.message
                # So can one that it chooses for itself, of which it tells with a panic: start again.
                if attempt == _PORT_ATTEMPTS or not (chosen or _NO_OWN_PORT in error.message):
                    raise
                if chosen:
                    self._ports.clear()
            except BaseException:
                await self.stop()
                raise
            else:
                return self
        raise AssertionError("unreachable")

    async def stop(self) -> None:
        """End the server in good order, or by force after ten seconds; nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin:
            process.stdin.close()
        # The guardian answers for the rest; twice its patience means that it is broken itself.
        waited = 0.0
        while process.poll() is None and waited < 2 * guardian.GRACE_SECONDS:
            await asyncio.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        _kill_group(process)

    def kill(self) -> None:
        """Kill the server at once with SIGKILL, as a crash would; for tests."""
        process, self._process = self._process, None
        if process is not None:
            _kill_group(process)
            if process.stdin:
                process.stdin.close()
            # The server is the guardian's child, so it cannot be waited for; it is gone when it let go of its database.
            deadline = time.monotonic() + _RELEASE_SECONDS
            while not database_is_free(self._db) and time.monotonic() < deadline:
                time.sleep(0.002)

    async def wait(self) -> int:
        """Wait until the server ends by itself; its exit status."""
        process = self._process
        if process is None:
            return 0
        # Polled, as asyncio's own child processes belong to one event loop and this one may outlive it.
        while process.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        return int(process.returncode)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _port(self, name: str) -> int:
        port = self._ports.get(name) or self._wanted[name]
        if port == 0:
            raise ConfigurationError("The development server has not been started, so its ports are not known yet.")
        return port

    async def _choose_ports(self) -> None:
        """Settle on ports that can be used; after a crash, those of the last time, as soon as they are free."""
        patience = _RELEASE_SECONDS if self._ports else 0.0
        for name, wanted in self._wanted.items():
            port = self._ports.get(name) or wanted or free_port(self._ip)
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(ConfigurationError),
                stop=stop_after_delay(patience),
                wait=wait_fixed(_POLL_SECONDS),
                reraise=True,
            ):
                with attempt:
                    require_port(self._ip, port, name)
            self._ports[name] = port

    def _spawn(self, binary: Path) -> None:
        arguments = [f"--ip={self._ip}", f"--db-filename={self._db}"]
        arguments += [f"--{name}={port}" for name, port in self._ports.items()]
        arguments += [f"--namespace={name}" for name in self._namespaces]
        if "ui-port" not in self._wanted:
            arguments.append("--headless")
        command = [str(binary), *self._settings.arguments(*arguments, stock=self._stock)]
        with lock_database(self._db) as lock, open_log(self._log) as log:
            self._log_begins = log.tell()
            # The guardian and the server inherit the lock: it is held as long as one of them lives.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
                cwd="/",
            )

    async def _ready(self) -> None:
        """Wait until the server answers for each of its namespaces."""
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((RPCError, RuntimeError)),
                stop=stop_after_delay(READY_SECONDS),
                wait=wait_fixed(_POLL_SECONDS),
                reraise=True,
            ):
                with attempt:
                    self._fail_if_stopped()
                    for namespace in self._namespaces:
                        await _answers(self.address, namespace)
        except (RPCError, RuntimeError) as error:
            raise ConfigurationError(
                f"The development server did not answer at {self.address} within {READY_SECONDS:.0f} s: {error}. "
                f"Its output is in {self._log}."
            ) from error

    def _fail_if_stopped(self) -> None:
        if not self.running:
            said = cause_of_end(self._log.read_bytes()[self._log_begins :].decode(errors="replace"))
            raise ServerStopped(f"The development server ended while it was starting. It said: {said} ({self._log})")


async def _answers(address: str, namespace: str) -> None:
    client = await Client.connect(address, namespace=namespace)
    # Reads the namespace's index: answers only when the server and the namespace both serve.
    await client.count_workflows("WorkflowId = 'none'")


def cause_of_end(output: str) -> str:
    """Give the line of a server's output that says why it ended: of a panic what it says, else the last line.

    Args:
        output: What it wrote since it was started.
    """
    lines = output.strip().splitlines()
    panics = [line for line in lines if line.startswith("panic:")]
    return (panics or lines[-1:] or ["nothing"])[0][-600:]


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
