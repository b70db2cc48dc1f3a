"""Jobs as lists show them, and the marks by which a client asks one to stop."""

import json
from typing import Any, Final, Literal

from sqlalchemy import CTE, BindParameter, ColumnElement, bindparam, insert, or_, select, update

from loom_dsl.agent.fork import ForkPoint
from loom_dsl.errors import ConflictError, JobExists, NotFoundError
from loom_store.queries.base import KnownJob, Queries, storable
from loom_store.queries.blobs import pack_text, unpack_text
from loom_store.rows import Moment, from_millis, to_millis
from loom_store.tables import entries, jobs, marks, sessions

_COLUMNS: Final = tuple(column for column in jobs.c if column.name != "failed_at")
"""All but what is large, and which only a fork wants."""
_BY_NAME = select(*_COLUMNS).where(jobs.c.name == bindparam("job_name"))
_LIST = select(*_COLUMNS).where(jobs.c.created_at.is_not(None)).order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
_GOING = _LIST.where(jobs.c.ended_at.is_(None))
_has_halted, _has_waiting = (
    column.is_not(None) & column.not_in(("null", "[]")) for column in (jobs.c.halted, jobs.c.waiting)
)
_STUCK = _GOING.where(or_(_has_halted, _has_waiting))
_CREATE = update(jobs).where(jobs.c.id == bindparam("job_id"))
_LEAVE = update(jobs).where(jobs.c.above == bindparam("own")).values(above=None)
_FREE = update(sessions).where(sessions.c.lease == bindparam("job_id")).values(lease=None)
_ABORT = select(jobs.c.abort).where(jobs.c.name == bindparam("job_name"))
_SAID = (
    select(entries.c.id)
    .join(sessions, sessions.c.id == entries.c.session)
    .where(entries.c.job == bindparam("own"), sessions.c.name == bindparam("its_session"))
    .limit(1)
)

_CONTENT: Final = ("session", "agent", "plan", "task", "workdir", "namespace", "task_queue")
_TEXTS: Final = ("state", "status", "paused_by", "plan")
_JSONS: Final = ("result", "waiting", "halted", "failed_at")


def jobs_below(job: str | BindParameter[str]) -> CTE:
    """Give the ids (`id`) of the child jobs of a job and of theirs, by what was written down when they began."""
    first, child = jobs.alias("first_job"), jobs.alias("child_job")
    below = (
        select(child.c.id)
        .join_from(first, child, child.c.above == first.c.id)
        .where(first.c.name == job)
        .cte("below", recursive=True)
    )
    return below.union(select(child.c.id).join_from(below, child, child.c.above == below.c.id))


def jobs_with_those_below(job: str) -> ColumnElement[bool]:
    """Give the condition that a row of `jobs` is this job, a child job of it, or one of theirs."""
    return or_(jobs.c.name == job, jobs.c.id.in_(select(jobs_below(job).c.id)))


_FAILED_AT = select(jobs.c.failed_at).where(jobs.c.name == bindparam("job_name"))
_BELOW = (
    select(*_COLUMNS)
    .where(jobs.c.id.in_(select(jobs_below(bindparam("job_name")).c.id)))
    .order_by(jobs.c.created_at, jobs.c.id)
)
_above = jobs.alias("above_job")
_ABOVE = (
    select(_above.c.name)
    .join_from(jobs, _above, _above.c.id == jobs.c.above)
    .where(jobs.c.name == bindparam("job_name"))
)


