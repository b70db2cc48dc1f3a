"""An approval's request and decision as lines."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loom_cli.render.text import duration, place
from loom_client.edited_arguments import rules_in_words
from loom_dsl.approvals.decision import CHOICES
from loom_dsl.observe.events import Event
from loom_dsl.text.confusables import gathered, revealed
from loom_dsl.text.printable import clock, moment_of, one_line, visible

MAX_PREVIEW_LINES = 12
FOLLOWING = "    | "
"""Stands before the lines into which a long one is wrapped: what somebody else wrote begins no line of its own."""
Line = tuple[str, str]
"""Text and style."""

_OUTCOMES = {
    "approve": ("approved", "green"),
    "edit": ("approved with other arguments", "green"),
    "reject": ("rejected", "red"),
    "respond": ("answered in the tool's place", "green"),
    "terminate": ("job ended", "red"),
    "expired": ("expired: nobody decided in time", "red"),
    "allowed": ("expired: nobody decided in time, and `on_expiry: allow` lets it run", "yellow"),
    "cancelled": ("withdrawn", "yellow"),
}


def approval_lines(
    event: Event, request: Mapping[str, Any], preview: str, how_to_decide: bool, now: float
) -> Iterator[Line]:
    """Say what is asked, why, until when, and how to answer."""
    data: Mapping[str, Any] = event.data
    name = one_line(str(data.get("approval_id", "")), 80)
    tool = request.get("tool") or data.get("tool")
    node = place(str(data.get("node") or "")) or "a node"
    who = f"{one_line(str(tool), 60)} needs approval" if tool else f"{one_line(node, 60)} asks"
    yield f"? {who}  {name}", "bold yellow"
    request = {**request, "policy": data.get("policy"), "signed": data.get("signed")}
    yield from request_lines(request, data.get("expires_at"), now, countdown=False)
    yield from preview_lines(preview, MAX_PREVIEW_LINES, name)
    choices = data.get("choices") or ()
    if how_to_decide:
        yield f"  {how_to_approve(event.job, name, choices)}", ""
    if how_to_decide and set(choices) <= set(CHOICES):
        yield f'  loom reject {event.job} {name} --reason "..."', ""


def how_to_approve(job: str, approval: str, choices: Iterable[object]) -> str:
    """Give the command that decides; a question of a graph may have answers of its own."""
    named = [one_line(str(choice), 40) for choice in choices]
    own = f" --choice {'|'.join(named)}" if set(named) - set(CHOICES) else ""
    return f"loom approve {job} {approval}{own}"


def request_lines(
    request: Mapping[str, Any], expires_at: float | str | None, now: float, *, countdown: bool = True
) -> Iterator[Line]:
    """Say what a request is about, and how long it may be decided, or until when."""
    if request.get("summary"):
        yield f"  {revealed(one_line(str(request['summary']), 300))}", ""
    facts = []
    if request.get("risk"):
        facts.append(f"{one_line(str(request['risk']), 20)} risk")
    if request.get("reason"):
        facts.append(revealed(one_line(str(request["reason"]), 300)))
    if expires_at is not None and not countdown:
        facts.append(f"until {clock(expires_at, now)}")
    elif expires_at is not None:
        left = moment_of(expires_at) - now
        facts.append(f"expires in {duration(left)}" if left > 0 else "has expired")
    facts += _who(request.get("policy") or {})
    if request.get("signed"):
        facts.append("only a signed decision counts")
    if isinstance(able := request.get("deciders"), list):
        facts.append(f"by their role may decide: {one_line(', '.join(map(str, able)), 200) or 'nobody'}")
    if facts:
        yield f"  {'; '.join(facts)}", "dim"
    yield from _consequences(request)


def _consequences(request: Mapping[str, Any]) -> Iterator[Line]:
    """Say what follows: when nobody answers, and when the answer is to be remembered."""
    if request.get("unanswered"):
        yield f"  {one_line(str(request['unanswered']), 300)}", "dim"
    if rules := rules_in_words(request.get("rules")):
        yield f"  to remember it would cover: {rules}", "dim"


def remembered_line(remember: object, rules: object) -> str:
    """Say what was remembered with a decision, and for how long; empty: nothing."""
    how_long = {"job": "for this job", "rule": "for later jobs too"}.get(str(remember), "")
    said = rules_in_words(rules)
    return f"remembered {how_long}: {said}" if how_long and said else ""


def _who(policy: Mapping[str, Any]) -> Iterator[str]:
    """Say who may decide, where not simply anybody."""
    if policy.get("approvers"):
        yield f"for {one_line(', '.join(map(str, policy['approvers'])), 200)}"
    if policy.get("quorum", 1) > 1:
        yield f"{policy['quorum']} people must agree"
    if policy.get("four_eyes"):
        yield "not for who started the job"


def preview_lines(preview: str, most: int = 0, approval: str = "") -> Iterator[Line]:
    """Give the lines of a diff with their colours; the first `most` (0: all), and how all of it is seen."""
    # Each line for itself, so that a CR at its end is no part of a line end that is not shown.
    given = preview.removesuffix("\n").split("\n") if preview else []
    lines = gathered(revealed(visible(line)) for line in given)
    for line in lines[:most] if most else lines:
        yield f"    {line}", _diff_style(line)
    if most and len(lines) > most:
        yield f"  ... {len(lines) - most} more lines; all of it: loom approvals {approval}".rstrip(), "dim"


def changed_line(event: Event, now: float) -> Line:
    """Say what became of a question that still waits."""
    data: Mapping[str, Any] = event.data
    what, due = str(data.get("what", "")), data.get("expires_at")
    until = f", until {clock(due, now)}" if due is not None else ""
    people = ", ".join(one_line(str(name), 80) for name in data.get("to") or ())
    words = {
        "reminded": f"nobody has decided yet; told again ({data.get('times')})",
        "escalated": f"passed on to {people}{until}",
        "halted": "nobody decided in time: the job is halted; decide, or `loom resume` asks anew",
        "renewed": f"asked anew{until}",
        "vote": vote_of(data),
    }
    return f"  {one_line(words.get(what, what), 300)}", "yellow"


def vote_of(data: Mapping[str, Any]) -> str:
    """Say what one of several people answered."""
    by = one_line(str(data.get("by", "")), 80)
    return f"{data.get('choice')} by {by}{signed_with(data)}: {data.get('have')} of {data.get('need')}"


def waiting_lines(job: str, changes: Iterable[Mapping[str, Any]]) -> Iterator[Line]:
    """Say what became of a question that still waits: who has voted, and that the job is halted for it."""
    votes = [change for change in changes if change.get("what") == "vote"]
    for vote in votes:
        yield f"  {revealed(vote_of(vote))}", "yellow"
    last = next((str(c["what"]) for c in reversed([*changes]) if c.get("what") in ("halted", "renewed")), "")
    if last == "halted":
        yield f"  nobody decided in time: the job is halted; decide, or `loom resume {job}` asks anew", "yellow"


def decided_line(event: Event) -> Line:
    """Say how an approval ended."""
    data = event.data
    choice = "allowed" if data.get("allowed") else str(data.get("choice", ""))
    text, style = _OUTCOMES.get(choice, (one_line(choice, 40), "yellow"))
    by = f" by {one_line(str(data['by']), 80)}{signed_with(data)}" if data.get("by") else ""
    message = (
        f": {one_line(str(data['message']), 300)}"
        if data.get("message") and choice not in ("expired", "allowed")
        else ""
    )
    kept = remembered_line(data.get("remember"), data.get("rules"))
    return f"  {text}{by}{message}{f'; {kept}' if kept else ''}", style


def signed_with(decided: Mapping[str, Any]) -> str:
    """Say with which keys something was decided, or nothing."""
    keys = ", ".join(one_line(str(key), 40) for key in decided.get("keys") or ())
    return f" (signed, {keys})" if keys else ""


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "dim"
    return {"+": "green", "-": "red"}.get(line[:1], "")


def outcome_of(row: Mapping[str, Any]) -> str:
    """Say in a few words how an approval ended, by whom, and by which keys."""
    by = f" by {row['by']}" if row.get("by") else ""
    more = ", allowed" if row.get("allowed") else ""
    to = f" to {row['edited'][:12]}" if row.get("edited") else ""
    return f"{row['status']}{more}{to}{by}{signed_with(row)}"
