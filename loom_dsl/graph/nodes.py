"""The kinds of nodes. A node's kind is the key that it has; one without such a key only chooses the way."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag, field_validator, model_validator

from loom_dsl.approvals.policy import read_policy
from loom_dsl.errors import ExpressionError
from loom_dsl.fields import Part, Retry, coded, listed, some_time
from loom_dsl.graph.edges import Node, condition, mapping, number_or_mapping, outage, seconds_or_mapping
from loom_dsl.graph.generated import GeneratedGraph
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.wording import shown, type_name

# Nodes that choose, wait, join, write down and end.


class Branch(Node):
    """Only a choice of the way."""


def one_of(value: str, *known: str) -> str:
    """Check a word, where it is not computed."""
    if "${" not in value and value not in known:
        raise ValueError(f"should be {' or '.join(repr(name) for name in known)}, or a `${{…}}`, not {shown(value)}")
    return value


def unlike(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what stands twice in a list of names."""
    twice = next((name for name in value if value.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"`{twice}` stands there twice; write it once")
    return value


class ApprovalSpec(Part):
    """What is asked of a human."""

    request: JsonValue
    """Mapping that gives the request: `summary` for people, and whatever they need to see. ``ask: text`` is short for
    a request with that summary."""
    choices: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = ("approve", "reject")
    """The answers that count."""
    late: Literal["reject", "accept"] = "reject"
    """What a decision counts for that was sent after the deadline."""
    policy: JsonValue = None
    """What happens while nobody answers, and who may answer: the fields of an agent's `approvals`, or a `${…}`."""

    _mappings = field_validator("request", "policy")(mapping)
    _unlike = field_validator("choices")(unlike)

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
            if not value.strip():
                raise ValueError("a human is asked something: write the question, such as `approval: Ship it?`")
            return {"request": {"summary": value}}
        if isinstance(value, dict) and "ask" in value and "request" in value:
            raise ValueError("`ask` is short for a `request` with that `summary`; write one of the two")
        if isinstance(value, dict) and "ask" in value:
            rest = {key: item for key, item in value.items() if key != "ask"}
            return {"request": {"summary": value["ask"]}, **rest}
        return value


class Approval(Node):
    """Waits for a human decision, as long as it takes."""

    kind: ClassVar[str] = "approval"

    approval: ApprovalSpec

    @model_validator(mode="before")
    @classmethod
    def _ways(cls, value: Any) -> Any:
        """Write `approved` and `rejected` out: the normal form has the edges that they stand for."""
        if not isinstance(value, dict) or not {"approved", "rejected"} & set(value):
            return value
        ways = {name: value[name] for name in ("approved", "rejected") if name in value}
        rest = {key: item for key, item in value.items() if key not in ways}
        if "next" in rest:
            raise ValueError("`approved` and `rejected` are the ways out, so there is no `next` beside them")
        if len(ways) < 2 or not all(isinstance(to, str) for to in ways.values()):
            raise ValueError("`approved` and `rejected` go together, and each names a node")
        spec = rest.get("approval")
        choices = spec.get("choices", ["approve"]) if isinstance(spec, dict) else ["approve"]
        if isinstance(choices, list) and "approve" not in choices:
            raise ValueError(
                "`approved` is the way after the choice `approve`, which `choices` does not have; use `next`"
            )
        edges = [{"if": "result.choice == 'approve'", "to": ways["approved"]}, {"to": ways["rejected"]}]
        return {**rest, "next": edges}


class EventSpec(Part):
    """What a token waits for."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the event, as ``loom event JOB NAME`` and the signal ``loom.event`` give it; it may have `${…}`, which
    are computed when a token comes."""
    key: JsonValue = None
    """Only an event with this key; null takes any."""
    buffer: bool = True
    """Whether an event that came before the token counts. Otherwise it is gone."""

    _mappings = field_validator("name", "key")(mapping)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class EventNode(Node):
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
    until: JsonValue = None
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
            this = "neither" if self.after is None else "both; remove one"
            raise ValueError(f"a timer has `after` (a duration) or `until` (a time), and this one has {this}")
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

    set: dict[str, JsonValue]
    """Field → value; the field's reducer combines the values."""

    _mappings = field_validator("set")(mapping)


class Cancel(Node):
    """Takes away the tokens at other nodes of this graph, with all that runs there."""

    kind: ClassVar[str] = "cancel"

    cancel: Annotated[tuple[str, ...], Field(min_length=1)]
    """The nodes."""

    _short = field_validator("cancel", mode="before")(listed)


class RecurseSpec(Part):
    """The tail call: the next turn of the same plan."""

    policy: str = "per_turn"
    """``per_turn``, ``adaptive``, ``history``, or a `${…}` giving one of them."""
    idle: bool = False
    """Whether messages that wait for an idle agent become due."""
    compacted: bool | str = Field(default=False, exclude_if=lambda value: value is False)
    """Whether this turn compressed the conversation, or a `${…}` that says so; the next TurnState tells it."""

    _mappings = field_validator("policy", "compacted")(mapping)
    _policy = field_validator("policy")(lambda value: one_of(value, "per_turn", "adaptive", "history", "never"))


class Recurse(Node):
    """Ends the turn and starts the next one with the next TurnState."""

    kind: ClassVar[str] = "recurse"

    recurse: RecurseSpec


class End(Node):
    """Ends this branch; the graph ends when no branch is left, with the result of the end that came last."""

    kind: ClassVar[str] = "end"

    end: JsonValue
    """Mapping that gives the result."""
    terminate: bool = False
    """Whether the graph ends here and now, whatever other branches do."""

    _mappings = field_validator("end")(mapping)


class FailSpec(Part):
    """How a graph fails."""

    code: JsonValue = "failed"
    """Code of the job's error."""
    message: JsonValue = "the graph failed"
    """What people read."""
    details: JsonValue = None
    """More, as data."""

    _mappings = field_validator("code", "message", "details")(mapping)

    @field_validator("code", "message", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)  # a code may look like a number
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"should be text; data for those who catch it goes into `details`, not {_shown(value)}")
        return value


