"""A tool call that a graph's node makes: its arguments are in the call itself, and its outcome is for the graph.

A model's call names a tool as the model knows it, and its arguments are in the session. A node names a reference, and
only the tools that nodes of the plan name can be meant by one: a model cannot reach them, nor a node the model's.
"""

from collections.abc import Mapping
from typing import Any

from activities.record.activity_call import Item
from loom_dsl.text.canonical import canonical_json, read_json
from loom_dsl.text.redaction import mask_known
from loom_dsl.tools.result import ToolMessage
from loom_dsl.tools.tool import Tool

MAX_VALUE = 32 * 1024
"""Characters of a value that a node's result carries; a larger one is a reference into the store."""


def inline_arguments(item: Item, secrets: Mapping[str, str]) -> str:
    """Give the arguments of a node's call as JSON text, without the secrets that are known."""
    return mask_known(canonical_json(item["arguments"]), secrets)


def for_graph(outcome: Item, message: ToolMessage, text: str) -> dict[str, Any]:
    """What the rest of a node's pipeline needs to know of how a call ended.

    Args:
        outcome: What the last stage said.
        message: The message that was made of it.
        text: The message's text as it may be stored.
    """
    if outcome.get("ok"):
        return {"ok": True, "output": outcome["output"]}
    lines = text.removeprefix(f"Error ({message.code}): ").split("\n")
    # The last line is advice to a model.
    return {"ok": False, "message": "\n".join(lines[:-1] or lines)}


def value_of(text: str, tool: Tool | None) -> Any:
    """Read an output as a value: an object or a list where it is one, and what a function returned that is not text.

    A function that says that it returns text gives text, so that the version ``1.10`` does not become a number.
    """
    try:
        value = read_json(text)
        canonical_json(value)
    except ValueError:
        return text
    returned = getattr(tool.function, "__annotations__", {}).get("return") if tool else None
    return text if returned in (str, "str") and not isinstance(value, dict | list) else value
