"""The list of what is still to do, which an agent keeps for itself."""

from typing import Annotated

from pydantic import Field

from loom_dsl.tool_services import TodoItem, render_todo
from loom_dsl.tools import ToolContext, tool


@tool(
    read_only=True,  # it changes nothing outside the conversation, which is where the list is kept
    concurrency_safe=False,
    quick=True,
    timeout=30,
    summarise=lambda arguments: f"keep a list of {len(arguments.get('items') or ())} things to do",
)
def todo(context: ToolContext, items: Annotated[list[TodoItem], Field(max_length=100)] | None = None) -> str:
    """Keep a list of what is to do. Give the whole list each time something changes; give nothing to read it.

    Args:
        items: All items in order, each with its text and its status: pending, in_progress or done.
    """
    return render_todo(context.services.todo() if items is None else tuple(items))
