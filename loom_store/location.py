"""Where a store is: a path or a URL, and the place used when nobody says."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode

from loom_dsl.errors import ConfigurationError

Synchronous = Literal["full", "normal"]
"""How far a commit has got when it returns: ``full`` is on the disk; ``normal`` may be lost when the machine stops."""


@dataclass(frozen=True, slots=True)
class Location:
    """A store's file and how carefully it is written.

    Attributes:
        path: The SQLite file, absolute.
        synchronous: ``full`` or ``normal``.
    """

    path: Path
    synchronous: Synchronous

    @property
    def shown(self) -> str:
        """The store's place as messages have it."""
        return str(self.path)


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """A store's database on a PostgreSQL server, and how carefully it is written.

    Attributes:
        address: What the driver connects with. It may hold a password, so it is in no message.
        shown: The same without password and options.
        synchronous: ``full`` or ``normal``.
    """

    address: str = field(repr=False)
    shown: str
    synchronous: Synchronous


def shown_place(path_or_url: str | os.PathLike[str]) -> str:
    """Give a store's place as messages and logs have it: never with a password, and as it was given otherwise."""
    text = os.fspath(path_or_url)
    return text if "://" not in text or text.startswith("sqlite:") else _without_password(text)


def passwords_in(path_or_url: str | os.PathLike[str]) -> tuple[str, ...]:
    """Give what of a store's address nobody may read, as it is written there and as it is."""
    text = os.fspath(path_or_url)
    if not _is_server(text):
        return ()
    place, _, query = text.partition("?")
    password = place.partition("://")[2].rpartition("@")[0].partition(":")[2]
    named = [value for name, value in parse_qsl(query) if name in ("password", "sslpassword")]
    return tuple(dict.fromkeys(secret for secret in (password, unquote(password), *named) if secret))


def file_of(path_or_url: str | os.PathLike[str]) -> Path | None:
    """Give a store's file; None: it is on a server.

    Raises:
        ConfigurationError: As `parse_location` says.
    """
    location = parse_location(path_or_url)
    return location.path if isinstance(location, Location) else None


def parse_location(path_or_url: str | os.PathLike[str], synchronous: str | None = None) -> Location | ServerLocation:
    """Read a path, ``sqlite:///PATH`` or ``postgresql://…``, each with ``?synchronous=normal`` behind it.

    Args:
        path_or_url: Path or URL of the store. Other options of a PostgreSQL URL are the driver's.
        synchronous: ``full`` or ``normal``; wins over what the URL says. Default ``full``.

    Raises:
        ConfigurationError: The address names no file, another database, or an option that does not exist.
    """
    text = os.fspath(path_or_url)
    if _is_server(text):
        return _server_location(text, synchronous)
    address, options = _split_options(text)
    for name in options:
        if name != "synchronous":
            raise ConfigurationError(f"store address {text!r}: unknown option {name!r}; the only one is synchronous")
    return Location(_file_of(address, text), _mode(synchronous or options.get("synchronous", "full"), text))


def _mode(given: str, shown: str) -> Synchronous:
    mode = given.lower()
    if mode not in ("full", "normal"):
        raise ConfigurationError(f"store address {shown!r}: synchronous must be full or normal, not {mode!r}")
    return cast(Synchronous, mode)


_SERVERS: Final = ("postgresql://", "postgres://")


def _is_server(text: str) -> bool:
    return text.lower().startswith(_SERVERS)


def _server_location(text: str, synchronous: str | None) -> ServerLocation:
    """Take out the option that is ours; whatever else stands in the URL is for the driver."""
    shown = _without_password(text)
    address, mark, query = text.partition("?")
    given = parse_qsl(query, keep_blank_values=True) if mark else []
    own = [value for name, value in given if name == "synchronous"]
    # Spaces as %20: in libpq's addresses a plus is a plus.
    rest = urlencode([pair for pair in given if pair[0] != "synchronous"], quote_via=quote)
    _, _, database = address.partition("://")[2].partition("/")
    if "@" in database:
        raise ConfigurationError(
            f"store address {shown!r} cannot be read: in a user's name and password write each of :/?#[]@% as %XX"
        )
    if not database:
        raise ConfigurationError(
            f"store address {shown!r} names no database; write postgresql://USER@HOST:PORT/DATABASE"
        )
    return ServerLocation(
        f"{address}?{rest}" if rest else address, shown, _mode(synchronous or (own or ["full"])[-1], shown)
    )


def _without_password(text: str) -> str:
    """Cut what may hold a password: all behind the user's name up to the last ``@``, and the options."""
    scheme, _, rest = text.partition("?")[0].partition("://")
    user, mark, place = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{mark}{place}"


def default_store_path(namespace: str = "default", environ: Mapping[str, str] | None = None) -> str:
    """Say where the store of a Temporal namespace is: ``$LOOM_STORE``, else ``$XDG_STATE_HOME/loom/NAMESPACE.db``.

    Returns:
        A path or URL that ``Store.open`` takes; the same for the serving and the calling side.
    """
    env = os.environ if environ is None else environ
    if chosen := env.get("LOOM_STORE"):
        return chosen
    name = re.sub(r"[^A-Za-z0-9._-]", "_", namespace).lstrip(".") or "default"
    return str(state_directory(env) / f"{name}.db")


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Say where Loom keeps what must survive: ``$XDG_STATE_HOME/loom``."""
    # The XDG specification: a relative value is to be ignored.
    state = environ.get("XDG_STATE_HOME", "")
    home = Path(state) if state.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return home / "loom"


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    """Cut ``?name=value`` off; a bare path may hold a question mark of its own."""
    address, mark, query = text.partition("?")
    if not mark or not (text.startswith("sqlite:") or query.startswith("synchronous=")):
        return text, {}
    return address, dict(parse_qsl(query, keep_blank_values=True))


def _file_of(address: str, shown: str) -> Path:
    scheme, mark, rest = address.partition("://")
    if mark:
        if scheme != "sqlite":
            raise ConfigurationError(
                f"store address {shown_place(shown)!r}: {scheme} is not supported; give a file path, sqlite:///PATH or "
                "postgresql://USER@HOST/DATABASE"
            )
        if not rest.startswith("/"):
            raise ConfigurationError(f"store address {shown!r}: write sqlite:///PATH, with three slashes")
        address = unquote(rest[1:])
    if address in ("", ":memory:"):
        raise ConfigurationError(
            f"store address {shown!r} names no file; workers and clients share the store, so give a path"
        )
    return Path(address).expanduser().absolute()
