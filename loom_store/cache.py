"""What the store keeps in memory: contents and entries. Both never change, so they are never wrong, only absent."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from loom_store.rows import Entry

_ENTRY_OVERHEAD: Final = 300  # bytes of Python objects around an entry's head, measured with sys.getsizeof


class BlobCache:
    """The contents used last, bounded by their bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: str) -> bytes | None:
        """Give a content, if it is here."""
        with self._lock:
            body = self._blobs.get(digest)
            if body is not None:
                self._blobs.move_to_end(digest)
            return body

    def put(self, digest: str, body: bytes) -> None:
        """Keep a content that the store holds."""
        if len(body) * 4 > self._limit:
            return  # one huge content must not throw out all others
        with self._lock:
            if digest in self._blobs:
                return
            self._blobs[digest] = body
            self._held += len(body)
            while self._held > self._limit:
                self._held -= len(self._blobs.popitem(last=False)[1])

    def drop(self, digests: Sequence[str]) -> None:
        """Forget contents that the store no longer holds."""
        with self._lock:
            for digest in digests:
                self._held -= len(self._blobs.pop(digest, b""))

    @property
    def held_bytes(self) -> int:
        """Bytes of all contents held."""
        return self._held


class EntryCache:
    """The entries of the sessions used last: of each session one unbroken run, all sessions bounded together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._runs: OrderedDict[int, list[Entry]] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, session: int) -> list[Entry]:
        """Give a copy of the run of entries held of a session, in order."""
        with self._lock:
            run = self._runs.get(session)
            if run is None:
                return []
            self._runs.move_to_end(session)
            return run[:]

    def holds(self, session: int) -> bool:
        """Say whether any entry of a session is held."""
        return session in self._runs

    def add(self, session: int, entries: Sequence[Entry]) -> None:
        """Keep committed entries, in order and without gaps, if they touch or overlap the run that is held."""
        if not entries:
            return
        with self._lock:
            run = self._runs.setdefault(session, [])
            self._runs.move_to_end(session)
            first, last = entries[0].seq, entries[-1].seq
            if not run:
                before, after = [], list(entries)
            elif first > run[-1].seq + 1 or last < run[0].seq - 1:
                return
            else:
                before = [entry for entry in entries if entry.seq < run[0].seq]
                after = [entry for entry in entries if entry.seq > run[-1].seq]
            run[:0] = before
            run.extend(after)
            self._held += _weight(before) + _weight(after)
            self._shrink()

    def _shrink(self) -> None:
        while self._held > self._limit and self._runs:
            self._held -= _weight(self._runs.popitem(last=False)[1])

    @property
    def held_bytes(self) -> int:
        """Bytes of all entries held, estimated."""
        return self._held


def _weight(entries: Sequence[Entry]) -> int:
    return sum(len(entry.head_json) + _ENTRY_OVERHEAD for entry in entries)
