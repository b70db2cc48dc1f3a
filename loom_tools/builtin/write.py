"""Writing and changing files."""

import difflib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loom_dsl.errors import LoomError, ToolError
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.text.redaction import cut_middle
from loom_dsl.tools.context import Preview, Reconciliation, ToolContext
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.tool import tool
from loom_tools.builtin.read import file_key
from loom_tools.builtin.text_file import MAX_READ, TextFile, decode, describe_size, readable
from loom_tools.workspace.replace import ABSENT, Expected, FileChanged
from loom_tools.workspace.workspace import Workspace

# The state of a file that a call is to change, by which it is known whether that is what the approver was shown.


@dataclass(frozen=True, slots=True)
class FileState:
    """What is at a path.

    Attributes:
        name: The same as long as the file's content is.
        expected: What `Workspace.open_write` is to find there still.
        data: The content as far as it is read; None where there is no file, or one that cannot be read.
        size: The file's size in bytes.
        problem: Why it cannot be read, or empty.
    """

    name: str
    expected: Expected
    data: bytes | None = None
    size: int = 0
    problem: str = ""

    @property
    def is_there(self) -> bool:
        """Whether there is anything."""
        return self.expected is not ABSENT


def state_at(space: Workspace, path: str) -> FileState:
    """Look what is at a path.

    Raises:
        PermissionDenied: The path leads out of the working directory, or is always refused.
        ToolError: It is no path.
    """
    where = space.relative(path)
    if not space.exists(path):
        return FileState(_name(where, "absent"), ABSENT)
    try:
        with space.open_read(path) as file:
            as_read = os.fstat(file.fileno())
            data = file.read(MAX_READ)
            return FileState(state_name(where, data, as_read), as_read, data, as_read.st_size)
    except LoomError as error:
        as_seen = space.stat(path)
        return FileState(_name(where, *_identity(as_seen)), as_seen, size=as_seen.st_size, problem=error.message)


def state_name(where: str, data: bytes, as_read: os.stat_result | None = None) -> str:
    """Name the state of a file with this content; of a large one only the beginning is looked at, and its time."""
    more = _identity(as_read) if as_read is not None and as_read.st_size > MAX_READ else ()
    return _name(where, hashlib.sha256(data).hexdigest(), *more)


