"""Which workers serve the store, or did: each says what it has when it starts, and then again that it lives."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, delete, select, update

from loom_store.queries.base import Queries, storable
from loom_store.rows import from_millis
from loom_store.tables import steps, workers

RENEW_SECONDS: Final = 5.0
"""How often a worker says that it lives."""
ALIVE_SECONDS: Final = 20.0
"""After how long without a word a worker counts as gone."""
KEPT_SECONDS: Final = 30 * 24 * 3600.0
"""For how long one that is gone is remembered."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker, as it told of itself.

    Attributes:
        process: Names its process among all that ever served this store.
        started_at: When it began to serve.
        seen_at: When it last said that it lives.
        stopped_at: When it stopped in order; None: it serves, or has died.
        alive: Whether it serves, as far as the store can know.
        about: What it has: `queue`, `namespace`, `tools`, `root`, `store`, `host`, `pid`, `release`, `secrets` (names
            alone), `mcp` and `webhooks` (names).
    """

    process: str
    started_at: str
    seen_at: str
    stopped_at: str | None
    alive: bool
    about: Mapping[str, Any]


_ONE = update(workers).where(workers.c.process == bindparam("its_process"))
_SEEN = _ONE.values(seen_at=bindparam("moment"))
_STOPPED = _ONE.values(seen_at=bindparam("moment"), stopped_at=bindparam("moment"))
_OLD = delete(workers).where(
    workers.c.seen_at < bindparam("moment"),
    workers.c.process.not_in(select(steps.c.process).where(steps.c.process.is_not(None))),
)
_ALL = select(workers).order_by(workers.c.id)


class WorkerQueries(Queries):
    """The part of a transaction that deals with workers."""

    def register_worker(self, process: str, about: Mapping[str, Any]) -> None:
        """Write down that a worker begins to serve, and what it has. The same process again begins anew.

        Those that are gone for `KEPT_SECONDS` are forgotten, unless a step that one of them had is under way.
        """
        now = self._millis()
        self._execute(_OLD, {"moment": now - round(KEPT_SECONDS * 1000)})
        told = {"started_at": now, "seen_at": now, "stopped_at": None, "about": storable(json.dumps(dict(about)))}
        new = self._insert(workers).values(process=process, **told)
        self._execute(new.on_conflict_do_update(index_elements=[workers.c.process], set_=told))

    def renew_worker(self, process: str) -> None:
        """Say that a worker lives."""
        self._execute(_SEEN, {"its_process": process, "moment": self._millis()})

    def stop_worker(self, process: str) -> None:
        """Write down that a worker stopped in order."""
        self._execute(_STOPPED, {"its_process": process, "moment": self._millis()})

    def workers(self, *, alive: bool = False) -> Sequence[WorkerRow]:
        """List the workers that ever served this store, the oldest first; with `alive` only those that do now."""
        now = self._millis()
        found = [_worker(row, now) for row in self._execute(_ALL)]
        return [row for row in found if row.alive or not alive]


def _worker(row: Any, now: int) -> WorkerRow:
    return WorkerRow(
        process=row.process,
        started_at=from_millis(row.started_at),
        seen_at=from_millis(row.seen_at),
        stopped_at=None if row.stopped_at is None else from_millis(row.stopped_at),
        alive=row.stopped_at is None and now - row.seen_at < ALIVE_SECONDS * 1000,
        about=json.loads(row.about),
    )
