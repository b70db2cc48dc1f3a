"""Marks of jobs: what is found out about one while it runs and must not be forgotten with its worker."""

from typing import Literal

from sqlalchemy import bindparam, insert, select

from loom_dsl.fork import ForkPoint
from loom_store.jobs import jobs_below
from loom_store.scope import Scope, storable
from loom_store.tables import jobs, marks

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
_BELOW = (
    select(marks.c.value)
    .join(jobs, jobs.c.id == marks.c.job)
    .where(jobs.c.id.in_(select(jobs_below(bindparam("job_name")).c.id)), marks.c.kind == bindparam("its_kind"))
    .distinct()
    .order_by(marks.c.value)
)


class Marks(Scope):
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
        return list(self._execute(_BELOW, {"job_name": job, "its_kind": kind}).scalars())

    def fork_point(self, job: str) -> ForkPoint | None:
        """Give what a job was forked from; None: it was not."""
        found = self.marks(job, "forked")
        return ForkPoint.read(found[0]) if found else None
