"""Searches texts for a regular expression, in a process of its own that can be ended in the middle of a match.

Python's `re` can take years over a hostile pattern and holds the interpreter while it does. This script has no access
to anything but its standard input and output. It imports nothing outside the standard library.

In: a line of JSON {"pattern", "ignore_case", "seconds"}; then, for each text, eight bytes of length, four bytes of the
most matches that are wanted, and the text. Out: a line of JSON for the pattern {"error"}, and one for each text: a list
of [line number, line].
"""

import json
import re
import resource
import signal
import sys
from typing import Any, BinaryIO

MAX_WIDTH = 240
"""Characters of a line that are shown."""
_MEMORY = 2 * 1024**3
_CPU_SECONDS = 150


def find_lines(pattern: re.Pattern[str], text: str, most: int) -> list[tuple[int, str]]:
    """List the first lines that match, with their numbers from 1."""
    found: list[tuple[int, str]] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r")
        match = pattern.search(line)
        if match:
            found.append((number, show(line, match.start())))
            if len(found) >= most:
                break
    return found


def show(line: str, start: int) -> str:
    """Cut a long line to the surroundings of its match."""
    if len(line) <= MAX_WIDTH:
        return line
    begin = max(0, min(start - MAX_WIDTH // 3, len(line) - MAX_WIDTH))
    end = begin + MAX_WIDTH
    return ("..." if begin else "") + line[begin:end] + ("..." if end < len(line) else "")


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer until the input ends. An alarm that nobody handles ends the process, also within a match."""
    order = json.loads(source.readline())
    seconds = float(order["seconds"])
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        pattern = re.compile(order["pattern"], re.IGNORECASE if order["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        _answer(target, {"error": str(error)})
        return
    _answer(target, {"error": None})
    while len(head := source.read(12)) == 12:
        text = source.read(int.from_bytes(head[:8], "big")).decode("utf-8", "replace")
        signal.setitimer(signal.ITIMER_REAL, seconds)
        found = find_lines(pattern, text, int.from_bytes(head[8:], "big"))
        signal.setitimer(signal.ITIMER_REAL, 0)
        _answer(target, found)


def _answer(target: BinaryIO, value: Any) -> None:
    target.write(json.dumps(value).encode() + b"\n")
    target.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then closes our input
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    serve(sys.stdin.buffer, sys.stdout.buffer)
