"""What a connection tells of jobs and approvals, and what a job answers: records that do not change."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, JsonValue

from loom_dsl.agent.run import ErrorInfo
from loom_store.rows import ApprovalRow


class Receipt(BaseModel, frozen=True):
    """What came of an order, a decision or an event that was sent to a job."""

    verdict: Literal["recorded", "already_done", "unconfirmed", "waiting"]
    """``recorded``; ``already_done`` when the very same was received before; ``unconfirmed`` when it was sent and no
    worker has answered yet; ``waiting`` when a job moves to another plan as soon as what is in flight has ended."""
    message: str = ""
    """The same for people."""


class JobRecord(BaseModel, frozen=True):
    """A job as lists show it; the workflow itself is asked by `Job.status`. Times are ISO 8601 in UTC."""

    job: str
    """Its id."""
    status: str
    """``running``, ``completed``, ``failed``, ``aborted`` or ``lost``."""
    state: str
    """The state of its run, such as ``model_running`` or ``awaiting_human``."""
    session: str
    """Its conversation's id."""
    agent: str
    """Name of the agent or the graph."""
    plan: str
    """Digest of the plan that it runs under."""
    task: str
    """What it was started with, as text."""
    workdir: str
    """The directory that file tools are confined to, as an absolute path."""
    namespace: str
    """Temporal's namespace."""
    task_queue: str
    """The task queue's base name."""
    created_at: str
    """When it was written down."""
    ended_at: str | None = None
    """When it ended; None: it runs."""
    paused_by: str | None = None
    """Who paused it; None: it is not paused."""
    abort: dict[str, JsonValue] | None = None
    """The order to end it: ``reason``, ``by`` and ``at``; None: there is none."""
    result: dict[str, JsonValue] | None = None
    """How it ended, as `RunResult` or `GraphResult` has it; None while it runs. A long answer is only begun here."""
    halted: tuple[dict[str, JsonValue], ...] | None = None
    """Its steps that wait for a person, as `JobStatus.halted` has them."""
    waiting: tuple[dict[str, JsonValue], ...] | None = None
    """Its steps that are tried again later, as `JobStatus.backing_off` has them."""

    @property
    def error(self) -> ErrorInfo | None:
        """Why it did not complete; None: it runs, or it did."""
        found = (self.result or {}).get("error")
        return ErrorInfo.model_validate(found) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord(ApprovalRow):
    """A request for an approval, and what was decided. Times are ISO 8601 in UTC."""

    created_at: str
    """When it was asked."""
    expires_at: str | None = None
    """When it expires; None: never."""
    status: str
    """``pending``, ``approved``, ``edited``, ``rejected``, ``expired``, ``terminated``, ``cancelled`` or the choice."""
    choice: str | None = None
    """Which of `choices` was taken; None while it waits, and when nobody took one."""
    by: str | None = None
    """Who decided."""
    at: str | None = None
    """When it was decided."""
    message: str | None = None
    """The reason that was given."""
    keys: tuple[str, ...] = ()
    """Names of the keys with which it was decided, where it was signed."""
    remember: str = "no"
    """How long it counts: ``no``, ``job`` or ``rule``."""
    edited: str = ""
    """Digest of the arguments to which the call was changed; empty: it was not."""
    allowed: bool = False
    """Whether the call ran although nobody decided in time."""
