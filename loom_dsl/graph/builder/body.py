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
GraphRef = Union["BodyBuilder", str, Callable[["BodyBuilder"], object]]
"""A graph of the same document, the name of one (also of one that Loom ships), or a function that adds nodes to one,
which is named after the node that runs it, as one that a document has inside a node."""


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
    in_order: bool
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
        """Start at this node instead of the first one.

        Args:
            node: The node, or its id, which may be added later.

        Raises:
            DocumentError: It is a node of another graph.
        """
        self._head["start"] = self._id_of(node)

    def on_abort(self, node: Target) -> None:
        """Go to this node when somebody aborts the job.

        Args:
            node: The node, or its id, which may be added later.

        Raises:
            DocumentError: It is a node of another graph.
        """
        self._head["on_abort"] = self._id_of(node)

    # -- work --------------------------------------------------------------------------------------

    def activity(self, id: str, activity: Function, arguments: Arguments = None, /, **more: Value) -> ActivityHandle:
        """Add a node that runs a registered activity, or a function of your own.

        Args:
            id: The node's id.
            activity: The registered name, ``module:function``, or the function itself, from the top level of a module.
            arguments: Arguments whose names Python does not take; JSON, with expressions anywhere in it.
            more: The other arguments, by name.

        Returns:
            The node; its result is what the activity returns, as JSON.

        Raises:
            DocumentError: The id is taken, an argument is not JSON, or no worker could find the function.
        """
        reference = function_reference(activity, self.name, id)
        return self._add(ActivityHandle, id, {"activity": reference, **_with(arguments, more)})

    def tool(self, id: str, tool: Function, arguments: Arguments = None, /, **more: Value) -> StepHandle:
        """Add a node that calls a tool, through the policy and all other stages.

        Args:
            id: The node's id.
            tool: A built-in's name, ``module:function``, or the tool itself.
            arguments: Arguments whose names Python does not take; JSON, with expressions anywhere in it.
            more: The other arguments, by name.

        Returns:
            The node; its result is the tool's output, as a value.

        Raises:
            DocumentError: The id is taken, an argument is not JSON, or no worker could find the tool.
        """
        reference = function_reference(tool, self.name, id)
        return self._add(StepHandle, id, {"tool": reference, **_with(arguments, more)})

    def agent(self, id: str, agent: Agent | str, arguments: Arguments = None, /, **more: Value) -> StepHandle:
        """Add a node that runs an agent, as a job of its own.

        Args:
            id: The node's id.
            agent: A name in the graph's agents, or the agent, which enters them under its name, with `_` for `-`.
            arguments: What is added to the task, as JSON, under names that Python does not take.
            more: `task`, the text that says what it is to do, and more that is added to it.

        Returns:
            The node; its result is ``{answer, status, usage}``.

        Raises:
            DocumentError: The id is taken, an argument is not JSON, or the graph has another agent of that name.
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
        """Add a node that calls a model once, without tools.

        Args:
            id: The node's id.
            prompt: What the user says.
            model: The model's name, or ``provider:model``.
            system: What the model is told first.
            parameters: Passed to the model as they are, such as temperature.

        Returns:
            The node; its result is ``{text, usage}``.

        Raises:
            DocumentError: The id is taken, or a value is not JSON.
        """
        given: dict[str, object] = {"model": model, "prompt": prompt}
        return self._add(LlmHandle, id, {"llm": given | _given({"system": system, "parameters": parameters})})

    def subgraph(self, id: str, graph: GraphRef, arguments: Arguments = None, /, **more: Value) -> SubgraphHandle:
        """Add a node that runs a graph once.

        Args:
            id: The node's id.
            graph: A graph of this document, the name of one, or a function that adds the nodes of one.
            arguments: Values of its `input` whose names Python does not take. Without any, it has this graph's `input`.
            more: The other values of its `input`, by name.

        Returns:
            The node; its result is that of the graph.

        Raises:
            DocumentError: The id is taken, a value is not JSON, or the graph is one of another document.
        """
        given: dict[str, object] = {"graph": self._graph(id, graph)}
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

        Args:
            id: The node's id.
            source: The node whose text, or whose agent's answer, is the graph; or an expression that gives the text.
            arguments: Values of its `input` whose names Python does not take. Without any, it has this graph's `input`.
            allow: What it may have: kinds of nodes, tools, functions, agents, models and secrets by name; at most how
                many nodes, levels and bytes; and what it may cost, in US dollars.
            more: The other values of its `input`, by name.

        Returns:
            The node; its result is that of the graph. It fails with ``graph_refused`` where the text is no such graph.

        Raises:
            DocumentError: The id is taken, a value is not JSON, or the source is a node of another graph.
        """
        text = source if isinstance(source, Expr) else self._id_of(source, id)
        given: dict[str, object] = {"graph": {"from": text, "allow": dict(allow)}}
        return self._add(StepHandle, id, given | ({} if arguments is None and not more else _with(arguments, more)))

    def map(self, id: str, do: GraphRef, /, *, over: Condition, **options: Unpack[MapOptions]) -> StepHandle:
        """Add a node that runs a graph for every item of a list, whose results become a list.

        Args:
            id: The node's id.
            do: A graph of this document, the name of one, or a function that adds the nodes of one; it reads `item` and
                `index`, from 0.
            over: Expression that gives the list.
            options: ``with_``, the graph's `input` (that of this graph when absent); `first`, the first item's index;
                `window`, how many items at most are under way; `in_order`, for one after another; `barrier`, order
                among them; `need` and `done_when`,
                when results suffice, and `rest`, what becomes of the other items; `detach`, to go on before they are
                done; `open` and `complete`, events that add items and that end the map.

        Returns:
            The node; its result is the list of the items' results, in item order: null for one that was not needed.

        Raises:
            DocumentError: The id is taken, a value is not JSON, or the graph is one of another document.
        """
        spec: dict[str, object] = {"over": self._source(id, over), "do": self._graph(id, do)}
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
        """Add a node that runs a graph again and again.

        Args:
            id: The node's id.
            do: A graph of this document, the name of one, or a function that adds the nodes of one; it reads `item`,
                the round before's result, and `index`.
            max: Most rounds; one more fails the node with ``max_rounds``.
            while_: Condition for a round, looked at before it; `result` is that of the round before, at first null.
            until: Condition that ends the loop, looked at after each round; `result` is that of the round.
            with_: The graph's `input`, mapped every round; that of this graph when absent.

        Returns:
            The node; its result is that of the last round.

        Raises:
            DocumentError: The id is taken, a value is not JSON, or the graph is one of another document.
        """
        given: dict[str, object] = {} if with_ is None else {"with": with_}
        for name, condition in (("while", while_), ("until", until)):
            given |= {} if condition is None else {name: self._source(id, condition)}
        return self._add(StepHandle, id, {"loop": {"do": self._graph(id, do), "max": max, **given}})

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
        """Add a node that asks a human.

        Args:
            id: The node's id.
            ask: The question, as a sentence.
            request: In its place an object: its `summary`, and whatever else people need to see.
            choices: The answers that count; ``approve`` and ``reject`` when empty.
            late: What a decision counts for that was sent after the deadline.
            policy: What happens while nobody answers, and who may answer: the fields of an agent's `approvals`.

        Returns:
            The node; its result is the decision: ``{choice, by, message}``.

        Raises:
            DocumentError: Both or neither of sentence and request are given, the id is taken, or a value is not JSON.
        """
        if (ask is None) == (request is None):
            refuse("an approval asks a sentence, or has a `request`; give one of the two", self.name, id)
        asked = {"summary": ask} if request is None else request
        more = _given({"choices": choices, "policy": policy})
        return self._add(StepHandle, id, {"approval": {"request": asked, "late": late, **more}})

    def event(self, id: str, name: str, /, *, key: Value = None, buffer: bool = True) -> StepHandle:
        """Add a node that waits for an event from outside.

        Args:
            id: The node's id.
            name: The event's name.
            key: Only an event with this key; None takes any.
            buffer: Whether an event counts that came before the token did. Otherwise it is gone.

        Returns:
            The node; its result is the event's data.

        Raises:
            DocumentError: The id is taken, or the key is not JSON.
        """
        return self._add(StepHandle, id, {"event": {"name": name, "key": key, "buffer": buffer}})

    def timer(self, id: str, after: Duration | None = None, /, *, until: Value = None) -> StepHandle:
        """Add a node that waits for some time, or until a time.

        Args:
            id: The node's id.
            after: How long: seconds, text such as ``4h``, a timedelta, or an expression that gives seconds.
            until: Or until when: text such as ``2026-01-31T12:00:00Z``, or an expression that gives seconds since 1970.

        Returns:
            The node; its result is null.

        Raises:
            DocumentError: The id is taken, or a value is not JSON.
        """
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
        """Add a node that makes one token of several.

        Args:
            id: The node's id.
            mode: ``all``: one from every edge that leads here; ``taken``: every one that can still come.
            need: Or the first so many of the edges.
            rest: What becomes of those that are not needed: swallowed when they come, cancelled now, or kept out
                until all have come once.
            threads: Or so many tokens, from whatever edge.

        Returns:
            The node; its result is what each arrived with, by the id of the node it came from; with `threads`, a list.

        Raises:
            DocumentError: The id is taken, or a value is not JSON.
        """
        return self._add(StepHandle, id, {"join": {"mode": mode, "need": need, "rest": rest, "threads": threads}})

    def race(self, id: str, /, *arms: Target) -> StepHandle:
        """Add a node that starts several; the first that is done goes on, the others are cancelled.

        Args:
            id: The node's id.
            arms: At least two nodes, or their ids. One that leaves by `catch` or by its deadline is done, too.

        Returns:
            The node.

        Raises:
            DocumentError: The id is taken, or an arm is a node of another graph.
        """
        return self._add(StepHandle, id, {"race": [self._id_of(arm, id) for arm in arms]})

    # -- ways and ends -----------------------------------------------------------------------------

    def branch(self, id: str, /) -> StepHandle:
        """Add a node that only chooses the way.

        Args:
            id: The node's id.

        Returns:
            The node; its edges say where to go.

        Raises:
            DocumentError: The id is taken.
        """
        return self._add(StepHandle, id, {})

    def set(self, id: str, /, **fields: Value) -> StepHandle:
        """Add a node that writes state fields.

        Args:
            id: The node's id.
            fields: Values by the names of the fields, whose reducers combine them with what is there.

        Returns:
            The node; its result is what was written.

        Raises:
            DocumentError: The id is taken, or a value is not JSON.
        """
        return self._add(StepHandle, id, {"set": fields})

    def cancel(self, id: str, /, *nodes: Target) -> StepHandle:
        """Add a node that takes away the tokens at others, with all that runs there.

        Args:
            id: The node's id.
            nodes: The other nodes of this graph, or their ids.

        Returns:
            The node.

        Raises:
            DocumentError: The id is taken, or one of the others is a node of another graph.
        """
        return self._add(StepHandle, id, {"cancel": [self._id_of(node, id) for node in nodes]})

    def recurse(
        self, id: str, /, *, policy: str | Expr = "per_turn", idle: bool = False, compacted: bool | str | Expr = False
    ) -> NodeHandle:
        """Add a node that goes on with the next turn of the same plan.

        Args:
            id: The node's id.
            policy: When the turn is a temporal run of its own: ``per_turn``, ``adaptive`` or ``history``.
            idle: Whether messages become due that wait for an idle agent.
            compacted: Whether this turn compressed the conversation.

        Returns:
            The node, which tokens do not leave.

        Raises:
            DocumentError: The id is taken.
        """
        return self._add(NodeHandle, id, {"recurse": {"policy": policy, "idle": idle, "compacted": compacted}})

    def end(self, id: str, result: Value = None, /, **more: Value) -> EndHandle:
        """Add a node that ends its branch, with a result.

        Args:
            id: The node's id.
            result: The result: JSON, with expressions anywhere in it.
            more: Or its fields, by name.

        Returns:
            The node, which tokens do not leave.

        Raises:
            DocumentError: A value and fields are given, the id is taken, or a value is not JSON.
        """
        if result is not None and more:
            refuse("an end gives one value, or fields by name", self.name, id)
        return self._add(EndHandle, id, {"end": more or result})

    def fail(self, id: str, message: Value, /, *, code: Value = "failed", details: Value = None) -> NodeHandle:
        """Add a node that ends the graph as failed.

        Args:
            id: The node's id.
            message: What people read.
            code: Code of the error, which `catch` of a node above can name.
            details: More, as JSON.

        Returns:
            The node, which tokens do not leave.

        Raises:
            DocumentError: The id is taken, or a value is not JSON.
        """
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

    def _graph(self, id: str, graph: GraphRef) -> str | dict[str, Any]:
        if isinstance(graph, str):
            return graph
        if not isinstance(graph, BodyBuilder):
            body = BodyBuilder(f"{id}_do", self._agents, {})
            graph(body)
            return body._document()
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
