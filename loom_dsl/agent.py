"""An agent: a model, its instructions, what it may do and how far it may go.

The same frozen value comes from a YAML document (``kind: agent``) and from Python:

    Agent(name="researcher", model="gpt-4.1-mini", tools=["read_file", my_tools.lookup])
"""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from loom_dsl.canonical import canonical_json, digest
from loom_dsl.document import Document, load_document, without_header
from loom_dsl.duration import format_duration, parse_duration
from loom_dsl.errors import Diagnostic, DocumentError, ToolDeclarationError
from loom_dsl.permissions import Permissions
from loom_dsl.turn import DEFAULT_MAX_ITERATIONS
from loom_dsl.validation import model_findings

_ENVIRONMENT = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_REFERENCE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_PARAMETERS = ("messages", "model", "stream", "tools")


def _seconds(value: object) -> float:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = parse_duration(value)
    else:
        raise ValueError(f"{value!r} has no unit; write a duration such as 90s, 5m, 4h or 1d")
    if round(seconds * 1000) <= 0:
        raise ValueError(f"{value!r} must be at least 1ms")
    return round(seconds * 1000) / 1000


def _seconds_or_never(value: object) -> float | None:
    return None if value is None or value == "never" else _seconds(value)


_DURATION_SCHEMA = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"}
Duration = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""Seconds, to the millisecond; written as ``90s`` or ``2h``, or given as a timedelta."""

Expiry = Annotated[
    float | None,
    BeforeValidator(_seconds_or_never),
    PlainSerializer(lambda value: "never" if value is None else format_duration(value), return_type=str),
    WithJsonSchema({"anyOf": [{"const": "never"}, _DURATION_SCHEMA]}),
]
"""Seconds until something expires, or None for never; written as ``24h`` or ``never``."""


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a name; use lower-case letters, digits, - and _, starting with a letter, at most 64"
        )
    return value


Name = Annotated[str, AfterValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
Count = Annotated[int, Field(strict=True, ge=1)]


class Limits(BaseModel):
    """How far a job may go. None is no limit. Reaching one ends the job with a partial result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_iterations: Count = DEFAULT_MAX_ITERATIONS
    """Turns, so also model calls that are not repeated."""
    max_tool_calls: Count | None = None
    max_tool_rounds: Count | None = None
    """Turns that call tools."""
    max_run_duration: Duration | None = None
    """Active time; waiting for a human and being paused do not count."""
    max_cost_usd: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    max_context_tokens: Count = 200_000
    max_concurrency: Annotated[int, Field(strict=True, ge=1, le=1000)] = 10
    """Tool calls that run at the same time."""


