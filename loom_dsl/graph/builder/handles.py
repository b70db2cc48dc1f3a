"""Nodes of a graph that is being built in Python: what can be said of each, and where its tokens go.

Every method gives the node back, so that they chain. The schema is checked by `build()`; what can be told at once is.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NoReturn, Self, TypeAlias, TypedDict, Union, Unpack

from loom_dsl.agent.definition import tool_reference
from loom_dsl.agent.states import RunState
from loom_dsl.errors import Diagnostic, DocumentError, UserError
from loom_dsl.graph.builder.expressions import Condition, Expr, Value, nodes, source_of, to_json
from loom_dsl.graph.generated import Kind

Duration: TypeAlias = str | float | timedelta | Expr
"""``90s``, ``4h``; seconds; a timedelta; or an expression that gives seconds."""
Target: TypeAlias = Union["NodeHandle", str]
"""A node, or its id: also one that is added later."""
Function: TypeAlias = str | Callable[..., Any]
"""A registered name, ``module:function``, or the function itself."""


class RetryOptions(TypedDict, total=False):
    """How often and how soon the engine tries again."""

    attempts: int
    initial: str | float
    backoff: float
    longest: str | float


class ActivityOptions(TypedDict, total=False):
    """What only Loom's own activities say."""

    carrier: Literal["remote", "local"] | Expr
    events: Literal["carry", "leave"] | Expr
    max_outage: Duration
    inbox: Literal["take"]


class AllowOptions(TypedDict, total=False):
    """What a written graph may do."""

    kinds: Sequence[Kind]
    tools: Sequence[str]
    functions: Sequence[str]
    agents: Sequence[str]
    models: Sequence[str]
    secrets: Sequence[str]
    max_nodes: int
    max_depth: int
    max_bytes: int
    max_cost_usd: float


