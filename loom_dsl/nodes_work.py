"""Nodes that do something, or have a graph do it."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from loom_dsl.parts import Node, Part, Retry, coded, condition, mapping, number_or_mapping, outage, seconds_or_mapping
from loom_dsl.written import Written

MAX_WINDOW = 1_000
"""More pending activities than 2,000 wedge a Temporal workflow for ever, so a map's window stays well below."""
Count = Annotated[int, Field(ge=1)]


class Activity(Node):
    """One retryable activity."""

    kind: ClassVar[str] = "activity"

    activity: str
    """Registered name of the activity."""
    with_: Annotated[dict[str, Any], Field(alias="with")] = Field(default_factory=dict)
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

    @field_validator("timeout", "heartbeat")
    @classmethod
    def _some_time(cls, value: Any) -> Any:
        if isinstance(value, float) and value <= 0:
            raise ValueError("no attempt could be done in no time; give a duration, such as 30s")
        return value


class Tool(Node):
    """One tool call through the whole pipeline: validated, authorized, asked about where the policy asks, once."""

    kind: ClassVar[str] = "tool"

    tool: str
    """A built-in's name, or ``module:function``."""
    with_: Annotated[dict[str, Any], Field(alias="with")] = Field(default_factory=dict)
    """Its arguments."""

    _arguments = field_validator("with_")(mapping)


class AgentNode(Node):
    """An agent's whole job, as a job of its own below this one. Its result: ``{answer, status, usage}``."""

    kind: ClassVar[str] = "agent"

    agent: str
    """Name in the graph's `agents`."""
    with_: Annotated[dict[str, Any], Field(alias="with")] = Field(default_factory=dict)
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
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Passed to the model as they are, such as temperature."""

    _mappings = field_validator("model", "prompt", "system")(mapping)


class Llm(Node):
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
    """Name of the graph."""
    with_: Annotated[dict[str, Any] | str | None, Field(alias="with")] = None
    """What the graph has as `input`, besides `item` and `index`, or a `${…}` that gives it; absent: what this graph
    has."""
    first: int | str = 0
    """The index of the first item; a number, or a `${…}` that gives one."""
    window: Annotated[int, Field(ge=1, json_schema_extra={"maximum": MAX_WINDOW})] = 50
    """Most items under way at once."""
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
    """Name of the graph."""
    with_: Annotated[dict[str, Any] | None, Field(alias="with")] = None
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
    return "written" if isinstance(value, (dict, Written)) else "name"


class Subgraph(Node):
    """Runs a graph once, inside this one or as a job of its own below it."""

    kind: ClassVar[str] = "graph"

    graph: Annotated[Annotated[str, Tag("name")] | Annotated[Written, Tag("written")], Discriminator(_named_or_written)]
    """Name of the graph: of this document's `graphs`, one that Loom ships, or this one itself. Or ``{from: NODE, allow:
    {…}}``: a graph that the node wrote as text, which is checked, held against what is allowed, and run as a job."""
    with_: Annotated[dict[str, Any] | str | None, Field(alias="with")] = None
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
        if isinstance(self.graph, Written) and given:
            raise ValueError(f"a written graph is always a job of its own, so `{given[0]}` does not go with `from`")
        return self

    @property
    def called(self) -> str:
        """Name of the graph that it runs; empty for a written one."""
        return self.graph if isinstance(self.graph, str) else ""
