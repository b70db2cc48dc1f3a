"""How a job ended, as the server tells it, and what the store adds to it."""

import json
from collections.abc import Iterator

from pydantic import JsonValue
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, TerminatedError

from activities.transcript import rendered
from loom_dsl.errors import LoomError
from loom_dsl.run import MOST_ANSWER, RunResult
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction


class JobGone(LoomError):
    """The job was ended outside Loom: it was terminated on the server, or its run is not there any more."""

    code = "job_gone"


class NoAnswer(LoomError):
    """No worker answered for the job."""

    code = "no_answer"


def failure_of(job: str, error: WorkflowFailureError) -> ApplicationError:
    """Give what a job failed with.

    Raises:
        JobGone: It did not fail, but was ended outside Loom.
    """
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return cause
    what = "was terminated on the server" if isinstance(cause, TerminatedError) else f"ended: {cause}"
    raise JobGone(f"job {job} {what}") from None


async def with_whole_answer(store: Store, job: str, result: RunResult) -> RunResult:
    """Put a long answer back, which the workflow's own result only begins."""
    if len(result.answer) <= MOST_ANSWER:
        return result
    answer = await store.read(lambda tx: _last_answer(tx, result.session_id, job))
    return result.model_copy(update={"answer": answer or result.answer})


async def with_final_message(store: Store, job: str, result: RunResult) -> RunResult:
    """Add the last message of the agent, which the workflow's own result leaves to the conversation."""
    message = await store.read(lambda tx: _last_message(tx, result.session_id, job))
    return result.model_copy(update={"final_message": message}) if message else result


def _last_answer(tx: Transaction, session: str, job: str) -> str:
    texts = (tx.get_blob(entry.content_digest).decode() for entry in _said(tx, session, job) if entry.content_digest)
    return next(filter(None, texts), "")


def _last_message(tx: Transaction, session: str, job: str) -> dict[str, JsonValue] | None:
    for entry in _said(tx, session, job):
        content = tx.get_blob(entry.content_digest).decode("utf-8", "replace") if entry.content_digest else None
        message: dict[str, JsonValue] = json.loads(rendered(entry.head, content)[0])
        return message
    return None


def _said(tx: Transaction, session: str, job: str) -> Iterator[Entry]:
    """What the agent said in a job, the latest first."""
    entries = tx.read_entries(session) if tx.session_exists(session) else []
    return (entry for entry in reversed(entries) if entry.job == job and entry.head.get("role") == "assistant")
