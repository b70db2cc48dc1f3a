"""Building the context: the leading system message from parts, and which stored messages fit.

Everything is a pure function of its arguments: equal parts, budget and counter give equal text.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from loom_dsl.errors import ContextLengthExceeded

CUT = "\n[... cut to fit the context]"
"""Marks the end of a part that was cut."""
_SEPARATOR = "\n\n"
# Ideographs, kana, hangul and full-width forms: about one token each, where Latin text needs a quarter.
_WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)

Counter = Callable[[str], int]
"""Counts the tokens of a text."""


def estimate_tokens(text: str) -> int:
    """Estimate a text's tokens without a vocabulary: four ASCII characters, two others or one wide one to a token."""
    if text.isascii():
        return -(-len(text) // 4)
    ascii_count = len(text.encode("ascii", "ignore"))
    wide = len(_WIDE.findall(text))
    return -(-(ascii_count + 2 * (len(text) - ascii_count - wide)) // 4) + wide


class ComponentPriority(IntEnum):
    """How much a part of the system message matters."""

    CRITICAL = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3


@dataclass(frozen=True, kw_only=True)
class Component:
    """A part of the system message.

    Attributes:
        name: For reports, such as ``base_instructions``.
        content: The text; a part without text is left out.
        priority: Parts come in this order, and parts of equal priority in the order they are given.
        truncatable: Whether the part may be cut at its end. A part that may not is left out as a whole when
            it does not fit, unless it is CRITICAL.
    """

    name: str
    content: str
    priority: ComponentPriority = ComponentPriority.MEDIUM
    truncatable: bool = False


@dataclass(frozen=True)
class Assembled:
    """The system message, and what became of each part.

    Attributes:
        text: The message's content.
        included: Names of the parts that are in it as a whole.
        truncated: Names of the parts that are in it with their end cut.
        dropped: Names of the parts that did not fit.
        tokens: The text's tokens, as the counter counts them.
    """

    text: str
    included: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    tokens: int = 0


def assemble(components: Sequence[Component], budget_tokens: int, count: Counter = estimate_tokens) -> Assembled:
    """Join the parts into one text within a budget, the most important first.

    Raises:
        ContextLengthExceeded: A CRITICAL part does not fit.
    """
    text = ""
    included, truncated, dropped = list[str](), list[str](), list[str]()
    for part in sorted((c for c in components if c.content), key=lambda c: c.priority):
        before = text + _SEPARATOR if text else ""
        whole = before + part.content
        if count(whole) <= budget_tokens:
            text = whole
            included.append(part.name)
            continue
        cut = _longest_cut(before, part.content, budget_tokens, count) if part.truncatable else None
        if cut is not None:
            text = cut
            truncated.append(part.name)
        elif part.priority is ComponentPriority.CRITICAL:
            raise ContextLengthExceeded(
                f"`{part.name}` needs {count(whole)} tokens together with what comes before it, but the context has "
                f"room for {max(budget_tokens, 0)}; shorten it or raise limits.max_context_tokens"
            )
        else:
            dropped.append(part.name)
    return Assembled(text, tuple(included), tuple(truncated), tuple(dropped), count(text) if text else 0)


def cut_to(text: str, most: int) -> str:
    """Give a text, or where it has more tokens than it may, the longest beginning of it that fits with a mark."""
    if estimate_tokens(text) <= most:
        return text
    return _longest_cut("", text, most, estimate_tokens) or ""


def _longest_cut(before: str, content: str, budget: int, count: Counter) -> str | None:
    """Give `before` and the longest beginning of the content that fits with the mark, or None if not even one does.

    The search takes the counter to grow with the text. Where it does not, the result is shorter than it
    might be, but what is returned has always been counted.
    """
    best: str | None = None
    low, high = 1, len(content) - 1
    while low <= high:
        middle = (low + high) // 2
        candidate = before + content[:middle] + CUT
        if count(candidate) <= budget:
            best, low = candidate, middle + 1
        else:
            high = middle - 1
    return best


def select_messages(
    sizes: Sequence[int], budget: int, groups: Sequence[tuple[int, int]], first_user: int | None = None
) -> list[tuple[int, int]]:
    """Choose the stored messages that fit: from the newest back, without a hole, and always the first user message.

    Args:
        sizes: The tokens of each message.
        budget: How many tokens the chosen messages may have together.
        groups: Ranges (start, end), in order, that are taken or left as a whole; see
            `loom_dsl.agent.messages.legal_groups`.
        first_user: Index of the message that states the task; None when there is none.

    Returns:
        Ranges (start, end) in order: the task's group and the latest messages.

    Raises:
        ContextLengthExceeded: Not even the latest group and the first user message fit.
    """
    if not groups:
        return []
    sums = [sum(sizes[start:end]) for start, end in groups]
    task = next(
        (i for i, (start, end) in enumerate(groups) if first_user is not None and start <= first_user < end), None
    )
    oldest = len(groups) - 1
    used = sums[oldest] + (sums[task] if task is not None and task != oldest else 0)
    if used > budget:
        raise ContextLengthExceeded(
            f"the latest messages{' and the task' if task not in (None, oldest) else ''} need {used} tokens, but the "
            f"context has room for {max(budget, 0)}; raise limits.max_context_tokens or lower the size of tool results"
        )
    while oldest > 0 and used + (0 if oldest - 1 == task else sums[oldest - 1]) <= budget:
        oldest -= 1
        used += 0 if oldest == task else sums[oldest]
    chosen = [groups[task]] if task is not None and task < oldest else []
    return joined([*chosen, *groups[oldest:]])


def joined(groups: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the ranges that follow one another without a hole."""
    ranges: list[tuple[int, int]] = []
    for start, end in groups:
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
    return ranges
