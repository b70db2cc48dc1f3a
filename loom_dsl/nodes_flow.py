"""Nodes that choose, wait, join, write down and end."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from loom_dsl.approval_policy import read_policy
from loom_dsl.canonical import canonical_json
from loom_dsl.errors import ExpressionError
from loom_dsl.parts import Node, Part, mapping, number_or_mapping, seconds_or_mapping


class Branch(Node):
    """Only a choice of the way."""


class ApprovalSpec(Part):
    """What is asked of a human."""

    request: Any
    """Mapping that gives the request: `summary` for people, and whatever they need to see. ``ask: text`` is short for
    a request with that summary."""
    choices: tuple[str, ...] = ("approve", "reject")
    """The answers that count."""
    late: Literal["reject", "accept"] = "reject"
    """What a decision counts for that was sent after the deadline."""
    policy: Any = None
    """What happens while nobody answers, and who may answer: the fields of an agent's `approvals`, or a `${…}`."""

    _mappings = field_validator("request", "policy")(mapping)

    @field_validator("policy")
    @classmethod
    def _policy(cls, value: Any) -> Any:
        if isinstance(value, dict) and "${" not in canonical_json(value):
            try:
                read_policy(value)
            except ExpressionError as error:
                raise ValueError(error.message) from None
        return value

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"request": {"summary": value}}
        if isinstance(value, dict) and "ask" in value and "request" not in value:
            rest = {key: item for key, item in value.items() if key != "ask"}
            return {"request": {"summary": value["ask"]}, **rest}
        return value


class Approval(Node):
    """Waits for a human decision, as long as it takes."""

    kind: ClassVar[str] = "approval"

    approval: ApprovalSpec


class EventSpec(Part):
    """What a token waits for."""

    name: str
    """Name of the event, as ``loom event JOB NAME`` and the signal ``loom.event`` give it."""
    key: Any = None
    """Only an event with this key; null takes any."""
    buffer: bool = True
    """Whether an event that came before the token counts. Otherwise it is gone."""

    _mappings = field_validator("key")(mapping)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class Event(Node):
    """Waits for an event from outside. Its result is the event's data."""

    kind: ClassVar[str] = "event"

    event: EventSpec


def _read_time(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:60]!r} is no time; write it as 2026-01-31T12:00:00Z, or use `after`") from None


class TimerSpec(Part):
    """How long a token waits."""

    after: float | str | None = None
    """A duration, or a `${…}` that gives seconds."""
    until: Any = None
    """Or a time: a `${…}` that gives seconds since the epoch, or text such as 2026-01-31T12:00:00Z."""

    _duration = field_validator("after", mode="before")(seconds_or_mapping)
    _mappings = field_validator("until")(mapping)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"after": value}

    @model_validator(mode="after")
    def _one(self) -> "TimerSpec":
        if (self.after is None) == (self.until is None):
            raise ValueError("a timer has `after` (a duration) or `until` (a time)")
        if isinstance(self.until, str) and "${" not in self.until:
            _read_time(self.until)
        return self


class Timer(Node):
    """Waits for some time, or until a time."""

    kind: ClassVar[str] = "timer"

    timer: TimerSpec


class JoinSpec(Part):
    """Which arrivals a join waits for."""

    mode: Literal["all", "taken"] = "all"
    """``all``: one token from every edge that leads here. ``taken``: every token that can still come."""
    need: int | str | None = None
    """Or the first so many of the edges; a number, or a `${…}` that gives one."""
    rest: Literal["ignore", "cancel", "block"] = "ignore"
    """What becomes of the others: swallowed when they come, cancelled now, or kept out until all have come once."""
    threads: int | str | None = None
    """Or so many tokens, from whatever edge (a thread merge)."""

    _numbers = field_validator("need", "threads")(number_or_mapping)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"mode": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one(self) -> "JoinSpec":
        if sum((self.mode != "all", self.need is not None, self.threads is not None)) > 1:
            raise ValueError(
                "a join waits for `all`, for those `taken`, for `need` of them, or for `threads`; choose one"
            )
        return self


class Join(Node):
    """Makes one token of several. Its result: what each arrived with, by the node it came from."""

    kind: ClassVar[str] = "join"

    join: JoinSpec


class Race(Node):
    """Starts several nodes; the first that is done goes on, the others are cancelled. One that leaves by `catch` or by
    its deadline is done, too; for the first success use ``join: {need: 1, rest: cancel}``."""

    kind: ClassVar[str] = "race"

    race: Annotated[tuple[str, ...], Field(min_length=2)]
    """The nodes: events, timers, approvals, or work."""

    def targets(self) -> tuple[str, ...]:
        """Every node that can follow."""
        return (*self.race, *super().targets())


class Set(Node):
    """Writes state fields. Its result is what was written."""

    kind: ClassVar[str] = "set"

    set: dict[str, Any]
    """Field → value; the field's reducer combines the values."""

    _mappings = field_validator("set")(mapping)


class Cancel(Node):
    """Takes away the tokens at other nodes of this graph, with all that runs there."""

    kind: ClassVar[str] = "cancel"

    cancel: Annotated[tuple[str, ...], Field(min_length=1)]
    """The nodes."""

    @field_validator("cancel", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class RecurseSpec(Part):
    """The tail call: the next turn of the same plan."""

    policy: str = "per_turn"
    """``per_turn``, ``adaptive``, ``history``, or a `${…}` giving one of them."""
    idle: bool = False
    """Whether messages that wait for an idle agent become due."""
    compacted: bool | str = Field(default=False, exclude_if=lambda value: value is False)
    """Whether this turn compressed the conversation, or a `${…}` that says so; the next TurnState tells it."""

    _mappings = field_validator("policy", "compacted")(mapping)


class Recurse(Node):
    """Ends the turn and starts the next one with the next TurnState."""

    kind: ClassVar[str] = "recurse"

    recurse: RecurseSpec


class End(Node):
    """Ends this branch; the graph ends when no branch is left, with the result of the end that came last."""

    kind: ClassVar[str] = "end"

    end: Any
    """Mapping that gives the result."""
    terminate: bool = False
    """Whether the graph ends here and now, whatever other branches do."""

    _mappings = field_validator("end")(mapping)


class FailSpec(Part):
    """How a graph fails."""

    code: Any = "failed"
    """Code of the job's error."""
    message: Any = "the graph failed"
    """What people read."""
    details: Any = None
    """More, as data."""

    _mappings = field_validator("code", "message", "details")(mapping)


class Fail(Node):
    """Ends the graph as failed."""

    kind: ClassVar[str] = "fail"

    fail: FailSpec

    @field_validator("fail", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"message": value} if isinstance(value, str) else value
