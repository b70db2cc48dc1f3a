"""What observers see of a job: events at contiguous offsets, text deltas among them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from loom_dsl.observe.events import EventType
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.redaction import Masked
from loom_store.queries.base import key_hash
from loom_store.queries.blobs import BlobQueries, pack_told, unpack_text
from loom_store.tables import events, streams

Event = dict[str, Any]
PAGE = 500
"""Events that are read at once where all of a job are looked at."""

_LAST = select(events.c.last).where(events.c.job == bindparam("job")).order_by(events.c.last.desc()).limit(1)
_BY_KEY = select(events.c.last, events.c.count).where(
    events.c.job == bindparam("job"), events.c.key_hash == bindparam("hash")
)
_ADD = insert(events)
_AFTER = (
    select(events.c.last, events.c.count, events.c.at, events.c.body)
    .where(events.c.job == bindparam("job"), events.c.last > bindparam("after"))
    .order_by(events.c.last)
    .limit(bindparam("rows"))
)
_STREAM = select(streams.c.attempt, streams.c.sequence).where(
    streams.c.job == bindparam("job"), streams.c.stream == bindparam("stream")
)
_NEW_STREAM = insert(streams)
_MOVE_STREAM = (
    update(streams)
    .where(streams.c.job == bindparam("job_id"), streams.c.stream == bindparam("stream_id"))
    .values(attempt=bindparam("new_attempt"), sequence=bindparam("new_sequence"))
)


class EventQueries(BlobQueries):
    """The part of a transaction that deals with events."""

    def append_events(
        self, job: str, key: str, new: Sequence[Mapping[str, Any]], *, attempt: int | None = None
    ) -> tuple[int, int]:
        """Append a batch of events, once per key: the same key gives the offsets of the first time.

        Args:
            job: The job that they are about. It need not have a row yet.
            key: Names the batch within the job.
            new: Plain JSON objects; a value ``{"$blob": digest}`` stands for a content of the store.
            attempt: With it, the batch is fenced like a text delta of the stream `key`: a batch of an attempt older
                than the newest one seen is refused.

        Returns:
            The first offset and how many: (next offset, 0) for an empty batch and for a refused one.
        """
        job_id = self._job_id(job)
        hashed = key_hash(key)
        known = self._first(_BY_KEY, {"job": job_id, "hash": hashed})
        if known is not None:
            last, count = known
            return last - count + 1, count
        refused = attempt is not None and not self._enter_attempt(job_id, hashed, attempt)
        if refused or not new:
            return self._last(job_id) + 1, 0
        return self._append(job_id, hashed, new, self._told([dict(event) for event in new])), len(new)

    def append_deltas(
        self, job: str, stream_key: str, attempt: int, sequence: int, text: str, *, turn: int = 0
    ) -> bool:
        """Append a piece of streamed text as an event.

        The event is ``{type: llm_delta, n: turn, stream, attempt, sequence, content}``. The first piece of an
        attempt after the first one follows an event ``{type: stream_reset, n: turn, stream, attempt}``: what an
        older attempt streamed is void.

        Args:
            job: The job.
            stream_key: Names the stream, for example ``turn/node#visit``.
            attempt: The activity's attempt, from 1.
            sequence: Grows within the attempt; a sequence seen before is not appended again.
            text: The text.
            turn: The turn that streams it.

        Returns:
            False when a newer attempt has been seen: whoever writes this should stop.
        """
        job_id = self._job_id(job)
        stream = key_hash(stream_key)
        seen = self._execute(_STREAM, {"job": job_id, "stream": stream}).first()
        if seen is not None and attempt < seen.attempt:
            return False
        if seen is not None and attempt == seen.attempt and sequence <= seen.sequence:
            return True
        stamp = {"n": turn, "stream": stream_key, "attempt": attempt}
        batch: list[Event] = [{"type": EventType.LLM_DELTA, **stamp, "sequence": sequence, "content": text}]
        if attempt > 1 and (seen is None or seen.attempt < attempt or seen.sequence < 0):
            batch.insert(0, {"type": EventType.STREAM_RESET, **stamp})
        self._set_stream(job_id, stream, attempt, sequence, is_new=seen is None)
        # Half a secret is none that can be found; who streams a text holds back what may be the beginning of one.
        self._append(job_id, None, batch, Masked(canonical_json(batch)))
        return True

    def read_events(
        self, job: str, after: int = 0, limit: int = 500, *, expand: bool = False, timed: bool = False
    ) -> list[tuple[int, Event]]:
        """Read events with an offset greater than `after`, in order and without gaps.

        Args:
            job: The job; one that the store has never heard of has no events.
            after: The last offset that the reader has.
            limit: At most so many events.
            expand: Put the texts in place of ``{"$blob": digest}``.
            timed: Give an event that does not say when it happened the time at which it was stored, as ``at`` in
                seconds since 1970, without a fraction.

        Raises:
            BlobMissing: A text to put in place is not in the store.
        """
        job_id = self._find_job(job)
        if job_id is None or limit <= 0:
            return []
        found: list[tuple[int, Event]] = []
        for last, count, at, body in self._execute(_AFTER, {"job": job_id, "after": after, "rows": limit}):
            first = last - count + 1
            batch = json.loads(unpack_text(body))
            if timed:
                batch = [{"at": at, **event} for event in batch]
            found.extend((first + n, event) for n, event in enumerate(batch) if first + n > after)
            if len(found) >= limit:
                break
        del found[limit:]
        return [(offset, self._expanded(event)) for offset, event in found] if expand else found

    def each_event(self, job: str, after: int = 0, *, timed: bool = False) -> Iterator[tuple[int, Event]]:
        """Read all of a job's events from an offset on, as `read_events` does, without holding them all."""
        while batch := self.read_events(job, after=after, limit=PAGE, timed=timed):
            yield from batch
            after = batch[-1][0]

    def last_offset(self, job: str) -> int:
        """Give the offset of a job's newest event; 0 when there is none."""
        job_id = self._find_job(job)
        return 0 if job_id is None else self._last(job_id)

    def _last(self, job_id: int) -> int:
        if job_id not in self._last_events:
            newest = self._first(_LAST, {"job": job_id})
            self._last_events[job_id] = newest[0] if newest else 0
        return self._last_events[job_id]

    def _append(self, job_id: int, hashed: int | None, new: Sequence[Mapping[str, Any]], text: Masked) -> int:
        first = self._last(job_id) + 1
        last = first + len(new) - 1
        row = {
            "job": job_id,
            "last": last,
            "count": len(new),
            "key_hash": hashed,
            "at": self._seconds(),
            "body": pack_told(text),
        }
        self._execute(_ADD, row)
        self._last_events[job_id] = last
        return first

    def _enter_attempt(self, job_id: int, stream: int, attempt: int) -> bool:
        seen = self._execute(_STREAM, {"job": job_id, "stream": stream}).first()
        if seen is not None and attempt < seen.attempt:
            return False
        if seen is None or attempt > seen.attempt:
            # -1: no delta of this attempt yet, so its first one still resets the stream.
            self._set_stream(job_id, stream, attempt, -1, is_new=seen is None)
        return True

    def _set_stream(self, job_id: int, stream: int, attempt: int, sequence: int, *, is_new: bool) -> None:
        if is_new:
            row = {"job": job_id, "stream": stream, "attempt": attempt, "sequence": sequence}
            self._execute(_NEW_STREAM, row)
        else:
            move = {"job_id": job_id, "stream_id": stream, "new_attempt": attempt, "new_sequence": sequence}
            self._execute(_MOVE_STREAM, move)

    def _expanded(self, value: Any) -> Any:
        if isinstance(value, dict):
            reference = value.get("$blob")
            if len(value) == 1 and isinstance(reference, str):
                return self.get_blob(reference).decode("utf-8", "replace")
            return {name: self._expanded(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self._expanded(part) for part in value]
        return value
