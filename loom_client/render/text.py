"""Text for a terminal: control characters made visible, and sizes, times and amounts as people read them."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_dsl.run import RunResult

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u2028\u2029"  # other line ends
    "\u202a-\u202e\u2066-\u2069"  # direction overrides: text that reads differently from what it is
    "\ud800-\udfff]"  # lone surrogates, which no encoding takes
)


_FIRST = re.compile(r"#1(?=[\[/]|$)")


def visible(text: str) -> str:
    """Write control characters as escapes such as ``\\x1b``; newlines and tabs stay."""
    return _UNSAFE.sub(lambda found: _escape(found[0]), text.replace("\r\n", "\n"))


def result_text(value: Any) -> str:
    """Give a graph's result: text as it is but visible, everything else as JSON that programs can read back."""
    if isinstance(value, str):
        return visible(value).rstrip("\n")
    written = json.dumps(value, indent=2, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def one_line(text: str, most: int = 0) -> str:
    """Give a text as one visible line, its white space as single spaces, cut to `most` characters (0: not cut)."""
    # A long text is cut before the work as well: only its beginning is wanted.
    line = " ".join(visible(text[: most * 4] if most else text).split())
    return line if not most or len(line) <= most else line[: max(1, most - 1)] + "…"


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


def clock(moment: float | str, now: float) -> str:
    """Give a moment in local time: ``14:03:22`` within twelve hours of `now`, else with the date.

    A day later it is the same time of day, so the time alone would be read as now.

    Args:
        moment: Seconds since 1970, or ISO 8601.
        now: Seconds since 1970.
    """
    seconds = moment_of(moment)
    local = datetime.fromtimestamp(seconds)
    return local.strftime("%H:%M:%S" if abs(now - seconds) < 43_200 else "%Y-%m-%d %H:%M")


def place(at: str) -> str:
    """Give where in a graph something is as people read it: ``review[2]/lint`` of ``review#1[2]/lint#1``."""
    return _FIRST.sub("", at)


def moment_of(moment: float | str) -> float:
    """Give a moment in seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else float(moment)


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


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()
