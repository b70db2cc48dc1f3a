"""What is asked as a text for systems that only pass it on: nothing in it hides, and what is left out is said."""

import json
from collections.abc import Mapping
from typing import Any

from loom_dsl.lookalike import gathered, revealed

MOST_SHOWN = 2_500
"""Characters; chats and mails take about so many in one message."""
_NAMES = ("tool", "risk", "reason", "requester")


def shown(data: Mapping[str, Any], most: int = MOST_SHOWN) -> dict[str, Any]:
    """Give what a message about an approval asks as text.

    Args:
        data: The message's `data`, with the arguments as `content` where they are told.
        most: Characters of the text.

    Returns:
        ``title``, one line of at most 120 characters; ``text``; and ``left_out``, how many characters of it are not
        there, which the text says too.
    """
    asked = data.get("request") if isinstance(data.get("request"), dict) else {}
    assert isinstance(asked, dict)
    summary = str(asked.get("summary") or asked.get("tool") or "a question")
    lines = [f"Job {data.get('job')} of {data.get('agent')} asks: {summary}"]
    lines += [f"{name}: {asked[name]}" for name in _NAMES if asked.get(name)]
    if "content" in data:
        lines.append(json.dumps(data["content"], ensure_ascii=False, indent=2))
    elif asked.get("arguments"):
        lines.append("The arguments are not in this message.")
    text = visible_text("\n".join(lines))
    title = " ".join(visible_text(summary).split())
    end = f"\n… {{}} more characters are not shown here: loom approvals {data.get('approval_id')}"
    if len(text) <= most:
        return {"title": _cut(title, 120), "text": text, "left_out": 0}
    room = most - len(end) - len(str(len(text)))
    return {"title": _cut(title, 120), "text": text[:room] + end.format(len(text) - room), "left_out": len(text) - room}


def visible_text(text: str) -> str:
    """Write what does not look like what it is as escapes, and many blanks or blank lines as their number."""
    return "\n".join(gathered(revealed(line) for line in text.split("\n")))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
