"""What a development server needs for itself: ports, a database file, a log. Each refusal says what to do."""

import fcntl
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from loom_dsl.errors import ConfigurationError

_LOG_BYTES = 10 * 2**20


def state_directory(env: Mapping[str, str] = os.environ) -> Path:
    """Where Loom keeps what must survive: `$XDG_STATE_HOME/loom`."""
    home = env.get("XDG_STATE_HOME") or Path(env.get("HOME") or Path.home(), ".local", "state")
    return Path(home, "loom")


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
