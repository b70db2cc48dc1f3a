"""Writing down a job that a schedule started: nobody was there to do it before.

A schedule's *order* says what each of its jobs is. It is a content of the store, which is held until the schedule goes;
the schedule itself, on the server, only names it.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.record.activity_call import BEGIN
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.messages import PROJECT_CONTEXT
from loom_dsl.agent.provenance import words_in
from loom_dsl.agent.turn import TurnState
from loom_dsl.errors import BlobMissing, ConflictError, WrongStore
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.state import MachineState
from loom_store.job_facts import MAX_TASK, Order, origin_of
from loom_store.rows import NewEntry
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.workspace.project import project_context


class Firing:
    """The activity ``loom.job.begin``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @activity.defn(name=BEGIN)
    async def begin(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Write down the job that this workflow is, as its schedule's order says. Again, it changes nothing.

        Returns:
            ``state``, with which its machine starts, and ``origin``, which names this job of this store.

        Raises:
            WrongStore: This store does not hold the order.
            JobExists: Another job has the id.
        """
        job, digest = activity.info().workflow_id or "", envelope["with"]["order"]
        order = await self._store.read(lambda tx: _read(tx, job, digest))
        context = "" if order.task is None else await asyncio.to_thread(project_context, Path(order.workdir))
        return await self._store.write(lambda tx: _begin(tx, job, order, context))


def _read(tx: Transaction, job: str, digest: str) -> Order:
    try:
        order = Order.read(tx, digest)
        tx.get_blob(order.plan)
    except BlobMissing:
        raise WrongStore(
            f"this worker's store does not hold the order of the schedule that started {job!r}; "
            "workers and clients must share one store (LOOM_STORE)"
        ) from None
    return order


def _begin(tx: Transaction, job: str, order: Order, context: str) -> dict[str, Any]:
    row = tx.job(job)
    if row is not None and row["ended_at"] is not None:
        raise ConflictError(f"job {job!r} has ended ({row['status']}), and its schedule started it once more")
    session = f"s-{job}"
    shown = json.dumps(order.input, ensure_ascii=False)[:MAX_TASK] if order.input else ""
    tx.create_session(session, job=job)
    tx.create_job(
        job,
        session=session,
        agent=order.name,
        plan=order.plan,
        task=shown if order.task is None else order.task,
        workdir=order.workdir,
        namespace=order.namespace,
        task_queue=order.task_queue,
        created_at=time.time(),
    )
    tx.mark(job, "words", tx.put_blob(words_in(order.input).encode("utf-8", "replace")))
    starter = f"schedule {order.schedule}"[:200]
    state = MachineState(input=dict(order.input), starter=starter)
    if order.task is not None:
        state = MachineState(turn=_first_turn(tx, job, session, order, context), starter=starter)
    return {"state": state.to_json(), "origin": origin_of(tx, job)}


def _first_turn(tx: Transaction, job: str, session: str, order: Order, context: str) -> TurnState:
    """Write the first message, beside what the project says to agents on this day."""
    agent = Agent.from_plan_data(Plan.load(tx.get_blob(order.plan).decode()).agent)
    entries = [NewEntry(kind="message", head={"role": "user"}, content=order.task, job=job, turn=0)]
    if context:
        note = {"note": PROJECT_CONTEXT}
        entries.insert(0, NewEntry(kind="note", head=note, content=context, job=job, turn=0))
    end = tx.append_entries(session, f"{job}/input", entries).end
    return TurnState.initial(job, max_iterations=agent.limits.max_iterations, session_id=session, entries=end)
