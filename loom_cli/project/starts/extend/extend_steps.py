"""What the turns run besides the agent's tools."""

from typing import Any


def judge(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Say whether the model may make these calls: each has a `name` and `arguments`."""
    hidden = [call["name"] for call in calls if ".env" in str(call["arguments"])]
    return {"ok": not hidden, "why": f"the model may not look at secrets ({', '.join(hidden)})" if hidden else ""}
