"""Where a store is: a path or a URL, and the place used when nobody says."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast
from urllib.parse import parse_qsl, unquote

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


def parse_location(path_or_url: str | os.PathLike[str], synchronous: str | None = None) -> Location:
    """Read a path, or ``sqlite:///PATH``, either with ``?synchronous=normal`` behind it.

    Args:
        path_or_url: Path or URL of the store.
        synchronous: ``full`` or ``normal``; wins over what the URL says. Default ``full``.

    Raises:
        ConfigurationError: The address names no file, another database, or an option that does not exist.
    """
    text = os.fspath(path_or_url)
    address, options = _split_options(text)
    for name in options:
        if name != "synchronous":
            raise ConfigurationError(f"store address {text!r}: unknown option {name!r}; the only one is synchronous")
    mode = (synchronous or options.get("synchronous", "full")).lower()
    if mode not in ("full", "normal"):
        raise ConfigurationError(f"store address {text!r}: synchronous must be full or normal, not {mode!r}")
    return Location(_file_of(address, text), cast(Synchronous, mode))


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
                f"store address {shown!r}: {scheme} is not supported; give a file path or sqlite:///PATH"
            )
        if not rest.startswith("/"):
            raise ConfigurationError(f"store address {shown!r}: write sqlite:///PATH, with three slashes")
        address = unquote(rest[1:])
    if address in ("", ":memory:"):
        raise ConfigurationError(
            f"store address {shown!r} names no file; workers and clients share the store, so give a path"
        )
    return Path(address).expanduser().absolute()
