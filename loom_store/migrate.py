"""Bringing a store's file to this release's tables, once, whoever comes first."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Engine

from loom_dsl.errors import NotAStore, StoreTooNew
from loom_store.location import Location

if TYPE_CHECKING:
    from alembic.config import Config

HEAD: Final = "0010"
"""The newest migration; `tests/store` compares it with the migrations themselves."""

VERSION_TABLE: Final = "loom_version"

# Alembic keeps its context in module globals.
_ALEMBIC = threading.Lock()


def current_revision(connection: Connection, location: Location) -> str | None:
    """Read which migration the file is at; None for an empty file.

    Raises:
        NotAStore: It is an SQLite file of another program.
    """
    tables = {name for (name,) in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if VERSION_TABLE in tables:
        revision = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
        return None if revision is None else str(revision)
    if tables:
        raise NotAStore(
            f"store {location.path}: this SQLite file belongs to another program; point LOOM_STORE at another file"
        )
    return None


def upgrade(engine: Engine, location: Location) -> None:
    """Run the migrations that are missing, in one transaction that holds the file's write lock.

    Raises:
        StoreTooNew: The file is at a migration that this release does not know.
    """
    # Imported here: a store that is up to date, the usual case, opens without Alembic (0.1 s).
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    with _ALEMBIC, engine.connect() as connection, connection.begin():
        # Read again under the lock: another process may have been quicker.
        revision = current_revision(connection, location)
        if revision == HEAD:
            return
        config = alembic_config(connection)
        if revision is not None:
            try:
                ScriptDirectory.from_config(config).get_revision(revision)
            except CommandError as error:
                raise StoreTooNew(
                    f"store {location.path} is at migration {revision}, which this release of Loom does not know "
                    f"(its newest is {HEAD}): upgrade Loom, or point LOOM_STORE at another file"
                ) from error
        command.upgrade(config, HEAD)


def alembic_config(connection: Connection) -> "Config":
    """Make Alembic's configuration for an open connection: no ini file, so that it works from a wheel."""
    from alembic.config import Config

    config = Config()
    scripts = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
