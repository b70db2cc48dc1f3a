"""An approval's request and decision as lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from loom_client.render.text import duration, moment_of, one_line, visible
from loom_dsl.events import Event

MOST_PREVIEW_LINES = 12
Line = tuple[str, str]
"""Text and style."""

_OUTCOMES = {
    "approve": ("approved", "green"),
    "edit": ("approved with other arguments", "green"),
    "reject": ("rejected", "red"),
    "expired": ("expired: nobody decided in time", "red"),
    "cancelled": ("withdrawn", "yellow"),
}


def approval_lines(
    event: Event, request: Mapping[str, Any], preview: str, how_to_decide: bool, now: float
) -> Iterator[Line]:
    """Say what is asked, why, until when, and how to answer."""
    name = one_line(str(event.data.get("approval_id", "")), 80)
    tool = one_line(str(request.get("tool") or event.data.get("tool") or "a step"), 60)
    yield f"? {tool} needs approval  {name}", "bold yellow"
    yield from request_lines(request, event.data.get("expires_at"), now)
    yield from preview_lines(preview, MOST_PREVIEW_LINES)
    if how_to_decide:
        yield f"  loom approve {event.job} {name}", ""
        yield f'  loom reject {event.job} {name} --reason "..."', ""


def request_lines(request: Mapping[str, Any], expires_at: float | str | None, now: float) -> Iterator[Line]:
    """Say what a request is about."""
    if request.get("summary"):
        yield f"  {one_line(str(request['summary']), 300)}", ""
    facts = []
    if request.get("risk"):
        facts.append(f"{one_line(str(request['risk']), 20)} risk")
    if request.get("reason"):
        facts.append(one_line(str(request["reason"]), 300))
    if expires_at is not None:
        left = moment_of(expires_at) - now
        facts.append(f"expires in {duration(left)}" if left > 0 else "has expired")
    if facts:
        yield f"  {'; '.join(facts)}", "dim"


def preview_lines(preview: str, most: int = 0) -> Iterator[Line]:
    """Give the lines of a diff with their colours; the first `most` (0: all)."""
    lines = visible(preview).splitlines()
    for line in lines[:most] if most else lines:
        yield f"    {line}", _diff_style(line)
    if most and len(lines) > most:
        yield f"    ... {len(lines) - most} more lines", "dim"


def decided_line(event: Event) -> Line:
    """Say how an approval ended."""
    data = event.data
    choice = str(data.get("choice", ""))
    text, style = _OUTCOMES.get(choice, (one_line(choice, 40), "yellow"))
    by = f" by {one_line(str(data['by']), 80)}" if data.get("by") else ""
    message = f": {one_line(str(data['message']), 300)}" if data.get("message") and choice != "expired" else ""
    return f"  {text}{by}{message}", style


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "dim"
    return {"+": "green", "-": "red"}.get(line[:1], "")
