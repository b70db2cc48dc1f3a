"""Reading on in an output that was too long for one result."""

import json
from typing import Annotated, Any

from pydantic import Field

from loom_dsl.errors import ToolError
from loom_dsl.tools.context import TodoItem, ToolContext, render_todo
from loom_dsl.tools.tool import tool
from loom_tools.builtin.text_file import PAGE

_MAX_PLACES = 40
_AROUND = 80


@tool(read_only=True, quick=True, timeout=30, summarise=lambda arguments: f"read on in {arguments.get('ref')}")
def read_output(
    context: ToolContext,
    ref: Annotated[str, Field(max_length=100)],
    start: Annotated[int, Field(ge=1)] = 1,
    length: Annotated[int, Field(ge=1, le=PAGE)] = PAGE,
    find: Annotated[str, Field(max_length=1_000)] | None = None,
) -> str:
    """Read a part of an earlier result that was cut because it was too long, or find a text in it.

    Args:
        ref: The reference that stands where the result was cut.
        start: The first character to read, counted from 1.
        length: Most characters to read.
        find: Give the places of this text, from `start` on, instead of the characters.
    """
    text = context.services.output(ref)
    if start > len(text):
        raise ToolError(f"the output {ref} has {len(text)} characters; start {start} is after its end")
    if find is not None:
        return _places(text, ref, start, find)
    end = min(len(text), start - 1 + length)
    head = f"{ref}: characters {start}-{end} of {len(text)}"
    more = [f"[{len(text) - end} more; read on with start={end + 1}]"] if end < len(text) else []
    return "\n".join([head, "", text[start - 1 : end], *more])


def _places(text: str, ref: str, start: int, find: str) -> str:
    if not find:
        raise ToolError("`find` is empty; give the text to look for, or leave it out")
    shown: list[str] = []
    at = text.find(find, start - 1)
    while at >= 0 and len(shown) < _MAX_PLACES:
        around = text[max(0, at - _AROUND) : at + len(find[:_AROUND]) + _AROUND]
        shown.append(f"{at + 1}: {json.dumps(around, ensure_ascii=False)}")
        at = text.find(find, at + len(find))
    if not shown:
        return f"{find[:100]!r} is not in {ref} from character {start} on."
    more = [f"[more from character {at + 1} on]"] if at >= 0 else []
    return "\n".join([f"{ref}: characters at which {find[:100]!r} stands", *shown, *more])


# The list of what is still to do, which an agent keeps for itself.


def _todo_summary(arguments: dict[str, Any]) -> str:
    return f"keep a list of {len(arguments.get('items') or ())} things to do"


@tool(
    read_only=True,  # it changes nothing outside the conversation, which is where the list is kept
    concurrency_safe=False,
    quick=True,
    timeout=30,
    summarise=_todo_summary,
)
def todo(context: ToolContext, items: Annotated[list[TodoItem], Field(max_length=100)] | None = None) -> str:
    """Keep a list of what is to do. Give the whole list each time something changes; give nothing to read it.

    Args:
        items: All items in order, each with its text and its status: pending, in_progress or done.
    """
    return render_todo(context.services.todo() if items is None else tuple(items))
