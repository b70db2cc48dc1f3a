"""Text for terminals and logs: control characters made visible, and a text as one line."""

import re
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u2028\u2029"  # other line ends
    "\u202a-\u202e\u2066-\u2069"  # direction overrides: text that reads differently from what it is
    "\ud800-\udfff]"  # lone surrogates, which no encoding takes
)


def visible(text: str) -> str:
    """Write control characters as escapes such as ``\\x1b``; newlines and tabs stay."""
    return UNSAFE.sub(lambda found: escape(found[0]), text.replace("\r\n", "\n"))


def one_line(text: str, most: int = 0) -> str:
    """Give a text as one visible line, its white space as single spaces, cut to `most` characters (0: not cut)."""
    # A long text is cut before the work as well: only its beginning is wanted.
    line = " ".join(visible(text[: most * 4] if most else text).split())
    return line if not most or len(line) <= most else line[: max(1, most - 1)] + "…"


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


def moment_of(moment: float | str) -> float:
    """Give a moment in seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else float(moment)


def escape(character: str) -> str:
    """Write a character as an escape such as ``\\x1b``."""
    return character.encode("unicode_escape", "backslashreplace").decode()
