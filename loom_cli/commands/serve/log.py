"""What a worker writes to its log: a line for each record, with the traceback only where it is asked for."""

import logging
import os
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from temporalio.activity import ActivityCancellationDetails, Info


MAX_CHARACTERS = 2_000
MAX_FAILURE = 300
"""Characters of why an activity failed; the job's events have the rest."""
MAX_CAUSES = 10_000
"""Causes that are remembered, so that none is told twice."""
BARELY = timedelta(seconds=1)
"""So much before its time is over an attempt counts as too long: clocks differ."""
TOLD_ELSEWHERE = frozenset({"missing_tools", "worker_stopped"})
"""Codes of failures that another line tells of, or that are none."""
FAILED = "Completing activity as failed"
"""What the SDK says of each attempt that failed, with all that it knows about it behind."""
_log = logging.getLogger("loom")


class OneLine(logging.Formatter):
    """Puts the error behind the message, on the same line."""

    def formatException(self, info: object) -> str:
        """Say of an exception only what it is."""
        assert isinstance(info, tuple)
        return " ".join("".join(traceback.format_exception_only(info[1])).split())

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line."""
        # The text of an exception may come from a model or a tool, and a log is read at a terminal.
        from loom_dsl.text.printable import one_line

        return one_line(super().format(record), MAX_CHARACTERS)


class OncePerCause(logging.Filter):
    """Says of activities that fail which job they are of and why, once for each job and cause."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite a record about an activity; False for one that says what has been said."""
        facts = getattr(record, "temporal_activity", None)
        if not isinstance(facts, dict):
            return True
        job = str(facts.get("workflow_id", ""))
        if not str(record.msg).startswith(FAILED):
            record.msg = f"job {job}: {record.msg}"
            return True
        error = record.exc_info[1] if record.exc_info else None
        code = str(getattr(error, "type", None) or type(error).__name__)
        ended, why = "failed", f"{code}: {getattr(error, 'message', error)}"
        if code == "CancelledError":
            ended, why = "was broken off", _breaking()
        cause = (job, why)
        if code in TOLD_ELSEWHERE or cause in self._seen:
            return False
        self._seen[cause] = None
        if len(self._seen) > MAX_CAUSES:
            self._seen.popitem(last=False)
        what = str(facts.get("activity_id", "")).partition("/")[2] or facts.get("activity_type", "")
        record.msg = f"job {job}: {what} {ended} (attempt {facts.get('attempt', 1)}): {why[:MAX_FAILURE]}"
        record.args, record.exc_info = (), None
        return True


def _breaking() -> str:
    """Say why the attempt was broken off that this is called in."""
    from temporalio import activity

    if not activity.in_activity():
        return breaking(None, None, datetime.now(UTC))
    return breaking(activity.cancellation_details(), activity.info(), datetime.now(UTC))


def breaking(details: "ActivityCancellationDetails | None", info: "Info | None", now: datetime) -> str:
    """Say why an attempt was broken off.

    Args:
        details: What the server or the worker gave as the reason.
        info: The attempt.
        now: The time.
    """
    if details is None:
        return "something in this worker cancelled it"
    if details.worker_shutdown:
        return "this worker was stopped"
    if details.cancel_requested:
        return "its job was ended, or wants it no more"
    limit = info.start_to_close_timeout if info else None
    if info is not None and limit is not None and now - info.started_time > limit - BARELY:
        return f"it took longer than its timeout of {limit.total_seconds():g} s"
    beat = info.heartbeat_timeout if info else None
    if details.timed_out:
        within = f" within {beat.total_seconds():g} s" if beat else ""
        late = f"its heartbeat did not reach the server{within}, so it is run again"
        return f"{late}: the server was away, or this worker was too busy"
    if details.not_found:
        return "the server waits for it no more: its heartbeat came too late and it is run again, or its job has ended"
    return "the server paused it, or began it anew"


def log_halt(event: Mapping[str, Any]) -> None:
    """Log that a step of a job is halted, why, and what a person has to do.

    Args:
        event: Any event of a job, with `job`.
    """
    if event["t"] != "halted":
        return
    from loom_cli.render.halts import halted_text

    job, cause = str(event["job"]), str(event.get("cause") or "")
    entry = {**event, "at": event.get("node", "")}
    _log.warning("job %s: %s%s", job, f"{cause}: " if cause else "", halted_text(entry, job, time.time()))


def configure_log() -> None:
    """Log to standard error; LOOM_LOG=info says more than warnings, LOOM_DEBUG=1 shows tracebacks and every attempt."""
    debug = os.environ.get("LOOM_DEBUG", "") not in ("", "0")
    pattern = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(pattern) if debug else OneLine(pattern))
    if not debug:
        from temporalio import activity

        activity.logger.activity_info_on_message = False
        handler.addFilter(OncePerCause())
    level = logging.getLevelNamesMapping().get(os.environ.get("LOOM_LOG", "warning").upper(), logging.WARNING)
    logging.basicConfig(level=level, handlers=[handler])