class JobQueries(Queries):
    """The part of a transaction that deals with jobs."""

    def create_job(  # noqa: PLR0913 - the fields of a job
        self,
        job: str,
        *,
        session: str,
        agent: str,
        plan: str,
        task: str,
        workdir: str,
        namespace: str,
        task_queue: str,
        created_at: Moment,
        above: str | None = None,
    ) -> bool:
        """Write a job down. The same job again changes nothing.

        `above` is the job that started it as a part of itself.

        Returns:
            True when this call wrote it.

        Raises:
            JobExists: The id stands for a job with another content.
            ConflictError: A job of this id was pruned, and the conversation still holds what it said, under the keys
                that this one would use.
        """
        content = {
            "session": session,
            "agent": agent,
            "plan": plan,
            "task": pack_text(task),
            "workdir": workdir,
            "namespace": namespace,
            "task_queue": task_queue,
        }
        found = self._execute(_BY_NAME, {"job_name": job}).first()
        if found is not None and found.created_at is not None:
            differs = [name for name in _CONTENT if getattr(found, name) != content[name]]
            differs += [] if found.above == (above and self._find_job(above)) else ["job above it"]
            if differs:
                why = f"job {job!r} exists already with another {', '.join(differs)}; take another id"
                raise JobExists(why, tuple(differs))
            return False
        own = self._job_id(job)
        if found is not None:
            self._check_silent(job, own, session)
        values = {**content, "created_at": to_millis(created_at), "state": "idle", "status": "running"}
        values |= {"above": None if above is None else self._job_id(above), "ended_at": None}
        self._execute(_LEAVE, {"own": own})  # children of a job of this name that was pruned
        self._execute(_CREATE.values(values), {"job_id": own})
        self._jobs[job] = KnownJob(own, True)
        return True

    def _check_silent(self, job: str, own: int, session: str) -> None:
        """Refuse a name that was pruned where a conversation has entries under it."""
        if self._scalar(_SAID, {"own": own, "its_session": session}) is not None:
            raise ConflictError(
                f"the conversation {session!r} still holds what an earlier job {job!r} said, because others read it; "
                "take another id"
            )

    def update_job(self, job: str, **fields: Any) -> None:
        """Change what lists show of a job. With `ended_at`, its leases are released.

        Args:
            job: The job.
            fields: state, status, paused_by, plan (text or None); ended_at (a time or None); result, waiting,
                halted, failed_at (JSON).

        Raises:
            NotFoundError: There is no such job.
            TypeError: There is no such field.
        """
        unknown = sorted(set(fields) - {*_TEXTS, *_JSONS, "ended_at"})
        if unknown:
            raise TypeError(f"a job has no field {', '.join(unknown)} to update")
        if not self.has_job(job):
            raise NotFoundError(f"there is no job {job!r} in this store")
        job_id = self._job_id(job)
        values: dict[str, Any] = {name: fields[name] for name in _TEXTS if name in fields}
        # ASCII: the columns are text, and text of a database holds no lone surrogates.
        values |= {name: json.dumps(fields[name], allow_nan=False) for name in _JSONS if name in fields}
        if "ended_at" in fields:
            ended_at = fields["ended_at"]
            values["ended_at"] = None if ended_at is None else to_millis(ended_at)
            if ended_at is not None:
                self._execute(_FREE, {"job_id": job_id})
        if values:
            self._execute(_CREATE.values(values), {"job_id": job_id})

    def failed_at(self, job: str) -> dict[str, Any] | None:
        """Give where a graph's job stood when it failed, as its last flush stored it; None: nothing is known."""
        kept: dict[str, Any] | None = _loaded(self._scalar(_FAILED_AT, {"job_name": job}))
        return kept

    def has_job(self, job: str) -> bool:
        """Say whether a job is written down."""
        known = self._known_job(job)
        return known is not None and known.is_created

    def job(self, job: str) -> dict[str, Any] | None:
        """Give a job's row, times as ISO 8601, or None."""
        row = self._execute(_BY_NAME, {"job_name": job}).first()
        return None if row is None or row.created_at is None else _shown(row)

    def jobs(self, limit: int = 50, status: str | None = None) -> list[dict[str, Any]]:
        """List jobs, the newest first.

        Args:
            limit: At most so many.
            status: Only those; `halted` gives, of those that are running, the ones with steps that wait for a person.
        """
        if status == "halted":
            query = _GOING.where(_has_halted)
        else:
            query = _LIST if status is None else _LIST.where(jobs.c.status == status)
        return [_shown(row) for row in self._execute(query.limit(limit))]

    def stuck_jobs(self) -> list[dict[str, Any]]:
        """List the jobs with steps that are halted, or wait for the end of an outage, the newest first."""
        return [_shown(row) for row in self._execute(_STUCK)]

    def jobs_below(self, job: str, limit: int = 200) -> list[dict[str, Any]]:
        """List the child jobs of a job and theirs, the oldest first."""
        return [_shown(found) for found in self._execute(_BELOW.limit(limit), {"job_name": job})]

    def job_above(self, job: str) -> str | None:
        """Name the job that started a job as a part of itself; None: it stands alone."""
        found = self._scalar(_ABOVE, {"job_name": job})
        return None if found is None else str(found)

    def request_abort(self, job: str, reason: str = "", by: str = "") -> None:
        """Leave the mark that a worker looks for between steps. The first mark stays.

        It can be left before the job has a row: the mark must not depend on who is quicker.
        """
        if self.abort_requested(job) is None:
            mark = json.dumps({"reason": reason, "by": by, "at": from_millis(self._millis())})
            self._execute(_CREATE.values(abort=mark), {"job_id": self._job_id(job)})

    def abort_requested(self, job: str) -> dict[str, Any] | None:
        """Give the abort mark {reason, by, at}, or None."""
        mark = self._scalar(_ABORT, {"job_name": job})
        return None if mark is None else json.loads(mark)


