"""What a workflow gives an activity, and what the activity's process remembers things of its job by."""

from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from temporalio import activity

BEGIN = "loom.job.begin"
"""The one activity of a job that comes before its row."""
MAX_REMEMBERED = 1_000
"""Runs of which something is remembered."""
Value = TypeVar("Value")
Run = tuple[str, str]
"""A job's id, and what its workflow is known by: the id alone may stand for another job once the first was pruned."""
Item = Mapping[str, Any]
"""A tool call, as the workflow names it."""
_KNOWN_BY: ContextVar[str] = ContextVar("known_by", default="")


@dataclass(frozen=True, slots=True)
class ActivityCall:
    """What the workflow gave an activity.

    Attributes:
        job: The job's id.
        turn: Number of the turn.
        at: Name of the execution.
        session: Id of the conversation.
        arguments: The node's mapped ``with``.
        batches: Event batches to store first: ``[[sequence, [event, …]], …]``.
        attempt: Number of the attempt, from 1, also over the activities that the workflow tried it with one by one.
        run: What to remember things of this job by.
        latest: What to remember by what may be another thing after a continue-as-new.
    """

    job: str
    turn: int
    at: str
    session: str
    arguments: dict[str, Any]
    batches: list[Any]
    attempt: int = 1
    run: Run = ("", "")
    latest: Run = ("", "")

    @classmethod
    def of(cls, envelope: Mapping[str, Any]) -> "ActivityCall":
        """Read the activity's argument."""
        return cls(
            job=activity.info().workflow_id or "",
            turn=envelope.get("turn", 0),
            at=envelope["at"],
            session=envelope.get("session", ""),
            arguments=envelope["with"],
            batches=envelope.get("events", []),
            attempt=envelope.get("before", 0) + activity.info().attempt,
            run=this_run(),
            latest=(activity.info().workflow_id or "", activity.info().workflow_run_id or ""),
        )

    @property
    def key(self) -> str:
        """Names this execution over all jobs; the same for every attempt."""
        return f"{self.job}/{self.turn}/{self.at}"


def this_run() -> Run:
    """What to remember things by of the job whose activity this is, for as long as it has this plan."""
    return activity.info().workflow_id or "", _KNOWN_BY.get() or activity.info().workflow_run_id or ""


def take_run(envelope: Any) -> None:
    """Note for `this_run` what the workflow says; what began under an earlier release says nothing."""
    if isinstance(envelope, dict) and isinstance(envelope.get("run"), str):
        _KNOWN_BY.set(envelope["run"])


def remember(kept: OrderedDict[Run, Value], run: Run, value: Value, most: int = MAX_REMEMBERED) -> None:
    """Keep a value for a run, and only so many."""
    kept[run] = value
    if len(kept) > most:
        kept.popitem(last=False)


def is_node_call(item: Item) -> bool:
    """Whether a node makes this call, and not a model."""
    return "arguments" in item
