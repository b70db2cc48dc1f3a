"""Which files to look at, found by ripgrep where it is installed. The lines are found by `LineMatcher` either way.

So a search means the same with ripgrep and without: it only leaves out files in which nothing can match.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from activities.listing import SKIPPED_DIRECTORIES
from activities.workspace import Workspace
from loom_dsl.errors import Aborted

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
