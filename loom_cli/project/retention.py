"""Removing what is old from a store."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loom_store.queries.retention import Pruned
from loom_store.store import Store


@dataclass(frozen=True, slots=True)
class Pruning:
    """What was removed, or would be.

    Attributes:
        store: The store's file.
        before: What ended before this time went.
        pruned: The counts.
        file_bytes: Size of the file afterwards; None: the store is on a server.
    """

    store: str
    before: datetime
    pruned: Pruned
    file_bytes: int | None


def prune(store: str | Path, older_than: float, *, dry_run: bool = False, compact: bool = False) -> Pruning:
    """Remove the jobs that ended longer ago, and what only they used.

    Args:
        store: Path or URL of the store; it must exist.
        older_than: Seconds.
        dry_run: Count only.
        compact: Give the room back to the disk, too; nobody may use the store meanwhile.

    Raises:
        StoreMissing: There is no store at that place.
        StoreError: It cannot be written.
    """
    before = datetime.now(UTC) - timedelta(seconds=older_than)
    with Store.open(store, create=False) as opened:
        pruned = opened.write_sync(lambda tx: tx.prune(before, dry_run))
        if compact and not dry_run:
            opened.compact()
        size = None if opened.path is None else opened.path.stat().st_size
        return Pruning(opened.place, before, pruned, size)
