"""The workers: who serves the store's jobs, with what, and who serves another store instead."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loom_cli.doctor.check import Check, Status
from loom_client.server.workers import pollers, present_workers
from loom_client.settings import Settings, worker_command
from loom_dsl.queues import job_queue

if TYPE_CHECKING:
    from temporalio.client import Client

    from loom_store.queries.workers import WorkerRow
    from loom_store.transaction import Transaction


MAX_TOLD = 3


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store knows of its workers.

    Attributes:
        id: The store's id; empty when there is no store yet.
        workers: Those that serve the queue now, as far as they told.
        known: All that ever told of themselves and are not forgotten, as the server calls them.
        lacks: Jobs that run, with the modules of tools that no worker has.
    """

    id: str = ""
    workers: "Sequence[WorkerRow]" = ()
    known: frozenset[str] = frozenset()
    lacks: Sequence[tuple[str, Sequence[str]]] = ()


def kept(settings: Settings, place: str | Path | None) -> Kept:
    """Look into the store, if it is there."""
    from loom_store.store import look

    if place is None or (isinstance(place, Path) and not place.is_file()):
        return Kept()
    return look(place, lambda tx: _kept(tx, settings)) or Kept()


def _kept(tx: "Transaction", settings: Settings) -> Kept:
    from loom_client.server.workers import identity, lacking, serving

    place = (settings.namespace, settings.task_queue)
    known = tx.workers()
    workers = serving(known, *place)
    running = [row for row in tx.jobs(limit=200, status="running") if (row["namespace"], row["task_queue"]) == place]
    lacks = [(row["job"], missing) for row in running if (missing := lacking(tx, row, workers))]
    return Kept(tx.store_id(), workers, frozenset(identity(row.about) for row in known), lacks)


async def workers(client: "Client", settings: Settings, store: Kept) -> list[Check]:
    """Compare what the server says of who asks for work with what the workers said in the store."""
    seen = await pollers(client, job_queue(settings.task_queue, store.id)) if store.id else {}
    others = {} if seen or store.workers else await present_workers(client, settings.task_queue)
    return list(judged(settings, store, seen, others))


def judged(settings: Settings, store: Kept, seen: Mapping[str, float], others: Mapping[str, str]) -> Iterator[Check]:
    """Say what this means.

    Args:
        settings: The queue.
        store: What the store knows of its workers.
        seen: Who asks for the store's work, and how many seconds ago.
        others: Who serves another store under the same name, and its id.
    """
    from loom_client.server.workers import told_workers

    what = f"worker on {settings.task_queue}"
    start = f"start one with `{worker_command(settings.task_queue)}`"
    strangers = {name: age for name, age in seen.items() if name not in store.known}
    if store.workers and not seen:
        found = f"{told_workers(store.workers)} serves this store, and asks for no work at this server"
        yield Check(Status.FAIL, what, found, "point LOOM_ADDRESS at the worker's server, or the worker at this one")
    elif others:
        told = ", ".join(f"{name} (store {own or 'unknown'})" for name, own in sorted(others.items())[:MAX_TOLD])
        ours = f"this store{f' (id {store.id})' if store.id else ''}"
        found = f"none serves {ours}; {told} serves another one: a store was deleted, replaced, or is not the same file"
        yield Check(Status.FAIL, what, found, f"point LOOM_STORE at the same file everywhere; or {start}")
    elif not seen:
        yield Check(
            Status.WARN, what, "none has asked for work lately: jobs wait", f"{start} (`loom dev` starts one as well)"
        )
    elif strangers:
        found = f"{asked(strangers)} is not known to this store: it works with another file that has the same id"
        yield Check(Status.FAIL, what, found, f"stop it, and see that its LOOM_STORE is this file; then {start}")
    elif not store.workers:
        found = f"none is alive: jobs wait. The server still lists {asked(seen)}: stopped or dead since"
        yield Check(Status.WARN, what, found, start)
    else:
        yield Check(Status.OK, what, told_workers(store.workers))
    for job, missing in store.lacks[:MAX_TOLD] if seen and not strangers else ():
        flags = " ".join(f"--tools {module}" for module in missing)
        found = f"no worker has its tools: {', '.join(missing)}"
        yield Check(Status.FAIL, f"job {job}", found, f"start one with `{worker_command(settings.task_queue)} {flags}`")


def asked(seen: Mapping[str, float]) -> str:
    """Name workers, with when each last asked the server for work."""
    latest = sorted(seen.items(), key=lambda item: item[1])
    names = ", ".join(f"{name} (asked for work {max(0, age):.0f} s ago)" for name, age in latest[:MAX_TOLD])
    return names + (f" and {len(latest) - MAX_TOLD} more" if len(latest) > MAX_TOLD else "")
