"""Which workers serve a store, as they told it themselves, and what they lack for a job."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loom_client.needs import modules_of
from loom_dsl.abridgement import abridge
from loom_dsl.errors import LoomError
from loom_dsl.plan import Plan
from loom_store.transaction import Transaction
from loom_store.workers import WorkerRow

MOST_SHOWN = 3


def told_worker(about: Mapping[str, Any]) -> str:
    """Say in a line which worker this is: where it runs, and what it has."""
    tools = ", ".join(about.get("tools") or ()) or "only Loom's own"
    place = f"{about.get('host')} process {about.get('pid')}"
    return f"{place} (queue {about.get('queue')}, tools {tools}, root {about.get('root')})"


def identity(about: Mapping[str, Any]) -> str:
    """Name a worker as the server does."""
    return f"{about.get('pid')}@{about.get('host')}"


def told_workers(rows: Sequence[WorkerRow]) -> str:
    """Say which workers these are."""
    return abridge(rows, MOST_SHOWN, lambda row: told_worker(row.about), between="; ")


def workers_of(tx: Transaction, namespace: str, queue: str) -> list[WorkerRow]:
    """Give the workers that serve the jobs of a queue now.

    Args:
        tx: Of the store.
        namespace: The jobs' namespace.
        queue: The base name of their queue.
    """
    return serving(tx.workers(alive=True), namespace, queue)


def serving(workers: Iterable[WorkerRow], namespace: str, queue: str) -> list[WorkerRow]:
    """Give those of some workers that serve the jobs of a queue now."""
    place = (namespace, queue)
    return [row for row in workers if row.alive and (row.about.get("namespace"), row.about.get("queue")) == place]


def lacking(tx: Transaction, row: Mapping[str, Any], workers: Iterable[WorkerRow]) -> tuple[str, ...]:
    """Name the modules of tools that a job needs and none of these workers has; none where one has them all.

    Args:
        tx: Of the store.
        row: The job's row.
        workers: Who serves its queue.
    """
    try:
        needed = set(modules_of(Plan.load(tx.get_blob(row["plan"]).decode())))
    except (LoomError, ValueError):
        return ()  # a plan that is not there, or not to be read, names no tools
    has = [set(worker.about.get("tools") or ()) for worker in workers]
    return tuple(sorted(needed - max(has, key=lambda modules: len(needed & modules)))) if has else ()
