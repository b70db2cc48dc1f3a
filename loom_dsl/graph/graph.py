"""The schema of a graph, as a document writes it and as a plan stores it.

One model is both: validators accept the short forms of a document (``next: done``), dumping gives the normal form, and
dump → load → dump is a fixpoint.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator

from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.errors import ExpressionError, UserError
from loom_dsl.expr.template import plain
from loom_dsl.fields import Part, Retry, seconds, some_time
from loom_dsl.graph.inline import inlined
from loom_dsl.graph.nodes import AnyNode
from loom_dsl.graph.state import InputField, StateField, fits
from loom_dsl.permissions.policy import Permissions
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.wording import suggest
from loom_dsl.tools.hook_points import HookFunctions

NodeId = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


_WITH_RESULT = frozenset(
    {"activity", "tool", "agent", "llm", "approval", "event", "timer", "map", "loop", "graph", "set"}
)


def with_end(body: Any) -> Any:
    """Give a graph inside a document the `end` that it need not say: the result of its only node is its own.

    Args:
        body: The graph as it was written, or whatever stands in its place.

    Returns:
        The graph with the end, or what was given where it has several nodes, or one that leads somewhere.
    """
    nodes = body.get("nodes") if isinstance(body, dict) else None
    if not isinstance(nodes, dict) or len(nodes) != 1:
        return body
    ((key, node),) = nodes.items()
    if not isinstance(node, dict) or "next" in node or _WITH_RESULT.isdisjoint(node) or not isinstance(key, str):
        return body
    end = "end" if key != "end" else "done"
    return {**body, "nodes": {key: {**node, "next": end}, end: {"end": f"${{nodes.{key}}}"}}}


class Body(Part):
    """Nodes by id, and where a token starts."""

    doc: str = ""
    """What the graph is for."""
    input: dict[FieldName, InputField] = Field(default_factory=dict)
    """The values that it is started with, by name; a type's name is short for a field of that type."""
    state: dict[FieldName, StateField] = Field(default_factory=dict)
    """Its variables, by name."""
    start: str
    """Where the first token stands; in a document it may be left out, and is the first node then."""
    on_abort: str | None = None
    """Where a token goes when somebody aborts the job."""
    nodes: Annotated[dict[NodeId, AnyNode], Field(min_length=1)]
    """The nodes by id."""

    @model_validator(mode="before")
    @classmethod
    def _first_node_starts(cls, value: Any) -> Any:
        if isinstance(value, dict) and "start" not in value and isinstance(value.get("nodes"), dict) and value["nodes"]:
            return {**value, "start": next(iter(value["nodes"]))}
        return value


class Defaults(Part):
    """What nodes have that do not say it themselves."""

    timeout: float | None = None
    """Seconds for one attempt of an activity."""
    heartbeat: float | None = None
    """Seconds without a heartbeat after which an attempt counts as lost."""
    retry: Retry | None = None
    """Retries of an activity."""

    _durations = field_validator("timeout", "heartbeat", mode="before")(seconds)
    _some_time = field_validator("timeout", "heartbeat")(some_time)


class Graph(Body):
    """A graph as a document."""

    loom: Literal[1] = 1
    """Version of the format."""
    kind: Literal["graph"] = "graph"
    """What the document is."""
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9._-]{0,63}$")]
    """Name of the graph."""
    version: str = ""
    """The author's version; the plan's hash is what pins a job."""
    permissions: Permissions = Field(default_factory=Permissions)
    """What its tools may do, as in an agent's file."""
    approvals: ApprovalPolicy = ApprovalPolicy()
    """What happens to a question of its `tool` nodes that nobody answers, and who may answer, as in an agent's file."""
    hooks: HookFunctions = Field(default_factory=dict)
    """Functions, as ``module:function``, that look at the stages of its `tool` nodes' calls, as in an agent's file."""
    agents: dict[FieldName, dict[str, JsonValue]] = Field(default_factory=dict)
    """Agents by name: an agent's fields, or ``{file: reviewer.yaml}``."""
    graphs: dict[FieldName, Body] = Field(default_factory=dict)
    """Graphs that its nodes run: their nodes, or ``{file: part.yaml}``, a graph's document."""
    defaults: Defaults | None = Field(default=None, exclude=True)
    """What its activities have that do not say it themselves; the normal form has it in the activities."""

    @field_validator("graphs", mode="before")
    @classmethod
    def _ends_of_one(cls, value: Any) -> Any:
        return {key: with_end(body) for key, body in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, value: Any) -> Any:
        """Name the graphs that are written where they are run, and write the defaults into the activities."""
        value = inlined(value).data
        if not isinstance(value, dict) or "defaults" not in value:
            return value
        try:
            read = Defaults.model_validate({} if value["defaults"] is None else value["defaults"])
        except ValidationError:
            return value  # the field is checked like any other, and what is wrong in it told at its place
        given = read.model_dump(exclude_none=True, exclude_unset=True)
        rest = {key: item for key, item in value.items() if key != "defaults"}
        return _with_defaults(rest, given)

    def dump(self) -> dict[str, JsonValue]:
        """Give the normal form, as JSON: no defaults, canonical keys."""
        head = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {"loom": 1, "kind": "graph", **head}


