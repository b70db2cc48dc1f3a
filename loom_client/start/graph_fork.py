"""Going on where a graph's job failed: another job that has what was finished, and enters what was not.

Only the store is looked at, so a job can go on that the server has forgotten.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom_client.start.forking import finished_turns
from loom_client.start.submission import GraphSubmission, WrittenJob, working_directory, write_graph_down
from loom_dsl.agent.fork import ForkPoint
from loom_dsl.errors import NotFoundError, UserError
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.fork import Resumed, resumed
from loom_dsl.machine.state import MachineState
from loom_store.job_facts import sources_below
from loom_store.queries.jobs import Mark
from loom_store.transaction import Transaction

COPIED: tuple[Mark, ...] = ("words", "written", "untrusted")
"""Marks that the other job has from the one that failed."""
LOST = "it was ended outside Loom, and nothing is known of where it stood; start a new job"
_NOT_FAILED = {
    "running": "it runs; only one that failed goes on where it failed, and `loom migrate` changes a graph that runs",
    "completed": "it has completed; start a new job",
    "aborted": "it was aborted; start a new job",
}


@dataclass(frozen=True, slots=True)
class Resuming:
    """What a job begins with that goes on where another one failed.

    Attributes:
        start: What is written down of it.
        state: Where it stands.
        again: The executions that are entered, by name; what was finished is not among them.
        kept: What was stored of the other job.
    """

    start: GraphSubmission
    state: MachineState
    again: tuple[str, ...]
    kept: bytes


def read_resuming(
    tx: Transaction,
    parent: str,
    job: str,
    *,
    plan: Plan | None = None,
    names: Mapping[str, str] | None = None,
    workdir: str | Path | None = None,
) -> Resuming:
    """Look up what a job begins with that goes on where another one failed.

    Args:
        tx: A transaction on the store.
        parent: The job that failed.
        job: The new job's id.
        plan: What the new job runs; that of the other one when absent.
        names: Old node → new node, where that plan has another name for it.
        workdir: Directory that file tools are confined to; that of the other job when absent.

    Raises:
        NotFoundError: There is no such job.
        UserError: It cannot go on; says why.
    """
    row = tx.job(parent)
    if row is None:
        raise NotFoundError(f"there is no job {parent!r} in this store")
    old = Plan.load(tx.get_blob(row["plan"]).decode())
    if old.agent:
        raise UserError(
            f"job {parent} is an agent's, and has finished {finished_turns(tx, row)} turns; say after which of them "
            f"the new one begins: `loom fork {parent} --turn N`"
        )
    found = _resumed(tx, row, old, plan or old, names or {}, job)
    if found.problems:
        raise UserError(f"job {parent} cannot go on where it failed: {'; '.join(found.problems)}")
    place = working_directory(workdir or row["workdir"])
    start = GraphSubmission(
        job, f"s-{job}", plan or old, found.state.input or {}, str(place), None, *_marks(tx, row, parent)
    )
    kept = json.dumps(tx.failed_at(parent)).encode()
    return Resuming(start, found.state, tuple(found.again), kept)


def write_resuming(tx: Transaction, found: Resuming, namespace: str, task_queue: str) -> WrittenJob:
    """Write the new job down, all or nothing."""
    written = write_graph_down(tx, found.start, namespace, task_queue)
    tx.mark(found.start.job, "resumed", tx.put_blob(found.kept))  # its state names contents of the other's
    return written


def _marks(tx: Transaction, row: Mapping[str, Any], parent: str) -> tuple[ForkPoint, tuple[tuple[Mark, str], ...]]:
    """What the new job has from the failed one."""
    point = ForkPoint(parent, 0, 0, tx.fork_point(parent))
    marks: list[tuple[Mark, str]] = [(kind, value) for kind in COPIED for value in tx.marks(parent, kind)]
    marks += [("earlier", tool) for tool in sources_below(tx, parent)]
    return point, (("forked", point.text()), *marks)


def why_not(tx: Transaction, row: Mapping[str, Any], plan: Plan) -> tuple[str, list[str]]:
    """Say why a graph's job cannot go on under its own plan, or what it would enter again.

    Returns:
        Why not, or an empty text; and the executions that would be entered.
    """
    found = _resumed(tx, row, plan, plan, {}, str(row["job"]))
    return "; ".join(found.problems), found.again


def _resumed(
    tx: Transaction, row: Mapping[str, Any], old: Plan, new: Plan, names: Mapping[str, str], job: str
) -> Resumed:
    reason = _NOT_FAILED.get(row["status"])
    kept = None if reason else tx.failed_at(row["job"])
    if kept is None:
        kept = {"why": reason or LOST}
    return resumed(kept, old, new, names, job=job, now=time.time())
