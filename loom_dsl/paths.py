"""Paths inside a working directory, and glob patterns over them, both without touching a disk.

What a rule was matched against must be what is opened, so the permissions and the file tools share this module.
Patterns are translated piece by piece into regular expressions that cannot backtrack far: a pattern comes from a
model, and `*a*a*a*a*b` must not take minutes.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from loom_dsl.wildcards import with_stars_between

MOST_ALTERNATIVES = 256
"""How many patterns the braces of one pattern may stand for."""


def normal_path(path: str, root: str | None = None) -> str | None:
    """Write a path as its shortest form relative to the working directory; `.` is the directory itself.

    Args:
        path: As a model or a user wrote it. `..` is taken back textually, before any symbolic link is looked at.
        root: The absolute working directory; an absolute path below it becomes relative. None: absolute paths are
            not accepted.

    Returns:
        The relative path with `/` between its parts, or None when it leads out of the working directory.
    """
    if "\0" in path:
        return None
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not parts:
                if path.startswith("/"):
                    continue
                return None
            parts.pop()
        else:
            parts.append(part)
    if path.startswith("/"):
        top = [part for part in (root or "").split("/") if part]
        if root is None or parts[: len(top)] != top:
            return None
        parts = parts[len(top) :]
    if parts[:1] == ["~"]:  # means the home directory to whoever wrote it
        return None
    return "/".join(parts) or "."


class PathPattern:
    """A glob over relative paths.

    `*` and `?` stand for characters other than `/`, `[abc]` and `[!a-z]` for one character, `{a,b}` for either text,
    and `**` as a whole part for any number of directories, none included. A name that starts with a dot is a name
    like any other. A pattern that ends in `/` means all that is below.

    Raises:
        ValueError: The pattern is empty, absolute, climbs with `..`, or has too many alternatives.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._alternatives = _compile(text)

    def matches(self, path: str) -> bool:
        """Say whether a normal relative path fits the pattern."""
        return any(len(segments) in _advance(segments, path) for segments in self._alternatives)

    def reaches_below(self, directory: str) -> bool:
        """Say whether the pattern could fit the directory itself or anything inside it."""
        return any(_advance(segments, directory) for segments in self._alternatives)

    def __repr__(self) -> str:
        return f"PathPattern({self.text!r})"


_Segment = re.Pattern[str] | None
"""One part of a pattern; None stands for `**`."""


@lru_cache(maxsize=16_384)
def _compile(text: str) -> tuple[tuple[_Segment, ...], ...]:
    if not text:
        raise ValueError("the pattern is empty; write one such as src/**/*.py")
    if text.startswith(("/", "~/")):
        raise ValueError(f"the pattern {text!r} is absolute; write it relative to the working directory")
    compiled = []
    for alternative in braces_expanded(text):
        parts = [part for part in alternative.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise ValueError(f"the pattern {text!r} climbs with '..'; write it relative to the working directory")
        if alternative.endswith("/"):
            parts.append("**")
        compiled.append(tuple(None if part == "**" else _compile_segment(part) for part in parts))
    return tuple(compiled)


def _advance(segments: tuple[_Segment, ...], path: str) -> set[int]:
    """Return the positions in the pattern where a reader of the whole path may stand."""
    states = _skip_any({0}, segments)
    for part in path.split("/"):
        if part in ("", "."):
            continue
        following = set()
        for state in states:
            if state == len(segments):
                continue
            segment = segments[state]
            if segment is None:
                following.add(state)
            elif segment.fullmatch(part):
                following.add(state + 1)
        states = _skip_any(following, segments)
        if not states:
            break
    return states


def _skip_any(states: set[int], segments: tuple[_Segment, ...]) -> set[int]:
    reached = set(states)
    for state in states:
        here = state
        while here < len(segments) and segments[here] is None:
            here += 1
            reached.add(here)
    return reached


def _compile_segment(text: str) -> re.Pattern[str]:
    """Translate one part."""
    pieces = [""]
    for token in _tokens(text):
        if token == "*":
            pieces.append("")
        else:
            pieces[-1] += token
    return with_stars_between(pieces)


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        char = text[position]
        if char == "[" and (end := _class_end(text, position)):
            yield _character_class(text[position + 1 : end])
            position = end
        elif char == "?":
            yield "."
        else:
            yield char if char == "*" else re.escape(char)
        position += 1


def _class_end(text: str, start: int) -> int | None:
    """Find the `]` that closes a class; right after the opening it is an ordinary member."""
    first = start + 2 if text[start + 1 : start + 2] in ("!", "^") else start + 1
    end = text.find("]", first + 1)
    return end if end > 0 else None


def _character_class(body: str) -> str:
    negated = body[0] in "!^" and len(body) > 1
    members = body[1:] if negated else body
    source = ""
    position = 0
    while position < len(members):
        low, dash, high = members[position], members[position + 1 : position + 2], members[position + 2 : position + 3]
        if dash == "-" and high:
            if low > high:
                raise ValueError(f"the range {low}-{high} in [{body}] runs backwards")
            source += f"{re.escape(low)}-{re.escape(high)}"
            position += 3
        else:
            source += re.escape(low)
            position += 1
    return f"[{'^' if negated else ''}{source}]"


def braces_expanded(text: str) -> list[str]:
    """Write `a{b,c}` as `ab` and `ac`; braces without a comma, and those in a class, are ordinary characters."""
    done: list[str] = []
    waiting = [text]
    while waiting:
        current = waiting.pop()
        found = _first_braces(current)
        if found is None:
            done.append(current)
        else:
            start, end, choices = found
            waiting.extend(current[:start] + choice + current[end + 1 :] for choice in reversed(choices))
        if len(done) + len(waiting) > MOST_ALTERNATIVES:
            raise ValueError(
                f"the pattern {text!r} stands for more than {MOST_ALTERNATIVES} patterns; use fewer braces"
            )
    return done


def _first_braces(text: str) -> tuple[int, int, list[str]] | None:
    position = 0
    while position < len(text):
        if text[position] == "[" and (end := _class_end(text, position)):
            position = end
        elif text[position] == "{":
            closing = text.find("}", position)
            inner = text[position + 1 : closing]
            if closing > 0 and "," in inner and "{" not in inner:
                return position, closing, inner.split(",")
        position += 1
    return None


def escape_pattern(path: str) -> str:
    """Write a path as the pattern that fits this path only."""
    return re.sub(r"([*?\[{}])", r"[\1]", path)
