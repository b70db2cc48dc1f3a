"""How a job ended, as the server tells it, and what the store adds to it."""

from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, TerminatedError

from loom_dsl.errors import LoomError
from loom_dsl.run import MOST_ANSWER, RunResult
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


def _last_answer(tx: Transaction, session: str, job: str) -> str:
    for entry in reversed(tx.read_entries(session)):
        if entry.job == job and entry.content_digest and entry.head.get("role") == "assistant":
            return tx.get_blob(entry.content_digest).decode()
    return ""
