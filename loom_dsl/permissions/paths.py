"""Paths inside a working directory, and glob patterns over them, both without touching a disk.

What a rule was matched against must be what is opened, so the permissions and the file tools share this module.
Patterns are translated piece by piece into regular expressions that cannot backtrack far: a pattern comes from a
model, and `*a*a*a*a*b` must not take minutes.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

# Patterns with stars as regular expressions that take linear time: a pattern may come from a model.


@lru_cache(maxsize=16_384)
def wildcard(pattern: str) -> re.Pattern[str]:
    """Translate a pattern over any text: `*` stands for anything, also for `/` and for nothing."""
    return with_stars_between([re.escape(piece) for piece in pattern.split("*")])


def with_stars_between(pieces: Sequence[str]) -> re.Pattern[str]:
    """Make one expression of the expressions around the stars of a pattern.

    The leftmost place of each piece between stars is always good enough, hence atomic groups: linear time.
    """
    source = pieces[0]
    for piece in pieces[1:-1]:
        source += f"(?>.*?{piece})" if piece else ""
    if len(pieces) > 1:
        source += f".*{pieces[-1]}"
    return re.compile(source, re.DOTALL)


MAX_ALTERNATIVES = 256
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
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ValueError(f"the pattern {text!r} stands for more than {MAX_ALTERNATIVES} patterns; use fewer braces")
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


# Paths of which a command line tells only a part: `$X/key`, `secr*/key`, and which patterns they could mean.


ANY = "\ue000"
"""In a shape: any text, also `/` and none."""
PART = "\ue001"
"""In a shape: any text without `/`, also none."""
MAX_SPELLINGS = 10_000
"""Paths that are looked for inside the words of one line; of more, nothing is known."""
_MAX_SHAPE = 400
_ROUNDABOUT = re.compile(r"(?:\.?/+)*\.\.(?:/|$)|~|/+proc/|/+dev/fd")
"""Ways by which a path leads out and may come back in."""
_HERE_BY_PROCESS = re.compile(r"/+proc/+[^/]+/+cwd/*")
_WILD = re.compile(f"[{ANY}{PART}]")
_BEHIND = re.compile(r"[=:,@<>]")
_MAX_BEHIND = 24
_MAX_STARS = 3


def is_open(shape: str) -> bool:
    """Say whether nothing of a path is told: only running the line tells it, or it is all of the working directory."""
    return not _WILD.sub("", shape).strip("/.")


def is_partly_open(shape: str) -> bool:
    """Say whether running the line tells a part of a path."""
    return _WILD.search(shape) is not None


def shapes_in(
    words: set[str], root: str | None, *, elsewhere: bool, entered: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Give the paths inside the working directory that words could name, also behind an option or a `:`.

    Args:
        words: The words, literal or as shapes.
        root: The absolute working directory.
        elsewhere: The line changes its directory, so that where a path begins is not known.
        entered: Words that only say where it changes to.
    """
    left = MAX_SPELLINGS
    is_out = any(_holds_root(word, root) for word in entered)
    if any(_holds_root(text, root, is_out=is_out) for word in words - entered for text in _whole(word)):
        yield "."
    for spelled in (_whole, _parts):  # whole words first: padding does not hide them
        for word in sorted(words):
            for text in spelled(word):
                left -= 1
                if left < 0:
                    yield ANY
                    return
                if _ROUNDABOUT.match(text):
                    yield from _below(text)
                if (shape := _normal(text, root)) is not None:
                    yield shape
                    if elsewhere:
                        yield from _below(shape)


def _holds_root(text: str, root: str | None, *, is_out: bool = False) -> bool:
    """Say whether a path that leads out is the working directory, or one above it, wherever on its way it begins.

    Args:
        text: The path.
        root: The absolute working directory.
        is_out: It may begin outside, so that a relative path leads in.
    """
    if _WILD.search(text) or not text:
        return False
    path = posixpath.normpath(text)
    above = [part for part in (root or "").split("/") if part]
    if text.startswith("/"):
        parts = [part for part in path.split("/") if part]
        return _HERE_BY_PROCESS.fullmatch(text) is not None or (root is not None and parts == above[: len(parts)])
    parts = path.split("/")
    rest = [part for part in parts if part != ".."]
    if parts[0] != ".." and not is_out:
        return False
    return any(above[start : start + len(rest)] == rest for start in range(len(above) - len(rest) + 1))


