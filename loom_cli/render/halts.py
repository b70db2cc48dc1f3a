"""Steps that are halted, and waits for the end of an outage, as lines."""

from collections.abc import Mapping, Sequence
from typing import Any

from loom_cli.render.text import duration, place
from loom_dsl.text.abridgement import abridge
from loom_dsl.text.printable import clock, moment_of, one_line

Entry = Mapping[str, Any]
"""One entry of a job's `halted` or `waiting`; `job` stands in those of a job below."""


def halted_text(entry: Entry, job: str, now: float) -> str:
    """Say in a line why a step is halted, what a person has to do, and how it goes on then.

    Args:
        entry: ``{"at", "cause", "message", "action", "since", "approval"}``; the last one where it has expired.
        job: The job's id.
        now: Seconds since 1970.
    """
    own = str(entry.get("job") or job)
    where = f" in job {own}" if own != job else ""
    resume = f"`loom resume {own}`"
    if name := one_line(str(entry.get("approval") or ""), 80):
        decide = f"decide it with `loom approve {own} {name}` or `loom reject`"
        return f"halted{where}: nobody decided {name} in time; {decide}, or have it asked anew with {resume}"
    at = place(str(entry.get("at") or ""))
    step = f" at {one_line(at, 80)}" if at else ""
    since = f" since {clock(entry['since'], now)}" if entry.get("since") is not None else ""
    message = _sentence(entry.get("message"), 240) or one_line(str(entry.get("cause") or "it waits for a person"), 80)
    action = _sentence(entry.get("action"), 240)
    return f"halted{step}{where}{since}: {message}; {action + ', then ' if action else 'go on with '}{resume}"


def halted_texts(entries: Sequence[Entry], job: str, now: float, most: int = 3) -> str:
    """Say the same of several steps."""
    return abridge(entries, most, lambda entry: halted_text(entry, job, now), between="; ", rest="; and ")


def _waits(entry: Entry, message: str) -> str:
    """Say what a step waits for: the end of an outage, or the time of its next try."""
    if entry.get("outage", True):
        return f"waits for the model: {message}"
    return f"{one_line(place(str(entry.get('at') or '')), 80) or 'a step'} failed: {message}"


def waiting_text(entry: Entry, now: float, *, steady: bool = False) -> str:
    """Say in a line which outage a step waits to end, or why it is tried again later.

    Args:
        entry: ``{"at", "cause", "message", "since", "next_at", "tries"}``, and ``outage``: false where a try is due.
        now: Seconds since 1970.
        steady: Leave out what changes while nothing happens, for where each new text is a line of its own.
    """
    message = _first(entry.get("message"), 240) or one_line(str(entry.get("cause") or "it does not answer"), 80)
    since, due = entry.get("since"), entry.get("next_at")
    if steady:
        return _waits(entry, message) + (f" since {clock(since, now)}" if since is not None else "")
    span = f" for {duration(max(0.0, now - moment_of(since)))}" if since is not None else ""
    left = moment_of(due) - now if due is not None else 0.0
    return f"{_waits(entry, message)}{span}; tries again {f'in {duration(left)}' if left > 0 else 'now'}"


def waiting_line(entry: Entry, now: float) -> str:
    """Say that a step began to wait, with times that stay true."""
    since, due = entry.get("since"), entry.get("next_at")
    message = _first(entry.get("message"), 300) or one_line(str(entry.get("cause") or ""), 80)
    begun = f" since {clock(since, now)}" if since is not None else ""
    again = f"; tries again at {clock(due, now)}" if due is not None else ""
    tries = entry.get("tries")
    counted = f" ({tries} tries so far)" if isinstance(tries, int) and tries > 1 else ""
    return f"{_waits(entry, message)}{begun}{again}{counted}"


def _first(text: object, most: int) -> str:
    """Give the first sentence of a text, without its stop: what to do follows in others, and times follow here."""
    return _sentence(str(text or "").partition(". ")[0], most)


def _sentence(text: object, most: int) -> str:
    """Give a text without the stop at its end: more follows."""
    return one_line(str(text or ""), most).removesuffix(".")
