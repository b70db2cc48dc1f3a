"""What a token keeps while it stands at a node: a record for each kind of node, and one for any step that failed."""

from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from loom_dsl.machine.commands import RunActivity


@dataclass(slots=True)
class ActivityRecord:
    """An activity took messages along.

    Attributes:
        taken: Ids of the injected messages that it was given.
    """

    taken: list[str]


@dataclass(slots=True)
class ApprovalRecord:
    """A question waits for decisions. Until when is the token's deadline; times are seconds since the epoch.

    Attributes:
        id: The approval's id.
        since: When it was asked.
        request: What is asked.
        policy: The mapped policy without defaults, see `approvals.policy`.
        remind: When it is told again.
        reminded: How often it was.
        steps: Positions of the policy's steps of escalation that were taken.
        period: Seconds for which it stays open each time it is asked, once that had to be found out.
        halted: Since when nobody has answered it in time; 0: it is not halted.
        fired: Its time was over while decisions were being looked at.
        votes: Answers of which several are needed: ``{"by", "content", "remember", "message", "key"}``.
        verified: How many signatures have been sent to be verified.
        told: How many times it was told after the first.
    """

    id: str
    since: float
    request: Any = None
    policy: dict[str, Any] = field(default_factory=dict)
    remind: float | None = None
    reminded: int = 0
    steps: list[int] = field(default_factory=list)
    period: float | None = None
    halted: float = 0.0
    fired: bool = False
    votes: list[dict[str, str]] = field(default_factory=list)
    verified: int = 0
    told: int = 0


@dataclass(slots=True)
class ChildRecord:
    """A job of its own is at work.

    Attributes:
        child: The job's id.
    """

    child: str


@dataclass(slots=True)
class EventRecord:
    """An event is awaited.

    Attributes:
        name: Its name.
        key: Its key; None: any.
    """

    name: str
    key: Any = None


@dataclass(slots=True)
class JoinRecord:
    """A join waits for more tokens.

    Attributes:
        came: What this one came with.
    """

    came: Any = None


@dataclass(slots=True)
class LoopRecord:
    """A loop is under way.

    Attributes:
        round: Number of the round that runs or comes next, from 0.
        last: Result of the round before it.
    """

    round: int = 0
    last: Any = None


@dataclass(slots=True)
class MapRecord:
    """The items of a map are under way.

    Attributes:
        items: What it goes over; of a long list, parts of it: ``{"items", "first", "given"}``.
        results: By item; null where there is none yet.
        done: Indices of the items that are done, in the order of their ends.
        next: Index of the item that starts next.
        first: What the numbers of the items begin with.
        need: Results that are enough.
        limit: Items that may be behind the barrier at once.
        past: Indices of the items that are behind it; None: there is no barrier.
        open: Events may bring more items.
        chunked: Each item is a part of a long list, which a child job works off.
        detached: Another token has gone on already, before the items were done.
        left: Another token has gone on with what there was; no result counts any more.
        closing: It had enough, and what was cancelled has to report.
    """

    items: list[Any]
    results: list[Any]
    done: list[int] = field(default_factory=list)
    next: int = 0
    first: Any = 0
    need: int | None = None
    limit: int = 0
    past: list[int] | None = None
    open: bool = False
    chunked: bool = False
    detached: bool = False
    left: bool = False
    closing: bool = False


@dataclass(slots=True)
class ToolRecord:
    """A tool call goes through its pipeline.

    Attributes:
        call: ``{"id", "name", "arguments"}``.
    """

    call: dict[str, Any]


Record = ActivityRecord | ApprovalRecord | ChildRecord | EventRecord | JoinRecord | LoopRecord | MapRecord | ToolRecord
KINDS: dict[str, type[Record]] = {
    "a": ActivityRecord, "q": ApprovalRecord, "c": ChildRecord, "e": EventRecord, "j": JoinRecord, "l": LoopRecord,
    "m": MapRecord, "t": ToolRecord,
}  # fmt: skip
"""By the key under which a token's JSON has its record, which says the kind."""
KEYS = {kind: key for key, kind in KINDS.items()}


@dataclass(slots=True)
class RetryRecord:
    """A step failed, and waits for its next try or for a person, or is tried again just now.

    Attributes:
        cause: Code of the failure.
        message: Why it failed.
        since: Since when it has been waiting, in seconds since the epoch.
        attempts: Attempts of the engine so far.
        tries: Answered tries that count.
        outage: Since when who is asked has been away; None: there is no outage.
        outages: Answers in a row that told of it.
        next: When it is tried again; None: at once, or when a person says so.
        told: Observers know that it waits.
        action: What a person has to do.
        call: What is run again, as it was given; None: it was too large to be kept, or has been run.
    """

    cause: str
    message: str
    since: float
    attempts: int
    tries: int = 0
    outage: float | None = None
    outages: int = 0
    next: float | None = None
    told: bool = False
    action: str = ""
    call: RunActivity | None = None

    def to_json(self) -> dict[str, Any]:
        """The record without defaults."""
        raw = without_defaults(self)
        if self.call is not None:
            raw["call"] = without_defaults(self.call)
            del raw["call"]["at"]  # the token has it
        return raw

    @classmethod
    def from_json(cls, raw: dict[str, Any], at: str) -> "RetryRecord":
        """Read what `to_json` wrote, of the token of this name."""
        record = cls(**raw)
        if "call" in raw:
            call = RunActivity(at=at, **raw["call"])
            attempts, initial, backoff, longest = call.retry
            record.call = replace(call, retry=(attempts, initial, backoff, longest))
        return record


def without_defaults(record: Record | RetryRecord | RunActivity) -> dict[str, Any]:
    """A record as JSON has it."""
    values = ((name, getattr(record, name), default) for name, default in _DEFAULTS[type(record)])
    # What only equals its default, as 0.0 does 0, is written: it is to come back as it was.
    return {name: value for name, value, default in values if value != default or type(value) is not type(default)}


_DEFAULTS: dict[type[Record | RetryRecord | RunActivity], list[tuple[str, Any]]] = {
    kind: [(f.name, f.default if f.default_factory is MISSING else f.default_factory()) for f in fields(kind)]
    for kind in (*KINDS.values(), RetryRecord, RunActivity)
}
"""The fields of each record with their defaults; one without a default differs from every value."""
