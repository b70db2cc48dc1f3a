"""The steps under way: each attempt notes that it begins, so that the next one learns how the last one ended.

A row without a process is of a step that no attempt is at, and of which something is to be remembered.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import bindparam, delete, insert, select, update

from loom_store.queries.base import Queries, full_key, key_hash, shorten_key
from loom_store.tables import jobs, steps, workers

_COLUMNS = (steps.c.id, steps.c.process, steps.c.begun_at, steps.c.deaths, steps.c.suspected)
_OF_KEY = (steps.c.job == bindparam("of_job"), steps.c.key_hash == bindparam("of_hash"))
_FIND = select(*_COLUMNS).where(*_OF_KEY)
_ADD = insert(steps).values(
    {name: bindparam("new_" + name) for name in ("job", "key_hash", "key", "process", "begun_at")}
)
_CHANGE = (
    update(steps)
    .where(steps.c.id == bindparam("of_id"))
    .values({name: bindparam("new_" + name) for name in ("process", "begun_at", "deaths", "suspected")})
)
_MINE = (*_OF_KEY, steps.c.begun_at == bindparam("of_begun_at"))
_FORGET = delete(steps).where(*_MINE)
_LEAVE = update(steps).where(*_MINE).values(process=None)
_FORGET_UNMARKED = delete(steps).where(*_MINE, steps.c.deaths == 0, steps.c.suspected == 0)
_OF_PROCESS = (
    select(steps.c.key, jobs.c.name, *_COLUMNS)
    .join(jobs, jobs.c.id == steps.c.job)
    .where(steps.c.process == bindparam("of_process"))
    .order_by(steps.c.id)
)
_WORKER = select(workers.c.started_at, workers.c.seen_at, workers.c.stopped_at).where(
    workers.c.process == bindparam("of_process")
)


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was begun.

    Attributes:
        job: The job's id.
        key: Names the step over all jobs.
        process: Whose attempt is under way; None: nobody's.
        begun_at: When the latest attempt began, in milliseconds since 1970.
        deaths: Processes that died while they had this step alone.
        suspected: Workers that died while they had it and others, or were too young.
    """

    job: str
    key: str
    process: str | None
    begun_at: int
    deaths: int
    suspected: int


class WorkerSeen(NamedTuple):
    """When a worker's process was there, in milliseconds since 1970.

    Attributes:
        started_at: When it started.
        seen_at: When it last said so.
        stopped_at: When it stopped in good order; None: it has not.
    """

    started_at: int
    seen_at: int
    stopped_at: int | None


class StepQueries(Queries):
    """The part of a transaction that deals with steps."""

    def step(self, job: str, key: str) -> Step | None:
        """Give what is noted of a step."""
        row = self._found_step(job, key)
        return None if row is None else Step(job, key, *row[1:])

    def steps_of(self, process: str) -> list[Step]:
        """Give the steps that a process is at, or was when it died."""
        rows = self._execute(_OF_PROCESS, {"of_process": process})
        return [
            Step(row.name, full_key(row.key, row.name), row.process, row.begun_at, row.deaths, row.suspected)
            for row in rows
        ]

    def steps_under_way(self) -> list[Step]:
        """Give the steps that some process is at, or was when it died."""
        found = self._execute(select(steps.c.process).where(steps.c.process.is_not(None)).distinct()).scalars().all()
        return [step for process in found for step in self.steps_of(process)]

    def worker_seen(self, process: str) -> WorkerSeen | None:
        """Give when a worker's process was there; None: it never said so."""
        row = self._first(_WORKER, {"of_process": process})
        return None if row is None else WorkerSeen(*row)

    def begin_step(self, job: str, key: str, process: str | None) -> Step:
        """Note that an attempt at a step begins; what earlier ones left behind stays with it.

        Args:
            job: The job's id. Of one that the store does not know nothing is noted.
            key: Names the step over all jobs.
            process: Who is at it; None: nobody yet.
        """
        now, found = self._millis(), self._found_step(job, key)
        if found is None:
            job_id = self._find_job(job)
            if job_id is not None and process is not None:
                given = {"new_job": job_id, "new_key_hash": key_hash(key), "new_key": shorten_key(key, job)}
                self._driven(_ADD, given | {"new_process": process, "new_begun_at": now})
            return Step(job, key, process, now, 0, 0)
        begun = Step(job, key, process, max(now, found[2] + 1), found[3], found[4])
        self._change_step(found[0], begun)
        return begun

    def mark_step(self, step: Step) -> None:
        """Write down a step as it is given; a step that nobody has begun is begun."""
        found = self._found_step(step.job, step.key)
        if found is None:
            self.begin_step(step.job, step.key, step.process or "")
            found = self._found_step(step.job, step.key)
        if found is not None:
            self._change_step(found[0], step)

    def end_step(self, begun: Step, *, answered: bool) -> None:
        """Note that an attempt has ended. A later attempt at the same step is not touched.

        Args:
            begun: As `begin_step` gave it.
            answered: It ended with a result or a failure of its own, so that nothing of it is remembered. Else it was
                broken off, and what earlier attempts left behind stays.
        """
        job_id = self._find_job(begun.job)
        if job_id is None:
            return
        mine = {"of_job": job_id, "of_hash": key_hash(begun.key), "of_begun_at": begun.begun_at}
        if not answered:
            self._driven(_FORGET_UNMARKED, mine)
        self._driven(_FORGET if answered else _LEAVE, mine)

    def _found_step(self, job: str, key: str) -> tuple[Any, ...] | None:
        job_id = self._find_job(job)
        return None if job_id is None else self._first(_FIND, {"of_job": job_id, "of_hash": key_hash(key)})

    def _change_step(self, step_id: int, step: Step) -> None:
        new = {"process": step.process, "begun_at": step.begun_at, "deaths": step.deaths, "suspected": step.suspected}
        self._execute(_CHANGE, {"of_id": step_id} | {f"new_{name}": value for name, value in new.items()})
