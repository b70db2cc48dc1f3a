"""Finding files by name and lines by content."""

import contextlib
import json
import os
import re
import selectors
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from loom_dsl.errors import Aborted, PermissionDenied, ToolError, ToolTimeout
from loom_dsl.permissions.paths import PathPattern, escape_pattern
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import tool
from loom_tools.builtin.text_file import HEAD, PAGE, describe_size, is_binary, read_text
from loom_tools.workspace.listing import SKIPPED_DIRECTORIES
from loom_tools.workspace.protected import is_secret
from loom_tools.workspace.workspace import Workspace

# A regular expression that is run in a process of its own, so that searching can be stopped at any moment.


_SCRIPT = Path(__file__).with_name("match_lines.py")
_POLL = 0.1
"""Seconds between two looks whether the call was cancelled."""


class LineMatcher:
    """Finds the lines of texts that match.

    Args:
        pattern: A Python regular expression.
        ignore_case: Upper and lower case are the same.
        seconds: How long one text may take.
        cancelled: Asked while waiting.

    Raises:
        ToolError: The pattern is not a regular expression.
        ToolTimeout: Compiling it takes too long.
    """

    def __init__(self, pattern: str, *, ignore_case: bool, seconds: float, cancelled: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._cancelled = cancelled
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._selector = selectors.DefaultSelector()
        order = {"pattern": pattern, "ignore_case": ignore_case, "seconds": seconds}
        try:
            self._selector.register(self._output, selectors.EVENT_READ)
            answer = self._ask(json.dumps(order).encode() + b"\n", "compiling the pattern")
            if answer["error"] is not None:
                raise ToolError(f"{pattern!r} is not a regular expression: {answer['error']}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._selector.close()
        self._process.kill()
        with contextlib.suppress(BrokenPipeError), self._process:  # a request may be half written
            pass

    def find(self, name: str, data: bytes, most: int) -> list[tuple[int, str]]:
        """List the first lines of a text that match, with their numbers from 1.

        Args:
            name: What the text is, for messages.
            data: The text as UTF-8.
            most: How many lines are wanted.

        Raises:
            ToolTimeout: It takes too long.
            Aborted: The call was cancelled.
        """
        head = len(data).to_bytes(8, "big") + most.to_bytes(4, "big")
        return [(number, line) for number, line in self._ask(head + data, f"searching {name}")]

    def _ask(self, request: bytes, doing: str) -> Any:
        deadline = time.monotonic() + self._seconds + 2.0  # the process ends itself first
        try:
            self._input.write(request)
            self._input.flush()
        except BrokenPipeError:
            raise self._too_long(doing) from None
        while not self._selector.select(_POLL):
            if self._cancelled():
                raise Aborted("the search was stopped, because the job was")
            if time.monotonic() > deadline:
                raise self._too_long(doing)
        line = self._output.readline()
        if not line:
            raise self._too_long(doing)
        return json.loads(line)

    def _too_long(self, doing: str) -> ToolTimeout:
        return ToolTimeout(
            f"{doing} took more than {self._seconds:g} seconds; simplify the pattern, "
            "above all repetitions inside repetitions such as (a+)+"
        )


# Which files to look at, found by ripgrep where it is installed. The lines are found by `LineMatcher` either way.
#
# So a search means the same with ripgrep and without: it only leaves out files in which nothing can match.


_CLASS = r"\[\^?[A-Za-z0-9_ .,:;/@#%=+*'\"<>!]+(?:-[A-Za-z0-9])?\]"
_ESCAPE = r"\\(?:[.\\/()\[\]{}+*?^$|-]|[wdbs])"
_SAME = re.compile(rf"(?:{_CLASS}|{_ESCAPE}|\((?!\?)|[^\\\[\](])*")
"""Patterns that both kinds of regular expressions read alike. Of another one, every file is looked at."""
_OPTIONS = (
    *("--no-config", "--files-with-matches", "--null", "--no-messages", "--hidden", "--no-ignore", "--text", "--crlf"),
    *("--max-filesize", "4M", "--threads", "2"),
)


def program() -> str | None:
    """Give the path of ripgrep, if it is installed: on PATH, or beside the interpreter, where pip puts it."""
    for found in (shutil.which("rg"), shutil.which("rg", path=os.path.dirname(sys.executable))):
        if found and os.path.isabs(found):
            return os.path.realpath(found)
    return None


def weakened(pattern: str) -> str | None:
    """Write a pattern for ripgrep so that it matches at least where Python's does; None when that is not sure."""
    if not _SAME.fullmatch(pattern):
        return None
    # `\b` and `\s` differ in rare characters: without the first, and with more of the second, nothing is lost.
    words = {r"\b": "", r"\s": r"[\s\x1c-\x1f\x85]", r"\/": "/"}
    return re.sub(r"\\.", lambda found: words.get(found[0], found[0]), pattern)


def candidates(
    space: Workspace, directory: str, pattern: str, *, ignore_case: bool, seconds: float, cancelled: Callable[[], bool]
) -> set[str] | None:
    """Give the files below a directory in which a line may match, relative to it.

    Args:
        space: The working directory.
        directory: In it; opened in a way that cannot leave it.
        pattern: A Python regular expression.
        ignore_case: Upper and lower case are the same.
        seconds: How long to wait.
        cancelled: Asked while waiting.

    Returns:
        None: ripgrep cannot tell, so every file is to be looked at.

    Raises:
        Aborted: The job was ended.
    """
    rg, wanted = program(), weakened(pattern)
    if rg is None or wanted is None or Path(rg).is_relative_to(space.root) or not os.path.isdir("/proc/self/fd"):
        return None
    skipped = [part for name in sorted(SKIPPED_DIRECTORIES) for part in ("--glob", f"!**/{name}/**")]
    command = [rg, *_OPTIONS, *skipped, *(["--ignore-case"] if ignore_case else []), "-e", wanted, "--", "."]
    place = space.open_directory(directory)
    try:
        # Not by name: what is searched is the directory that was opened, whatever takes its place meanwhile.
        process = subprocess.Popen(
            command,
            cwd=f"/proc/self/fd/{place}",
            pass_fds=(place,),
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    finally:
        os.close(place)
    output = _wait(process, seconds, cancelled)
    if output is None or process.returncode not in (0, 1):
        return None
    return {os.fsdecode(name).removeprefix("./") for name in output.split(b"\0") if name}


def _wait(process: "subprocess.Popen[bytes]", seconds: float, cancelled: Callable[[], bool]) -> bytes | None:
    until = time.monotonic() + seconds
    with process:
        while True:
            try:
                return process.communicate(timeout=0.1)[0]
            except subprocess.TimeoutExpired:
                if cancelled():
                    process.kill()
                    raise Aborted("the search was stopped, because the job was") from None
                if time.monotonic() > until:
                    process.kill()
                    return None


MAX_SEARCHED = 4 * 1024 * 1024
"""Bytes; larger files are skipped by grep, and their number is told."""
SECONDS_PER_FILE = 5.0
SECONDS_PER_SEARCH = 60.0


@tool(
    read_only=True,
    quick=True,
    path_arguments=("directory",),
    recursive=True,
    timeout=30,
    summarise=lambda arguments: f"list {arguments.get('pattern')} in {arguments.get('directory', '.')}",
)
def glob(
    context: ToolContext,
    pattern: str,
    directory: str = ".",
    max_results: Annotated[int, Field(ge=1, le=10_000)] = 1000,
) -> str:
    """List files by name. `*` stands for any characters but `/`, `**` for any directories, `{a,b}` for either.

    Directories are listed too, with a `/` at their end, when the pattern has no `**`.

    Args:
        pattern: For example **/*.py, or * for what is in the directory itself.
        directory: Where to look, relative to the working directory.
        max_results: Most paths to list.
    """
    wanted = _pattern(pattern)
    found, count = _named(context, wanted, directory, max_results, directories="**" not in pattern)
    if not count:
        return _nothing(pattern, directory)
    shown = _fit(found)
    header = f"{count} {'path matches' if count == 1 else 'paths match'} {pattern} in {directory}"
    if len(shown) < count:
        shown.append(f"[{count - len(shown)} more; use a narrower pattern or directory]")
    return "\n".join([header, "", *shown])


@tool(
    read_only=True,
    quick=True,
    path_arguments=("directory",),
    recursive=True,
    timeout=30,
    summarise=lambda arguments: f"search {arguments.get('directory', '.')} for {arguments.get('pattern')}",
)
def file_search(
    context: ToolContext,
    pattern: str,
    directory: str = ".",
    max_results: Annotated[int, Field(ge=1, le=1_000)] = 100,
) -> dict[str, Any]:
    """Find files by name, everywhere below a directory.

    Gives `files`, the paths; `count`, how many there are in all; and `pattern`.

    Args:
        pattern: A glob such as *.py or src/**/*.ts, or a part of a name such as invoice.
        directory: Where to look, relative to the working directory.
        max_results: Most paths to give.
    """
    part = pattern if any(mark in pattern for mark in "*?[{/") else f"*{escape_pattern(pattern)}*"
    wanted = _pattern(part if "/" in part else f"**/{part}")
    found, count = _named(context, wanted, directory, max_results, directories=False)
    return {"files": found, "count": count, "pattern": pattern}


def _named(
    context: ToolContext, wanted: PathPattern, directory: str, most: int, *, directories: bool
) -> tuple[list[str], int]:
    """Give the first paths that match, directories with a `/` at their end, and how many there are in all."""
    found: list[str] = []
    count = 0
    with Workspace(context.working_dir) as space:
        base = space.relative(directory)
        prefix = "" if base == "." else f"{base}/"
        for entry in space.walk(base, enter=lambda path: wanted.reaches_below(path[len(prefix) :])):
            if context.cancelled():
                raise Aborted("the search was stopped, because the job was")
            is_directory = entry.kind == "directory"
            if (directories or not is_directory) and wanted.matches(entry.path[len(prefix) :]):
                count += 1
                if len(found) < most:
                    found.append(entry.path + ("/" if is_directory else ""))
    return found, count


def _pattern(text: str) -> PathPattern:
    try:
        return PathPattern(text)
    except ValueError as error:
        raise ToolError(str(error)) from error


def _nothing(pattern: str, directory: str) -> str:
    said = f"No path matches {pattern} in {directory}."
    if "**" not in pattern and "/" not in pattern:
        said += f" `{pattern}` looks in the directory itself only; **/{pattern} looks below it too."
    if skipped := [part for part in pattern.split("/") if part in SKIPPED_DIRECTORIES]:
        said += f" {skipped[0]} is skipped unless it is the directory to look in."
    return said


def _fit(lines: list[str]) -> list[str]:
    """Take lines until a page is full."""
    shown: list[str] = []
    room = PAGE
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    return shown


@dataclass
class _Search:
    """What one grep has found and left out so far."""

    lines: list[str] = field(default_factory=list)
    files: int = 0
    searched: int = 0
    binary: int = 0
    large: int = 0
    protected: int = 0
    unreadable: int = 0
    stopped: str = ""
    maybe: set[str] | None = None
    """The files in which something may match; None: in all of them."""


@tool(
    read_only=True,
    path_arguments=("path",),
    recursive=True,
    summarise=lambda arguments: f"search {arguments.get('path', '.')} for {arguments.get('pattern')}",
)
def grep(
    context: ToolContext,
    pattern: str,
    path: str = ".",
    include: str | None = None,
    max_results: Annotated[int, Field(ge=1, le=2000)] = 200,
    ignore_case: bool = False,
) -> str:
    """Search the content of files, line by line, for a regular expression (Python's).

    Args:
        pattern: The regular expression.
        path: File or directory to search, relative to the working directory.
        include: Only files whose path fits this glob, for example *.py or src/**/*.ts.
        max_results: Most lines to return.
        ignore_case: Upper and lower case are the same.
    """
    search = _Search()
    with (
        Workspace(context.working_dir) as space,
        LineMatcher(pattern, ignore_case=ignore_case, seconds=SECONDS_PER_FILE, cancelled=context.cancelled) as matcher,
    ):
        search.maybe = _maybe(space, path, pattern, ignore_case, context)
        _search(space, matcher, search, _files(space, path, include), max_results, context)
    return _report(search, pattern, path)


def _maybe(space: Workspace, path: str, pattern: str, ignore_case: bool, context: ToolContext) -> set[str] | None:
    base = space.relative(path)
    if not stat.S_ISDIR(space.stat(base).st_mode):
        return None
    found = candidates(
        space, base, pattern, ignore_case=ignore_case, seconds=SECONDS_PER_FILE, cancelled=context.cancelled
    )
    return found if found is None or base == "." else {f"{base}/{name}" for name in found}


def _files(space: Workspace, path: str, include: str | None) -> Iterator[str]:
    base = space.relative(path)
    if not stat.S_ISDIR(space.stat(base).st_mode):
        yield base
        return
    wanted = _pattern(include if "/" in include else f"**/{include}") if include else None
    prefix = "" if base == "." else f"{base}/"
    for entry in space.walk(base):
        fits = wanted is None or wanted.matches(entry.path) or wanted.matches(entry.path[len(prefix) :])
        if entry.kind == "file" and fits:
            yield entry.path


def _search(
    space: Workspace,
    matcher: LineMatcher,
    search: _Search,
    files: Iterator[str],
    max_results: int,
    context: ToolContext,
) -> None:
    deadline = time.monotonic() + SECONDS_PER_SEARCH
    for name in files:
        if context.cancelled():
            raise Aborted("the search was stopped, because the job was")
        if time.monotonic() > deadline:
            search.stopped = f"stopped after {SECONDS_PER_SEARCH:g} seconds; search a smaller directory"
            return
        data = _load(space, search, name)
        if data is None:
            continue
        search.searched += 1
        if search.searched % 200 == 0:
            context.progress(f"{search.searched} files searched, {len(search.lines)} lines found")
        found = matcher.find(name, data, max_results - len(search.lines) + 1)
        search.files += bool(found)
        search.lines += [f"{name}:{number}: {line}" for number, line in found]
        if len(search.lines) > max_results:
            search.lines.pop()
            search.stopped = f"stopped at {max_results} lines; use a narrower pattern, path or include"
            return


def _load(space: Workspace, search: _Search, name: str) -> bytes | None:
    if is_secret(name):
        search.protected += 1
        return None
    try:
        with space.open_read(name) as file:
            if os.fstat(file.fileno()).st_size > MAX_SEARCHED:
                search.large += 1
                return None
            nothing = search.maybe is not None and name not in search.maybe
            data = file.read(HEAD if nothing else MAX_SEARCHED)
            if is_binary(data):
                search.binary += 1
                return None
            if nothing:
                search.searched += 1
                return None
            file.seek(0)
            return data if data.isascii() else read_text(name, file).text.encode("utf-8", "replace")
    except (ToolError, PermissionDenied, OSError):
        search.unreadable += 1
        return None


def _report(search: _Search, pattern: str, path: str) -> str:
    shown = _fit(search.lines)
    left_out = [
        f"{count} {what}"
        for count, what in (
            (search.binary, "binary"),
            (search.large, f"over {describe_size(MAX_SEARCHED)}"),
            (search.protected, "protected"),
            (search.unreadable, "unreadable"),
        )
        if count
    ]
    scope = f"{search.searched} file{'' if search.searched == 1 else 's'} searched"
    if left_out:
        scope += f"; left out: {', '.join(left_out)}"
    if not shown:
        return f"No line matches {pattern} in {path} ({scope})."
    notes = [search.stopped] if search.stopped else []
    if len(shown) < len(search.lines):
        notes.append(
            f"{len(search.lines) - len(shown)} more lines do not fit here; use a narrower pattern, path or include"
        )
    count = f"{len(search.lines)}{' or more' if search.stopped else ''}"
    header = f"{count} line{'' if count == '1' else 's'} in {search.files} file{'' if search.files == 1 else 's'} match"
    return "\n".join([f"{header} {pattern} in {path} ({scope})", "", *shown, *(f"[{note}]" for note in notes)])
