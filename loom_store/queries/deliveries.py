"""Messages of webhooks: those that wait for their delivery, and dead letters. What was delivered is not kept."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, func, select, update

from loom_dsl.observe.webhooks import Endpoint
from loom_dsl.text.canonical import canonical_json
from loom_store.queries.base import Queries
from loom_store.queries.blobs import pack_text, unpack_text
from loom_store.rows import from_millis
from loom_store.tables import deliveries, jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message for an endpoint.

    Attributes:
        number: Its place among all; no other message ever gets it.
        message: ``msg_…``: what the receiver knows it by, the same at every attempt.
        job: The job that it is about.
        endpoint: The endpoint's name.
        event: What is told.
        created_at: When it happened.
        data: What is told of it, without what is looked up when it is sent.
        died_at: When it was given up; None: it waits.
        problem: Why it was.
    """

    number: int
    message: str
    job: str
    endpoint: str
    event: str
    created_at: str
    data: dict[str, Any]
    died_at: str | None = None
    problem: str | None = None


_SELECT = select(deliveries, jobs.c.name).join(jobs, jobs.c.id == deliveries.c.job).order_by(deliveries.c.id)
_NEXT = _SELECT.where(
    jobs.c.name == bindparam("its_job"),
    deliveries.c.endpoint == bindparam("its_endpoint"),
    deliveries.c.died_at.is_(None),
).limit(1)
_ONE = _SELECT.where(deliveries.c.id == bindparam("number"))
_GONE = delete(deliveries).where(deliveries.c.id == bindparam("number"))
_BURY = (
    update(deliveries)
    .where(deliveries.c.id == bindparam("number"))
    .values(died_at=bindparam("moment"), problem=bindparam("why"))
)
_WAITING = (
    select(jobs.c.name, deliveries.c.endpoint)
    .join(jobs, jobs.c.id == deliveries.c.job)
    .where(deliveries.c.died_at.is_(None))
    .where(jobs.c.namespace == bindparam("its_namespace"), jobs.c.task_queue == bindparam("its_queue"))
    .distinct()
)
_COUNTS = (
    select(deliveries.c.endpoint, func.count(), func.count(deliveries.c.died_at))
    .join(jobs, jobs.c.id == deliveries.c.job)
    .where(jobs.c.namespace == bindparam("its_namespace"), jobs.c.task_queue == bindparam("its_queue"))
    .group_by(deliveries.c.endpoint)
    .order_by(deliveries.c.endpoint)
)


class DeliveryQueries(Queries):
    """The part of a transaction that deals with messages of webhooks."""

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Who is told of events, by what this process was started with."""
        return self._shared.webhooks.endpoints

    def add_delivery(self, message: str, job: str, endpoint: str, event: str, data: Mapping[str, Any]) -> None:
        """Write a message down; the same message again changes nothing. Who delivers is woken after the commit."""
        values = {
            "message": message,
            "job": self._job_id(job),
            "endpoint": endpoint,
            "event": event,
            "created_at": self._millis(),
            "body": pack_text(canonical_json(dict(data))),
        }
        self._execute(self._insert(deliveries).on_conflict_do_nothing(), values)
        wake = self._shared.webhooks.wake
        self._after_commit(lambda: wake(job, endpoint))

    def next_delivery(self, job: str, endpoint: str) -> Delivery | None:
        """Give the oldest message that waits for an endpoint of what it is told of a job."""
        row = self._execute(_NEXT, {"its_job": job, "its_endpoint": endpoint}).first()
        return None if row is None else _delivery(row)

    def delivery(self, number: int) -> Delivery | None:
        """Give a message, or None: it was delivered, or its job was pruned."""
        row = self._execute(_ONE, {"number": number}).first()
        return None if row is None else _delivery(row)

    def delivered(self, number: int) -> None:
        """Forget a message that was taken."""
        self._execute(_GONE, {"number": number})

    def bury_delivery(self, number: int, problem: str) -> None:
        """Make a dead letter of a message."""
        self._execute(_BURY, {"number": number, "moment": self._millis(), "why": problem})

    def revive_deliveries(self, message: str | None = None) -> list[Delivery]:
        """Let a dead letter wait again, or all of them; those that do."""
        found = [row for row in self.deliveries() if row.died_at and message in (None, row.message)]
        for row in found:
            self._execute(_BURY, {"number": row.number, "moment": None, "why": None})
        return found

    def deliveries(self) -> list[Delivery]:
        """List all messages that were not delivered, the oldest first."""
        return [_delivery(row) for row in self._execute(_SELECT)]

    def waiting_deliveries(self, namespace: str, task_queue: str) -> list[tuple[str, str]]:
        """Name the jobs of a queue, each with an endpoint that messages wait for."""
        given = {"its_namespace": namespace, "its_queue": task_queue}
        return [(row.name, row.endpoint) for row in self._execute(_WAITING, given)]

    def delivery_counts(self, namespace: str, task_queue: str) -> dict[str, tuple[int, int]]:
        """Count by endpoint the messages about a queue's jobs: those that wait, and dead letters."""
        given = {"its_namespace": namespace, "its_queue": task_queue}
        return {name: (all_of_them - dead, dead) for name, all_of_them, dead in self._execute(_COUNTS, given)}


def _delivery(row: Any) -> Delivery:
    return Delivery(
        number=row.id,
        message=row.message,
        job=row.name,
        endpoint=row.endpoint,
        event=row.event,
        created_at=from_millis(row.created_at),
        data=json.loads(unpack_text(row.body)),
        died_at=None if row.died_at is None else from_millis(row.died_at),
        problem=row.problem,
    )
