"""The nodes of one graph, as they are added in Python: a method for each kind."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Union, Unpack, cast

from loom_dsl.agent.definition import Agent
from loom_dsl.errors import UserError
from loom_dsl.graph.builder.expressions import Condition, Expr, Value, input, source_of, state
from loom_dsl.graph.builder.handles import (
    ActivityHandle,
    AllowOptions,
    Duration,
    EndHandle,
    Function,
    LlmHandle,
    NodeHandle,
    StepHandle,
    SubgraphHandle,
    Target,
    function_reference,
    refuse,
)

Handle = TypeVar("Handle", bound=NodeHandle)
Arguments = Mapping[str, Value] | None
"""Arguments whose names Python does not take; the others are given by name."""
GraphRef = Union["BodyBuilder", str]
"""A graph of the same document, or the name of one: also of one that Loom ships."""


class BarrierOptions(TypedDict, total=False):
    """Order among the items of a map, held at one node of their graph."""

    at: str
    limit: int | Expr
    exclusive: Condition
    key: Condition


class OpenOptions(TypedDict):
    """Events by which a map gets items while it runs."""

    add: str
    close: str


class MapOptions(TypedDict, total=False):
    """What a map may say besides its list and its graph."""

    with_: Mapping[str, Value] | Expr
    first: int | Expr
    window: int
    barrier: BarrierOptions
    need: int | Expr
    done_when: Condition
    rest: Literal["cancel", "ignore"]
    detach: bool
    open: OpenOptions
    complete: str


class BodyBuilder:
    """A graph that nodes are added to; the first one is where it starts.

    Attributes:
        name: The graph's name.
        input: What it was started with, for expressions.
        state: Its variables, for expressions.
    """

    def __init__(self, name: str, agents: dict[str, Mapping[str, Any]], head: Mapping[str, Any]) -> None:
        self.name = name
        self.input: Expr = input
        self.state: Expr = state
        self._agents = agents
        self._head = {key: value for key, value in head.items() if value}
        self._nodes: dict[str, NodeHandle] = {}

    def start(self, node: Target) -> None:
        """Start at this node instead of the first one."""
        self._head["start"] = self._id_of(node)

    def on_abort(self, node: Target) -> None:
        """Go to this node when somebody aborts the job."""
        self._head["on_abort"] = self._id_of(node)

    # -- work --------------------------------------------------------------------------------------

    def activity(self, id: str, activity: Function, arguments: Arguments = None, /, **more: Value) -> ActivityHandle:
        """Add a node that runs a registered activity, or a function of your own."""
        reference = function_reference(activity, self.name, id)
        return self._add(ActivityHandle, id, {"activity": reference, **_with(arguments, more)})

    def tool(self, id: str, tool: Function, arguments: Arguments = None, /, **more: Value) -> StepHandle:
        """Add a node that calls a tool, through the policy and all other stages."""
        reference = function_reference(tool, self.name, id)
        return self._add(StepHandle, id, {"tool": reference, **_with(arguments, more)})

    def agent(self, id: str, agent: Agent | str, arguments: Arguments = None, /, **more: Value) -> StepHandle:
        """Add a node that runs an agent, as a job of its own. `task` says what it is to do.

        An `Agent` enters the graph's agents under its own name, with `_` for `-`.
        """
        name = agent if isinstance(agent, str) else self._register(id, agent)
        return self._add(StepHandle, id, {"agent": name, **_with(arguments, more)})

    def llm(
        self,
        id: str,
        prompt: Value,
        /,
        *,
        model: str,
        system: Value = "",
        parameters: Mapping[str, Value] | None = None,
    ) -> LlmHandle:
        """Add a node that calls a model once, without tools."""
        given: dict[str, object] = {"model": model, "prompt": prompt}
        return self._add(LlmHandle, id, {"llm": given | _given({"system": system, "parameters": parameters})})

    def subgraph(self, id: str, graph: GraphRef, arguments: Arguments = None, /, **more: Value) -> SubgraphHandle:
        """Add a node that runs a graph once. Without arguments the graph's input is that of this one."""
        given: dict[str, object] = {"graph": self._graph_name(id, graph)}
        return self._add(SubgraphHandle, id, given | ({} if arguments is None and not more else _with(arguments, more)))

    def written(
        self,
        id: str,
        source: Target | Expr,
        arguments: Arguments = None,
        /,
        *,
        allow: AllowOptions,
        **more: Value,
    ) -> StepHandle:
        """Add a node that runs a graph which another node wrote as text; what is not in `allow` is refused.

        The text comes from a node (its text, or an agent's answer), or from an expression.
        """
        text = source if isinstance(source, Expr) else self._id_of(source, id)
        given: dict[str, object] = {"graph": {"from": text, "allow": dict(allow)}}
        return self._add(StepHandle, id, given | ({} if arguments is None and not more else _with(arguments, more)))

    def map(self, id: str, do: GraphRef, /, *, over: Condition, **options: Unpack[MapOptions]) -> StepHandle:
        """Add a node that runs a graph for every item of a list, whose results become a list."""
        spec: dict[str, object] = {"over": self._source(id, over), "do": self._graph_name(id, do)}
        for name, value in options.items():
            spec[name.rstrip("_")] = self._source(id, cast("Condition", value)) if name == "done_when" else value
        if "barrier" in options:
            conditions = ("exclusive", "key")
            given = dict(options["barrier"])
            spec["barrier"] = given | {
                key: self._source(id, cast("Condition", given[key])) for key in conditions if key in given
            }
        return self._add(StepHandle, id, {"map": spec})

    def loop(
        self,
        id: str,
        do: GraphRef,
        /,
        *,
        max: int,
        while_: Condition | None = None,
        until: Condition | None = None,
        with_: Mapping[str, Value] | None = None,
    ) -> StepHandle:
        """Add a node that runs a graph again and again, at most `max` times."""
        given: dict[str, object] = {} if with_ is None else {"with": with_}
        for name, condition in (("while", while_), ("until", until)):
            given |= {} if condition is None else {name: self._source(id, condition)}
        return self._add(StepHandle, id, {"loop": {"do": self._graph_name(id, do), "max": max, **given}})

    # -- waiting -----------------------------------------------------------------------------------

    def approval(
        self,
        id: str,
        ask: str | Expr | None = None,
        /,
        *,
        request: Value = None,
        choices: Sequence[str] = (),
        late: Literal["reject", "accept"] = "reject",
        policy: Value = None,
    ) -> StepHandle:
        """Add a node that asks a human: a sentence, or a `request` of a summary and whatever else they need to see."""
        if (ask is None) == (request is None):
            refuse("an approval asks a sentence, or has a `request`; give one of the two", self.name, id)
        asked = {"summary": ask} if request is None else request
        more = _given({"choices": choices, "policy": policy})
        return self._add(StepHandle, id, {"approval": {"request": asked, "late": late, **more}})

    def event(self, id: str, name: str, /, *, key: Value = None, buffer: bool = True) -> StepHandle:
        """Add a node that waits for an event from outside; its result is the event's data."""
        return self._add(StepHandle, id, {"event": {"name": name, "key": key, "buffer": buffer}})

    def timer(self, id: str, after: Duration | None = None, /, *, until: Value = None) -> StepHandle:
        """Add a node that waits for some time, or until a time."""
        return self._add(StepHandle, id, {"timer": {"after": after, "until": until}})

    def join(
        self,
        id: str,
        mode: Literal["all", "taken"] = "all",
        /,
        *,
        need: int | Expr | None = None,
        rest: Literal["ignore", "cancel", "block"] = "ignore",
        threads: int | Expr | None = None,
    ) -> StepHandle:
        """Add a node that makes one token of several: `all`, those `taken`, the first `need`, or so many `threads`."""
        return self._add(StepHandle, id, {"join": {"mode": mode, "need": need, "rest": rest, "threads": threads}})

    def race(self, id: str, /, *arms: Target) -> StepHandle:
        """Add a node that starts several; the first that is done goes on, the others are cancelled."""
        return self._add(StepHandle, id, {"race": [self._id_of(arm, id) for arm in arms]})

    # -- ways and ends -----------------------------------------------------------------------------

    def branch(self, id: str, /) -> StepHandle:
        """Add a node that only chooses the way."""
        return self._add(StepHandle, id, {})

    def set(self, id: str, /, **fields: Value) -> StepHandle:
        """Add a node that writes state fields."""
        return self._add(StepHandle, id, {"set": fields})

    def cancel(self, id: str, /, *nodes: Target) -> StepHandle:
        """Add a node that takes away the tokens at others, with all that runs there."""
        return self._add(StepHandle, id, {"cancel": [self._id_of(node, id) for node in nodes]})

    def recurse(
        self, id: str, /, *, policy: str | Expr = "per_turn", idle: bool = False, compacted: bool | str | Expr = False
    ) -> NodeHandle:
        """Add a node that goes on with the next turn of the same plan."""
        return self._add(NodeHandle, id, {"recurse": {"policy": policy, "idle": idle, "compacted": compacted}})

    def end(self, id: str, result: Value = None, /, **more: Value) -> EndHandle:
        """Add a node that ends its branch, with a result: a value, or fields by name."""
        if result is not None and more:
            refuse("an end gives one value, or fields by name", self.name, id)
        return self._add(EndHandle, id, {"end": more or result})

    def fail(self, id: str, message: Value, /, *, code: Value = "failed", details: Value = None) -> NodeHandle:
        """Add a node that ends the graph as failed."""
        return self._add(NodeHandle, id, {"fail": {"code": code, "message": message, "details": details}})

    # -- inside ------------------------------------------------------------------------------------

    def _document(self) -> dict[str, Any]:
        if not self._nodes:
            refuse(f"the graph {self.name!r} has no node; add one", self.name)
        return {**self._head, "nodes": {id: node._fields for id, node in self._nodes.items()}}

    def _add(self, handle: Callable[..., Handle], id: str, fields: Mapping[str, object]) -> Handle:
        if id in self._nodes:
            refuse("there is another node with this id", self.name, id)
        node = handle(self, self.name, id, fields)
        self._nodes[id] = node
        return node

    def _source(self, id: str, condition: Condition) -> str:
        try:
            return source_of(condition)
        except UserError as error:
            refuse(error.message, self.name, id)

    def _id_of(self, target: Target, node: str = "") -> str:
        if isinstance(target, str):
            return target
        if self._nodes.get(target.id) is not target:
            refuse(f"`{target.id}` is not a node of this graph", self.name, node)
        return target.id

    def _graph_name(self, id: str, graph: GraphRef) -> str:
        if isinstance(graph, str):
            return graph
        if graph._agents is not self._agents:
            refuse(f"`{graph.name}` is a graph of another document", self.name, id)
        return graph.name

    def _register(self, id: str, agent: Agent) -> str:
        key, fields = agent.name.replace("-", "_"), agent.model_dump(mode="json", exclude_defaults=True)
        if self._agents.setdefault(key, fields) != fields:
            refuse(f"there are two different agents `{key}` in this graph; name one of them otherwise", self.name, id)
        return key


def _with(arguments: Arguments, more: Mapping[str, Value]) -> dict[str, object]:
    return {"with": {**(arguments or {}), **more}}


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in options.items() if value}