def _shown(row: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {"job": row.name, **{name: getattr(row, name) for name in (*_CONTENT, *_TEXTS)}}
    shown["task"] = unpack_text(row.task)
    shown |= {name: _loaded(getattr(row, name)) for name in (*_JSONS, "abort") if name != "failed_at"}
    shown["created_at"] = from_millis(row.created_at)
    shown["ended_at"] = None if row.ended_at is None else from_millis(row.ended_at)
    return shown


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


# Marks of jobs: what is found out about one while it runs and must not be forgotten with its worker.


Mark = Literal["earlier", "forked", "left", "output", "policy", "resumed", "signed", "untrusted", "words", "written"]
"""``earlier``: a tool that gave content from outside to a job below one that it was forked from, or to one below it
that was pruned; ``forked``: the job and the turn that it goes on from, of a graph only the job; ``left``: the turn, and
the state in which an approved call of it left what it changed; ``output``: a node, and the contents that its output was
kept in when the job failed over it; ``policy``: digest of a project's policy that counts for
it; ``resumed``: digest of where the graph stood that it goes on from; ``signed``: approval, choice and person of a
signature that held; ``untrusted``: a tool that gave it, or what it was told, content from outside; ``words``: digest of
what people said who started it; ``written``: an agent wrote its graph."""
_OF_JOB = (
    select(marks.c.value)
    .join(jobs, jobs.c.id == marks.c.job)
    .where(jobs.c.name == bindparam("job_name"), marks.c.kind == bindparam("its_kind"))
    .order_by(marks.c.id)
)
_MARKED_BELOW = (
    select(marks.c.value)
    .join(jobs, jobs.c.id == marks.c.job)
    .where(jobs.c.id.in_(select(jobs_below(bindparam("job_name")).c.id)), marks.c.kind == bindparam("its_kind"))
    .distinct()
    .order_by(marks.c.value)
)


class MarkQueries(Queries):
    """The part of a transaction that deals with marks."""

    def mark(self, job: str, kind: Mark, value: str) -> None:
        """Mark a job. The same mark again changes nothing."""
        if value not in self.marks(job, kind):
            self._execute(insert(marks), {"job": self._job_id(job), "kind": kind, "value": storable(value)})

    def marks(self, job: str, kind: Mark) -> list[str]:
        """Give a job's marks of a kind, the oldest first."""
        return list(self._execute(_OF_JOB, {"job_name": job, "its_kind": kind}).scalars())

    def marks_below(self, job: str, kind: Mark) -> list[str]:
        """Give the marks of the child jobs of a job and of theirs, by value."""
        return list(self._execute(_MARKED_BELOW, {"job_name": job, "its_kind": kind}).scalars())

    def fork_point(self, job: str) -> ForkPoint | None:
        """Give what a job was forked from; None: it was not."""
        found = self.marks(job, "forked")
        return ForkPoint.read(found[0]) if found else None
