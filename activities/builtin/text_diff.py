"""A change of a text file as lines for whoever approves it; line ends show, and so does what only looks like one."""

import difflib
import re
from collections.abc import Iterable

from loom_dsl.redaction import cut_middle

LONGEST = 64_000
"""Characters of a difference that are kept."""
MOST_COMPARED = 4_000
"""Lines of a file that are compared with one another; comparing takes quadratic time."""
NO_END = "\\ No newline at end of file"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BREAKS = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""What a terminal, a browser or a program may take for the end of a line, and a compiler does not, or not always."""


def difference(path: str, old: str | None, new: str) -> str:
    """Show a change as a unified diff.

    Args:
        path: The file's.
        old: Its text; None: there is no file.
        new: Its text after the change.

    Returns:
        The diff, cut in its middle where it is too long; empty where the texts are the same.
    """
    name = _shown(path).replace("\n", "\\n")
    notes = [] if old is None else list(_ends(old, new))
    if old is not None and _is_crlf(old) and _is_crlf(new):  # on both sides, so that it would only be in the way
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    before, after = _LINE.findall(old or ""), _LINE.findall(new)
    if old and len(before) + len(after) > MOST_COMPARED:
        if old == new:
            return ""
        many = f"{name}: {len(before)} lines are replaced by {len(after)} lines; too many to compare here"
        return _joined([*notes, many], (f"+{line}" for line in after))
    heads = ("/dev/null" if old is None else f"a/{name}", f"b/{name}")
    lines = list(difflib.unified_diff(before, after, *heads))
    if not lines and old is None:
        return f"--- /dev/null\n+++ b/{name}\n(a new file, which is empty)"
    return _joined(notes, lines) if lines else ""


def _joined(notes: Iterable[str], lines: Iterable[str]) -> str:
    written = (_shown(line) if line.endswith("\n") else f"{_shown(line)}\n{NO_END}\n" for line in lines)
    return cut_middle("".join([*(f"{note}\n" for note in notes), *written]).removesuffix("\n"), LONGEST)[0]


def _shown(text: str) -> str:
    return _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _ends(old: str, new: str) -> Iterable[str]:
    """Say that the line ends change, which the lines alone say less plainly."""
    if _is_crlf(old) != _is_crlf(new) and "\n" in old and "\n" in new:
        names = ("CR LF", "LF") if _is_crlf(old) else ("LF", "CR LF")
        yield "the line ends change from {} to {}".format(*names)


def _is_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")