@lru_cache(maxsize=4_096)
def may_mean(pattern: str, shape: str) -> bool:
    """Say whether some text of a shape could fit a pattern of paths, or be a directory above what does."""
    if len(shape) > _MAX_SHAPE or shape == ".":
        return True
    below = f"{shape}/{ANY}"
    return any(_overlap(wanted, text) for wanted in _shape_tokens(pattern) for text in (shape, below))


def _whole(word: str) -> Iterator[str]:
    yield word
    yield word.partition("=")[2]
    yield word.lstrip("<>@")


def _parts(word: str) -> Iterator[str]:
    """Give what may begin in the middle of a word: `HEAD:path`, `-fpath`, `--file=a,path`."""
    for found in list(_BEHIND.finditer(word))[:_MAX_BEHIND]:
        yield word[found.end() :]
    if word.startswith("-"):
        yield from (word[start:] for start in range(2, min(len(word), _MAX_BEHIND)))


def _below(shape: str) -> Iterator[str]:
    parts = [part for part in shape.split("/") if part]
    yield from ("/".join(parts[start:]) for start in range(1, min(len(parts), _MAX_BEHIND)))


def _normal(text: str, root: str | None) -> str | None:
    """Write a path in normal form; None: it lies elsewhere."""
    if not text:
        return None
    text = re.sub(r"^~\+(?=/|$)", ".", text)
    if not _WILD.search(text):
        return normal_path(re.sub(r"^(?:\.?/*\.\./+)+", "", text), root)
    if text.startswith("~"):
        return None
    text = re.sub(r"/(?:\./|/)+", "/", re.sub(r"^(?:\./+)+", "", text))
    if text.startswith("/"):
        known = text[: found.start()] if (found := _WILD.search(text)) else text
        if root is not None and known.startswith(f"{root}/"):
            text = text[len(root) + 1 :]
        elif root is not None and f"{root}/".startswith(known):
            text = ANY + text[len(known) :]
        else:
            return None
    if "../" in text:
        text = ANY + text.rpartition("../")[2]
    return text.rstrip("/") or "."


@lru_cache(maxsize=1_024)
def _shape_tokens(pattern: str) -> tuple[str, ...]:
    """Write a pattern of paths as shapes; what they mean is never less than what it means."""
    found: list[str] = []
    for text in braces_expanded(pattern):
        marked = re.sub(
            r"\[(?:[!^]?\][^\]]*|[^\]]+)\]|\?", PART, "/".join(p for p in text.split("/") if p not in ("", "."))
        )
        marked = marked + "/**" if text.endswith("/") else marked
        found += [re.sub(r"\*", PART, choice) for choice in _without_stars(marked)]
    return tuple(found)


def _without_stars(text: str) -> list[str]:
    """Write `a/**/b` as `a/b` and `a/ANY/b`."""
    places = [place for place, part in enumerate(text.split("/")) if part == "**"]
    if len(places) > _MAX_STARS:
        return [ANY]
    choices = [text.split("/")]
    for place in places:
        choices = [[*one[:place], what, *one[place + 1 :]] for one in choices for what in ("", ANY)]
    return ["/".join(part for part in one if part) for one in choices]


def _overlap(first: str, second: str) -> bool:
    """Say whether a text fits both; in time that is the product of both lengths."""
    row = _free(second)
    for at in range(len(first) + 1):
        if at:
            row = _next_row(row, first[at - 1], second)
    return row[-1]


def _free(second: str) -> list[bool]:
    row = [True]
    for letter in second:
        row.append(row[-1] and letter in (ANY, PART))
    return row


def _next_row(row: list[bool], wanted: str, second: str) -> list[bool]:
    """One letter more of the first: `row[n]` says whether it and n letters of the second could be one text."""
    following = [row[0] and wanted in (ANY, PART)]
    for at, letter in enumerate(second):
        if wanted in (ANY, PART):
            following.append(row[at + 1] or (following[at] and (wanted == ANY or letter != "/")))
        elif letter in (ANY, PART):
            following.append(following[at] or (row[at + 1] and (letter == ANY or wanted != "/")))
        else:
            following.append(row[at] and letter == wanted)
    return following
