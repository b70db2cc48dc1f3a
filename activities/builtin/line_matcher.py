"""A regular expression that is run in a process of its own, so that searching can be stopped at any moment."""

import contextlib
import json
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from loom_dsl.errors import Aborted, ToolError, ToolTimeout

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