def _shown(value: Any) -> str:
    return f"a {type_name(value)}" if isinstance(value, dict | list) else shown(value)


class Fail(Node):
    """Ends the graph as failed."""

    kind: ClassVar[str] = "fail"

    fail: FailSpec

    @field_validator("fail", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"message": value} if isinstance(value, str) else value


# Nodes that do something, or have a graph do it.


MAX_WINDOW = 1_000
"""More pending activities than 2,000 wedge a Temporal workflow for ever, so a map's window stays well below."""
Count = Annotated[int, Field(ge=1)]


class Activity(Node):
    """One retryable activity."""

    kind: ClassVar[str] = "activity"

    activity: str
    """Registered name of the activity."""
    with_: Annotated[dict[str, JsonValue], Field(alias="with")] = Field(default_factory=dict)
    """Arguments, mapped from what is known."""
    carrier: str = "remote"
    """``remote``, ``local`` (inside the workflow task; falls back to remote), or a `${…}` giving one of them. A
    function of yours with one attempt is always remote."""
    timeout: float | str = 60.0
    """Seconds for one attempt (start to close); a duration, or a `${…}` that gives seconds."""
    heartbeat: float | None = None
    """Seconds without a heartbeat after which an attempt counts as lost."""
    retry: Retry = Retry()
    """How often it is tried when it is answered that it failed: a function's own exceptions count, and nothing else. A
    worker that died or was stopped, or a store that is away, is no attempt: the step is then run again, without an end.
    A function of yours that ran locally has had the first of its attempts."""
    max_outage: float | str | None = None
    """For how long an outage of the model that it asks is waited for, before the step is halted; a duration, `never`
    (without an end), or a `${…}` that gives seconds. Absent: a day, where `catch` has no way for it."""
    events: str = "carry"
    """``carry``, ``leave`` (the activity only looks, so events wait for one that writes to the store anyway), or a
    `${…}` giving one of them."""
    inbox: Literal["take"] | None = None
    """``take``: injected messages that are due go to this activity."""

    _durations = field_validator("timeout", "heartbeat", mode="before")(seconds_or_mapping)
    _outage = field_validator("max_outage", mode="before")(outage)
    _arguments = field_validator("with_", "carrier", "events")(mapping)
    _carrier = field_validator("carrier")(lambda value: one_of(value, "remote", "local"))
    _events = field_validator("events")(lambda value: one_of(value, "carry", "leave"))

    _some_time = field_validator("timeout", "heartbeat")(some_time)


class ToolCallNode(Node):
    """One tool call through the whole pipeline: validated, authorized, asked about where the policy asks, once."""

    kind: ClassVar[str] = "tool"

    tool: str
    """A built-in's name, or ``module:function``."""
    with_: Annotated[dict[str, JsonValue], Field(alias="with")] = Field(default_factory=dict)
    """Its arguments."""

    _arguments = field_validator("with_")(mapping)


class AgentNode(Node):
    """An agent's whole job, as a job of its own below this one. Its result: ``{answer, status, usage}``."""

    kind: ClassVar[str] = "agent"

    agent: str
    """Name in the graph's `agents`."""
    with_: Annotated[dict[str, JsonValue], Field(alias="with")] = Field(default_factory=dict)
    """`task`: what to do, as text. Everything else is added to it as JSON."""

    _arguments = field_validator("with_")(mapping)

    @field_validator("agent", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, dict):
            raise ValueError("an agent is named: declare it, `agents: {NAME: {model: …}}`, and write `agent: NAME`")
        return value


