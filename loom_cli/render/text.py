"""Text for a terminal: control characters made visible, and sizes, times and amounts as people read them."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loom_dsl.text.printable import UNSAFE, visible

if TYPE_CHECKING:
    from loom_dsl.agent.run import RunResult


_FIRST = re.compile(r"#1(?=[\[/]|$)")


def result_text(value: Any) -> str:
    """Give a graph's result: text as it is but visible, everything else as JSON that programs can read back."""
    if isinstance(value, str):
        return visible(value).rstrip("\n")
    written = json.dumps(value, indent=2, ensure_ascii=False)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def size(count: int) -> str:
    """Give a number of bytes or characters: ``812``, ``4.1 K``, ``2.0 M``."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f} K" if count < 1_000_000 else f"{count / 1_000_000:.1f} M"


def duration(seconds: float) -> str:
    """Give a time span: ``12 ms``, ``3.4 s``, ``2 min 5 s``, ``3 h 2 min``, ``4 d 1 h``."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    for unit, name, smaller, small_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name} {rest} {small_name}" if rest else f"{whole // unit} {name}"
    raise AssertionError("unreachable")


def place(at: str) -> str:
    """Give where in a graph something is as people read it: ``review[2]/lint`` of ``review#1[2]/lint#1``."""
    return _FIRST.sub("", at)


def plural(count: int, word: str, many: str = "") -> str:
    """Give ``1 turn`` or ``1,200 turns``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {many or word + 's'}"


def compressed_line(sizes: Mapping[str, Any]) -> str:
    """Say what a compression left of a conversation, as its event tells: of messages and of tokens."""
    told = [
        " -> ".join(_count(sizes.get(f"{what}_{when}")) for when in ("before", "after")) + f" {what}"
        for what in ("messages", "tokens")
    ]
    return f"conversation compressed: {', '.join(told)}"


def usage_line(result: "RunResult", seconds: float | None = None, between: str = " · ") -> str:
    """Say in one line what a run used."""
    usage = result.usage
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    parts = [
        plural(result.recursion_stats.max_depth + 1, "turn"),
        plural(usage.model_calls, "model call"),
        plural(usage.tool_calls, "tool call"),
        f"{usage.prompt_tokens:,} tokens in{cached}, {usage.completion_tokens:,} out",
        *([f"{usage.wasted.total_tokens:,} wasted"] if usage.wasted.total_tokens else []),
        f"${usage.cost_usd:.4f}" if usage.cost_usd else "cost unknown",
    ]
    if seconds is not None:
        parts.append(duration(seconds))
    return visible(between.join(parts))


def _count(count: object) -> str:
    return f"{count:,}" if isinstance(count, int) else "?"
