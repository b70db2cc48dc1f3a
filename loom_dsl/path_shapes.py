"""Paths of which a command line tells only a part: `$X/key`, `secr*/key`, and which patterns they could mean."""

import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache

from loom_dsl.paths import braces_expanded, normal_path

ANY = "\ue000"
"""In a shape: any text, also `/` and none."""
PART = "\ue001"
"""In a shape: any text without `/`, also none."""
MOST_SPELLINGS = 10_000
"""Paths that are looked for inside the words of one line; of more, nothing is known."""
_LONGEST = 400
_ROUNDABOUT = re.compile(r"(?:\.?/+)*\.\.(?:/|$)|~|/+proc/|/+dev/fd")
"""Ways by which a path leads out and may come back in."""
_HERE_BY_PROCESS = re.compile(r"/+proc/+[^/]+/+cwd/*")
_WILD = re.compile(f"[{ANY}{PART}]")
_BEHIND = re.compile(r"[=:,@<>]")
_MOST_BEHIND = 24
_MOST_STARS = 3


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
    left = MOST_SPELLINGS
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
    if len(shape) > _LONGEST or shape == ".":
        return True
    below = f"{shape}/{ANY}"
    return any(_overlap(wanted, text) for wanted in _tokens(pattern) for text in (shape, below))


def _whole(word: str) -> Iterator[str]:
    yield word
    yield word.partition("=")[2]
    yield word.lstrip("<>@")


def _parts(word: str) -> Iterator[str]:
    """Give what may begin in the middle of a word: `HEAD:path`, `-fpath`, `--file=a,path`."""
    for found in list(_BEHIND.finditer(word))[:_MOST_BEHIND]:
        yield word[found.end() :]
    if word.startswith("-"):
        yield from (word[start:] for start in range(2, min(len(word), _MOST_BEHIND)))


def _below(shape: str) -> Iterator[str]:
    parts = [part for part in shape.split("/") if part]
    yield from ("/".join(parts[start:]) for start in range(1, min(len(parts), _MOST_BEHIND)))


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
def _tokens(pattern: str) -> tuple[str, ...]:
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
    if len(places) > _MOST_STARS:
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