class NodeHandle:
    """A node that ends a branch, or any other: what all nodes may say.

    Attributes:
        id: The node's id.
        out: Its result, for the expressions of nodes after it.
    """

    def __init__(self, body: object, graph: str, id: str, fields: Mapping[str, object]) -> None:
        self.id = id
        self.out: Expr = nodes[id]
        self._body = body
        self._graph = graph
        self._fields: dict[str, Any] = {}
        for field, value in fields.items():
            self._set(field, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def doc(self, text: str) -> Self:
        """Say what it is for, in one sentence."""
        return self._set("doc", text)

    def emit(self, type: str, data: Mapping[str, Value] | None = None, /, **more: Value) -> Self:
        """Tell an event when a token enters."""
        return self._add("emit", type, {**(data or {}), **more})

    def phase(self, name: str) -> Self:
        """Put it into a lane."""
        return self._set("phase", name)

    def run_state(self, state: RunState | str) -> Self:
        """Name the run's state while a token is here."""
        return self._set("state", str(state))

    def mutex(self, name: str) -> Self:
        """Hold a lock while a token is here: nodes with the same one never overlap in a job."""
        return self._set("mutex", name)

    def only_while(self, condition: Condition) -> Self:
        """Let tokens enter only while the condition holds; until then they wait."""
        return self._set("only_while", self._condition(condition))

    def bound(self, visits: int, exhausted: Target | None = None) -> Self:
        """Let tokens enter so often in one turn; after that the job fails, or the token goes to `exhausted`."""
        self._set("max_visits", visits)
        return self if exhausted is None else self._set("exhausted", self._target(exhausted))

    def _set(self, field: str, value: object) -> Self:
        """Set a field that is not set.

        Raises:
            DocumentError: It is, or the value is not JSON.
        """
        if field in self._fields:
            self._refuse(f"`{field}` is said twice")
        self._fields[field] = self._json(value)
        return self

    def _add(self, field: str, key: str, value: object) -> Self:
        """Set a key of a field that is a mapping."""
        if key in self._fields.setdefault(field, {}):
            self._refuse(f"`{field}.{key}` is said twice")
        self._fields[field][key] = self._json(value)
        return self

    def _json(self, value: object) -> Any:
        try:
            return to_json(value)
        except UserError as error:
            self._refuse(error.message)

    def _condition(self, condition: Condition) -> str:
        try:
            return source_of(condition)
        except UserError as error:
            self._refuse(error.message)

    def _function(self, function: Function) -> str:
        return function_reference(function, self._graph, self.id)

    def _target(self, target: Target) -> str:
        if isinstance(target, str):
            return target
        if not isinstance(target, NodeHandle):
            self._refuse(f"{target!r} is not a node; give one, or its id")
        if target._body is not self._body:
            self._refuse(f"`{target.id}` is a node of another graph, `{target._graph}`; an edge stays inside its graph")
        return target.id

    def _refuse(self, message: str) -> NoReturn:
        refuse(message, self._graph, self.id)


class StepHandle(NodeHandle):
    """A node that tokens leave again."""

    def to(self, *targets: Target) -> Self:
        """Go to a node; with several, to all of them at once."""
        if not targets:
            self._refuse("to() names no node")
        names = [self._target(target) for target in targets]
        return self._set("next", names[0] if len(names) == 1 else names)

    def when(self, condition: Condition, to: Target) -> Self:
        """Go to a node if the condition holds and none before it did: the first one wins."""
        return self._edge("first", {"if": self._condition(condition), "to": self._target(to)})

    def each(self, condition: Condition, to: Target) -> Self:
        """Go to a node if the condition holds, besides all others whose condition does."""
        return self._edge("each", {"if": self._condition(condition), "to": self._target(to)})

    def otherwise(self, to: Target) -> Self:
        """Go to a node if no condition of `when` or `each` holds."""
        way = self._fields.get("next")
        if not isinstance(way, dict) or "times" in way:
            self._refuse("otherwise() comes after when() or each(); to() goes there without a condition")
        return self._edge(next(iter(way)), {"to": self._target(to)})

    def times(self, count: int | Expr, to: Target) -> Self:
        """Send so many tokens to a node."""
        return self._set("next", {"times": count, "to": self._target(to)})

    def after(self, time: Duration, to: Target) -> Self:
        """Go to a node when a token is here so long; what runs here is cancelled."""
        return self._set("deadline", {"after": time, "to": self._target(to)})

    def without_deadline(self) -> Self:
        """Say that a token may wait here for ever, on purpose."""
        return self._set("deadline", "never")

    def catch(self, code: str, to: Target) -> Self:
        """Go to a node when this one fails with the code; ``any`` stands for every other one."""
        return self._add("catch", code, self._target(to))

    def write(self, **fields: Value) -> Self:
        """Write state fields from the result, by their reducers."""
        for field, value in fields.items():
            self._add("write", field, value)
        return self

    def compensate(self, activity: Function, arguments: Mapping[str, Value] | None = None, /, **more: Value) -> Self:
        """Name what takes the effect back when the job fails or is aborted later."""
        call: dict[str, object] = {"activity": self._function(activity), "with": {**(arguments or {}), **more}}
        return self._set("compensate", call)

    def compensation(self, *, timeout: str | float | None = None, **retry: Unpack[RetryOptions]) -> Self:
        """Say how long an attempt of the compensation may take, and how often it is tried."""
        if "compensate" not in self._fields:
            self._refuse("compensation() says more about compensate(), so it comes after it")
        options: dict[str, object] = {} if timeout is None else {"timeout": timeout}
        self._fields["compensate"] |= self._json({**options, "retry": dict(retry)} if retry else options)
        return self

    def _edge(self, kind: str, edge: dict[str, str]) -> Self:
        way = self._fields.setdefault("next", {kind: []})
        if not isinstance(way, dict) or list(way) != [kind]:
            self._refuse("to(), when(), each() and times() do not go together; use one of them, and otherwise()")
        if any("if" not in other for other in way[kind]):
            self._refuse("otherwise() comes last, once")
        way[kind].append(edge)
        return self


class ActivityHandle(StepHandle):
    """A node that runs one activity."""

    def timeout(self, time: Duration) -> Self:
        """End an attempt that takes longer."""
        return self._set("timeout", time)

    def heartbeat(self, time: str | float | timedelta) -> Self:
        """Count an attempt as lost that has not given a sign for so long."""
        return self._set("heartbeat", time)

    def retry(self, **retry: Unpack[RetryOptions]) -> Self:
        """Say how often and how soon it is tried again."""
        return self._set("retry", dict(retry))

    def options(self, **options: Unpack[ActivityOptions]) -> Self:
        """Say how one of Loom's own activities is carried."""
        for field, value in options.items():
            self._set(field, value)
        return self


class LlmHandle(StepHandle):
    """A node that calls a model once."""

    def max_outage(self, time: Duration) -> Self:
        """Wait for so long while the model is away, before a person is asked; ``never``: without an end."""
        return self._set("max_outage", time)


class SubgraphHandle(StepHandle):
    """A node that runs a graph once."""

    def child(self) -> Self:
        """Run it as a job of its own, below this one."""
        return self._set("child", True)

    def max_depth(self, depth: int) -> Self:
        """Say how deep the same graph may stand inside itself."""
        return self._set("max_depth", depth)


class EndHandle(NodeHandle):
    """A node that ends its branch."""

    def terminate(self) -> Self:
        """End the graph here and now, whatever other branches do."""
        return self._set("terminate", True)


def function_reference(function: Function, graph: str, node: str) -> str:
    """Give the name by which a worker finds a function.

    Raises:
        DocumentError: It could not.
    """
    try:
        reference = tool_reference(function)
    except UserError as error:
        refuse(error.message, graph, node)
    if reference.startswith("__main__:"):
        refuse(
            f"`{reference}` is in the script that runs now, which no worker imports; move it to a module", graph, node
        )
    return reference


def refuse(message: str, graph: str, node: str = "") -> NoReturn:
    """Raise what is wrong with a graph, or with a node of it."""
    raise DocumentError([Diagnostic("L004", f"node `{node}`: {message}" if node else message, graph)])
