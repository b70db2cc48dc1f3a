"""The tool calls in a model's answer: as the conversation keeps them, and what orders them."""

import re
from collections.abc import Sequence
from typing import Any

from temporalio import activity

from activities.chat_reply import ToolCall
from loom_dsl.canonical import digest
from loom_dsl.errors import ModelProtocolError, ToolError
from loom_dsl.messages import unique_calls
from loom_dsl.tools import Tool, validate_arguments

MOST_CALLS = 1_000
"""Calls in one answer: as many items as a map in a workflow takes."""
EXECUTE_MARGIN = 10.0
"""Seconds between a tool's own timeout and its activity's."""
_LONGEST_NAME, _LONGEST_ID, _LONGEST_KEY = 64, 64, 200
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


def kept_calls(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Write a model's calls so that every provider takes them back with the next request.

    Ids are made unique. In names, what the API does not allow becomes an underscore; arguments stay as they are.

    Raises:
        ModelProtocolError: There are more than one turn can carry.
    """
    if len(calls) > MOST_CALLS:
        raise ModelProtocolError(
            f"the model asked for {len(calls)} tool calls in one answer; at most {MOST_CALLS} are taken. "
            "Say in the instructions that it should make fewer at a time."
        )
    named = [
        {"id": _short(call.id, _LONGEST_ID), "name": _name(call.name), "arguments": call.arguments} for call in calls
    ]
    return [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in unique_calls(named)
    ]


def traits(index: int, entry: int, call: dict[str, Any], tool: Tool | None) -> dict[str, Any]:
    """What orders a call among the others, and where its arguments are.

    Args:
        index: The call's place in the answer.
        entry: The answer's place in the session.
        call: The call as it is kept.
        tool: What it means; None when there is no such tool.
    """
    found: dict[str, Any] = {"id": call["id"], "name": call["function"]["name"], "e": entry, "i": index}
    if tool is None:
        return found | {"safe": True, "key": None, "quick": False, "timeout": 60.0}
    key = _key(tool, call["function"]["arguments"])
    timeout = tool.timeout + EXECUTE_MARGIN
    return found | {"safe": tool.concurrency_safe, "key": key, "quick": tool.quick, "timeout": timeout}


def _key(tool: Tool, raw: str) -> str | None:
    if tool.concurrency_key is None:
        return None
    try:
        key = tool.concurrency_key(validate_arguments(tool, raw))
    except ToolError:
        return None  # it is not going to run
    except Exception:
        activity.logger.exception("the concurrency key of the tool %s failed; it waits for all others", tool.name)
        return None
    return None if key is None else _short(str(key), _LONGEST_KEY)


def _name(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name.strip())[:_LONGEST_NAME] or "unnamed"


def _short(text: str, limit: int) -> str:
    """A long text by its beginning and its digest: it travels through the history."""
    return text if len(text) <= limit else f"{text[: limit - 17]}-{digest(text)[:16]}"
