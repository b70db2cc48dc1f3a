"""Looking into a store without opening it: nothing is made, brought to this release's tables, or written."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from loom_dsl.errors import NotAStore
from loom_store.engine import Opened, reader_engine
from loom_store.location import Location
from loom_store.migrate import HEAD, current_revision
from loom_store.scope import Shared
from loom_store.transaction import Transaction

T = TypeVar("T")


def look(path: Path, work: Callable[[Transaction], T]) -> T | None:
    """Run a function that reads the store in a file; None where there is no store of this release.

    Args:
        path: The file.
        work: As for `Store.read`.
    """
    location = Location(path, "full")
    engine = reader_engine(location, Opened(), 1)
    try:
        with engine.connect() as connection, connection.begin():
            if current_revision(connection, location) != HEAD:
                return None
            return work(Transaction(connection, Shared()))
    except (DBAPIError, NotAStore):
        return None
    finally:
        engine.dispose()
