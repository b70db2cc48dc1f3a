"""A copy of a store, as a backup is one: it has the store's id."""

import sqlite3
from contextlib import closing
from pathlib import Path


def copied(store: Path, to: Path) -> Path:
    """Copy a store that may be in use, and give the copy's path."""
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to
