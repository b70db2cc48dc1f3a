"""What the extended turns of this directory call."""


def judge(calls: list[dict]) -> dict:
    """Say whether the model may make these calls."""
    paths = [str(call["arguments"].get("path", "")) for call in calls if isinstance(call["arguments"], dict)]
    hidden = [path for path in paths if "secret" in path]
    return {"ok": not hidden, "why": f"the model may not look at {', '.join(hidden)}" if hidden else ""}


def notes(turn: int) -> str:
    """Find what is worth knowing at this turn."""
    return f"turn {turn}: the office is closed on Fridays"
