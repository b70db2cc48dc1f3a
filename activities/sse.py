"""Reading server-sent events from bytes, as they come from the network.

The SDK's own decoder is an async generator over its own types inside its stream class. This one is fed,
so that it has neither I/O nor time in it, and it refuses a line without end.
"""

from collections.abc import Iterator


class EventReader:
    """Cuts a byte stream into the data of its events.

    Args:
        limit: The longest line and the longest event, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take bytes, and yield the data of each event that they complete.

        Raises:
            ValueError: A line or an event is longer than the limit.
        """
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return
        self._after_cr = chunk[-1:] == b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *rest = chunk.split(b"\n")
        self._hold(first)
        for part in rest:
            line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
            self._line, self._line_size = [], 0
            yield from self._take(line)
            self._hold(part)

    def finish(self) -> Iterator[bytes]:
        """Yield the data of a last event that no empty line follows."""
        line, self._line = b"".join(self._line), []
        yield from self._take(line)
        yield from self._take(b"")

    def _hold(self, part: bytes) -> None:
        if part:
            self._line.append(part)
            self._line_size += len(part)
            self._check(self._line_size)

    def _take(self, line: bytes) -> Iterator[bytes]:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data, self._data_size = [], 0
                yield data
            return
        # All other fields (event, id, retry) and comments, which keep connections alive, say nothing here.
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._data_size += len(value)
            self._check(self._data_size)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise ValueError(f"an event is over {self._limit} bytes")