class LlmSpec(Part):
    """One model call without tools."""

    model: str
    """The model's name, or ``provider:model``; or a `${…}` that gives one."""
    prompt: str
    """What the user says."""
    system: str = ""
    """What the model is told first."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Passed to the model, such as temperature."""

    _mappings = field_validator("model", "prompt", "system", "parameters")(mapping)

    @model_validator(mode="before")
    @classmethod
    def _no_short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"a model is told something, too: write `{{model: {value}, prompt: TEXT}}`")
        return value


class LlmNode(Node):
    """One model call. Its result: ``{text, usage}``."""

    kind: ClassVar[str] = "llm"

    llm: LlmSpec
    max_outage: float | str | None = None
    """For how long an outage of the model is waited for, before the step is halted; a duration, `never` (without an
    end), or a `${…}` that gives seconds. Absent: a day, where `catch` has no way for it."""

    _durations = field_validator("max_outage", mode="before")(outage)


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

    _checked = field_validator("exclusive", "key")(condition)
    _limit = field_validator("limit")(mapping)


class Open(Part):
    """A map that takes items while it runs."""

    add: str
    """Name of the event whose data is one more item."""
    close: str
    """Name of the event after which no more items come."""


class MapSpec(Part):
    """Runs a graph once for every item of a list."""

    over: str
    """Expression giving the list."""
    do: str
    """Name of the graph; or the graph itself, ``{nodes: {…}}``, or its only node: ``{activity: "m:f"}``."""
    with_: Annotated[dict[str, JsonValue] | str | None, Field(alias="with")] = None
    """What the graph has as `input`, besides `item` and `index`, or a `${…}` that gives it; absent: what this graph
    has."""
    first: int | str = 0
    """The index of the first item; a number, or a `${…}` that gives one."""
    window: Annotated[int, Field(ge=1, json_schema_extra={"maximum": MAX_WINDOW})] = 50
    """Most items under way at once."""
    in_order: bool = Field(default=False, exclude=True)
    """One item after another, in the order of the list, each with what those before it wrote into the state; short for
    a `window` of 1."""
    barrier: Barrier | None = None
    """Order among the items; absent means none."""
    need: int | str | None = None
    """Results that suffice; absent: those of all items. A number, or a `${…}` that gives one."""
    done_when: str | None = None
    """Condition that ends the map early; `result` is the list so far, with null for items that are not done."""
    rest: Literal["cancel", "ignore"] = "cancel"
    """What becomes of the items that are not needed: cancelled, or left to end unheard."""
    detach: bool = False
    """Go on at once, with null; the graph ends when the items have, too."""
    open: Open | None = None
    """Items that come while the map runs."""
    complete: str | None = None
    """Name of the event that ends the map with the results that there are."""

    @model_validator(mode="before")
    @classmethod
    def _one_after_another(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("in_order") is not True:
            return value
        if value.get("window", 1) != 1:
            raise ValueError("`in_order: true` is a `window` of 1; write one of the two")
        rest = {key: item for key, item in value.items() if key != "in_order"}
        return {**rest, "window": 1}

    @field_validator("over", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        if isinstance(value, list):
            raise ValueError('is an expression that gives a list: write it as text, such as `over: "[1, 2]"`')
        return value

    _checked = field_validator("over", "done_when")(lambda value: value if value is None else condition(value))
    _mappings = field_validator("with_", "first")(mapping)
    _number = field_validator("need")(number_or_mapping)

    @field_validator("window")
    @classmethod
    def _bounded(cls, value: int) -> int:
        if value > MAX_WINDOW:
            raise coded("L142", f"a window has at most {MAX_WINDOW:,} items, and this one {value:,}; write less")
        return value


class Map(Node):
    """A map over a sub-plan; its result is the list of the items' results, in item order."""

    kind: ClassVar[str] = "map"

    map: MapSpec

    @model_validator(mode="after")
    def _detached_is_done_at_once(self) -> "Map":
        if self.map.detach and self.deadline is not None and self.deadline.to is not None:
            raise ValueError(
                "a map with `detach` is done at once, so it has no `deadline`; give one to the nodes of its graph"
            )
        return self


class LoopSpec(Part):
    """Runs a graph again and again."""

    do: str
    """Name of the graph; or the graph itself, ``{nodes: {…}}``, or its only node."""
    with_: Annotated[dict[str, JsonValue] | None, Field(alias="with")] = None
    """What the graph has as `input`, besides `index` and `item`, the result of the round before; mapped every round."""
    while_: Annotated[str | None, Field(alias="while")] = None
    """Condition for a round, looked at before it: `result` is that of the round before (null at first), `index`
    counts from 0."""
    until: str | None = None
    """Or a condition that ends the loop, looked at after each round."""
    max: Count
    """Most rounds; one more fails with the code ``max_rounds``."""

    _checked = field_validator("while_", "until")(lambda value: value if value is None else condition(value))
    _mappings = field_validator("with_")(mapping)

    @model_validator(mode="after")
    def _one(self) -> "LoopSpec":
        if (self.while_ is None) == (self.until is None):
            raise ValueError("a loop has `while` (looked at before a round) or `until` (looked at after it)")
        return self


class Loop(Node):
    """A structured loop; its result is that of the last round."""

    kind: ClassVar[str] = "loop"

    loop: LoopSpec


def _short(value: Any) -> str:
    return "{…}" if isinstance(value, dict) else str(value).lower()


def _named_or_written(value: Any) -> str:
    return "written" if isinstance(value, (dict, GeneratedGraph)) else "name"


class Subgraph(Node):
    """Runs a graph once, inside this one or as a job of its own below it."""

    kind: ClassVar[str] = "graph"

    graph: Annotated[
        Annotated[str, Tag("name")] | Annotated[GeneratedGraph, Tag("written")], Discriminator(_named_or_written)
    ]
    """Name of the graph: of this document's `graphs`, one that Loom ships, or this one itself. Or the graph itself,
    ``{nodes: {…}}``. Or ``{from: NODE, allow: {…}}``: a graph that the node wrote as text, which is checked, held
    against what is allowed, and run as a job."""
    with_: Annotated[dict[str, JsonValue] | str | None, Field(alias="with")] = None
    """What it has as `input`, or a `${…}` that gives it; absent: what this graph has, or nothing for a written one."""
    child: bool = False
    """Whether it is a job of its own, with a history of its own. It does not see this graph's state then."""
    max_depth: Annotated[int, Field(ge=1, le=50)] = 10
    """How deep the same graph may stand inside itself."""

    _arguments = field_validator("with_")(mapping)

    @field_validator("graph", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "from" in value or "allow" in value:
            return value
        called = next(
            (value[key] for key in ("do", "graph", "name", "file") if isinstance(value.get(key), str)), "NAME"
        )
        beside = "".join(f", {key}: {_short(value[key])}" for key in ("with", "child", "max_depth") if key in value)
        raise ValueError(
            f"a graph is named, and the rest stands beside it: write `graph: {called}{beside}`; "
            "a mapping is for a graph that a node writes: `graph: {from: NODE, allow: {…}}`"
        )

    @model_validator(mode="after")
    def _written_is_a_job(self) -> "Subgraph":
        given = [name for name in ("child", "max_depth") if name in self.model_fields_set]
        if isinstance(self.graph, GeneratedGraph) and given:
            raise ValueError(f"a written graph is always a job of its own, so `{given[0]}` does not go with `from`")
        return self

    @property
    def called(self) -> str:
        """Name of the graph that it runs; empty for a written one."""
        return self.graph if isinstance(self.graph, str) else ""


NODE_KINDS: dict[str, type[Node]] = {
    kind.kind: kind
    for kind in (
        Activity,
        ToolCallNode,
        AgentNode,
        LlmNode,
        Approval,
        EventNode,
        Timer,
        Join,
        Map,
        Loop,
        Subgraph,
        Race,
        Set,
        Cancel,
        Recurse,
        End,
        Fail,
    )
}


def kind_of(value: Any) -> str:
    """The kind of a node, or of the mapping that a document has for it."""
    if isinstance(value, Node):
        return value.kind
    kinds = [kind for kind in NODE_KINDS if isinstance(value, dict) and kind in value]
    return kinds[0] if kinds else Branch.kind


def _one_kind(value: Any) -> Any:
    kinds = [kind for kind in NODE_KINDS if isinstance(value, dict) and kind in value]
    if len(kinds) > 1:
        raise ValueError(f"a node is one thing, and this one is {' and '.join(f'`{kind}`' for kind in kinds)}")
    return value


AnyNode = Annotated[
    Annotated[Activity, Tag("activity")]
    | Annotated[ToolCallNode, Tag("tool")]
    | Annotated[AgentNode, Tag("agent")]
    | Annotated[LlmNode, Tag("llm")]
    | Annotated[Approval, Tag("approval")]
    | Annotated[EventNode, Tag("event")]
    | Annotated[Timer, Tag("timer")]
    | Annotated[Join, Tag("join")]
    | Annotated[Map, Tag("map")]
    | Annotated[Loop, Tag("loop")]
    | Annotated[Subgraph, Tag("graph")]
    | Annotated[Race, Tag("race")]
    | Annotated[Set, Tag("set")]
    | Annotated[Cancel, Tag("cancel")]
    | Annotated[Recurse, Tag("recurse")]
    | Annotated[End, Tag("end")]
    | Annotated[Fail, Tag("fail")]
    | Annotated[Branch, Tag("branch")],
    Discriminator(kind_of),
    BeforeValidator(_one_kind),
]
