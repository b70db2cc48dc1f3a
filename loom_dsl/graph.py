"""The schema of a graph: its nodes and edges, as a document writes them and as a plan stores them.

One model is both: validators accept the short forms of a document (``next: done``), dumping gives the
normal form, and dump → load → dump is a fixpoint. A node's kind is the key that it has: ``activity``,
``map``, ``approval``, ``recurse``, ``end``, ``fail``, or none of them, which is a branch.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from loom_dsl.duration import parse_duration
from loom_dsl.errors import ExpressionError
from loom_dsl.expr import compile_expression
from loom_dsl.states import RunState
from loom_dsl.template import compile_template
from loom_dsl.writes import FIELDS

MAX_WINDOW = 1_000
"""More pending activities than 2,000 wedge a Temporal workflow for ever, so a map's window stays well below."""


def _seconds(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


def _condition(value: str) -> str:
    try:
        compile_expression(value)
    except ExpressionError as error:
        raise ValueError(str(error)) from None
    return value


def _mapping(value: Any) -> Any:
    try:
        compile_template(value)
    except ExpressionError as error:
        raise ValueError(str(error)) from None
    return value


def _seconds_or_mapping(value: Any) -> Any:
    return _mapping(value) if isinstance(value, str) and value.startswith("${") else _seconds(value)


class Part(BaseModel):
    """Base of everything in a graph: frozen, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Edge(Part):
    """Where a token goes next."""

    to: str
    """Id of the target node."""
    when: Annotated[str | None, Field(alias="if")] = None
    """Condition; absent means always."""

    _checked = field_validator("when")(lambda value: value if value is None else _condition(value))


class Next(Part):
    """The ways out of a node."""

    first: tuple[Edge, ...] = ()
    """Take the first edge whose condition holds (an exclusive choice)."""
    all: tuple[str, ...] = ()
    """Go to all of these at once (a parallel split)."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"first": [{"to": value}]}
        if isinstance(value, list):
            if value and all(isinstance(item, str) for item in value):
                return {"all": value}
            return {"first": value}
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> "Next":
        if self.first and self.all:
            raise ValueError("`first` takes one edge and `all` takes every one; give one of them")
        return self

    def targets(self) -> tuple[str, ...]:
        """Every node that can follow."""
        return tuple(edge.to for edge in self.first) + self.all


class Retry(Part):
    """How often and how soon the engine tries an activity again."""

    attempts: Annotated[int, Field(ge=1, le=1000)] = 3
    """Attempts in all."""
    initial: Annotated[float, Field(gt=0)] = 1.0
    """Seconds before the second attempt."""
    backoff: Annotated[float, Field(ge=1)] = 2.0
    """Factor from one wait to the next."""
    longest: Annotated[float, Field(gt=0)] = 60.0
    """Longest wait in seconds."""

    _durations = field_validator("initial", "longest", mode="before")(_seconds)


class Deadline(Part):
    """An edge that is taken when a node is not done in time."""

    after: str | float | None
    """A duration, a `${…}` that gives seconds, or null for never."""
    to: str
    """Target when the time is over."""

    @field_validator("after", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        return None if value == "never" else _seconds_or_mapping(value)


class Node(Part):
    """What all kinds of nodes share."""

    kind: ClassVar[str] = "branch"

    next: Next = Next()
    """The ways out."""
    phase: str | None = None
    """Lane of the node; the interpreter tells when a token enters another lane."""
    state: RunState | None = None
    """The run's state while a token is here."""
    write: dict[str, Any] = Field(default_factory=dict)
    """State fields set from the result; the field's reducer combines the values."""
    max_visits: Annotated[int | None, Field(ge=1)] = None
    """Most entries into this node in one turn; one more fails with the code ``max_visits``, or goes to `exhausted`."""
    exhausted: str | None = None
    """Where a token goes that would enter once more."""
    deadline: Deadline | None = None
    """Where a token goes that waits here too long."""
    catch: dict[str, str] = Field(default_factory=dict)
    """Error code (or ``any``) → node."""
    emit: dict[str, Any] = Field(default_factory=dict)
    """Events told when a token enters: type → data."""
    doc: str = ""
    """One sentence for people."""

    _mappings = field_validator("write", "emit")(_mapping)

    @field_validator("write")
    @classmethod
    def _known_fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name not in FIELDS:
                raise ValueError(f"a turn has no `{name}` that a node may write; it has {', '.join(sorted(FIELDS))}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _one_kind(cls, value: Any) -> Any:
        kinds = [kind for kind in NODE_KINDS if isinstance(value, dict) and kind in value]
        if len(kinds) > 1:
            raise ValueError(f"a node is one thing, and this one is {' and '.join(f'`{kind}`' for kind in kinds)}")
        return value

    def targets(self) -> tuple[str, ...]:
        """Every node that can follow this one, by whatever edge."""
        extra = (self.exhausted, self.deadline.to if self.deadline else None)
        return (*self.next.targets(), *self.catch.values(), *(to for to in extra if to))


class Branch(Node):
    """Only a choice of the way."""


class Activity(Node):
    """One retryable activity."""

    kind: ClassVar[str] = "activity"

    activity: str
    """Registered name of the activity."""
    with_: Annotated[dict[str, Any], Field(alias="with")] = Field(default_factory=dict)
    """Arguments, mapped from what is known."""
    carrier: str = "remote"
    """``remote``, ``local`` (inside the workflow task; falls back to remote), or a `${…}` giving one of them."""
    timeout: float | str = 60.0
    """Seconds for one attempt (start to close); a duration, or a `${…}` that gives seconds."""
    heartbeat: float | None = None
    """Seconds without a heartbeat after which an attempt counts as lost."""
    retry: Retry = Retry()
    """Retries of the remote carrier."""
    events: Literal["carry", "leave"] = "carry"
    """``leave``: the activity only looks, so events wait for one that writes to the store anyway."""
    inbox: Literal["take"] | None = None
    """``take``: injected messages that are due go to this activity."""

    _durations = field_validator("timeout", "heartbeat", mode="before")(_seconds_or_mapping)
    _arguments = field_validator("with_", "carrier")(_mapping)


class Barrier(Part):
    """Order among the items of a map, held at one node of their graph."""

    at: str
    """The node before which items wait."""
    limit: int | str = 10
    """Most items that are past the node and not done."""
    exclusive: str = "false"
    """Condition on ``item``: it runs alone, in order."""
    key: str = "null"
    """Items whose keys differ do not hold each other up. Null stands for any key."""

    _checked = field_validator("exclusive", "key")(_condition)
    _limit = field_validator("limit")(_mapping)


class MapSpec(Part):
    """Runs a graph once for every item of a list."""

    over: str
    """Expression giving the list."""
    do: str
    """Name of the graph."""
    window: Annotated[int, Field(ge=1, le=MAX_WINDOW)] = 50
    """Most items under way at once."""
    barrier: Barrier | None = None
    """Order among the items; absent means none."""

    _checked = field_validator("over")(_condition)


class Map(Node):
    """A map over a sub-plan; its result is the list of the items' results, in item order."""

    kind: ClassVar[str] = "map"

    map: MapSpec


class ApprovalSpec(Part):
    """What is asked of a human."""

    request: Any
    """Mapping that gives the request (design: tool, summary, arguments digest)."""
    choices: tuple[str, ...] = ("approve", "reject")
    """The answers that count."""
    late: Literal["reject", "accept"] = "reject"
    """What a decision counts for that was sent after the deadline."""

    _mappings = field_validator("request")(_mapping)


class Approval(Node):
    """Waits for a human decision, as long as it takes."""

    kind: ClassVar[str] = "approval"

    approval: ApprovalSpec


class RecurseSpec(Part):
    """The tail call: the next turn of the same plan."""

    policy: str = "per_turn"
    """``per_turn``, ``adaptive``, ``history``, or a `${…}` giving one of them."""
    idle: bool = False
    """Whether messages that wait for an idle agent become due."""

    _mappings = field_validator("policy")(_mapping)


class Recurse(Node):
    """Ends the turn and starts the next one with the next TurnState."""

    kind: ClassVar[str] = "recurse"

    recurse: RecurseSpec


class End(Node):
    """Ends the graph with a result."""

    kind: ClassVar[str] = "end"

    end: Any
    """Mapping that gives the result."""

    _mappings = field_validator("end")(_mapping)


class FailSpec(Part):
    """How a graph fails."""

    code: Any = "failed"
    message: Any = "the graph failed"
    details: Any = None

    _mappings = field_validator("code", "message", "details")(_mapping)


class Fail(Node):
    """Ends the graph as failed."""

    kind: ClassVar[str] = "fail"

    fail: FailSpec

    @field_validator("fail", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"message": value} if isinstance(value, str) else value


NODE_KINDS: dict[str, type[Node]] = {k.kind: k for k in (Activity, Map, Approval, Recurse, End, Fail)}


def _kind_of(value: Any) -> str:
    if isinstance(value, Node):
        return value.kind
    kinds = [kind for kind in NODE_KINDS if isinstance(value, dict) and kind in value]
    return kinds[0] if kinds else Branch.kind


AnyNode = Annotated[
    Annotated[Activity, Tag("activity")]
    | Annotated[Map, Tag("map")]
    | Annotated[Approval, Tag("approval")]
    | Annotated[Recurse, Tag("recurse")]
    | Annotated[End, Tag("end")]
    | Annotated[Fail, Tag("fail")]
    | Annotated[Branch, Tag("branch")],
    Discriminator(_kind_of),
]
NodeId = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]


class Graph(Part):
    """A graph as a document: nodes by id, and where it starts."""

    loom: Literal[1] = 1
    """Version of the format."""
    kind: Literal["graph"] = "graph"
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9._-]{0,63}$")]
    """Name of the graph."""
    doc: str = ""
    """What the graph is for."""
    start: str
    """Where the first token stands."""
    on_abort: str | None = None
    """Where a token goes when somebody aborts the job."""
    nodes: Annotated[dict[NodeId, AnyNode], Field(min_length=1)]
    """The nodes by id."""

    def dump(self) -> dict[str, Any]:
        """The normal form, as JSON: no defaults, canonical keys."""
        head = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {"loom": 1, "kind": "graph", **head}