def _identity(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _name(where: str, *state: str | int) -> str:
    return digest(canonical_json([where, *state]))


# Deleting files.


def _preview(arguments: dict[str, Any], context: ToolContext) -> Preview:
    path = arguments["path"]
    try:
        with Workspace(context.working_dir) as space:
            found = state_at(space, path)
    except LoomError as error:
        return Preview(f"delete {path} ({error.message})")
    if found.data is None:
        return Preview(f"delete {path} ({found.problem or 'there is none'})", state=found.name)
    beginning = found.data[:2_000].decode("utf-8", "replace")
    text = f"delete {path} ({describe_size(found.size)}), which begins with\n{beginning}"
    return Preview(text, state=found.name)


def _reconcile(arguments: dict[str, Any], context: ToolContext) -> Reconciliation:
    """Look whether it is gone: an earlier attempt is the likely reason, though not the only one."""
    try:
        with Workspace(context.working_dir) as space:
            there = space.exists(arguments["path"])
    except LoomError:
        return Reconciliation(outcome="unknown")
    if there:
        return Reconciliation(outcome="not_happened")
    return Reconciliation(outcome="happened", result=f"Deleted {arguments['path']}")


@tool(
    path_arguments=("path",),
    concurrency_key=file_key,
    timeout=30,
    risk=Risk.HIGH,  # nothing brings the content back
    summarise=lambda arguments: f"delete {arguments.get('path')}",
    preview=_preview,
    reconcile=_reconcile,
)
def delete_file(context: ToolContext, path: str) -> str:
    """Delete one file, or a directory that is empty.

    Args:
        path: Path relative to the working directory.
    """
    with Workspace(context.working_dir) as space:
        if context.approved_states:
            context.check_state(state_at(space, path).name, repr(path))
        what = space.delete(path)
    return f"Deleted {'the empty directory ' if what == 'directory' else ''}{path}"


# A change of a text file as lines for whoever approves it; line ends show, and so does what only looks like one.


MAX_DIFFERENCE = 64_000
"""Characters of a difference that are kept."""
MAX_COMPARED = 4_000
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
    if old and len(before) + len(after) > MAX_COMPARED:
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
    return cut_middle("".join([*(f"{note}\n" for note in notes), *written]).removesuffix("\n"), MAX_DIFFERENCE)[0]


def _shown(text: str) -> str:
    return _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _ends(old: str, new: str) -> Iterable[str]:
    """Say that the line ends change, which the lines alone say less plainly."""
    if _is_crlf(old) != _is_crlf(new) and "\n" in old and "\n" in new:
        names = ("CR LF", "LF") if _is_crlf(old) else ("LF", "CR LF")
        yield "the line ends change from {} to {}".format(*names)


def _is_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")


_MAX_ATTEMPTS = 3
_WORD = re.compile(r"\w{3,40}")


def _preview_write(arguments: dict[str, Any], context: ToolContext) -> Preview:
    path, content = arguments["path"], arguments["content"]
    try:
        with Workspace(context.working_dir) as space:
            found = state_at(space, path)
    except LoomError as error:
        return Preview(f"This write would replace something that cannot be shown: {error.message}")
    return Preview(_written(path, found, content), state=found.name)


def _written(path: str, found: FileState, content: str) -> str:
    """Show what becomes of a file that is replaced."""
    if not found.is_there:
        return difference(path, None, content)
    if found.data == content.encode("utf-8", "surrogatepass"):
        return f"{path}: nothing changes"
    try:
        if found.problem or found.data is None:
            raise ToolError(found.problem)
        if found.size > len(found.data):
            raise ToolError(f"it has {describe_size(found.size)}, which is too much to compare")
        old = decode(path, found.data)
    except LoomError as error:
        return f"This write would replace something that cannot be shown: {error.message}\n" + difference(
            path, None, content
        )
    notes = [f"the file is {old.encoding} and becomes utf-8"] if old.encoding != "utf-8" else []
    if old.strange_bytes:
        notes.append(f"{old.strange_bytes} bytes of the file are no text, are shown as \ufffd, and go away")
    return "\n".join([*notes, *filter(None, [difference(path, readable(old.text), content)])])


def _write_summary(arguments: dict[str, Any]) -> str:
    return f"write {arguments.get('path')} ({len(arguments.get('content', ''))} characters)"


@tool(
    path_arguments=("path",),
    concurrency_key=file_key,
    idempotent=True,  # the same content twice is the same file
    timeout=30,
    summarise=_write_summary,
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
        there, after = space.exists(path), state_name(space.relative(path), data)
        expected = _approved_state(space, context, path, data) if context.approved_states else None
        try:
            with space.open_write(path, expected) as file:
                file.write(data)
        except FileChanged:
            context.check_state("", repr(path))
            raise
    context.leaves(after)
    return f"{'Replaced' if there else 'Created'} {path}: {describe_size(len(data))}, {_count_lines(content)} lines"


def _approved_state(space: Workspace, context: ToolContext, path: str, data: bytes) -> Expected:
    """Look whether the file is what the approver was shown, or what an attempt before this one left of it."""
    found = state_at(space, path)
    if found.data != data:
        context.check_state(found.name, repr(path))
    return found.expected


def _preview_edit(arguments: dict[str, Any], context: ToolContext) -> Preview:
    state = ""
    try:
        with Workspace(context.working_dir) as space:
            state = state_at(space, arguments["path"]).name
            found, _, as_found = _read_whole(space, arguments["path"])
            changed, _ = _replace(found, **arguments)
    except LoomError as error:
        return Preview(f"This edit would fail: {error.message}", state=state)
    shown = difference(arguments["path"], readable(found.text), readable(changed))
    return Preview(shown or "only bytes change that are no text", state=as_found)


def _reconcile_edit(arguments: dict[str, Any], context: ToolContext) -> Reconciliation:
    """Look whether an edit that nobody saw the end of is in the file, which is replaced in one step or not at all."""
    try:
        with Workspace(context.working_dir) as space:
            found, _, _ = _read_whole(space, arguments["path"])
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
    for attempt in range(_MAX_ATTEMPTS):
        try:
            places = _edit(context, path, old, new, replace_all)
            break
        except FileChanged:  # by somebody else, after it was read: what they wrote counts
            if attempt + 1 == _MAX_ATTEMPTS:
                raise ToolError(f"{path!r} is being changed by somebody else all the time; read it again") from None
    where = ", ".join(map(str, places[:10])) + (", ..." if len(places) > 10 else "")
    return f"Edited {path}: {len(places)} replacement{'' if len(places) == 1 else 's'}, at line {where}"


def _edit(context: ToolContext, path: str, old: str, new: str, replace_all: bool) -> list[int]:
    with Workspace(context.working_dir) as space:
        found, as_read, state = _read_whole(space, path)
        context.check_state(state, repr(path))
        changed, places = _replace(found, path, old, new, replace_all)
        data = found.encode(changed)
        with space.open_write(path, as_read) as file:
            file.write(data)
        context.leaves(state_name(space.relative(path), data))
    return places


def _read_whole(space: Workspace, path: str) -> tuple[TextFile, os.stat_result, str]:
    """Give a file's text, what it was when it was read, and the name of its state."""
    with space.open_read(path) as file:
        as_read = os.fstat(file.fileno())
        size = as_read.st_size
        if size > MAX_READ:
            raise ToolError(
                f"{path!r} has {describe_size(size)}; edit_file takes files up to {describe_size(MAX_READ)}"
            )
        data = file.read(MAX_READ)
        return decode(path, data), as_read, state_name(space.relative(path), data)


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
    candidates = [line[:200] for line in stripped[:MAX_COMPARED]]
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


def _count_lines(text: str) -> int:
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)
