"""Writing and changing files."""

import difflib
import os
import re
from collections.abc import Iterator

from activities.builtin.read import file_key
from activities.builtin.text_file import LARGEST_READ, TextFile, describe_size, read_text, readable
from activities.replace_file import FileChanged
from activities.workspace import Workspace
from loom_dsl.errors import LoomError, ToolError
from loom_dsl.redaction import cut_middle
from loom_dsl.tools import Arguments, Reconciliation, ToolContext, tool

_LONGEST_PREVIEW = 8_000
_MOST_ATTEMPTS = 3
_WORD = re.compile(r"\w{3,40}")
_MOST_COMPARED = 4_000
"""Lines of a file that are compared with one another; comparing takes quadratic time."""


def _preview_write(arguments: Arguments, context: ToolContext) -> str:
    path, content = arguments["path"], arguments["content"]
    try:
        with Workspace(context.working_dir) as space:
            if not space.exists(path):
                return _diff(path, "", content, new_file=True)
            with space.open_read(path) as file:
                old = read_text(path, file)
    except LoomError as error:
        return f"This write would replace something that cannot be shown: {error.message}"
    return _diff(path, readable(old.text), content)


@tool(
    path_arguments=("path",),
    concurrency_key=file_key,
    idempotent=True,  # the same content twice is the same file
    timeout=30,
    summarise=lambda arguments: f"write {arguments.get('path')} ({len(arguments.get('content', ''))} characters)",
    preview=_preview_write,
)
def write_file(context: ToolContext, path: str, content: str) -> str:
    """Write a whole text file. A file that is there is replaced; missing directories are made.

    Args:
        path: Path relative to the working directory.
        content: The file's whole new content.
    """
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the content is not text that a file can hold: {error.reason}") from error
    with Workspace(context.working_dir) as space:
        there = space.exists(path)
        with space.open_write(path) as file:
            file.write(data)
    return f"{'Replaced' if there else 'Created'} {path}: {describe_size(len(data))}, {_count_lines(content)} lines"


def _preview_edit(arguments: Arguments, context: ToolContext) -> str:
    try:
        with Workspace(context.working_dir) as space:
            found, _ = _read_whole(space, arguments["path"])
            changed, _ = _replace(found, **arguments)
    except LoomError as error:
        return f"This edit would fail: {error.message}"
    return _diff(arguments["path"], readable(found.text), readable(changed))


def _reconcile_edit(arguments: Arguments, context: ToolContext) -> Reconciliation:
    """Look whether an edit that nobody saw the end of is in the file, which is replaced in one step or not at all."""
    try:
        with Workspace(context.working_dir) as space:
            found, _ = _read_whole(space, arguments["path"])
    except LoomError:
        return Reconciliation(outcome="unknown")
    old, new = (_as_in_file(found, arguments[name]) for name in ("old", "new"))
    if old not in found.text and new in found.text:
        return Reconciliation(outcome="happened", result=f"Edited {arguments['path']}")
    if old in found.text and (not new or new not in found.text):
        return Reconciliation(outcome="not_happened")
    return Reconciliation(outcome="unknown")


@tool(
    path_arguments=("path",),
    concurrency_key=file_key,
    timeout=30,
    summarise=lambda arguments: f"edit {arguments.get('path')}",
    preview=_preview_edit,
    reconcile=_reconcile_edit,
)
def edit_file(context: ToolContext, path: str, old: str, new: str, replace_all: bool = False) -> str:
    """Replace a piece of text in a file by another. The piece must be there exactly once, unless all are replaced.

    Args:
        path: Path relative to the working directory.
        old: The text to replace, exactly as it stands in the file, with its white space and without line numbers.
        new: The text to put in its place.
        replace_all: Replace every occurrence.
    """
    for attempt in range(_MOST_ATTEMPTS):
        try:
            places = _edit(context, path, old, new, replace_all)
            break
        except FileChanged:  # by somebody else, after it was read: what they wrote counts
            if attempt + 1 == _MOST_ATTEMPTS:
                raise ToolError(f"{path!r} is being changed by somebody else all the time; read it again") from None
    where = ", ".join(map(str, places[:10])) + (", ..." if len(places) > 10 else "")
    return f"Edited {path}: {len(places)} replacement{'' if len(places) == 1 else 's'}, at line {where}"


