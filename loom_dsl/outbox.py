"""Events that the machine tells and that no activity has stored yet.

A workflow cannot write to the store, so an event travels with the next activity. Batches are numbered and
stay the same when they are sent again, so that the store can tell that it has one already.
"""

from dataclasses import dataclass, field
from typing import Any

URGENT = frozenset({"approval_requested", "approval_decided", "warning", "aborted", "error", "control"})
"""Events that an observer waits for; others may travel with whatever activity comes next."""


@dataclass(slots=True)
class Outbox:
    """Event batches on their way to the store.

    Attributes:
        batches: Sealed batches that are not acknowledged: ``[[sequence, [event, …]], …]``.
        open: Events of the batch that is still open.
        sequence: Number of the next event.
        attached: Activity → sequences of the batches that travel with it. Not carried to another run, because
            nothing is in flight there.
    """

    batches: list[Any] = field(default_factory=list)
    open: list[dict[str, Any]] = field(default_factory=list)
    sequence: int = 0
    attached: dict[str, list[int]] = field(default_factory=dict)

    def add(self, event: dict[str, Any]) -> None:
        """Put an event in."""
        self.open.append(event)

    def waiting(self) -> list[Any]:
        """Seal the open batch and give the batches that no activity carries."""
        if self.open:
            self.batches.append([self.sequence, self.open])
            self.sequence += len(self.open)
            self.open = []
        taken = {sequence for sequences in self.attached.values() for sequence in sequences}
        return [batch for batch in self.batches if batch[0] not in taken]

    def attach(self, at: str) -> list[Any]:
        """Give an activity what waits."""
        batches = self.waiting()
        if batches:
            self.attached[at] = [batch[0] for batch in batches]
        return batches

    def acknowledge(self, at: str) -> None:
        """The activity stored what it carried."""
        stored = set(self.attached.pop(at, ()))
        self.batches = [batch for batch in self.batches if batch[0] not in stored]

    def take_back(self, at: str) -> None:
        """The activity failed; whether it stored its batches is not known, so they travel again."""
        self.attached.pop(at, None)

    def pressing(self) -> bool:
        """Whether an observer waits for something in here."""
        taken = {sequence for sequences in self.attached.values() for sequence in sequences}
        sealed = (event for sequence, events in self.batches if sequence not in taken for event in events)
        return any(event["t"] in URGENT for events in (self.open, sealed) for event in events)

    def to_json(self) -> dict[str, Any]:
        """The outbox without what is empty."""
        full = {"b": self.batches, "e": self.open}
        return {"q": self.sequence, **{key: value for key, value in full.items() if value}}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Outbox":
        """Read what `to_json` wrote."""
        return cls(raw.get("b", []), raw.get("e", []), raw.get("q", 0))
