"""What the end of a graph's job is for whoever asks later: the same as the machine and as a client tell it."""

from typing import Any

from loom_dsl.run import ErrorInfo, GraphResult

_ABORT = {"status", "reason", "compensations"}
"""Keys of what a job gives that was aborted and whose graph says nothing of its own."""


def result_of_finish(job: str, value: Any, *, aborted: bool = False) -> GraphResult:
    """Give the result of a job that ended with a value.

    Args:
        job: The job's id.
        value: What its workflow gave.
        aborted: Whether somebody aborted it; the value is then what settling that gave.
    """
    if not aborted:
        return GraphResult(job=job, status="completed", result=value)
    given = value if isinstance(value, dict) else {}
    rest = {key: item for key, item in given.items() if key != "compensations"}
    own = given.get("status") != "aborted" or bool(given.keys() - _ABORT)
    reason = "" if own else str(given.get("reason") or "")
    info = ErrorInfo(code="aborted", message=reason or "somebody aborted the job")
    kept = (rest if given else value) if own else None
    undone = given.get("compensations", ())
    return GraphResult(job=job, status="aborted", result=kept, error=info, compensations=undone)


def result_of_failure(job: str, code: str, message: str, details: Any = None) -> GraphResult:
    """Give the result of a job that failed.

    Args:
        job: The job's id.
        code: Why; empty where nothing was told.
        message: The same in words.
        details: What its workflow gave along: the failure's own details, and what was taken back.
    """
    undone: Any = ()
    if isinstance(details, dict) and "compensations" in details:
        undone = details["compensations"]
        details = {key: value for key, value in details.items() if key != "compensations"} or None
    info = ErrorInfo(code=code or "failed", message=message)
    return GraphResult(job=job, status="failed", result=details, error=info, compensations=undone)