def _edit(context: ToolContext, path: str, old: str, new: str, replace_all: bool) -> list[int]:
    with Workspace(context.working_dir) as space:
        found, as_read = _read_whole(space, path)
        changed, places = _replace(found, path, old, new, replace_all)
        data = found.encode(changed)
        with space.open_write(path, as_read) as file:
            file.write(data)
    return places


def _read_whole(space: Workspace, path: str) -> tuple[TextFile, os.stat_result]:
    with space.open_read(path) as file:
        as_read = os.fstat(file.fileno())
        size = as_read.st_size
        if size > LARGEST_READ:
            raise ToolError(
                f"{path!r} has {describe_size(size)}; edit_file takes files up to {describe_size(LARGEST_READ)}"
            )
        return read_text(path, file), as_read


def _as_in_file(found: TextFile, text: str) -> str:
    """Give a text the line ends of the file: a model is shown the lines without them."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if found.crlf else text


def _replace(found: TextFile, path: str, old: str, new: str, replace_all: bool) -> tuple[str, list[int]]:
    """Return the changed text and the lines at which it changed."""
    if not old:
        raise ToolError("'old' is empty; give the text to replace, or use write_file to write a whole file")
    old, new = _as_in_file(found, old), _as_in_file(found, new)
    if old == new:
        raise ToolError("'old' and 'new' are the same, so nothing would change")
    places = list(_places(found.text, old))
    if not places:
        raise ToolError(f"'old' is not in {path!r}. {_nearest(found.text, old)}")
    if len(places) > 1 and not replace_all:
        shown = ", ".join(map(str, places[:10])) + (", ..." if len(places) > 10 else "")
        raise ToolError(
            f"'old' is in {path!r} {len(places)} times, at line {shown}; "
            "give more of the text around the one you mean, or set replace_all"
        )
    return found.text.replace(old, new), places


def _places(text: str, piece: str) -> Iterator[int]:
    line, position = 1, 0
    while (following := text.find(piece, position)) >= 0:
        line += text.count("\n", position, following)
        yield line
        line += piece.count("\n")
        position = following + len(piece)


def _nearest(text: str, old: str) -> str:
    """Show the lines that were probably meant."""
    lines = text.split("\n")
    wanted = [line.strip() for line in old.strip().splitlines()] or [""]
    stripped = [line.strip() for line in lines]
    for start in range(len(lines) - len(wanted) + 1):
        if stripped[start] == wanted[0] and stripped[start : start + len(wanted)] == wanted:
            return _show("It differs only in white space from", lines, range(start, start + len(wanted)))
    first = max(wanted, key=len, default="")[:200]
    candidates = [line[:200] for line in stripped[:_MOST_COMPARED]]
    close = difflib.get_close_matches(first, dict.fromkeys(candidates), 3, 0.6)
    numbers = sorted(candidates.index(line) for line in close) or _with_like_words(candidates, first)
    if not numbers:
        return "No line is like it; read the file again and copy the text exactly."
    return _show("The closest lines are", lines, numbers)


def _with_like_words(lines: list[str], piece: str) -> list[int]:
    """Find the lines that share the most words with a piece of a line; else one that has a word like its longest."""
    wanted = set(_WORD.findall(piece))
    if not wanted:
        return []
    shared = {number: len(wanted.intersection(_WORD.findall(line))) for number, line in enumerate(lines)}
    best = max(shared.values(), default=0)
    if best:
        return [number for number, count in shared.items() if count == best][:3]
    words = {word: number for number, line in reversed(list(enumerate(lines))) for word in _WORD.findall(line)}
    close = difflib.get_close_matches(max(wanted, key=len), words, 1, 0.6)
    return [words[word] for word in close]


def _show(words: str, lines: list[str], numbers: range | list[int]) -> str:
    shown = [f"{number + 1}: {readable(lines[number])[:200]}" for number in numbers[:10]]
    return "\n".join([f"{words}:", *shown, "Copy the text exactly as it stands there, without the line numbers."])


def _diff(path: str, old: str, new: str, *, new_file: bool = False) -> str:
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _MOST_COMPARED and before:
        text = f"{path}: {len(before)} lines are replaced by {len(after)} lines; too many to compare here"
        return f"{text}\n{cut_middle(new, _LONGEST_PREVIEW)[0]}"
    names = ("/dev/null" if new_file else f"a/{path}", f"b/{path}")
    lines = difflib.unified_diff(before, after, *names, lineterm="")
    return cut_middle("\n".join(lines), _LONGEST_PREVIEW)[0] or f"{path}: nothing changes"


def _count_lines(text: str) -> int:
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)