def _with_defaults(body: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    nodes, graphs = body.get("nodes"), body.get("graphs")
    if isinstance(nodes, dict):
        filled = {
            key: {**given, **node} if isinstance(node, dict) and "activity" in node else node
            for key, node in nodes.items()
        }
        body = {**body, "nodes": filled}
    if isinstance(graphs, dict):
        inner = {k: _with_defaults(g, given) if isinstance(g, dict) else g for k, g in graphs.items()}
        body = {**body, "graphs": inner}
    return body


# What a graph is started with, checked before anything starts: all that is wrong with it, at once.


MAX_INPUT = 256 * 1024
"""Bytes of an input, which goes through every continue-as-new."""
TYPE_NAMES = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list"}
TYPE_NAMES |= {"dict": "a mapping", "any": "any value"}
"""What people call each type of an input."""


def checked_input(name: str, body: Body, given: Mapping[str, Any]) -> dict[str, Any]:
    """Give a graph's input with its defaults filled in, before anything starts.

    Args:
        name: The graph's name, for messages.
        body: The graph.
        given: Values by the names that its `input` declares; JSON.

    Raises:
        UserError: Values are missing, unknown, of another type, no JSON or too large; tells all of them.
    """
    filled, unfit = _filled(body.input, given)
    wrong = [_unknown(body, key) for key in given if key not in body.input]
    wrong += [_unfit(key, body.input[key], given) for key in unfit]
    if wrong:
        raise UserError(f"the input of the graph {name}: {'; '.join(wrong)}")
    try:
        size = len(canonical_json(filled).encode())
    except (TypeError, ValueError, RecursionError):
        raise UserError(f"the input of the graph {name} is not JSON: give text, numbers, lists and mappings") from None
    if size > MAX_INPUT:
        raise UserError(
            f"the input of the graph {name} has {size} bytes, and may have {MAX_INPUT}; "
            "put it into a file of the working directory and give its path"
        )
    return filled


def filled_input(name: str, fields: Mapping[str, InputField], given: Any) -> dict[str, Any]:
    """Give the input of a graph that another graph starts, with its defaults filled in.

    Args:
        name: The graph's name, for messages.
        fields: What its `input` declares.
        given: What an expression gave; nothing counts as no values.

    Raises:
        ExpressionError: A value is missing, is not declared, or is of another type.
    """
    values = given if isinstance(given, dict) else {}
    unknown = sorted(set(values) - set(fields))
    if unknown or not isinstance(given, dict | None):
        what = ", ".join(unknown) or "something that is not a mapping"
        raise ExpressionError(f"`{name}` is given {what}; its input has {', '.join(fields)}")
    filled, unfit = _filled(fields, values)
    for key in unfit:
        kind = fields[key].type
        if key in values:
            raise ExpressionError(f"`input.{key}` of `{name}` is {str(values[key])[:60]!r}, not {kind}")
        raise ExpressionError(f"`{name}` needs `input.{key}` ({kind})")
    return filled


def _filled(fields: Mapping[str, InputField], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The declared values, with defaults where none is given; and the names of those that are missing or do not fit."""
    filled = {key: given[key] if key in given else plain(field.default) for key, field in fields.items()}
    unfit = []
    for key, field in fields.items():
        if filled[key] is None and field.optional:
            continue
        if (key in given and not fits(field.type, given[key])) or (key not in given and field.default is None):
            unfit.append(key)
    return filled, unfit


def _unknown(body: Body, key: str) -> str:
    hint = suggest(key, list(body.input))
    listed = f"it has {', '.join(body.input)}" if body.input else "the graph takes none"
    return f"there is no `{key[:60]}` ({hint or listed})"


def _unfit(key: str, field: InputField, given: Mapping[str, Any]) -> str:
    if key not in given:
        return f"`{key}` is missing: {_described(field)}"
    return f"`{key}` is {_shown(given[key])}, and must be {TYPE_NAMES[field.type]}"


def _described(field: InputField) -> str:
    return f"{TYPE_NAMES[field.type]}{f', {field.doc}' if field.doc else ''}"


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