class Approvals(BaseModel):
    """What happens to a question that nobody answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    expires: Expiry = None
    on_expiry: Literal["deny", "allow", "halt"] = "deny"


class Agent(BaseModel):
    """An agent's definition. It does not change while a job runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    model: str = Field(min_length=1)
    """The model's name, or ``provider:model``."""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    """Built-in names and ``module:function`` references; in Python also the functions themselves."""
    permissions: Permissions = Field(default_factory=Permissions)
    limits: Limits = Limits()
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Passed to the model as they are, such as temperature."""
    approvals: Approvals = Approvals()
    recurse: Literal["per_turn", "adaptive", "history"] = "per_turn"

    def __init__(self, **fields: Any) -> None:
        # Not left to pydantic's signature: `tools` takes functions, and `permissions` and `limits` take plain
        # mappings, which the fields' types do not say.
        super().__init__(**fields)

    @field_validator("tools", mode="before")
    @classmethod
    def _references(cls, value: object) -> object:
        if not isinstance(value, list | tuple):
            return value
        return [tool_reference(item) if callable(item) or hasattr(item, "function") else item for item in value]

    @field_validator("tools")
    @classmethod
    def _distinct_tools(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        seen: dict[str, str] = {}
        for reference in value:
            if not _REFERENCE.fullmatch(reference):
                raise ValueError(f"{reference!r} is not a tool; write a built-in's name or `module:function`")
            name = call_name(reference)
            if name in seen:
                raise ValueError(f"{seen[name]!r} and {reference!r} are both called {name!r}; keep one of them")
            seen[name] = reference
        return value

    @field_validator("parameters")
    @classmethod
    def _free_parameters(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        taken = [name for name in _RESERVED_PARAMETERS if name in value]
        if taken:
            raise ValueError(f"{', '.join(taken)} cannot be set here; Loom sets it for each call")
        canonical_json(value)
        return value

    @model_validator(mode="after")
    def _name_the_model(self) -> Self:
        if self.model != self.model.strip() or any(ord(character) < 33 for character in self.model):
            raise ValueError(f"the model's name {self.model!r} holds spaces; write it as the provider does")
        return self

    def to_plan_data(self) -> dict[str, Any]:
        """Give the whole definition as JSON data, defaults filled in: what the plan's hash is made of."""
        return {"loom": 1, "kind": "agent", **self.model_dump(mode="json")}

    @classmethod
    def from_plan_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_plan_data` gave."""
        return cls.model_validate(without_header(data, cls))

    @property
    def digest(self) -> str:
        """The definition's name by content: 64 hexadecimal digits."""
        return digest(canonical_json(self.to_plan_data()))


def call_name(reference: str) -> str:
    """Give the name by which a model calls the tool of a reference."""
    return reference.rpartition(":")[2]


def tool_reference(tool: str | Callable[..., Any] | object) -> str:
    """Give the reference of a tool: a name as it is, a function as ``module:function``.

    Raises:
        ToolDeclarationError: The function is a lambda, a method or nested, so that a worker cannot find it by name.
    """
    if isinstance(tool, str):
        return tool
    function = getattr(tool, "function", tool)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not callable(function) or not module or not name:
        raise ToolDeclarationError(f"{tool!r} is not a tool; give a name, `module:function` or a function")
    if not name.isidentifier():
        what = "a lambda" if "<lambda>" in name else "not at the top level of its module"
        raise ToolDeclarationError(
            f"{module}:{name} is {what}, so a worker cannot import it; define it with `def` at the top level"
        )
    return f"{module}:{name}"


def load_agent(
    text: str | bytes, source: str, env: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Agent:
    """Read an agent document and resolve its ``${env:NAME}`` values.

    Args:
        text: The document's content.
        source: Its name in messages.
        env: The environment's variables.
        overrides: Top-level fields that replace the document's, such as ``{"model": "gpt-4.1"}``.

    Raises:
        DocumentError: The document is not an agent's, or a variable is not set.
    """
    document = load_document(text, source, kinds=("agent",))
    replaced = overrides or {}
    findings: list[Diagnostic] = []
    resolved = {
        name: _resolve(document, value, (name,), env, findings)
        for name, value in document.data.items()
        if name not in replaced
    }
    if "model" not in resolved and "model" not in replaced:
        fix = "write `model: NAME`, or `model: ${env:OPENAI_MODEL}` and set that variable"
        findings.append(document.diagnostic("L003", "missing field `model`: no model is configured", fix=fix))
        resolved["model"] = "none"  # so that the other mistakes are told too, and this one once
    agent, others = model_findings(document, Agent, without_header({**resolved, **replaced}, Agent))
    places = {(found.line, found.column) for found in findings}
    findings += [found for found in others if (found.line, found.column) not in places or found.code != "L004"]
    if agent is None or findings:
        raise DocumentError(sorted(findings, key=lambda found: (found.line or 0, found.column or 0)))
    return agent


def _resolve(
    document: Document, value: Any, path: tuple[str | int, ...], env: Mapping[str, str], findings: list[Diagnostic]
) -> Any:
    if isinstance(value, dict):
        return {key: _resolve(document, item, (*path, key), env, findings) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(document, item, (*path, index), env, findings) for index, item in enumerate(value)]
    if not isinstance(value, str) or "${env:" not in value:
        return value
    whole = _ENVIRONMENT.fullmatch(value)
    if whole and env.get(whole[1]):
        return env[whole[1]]
    if whole:
        message = f"the environment variable {whole[1]} is not set"
        fix = f"set {whole[1]}, or write the value here"
        findings.append(document.diagnostic("L008", message, path, fix=fix))
    elif path[0] != "instructions" and path[0] in Agent.model_fields:  # prose may speak about such references
        message, fix = "`${env:NAME}` must be the whole value", "put the whole value into the variable"
        findings.append(document.diagnostic("L008", message, path, fix=fix))
    return value
