"""Tools whose effects can be taken back, or not; `taken_back` in the working directory tells what was."""

from typing import Any

from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import Arguments, tool
from tests.support.external import _write

TAKEN_BACK = "taken_back"


def _cancel(arguments: Arguments, result: Any, context: ToolContext) -> None:
    number = result["number"] if isinstance(result, dict) else result
    _write(context, TAKEN_BACK, f"{arguments['text']} {number}")


def _refuse(arguments: Arguments, result: Any, context: ToolContext) -> None:
    _write(context, TAKEN_BACK, arguments["text"])
    raise RuntimeError("closed today")


@tool(compensate=_cancel)
def book(text: str) -> dict[str, int]:
    """Book something that can be cancelled.

    Args:
        text: What to book.
    """
    return {"number": 7}


@tool(compensate=_cancel, idempotent=True)
def place(text: str) -> str:
    """Place an order; placing it again changes nothing.

    Args:
        text: What to order.
    """
    return f"done: {text}"


@tool(compensate=_refuse)
def stubborn(text: str) -> str:
    """Buy something that the shop does not take back.

    Args:
        text: What to buy.
    """
    return "bought"


@tool
def note(text: str) -> str:
    """Write something down for good.

    Args:
        text: What to write.
    """
    return "noted"


NAMES = ("book", "place", "stubborn", "note")
REFERENCES = tuple(f"{__name__}:{name}" for name in NAMES)
