"""Events that the machine tells and that no activity has stored yet.

A workflow cannot write to the store, so an event travels with the next activity. Batches are numbered and
stay the same when they are sent again, so that the store can tell that it has one already.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

URGENT = frozenset({
    *("approval_requested", "approval_decided", "warning", "aborted", "error", "control"),
    *("halted", "resumed", "waiting"),
})  # fmt: skip
"""Events that an observer waits for; others may travel with whatever activity comes next."""
_ABOUT_A_QUESTION = frozenset({"approval_requested", "approval_changed", "approval_decided"})

MAX_OPEN = 500
"""Events that wait for a carrier until they are stored without one."""
MAX_BATCH, MAX_CARRIED, MAX_IN_FLIGHT = 256 * 1024, 448 * 1024, 1024 * 1024
"""Bytes of a batch, of what one activity carries beside its argument, and of what travels at once: the engine ends a
job without a word when a payload has over 2 MiB, and never takes a workflow task of over 4 MiB."""
MAX_EVENT = MAX_BATCH - 1024
MAX_TEXT, MAX_MEMBERS, MAX_EVENT_DEPTH = 2_000, 20, 4
"""What is left of an event that is too large: characters of a text, members of a list or mapping, and how deep."""


def without_time(event: dict[str, Any]) -> dict[str, Any]:
    """Give what an event tells. When it happened is another time where the same is done once more."""
    return {name: value for name, value in event.items() if name != "at"}


def is_told_once(event: dict[str, Any]) -> bool:
    """Whether no other event of the same job says the same: what becomes of a question, and controls with an id.

    The machine gives each question another id, and numbers or dates what may happen to one again.
    """
    return event["t"] in _ABOUT_A_QUESTION or (event["t"] == "control" and "id" in event)


@dataclass(slots=True)
class Outbox:
    """Event batches on their way to the store.

    Attributes:
        batches: Sealed batches that are not acknowledged: ``[[sequence, [event, …]], …]``.
        open: Events of the batch that is still open.
        sequence: Number of the next event.
        sizes: Bytes of sealed batches, by sequence; found out again when they are needed.
        attached: Activity → sequences of the batches that travel with it. Not carried to another run, because
            nothing is in flight there.
    """

    batches: list[Any] = field(default_factory=list)
    open: list[dict[str, Any]] = field(default_factory=list)
    sequence: int = 0
    attached: dict[str, list[int]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, event: dict[str, Any]) -> None:
        """Put an event in."""
        self.open.append(event)

    def waiting(self) -> list[Any]:
        """Seal the open batch and give the batches that no activity carries."""
        for events in _parted(self.open):
            self.batches.append([self.sequence, events])
            self.sequence += len(events)
        self.open = []
        taken = {sequence for sequences in self.attached.values() for sequence in sequences}
        return [batch for batch in self.batches if batch[0] not in taken]

    def attach(self, at: str) -> list[Any]:
        """Give an activity what waits, the oldest first, as far as it may be carried."""
        batches = self.ready()
        if batches:
            self.attached[at] = [batch[0] for batch in batches]
        return batches

    def ready(self) -> list[Any]:
        """The batches that the next activity can carry."""
        waiting = self.waiting()
        if not waiting:
            return []
        in_flight = {sequence for sequences in self.attached.values() for sequence in sequences}
        room = min(
            MAX_CARRIED, MAX_IN_FLIGHT - sum(self._size(batch) for batch in self.batches if batch[0] in in_flight)
        )
        batches = []
        for batch in waiting:
            room -= self._size(batch)
            if room < 0:
                break
            batches.append(batch)
        return batches

    def _size(self, batch: Any) -> int:
        known = self.sizes.get(batch[0])
        if known is None:
            known = self.sizes[batch[0]] = _size(batch)
        return known

    def is_heavy(self) -> bool:
        """Whether so much waits that another run must not be begun with it."""
        return len(self.open) + len(self.batches) > 1 and _size(self.to_json()) > MAX_BATCH

    def acknowledge(self, at: str) -> None:
        """The activity stored what it carried."""
        stored = set(self.attached.pop(at, ()))
        self.batches = [batch for batch in self.batches if batch[0] not in stored]
        self.sizes = {sequence: size for sequence, size in self.sizes.items() if sequence not in stored}

    def take_back(self, at: str) -> None:
        """The activity failed; whether it stored its batches is not known, so they travel again."""
        self.attached.pop(at, None)

    def pressing(self) -> bool:
        """Whether an observer waits for something in here."""
        return len(self.open) > MAX_OPEN or self.tells(lambda event: event["t"] in URGENT)

    def tells(self, wanted: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether an event like this has no carrier."""
        taken = {sequence for sequences in self.attached.values() for sequence in sequences}
        sealed = (event for sequence, events in self.batches if sequence not in taken for event in events)
        return any(wanted(event) for event in (*self.open, *sealed))

    def to_json(self) -> dict[str, Any]:
        """The outbox without what is empty."""
        full = {"b": self.batches, "e": self.open}
        return {"q": self.sequence, **{key: value for key, value in full.items() if value}}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Outbox":
        """Read what `to_json` wrote."""
        return cls(raw.get("b", []), raw.get("e", []), raw.get("q", 0))


def _parted(events: Iterable[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """Events in batches that can be carried."""
    batch: list[dict[str, Any]] = []
    room = MAX_BATCH
    for event in events:
        size = _size(event)
        if size > MAX_EVENT:
            event, size = _small(event), MAX_EVENT
        if batch and size > room:
            yield batch
            batch, room = [], MAX_BATCH
        batch.append(event)
        room -= size
    if batch:
        yield batch


def _small(event: dict[str, Any]) -> dict[str, Any]:
    """Cut an event that nobody could carry. It says so."""
    small = {**_cut(event, MAX_EVENT_DEPTH), "cut": True}
    if _size(small) <= MAX_EVENT:
        return small
    return {**{key: value for key, value in small.items() if not isinstance(value, (dict, list))}, "cut": True}


def _cut(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + " [... cut]"
    if not isinstance(value, (dict, list)):
        return value
    if depth == 0:
        return "[... cut]"
    if isinstance(value, list):
        return [_cut(member, depth - 1) for member in value[:MAX_MEMBERS]]
    return {key[:100]: _cut(member, depth - 1) for key, member in list(value.items())[:MAX_MEMBERS]}


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))
