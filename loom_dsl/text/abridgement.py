"""Long lists in one line of text: the first few, and how many more there are."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def abridge(
    items: Sequence[Item],
    most: int,
    text: Callable[[Item], str] = str,
    *,
    between: str = ", ",
    rest: str = " and ",
) -> str:
    """List items as ``a, b and 3 more``; nothing where there are none.

    Args:
        items: What is listed, the most important ones first.
        most: How many are named.
        text: Says one of them; called only for those that are named.
        between: Stands between two of them.
        rest: Stands before the number of the others.
    """
    listed = between.join(text(item) for item in items[:most])
    return listed + (f"{rest}{len(items) - most} more" if len(items) > most else "")
