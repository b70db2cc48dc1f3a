"""An agent: a model, its instructions, what it may do and how far it may go.

The same frozen value comes from a YAML document (``kind: agent``) and from Python:

    Agent(name="researcher", model="gpt-4.1-mini", tools=["read_file", my_tools.lookup])
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from loom_dsl.agent.turn import DEFAULT_MAX_ITERATIONS
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.documents.document import Document, load_document
from loom_dsl.documents.validation import model_findings, without_header
from loom_dsl.errors import Diagnostic, DocumentError, ToolDeclarationError
from loom_dsl.fields import MAX_OUTAGE, Duration
from loom_dsl.permissions.policy import Permissions
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.tools.hook_points import HookFunctions

_ENVIRONMENT = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_REFERENCE = re.compile(
    r"mcp__[A-Za-z0-9_-]+__\*|[A-Za-z_][A-Za-z0-9_.-]*|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*"
)
_RESERVED_PARAMETERS = ("messages", "model", "stream", "tools")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a name; use lower-case letters, digits, - and _, starting with a letter, at most 64"
        )
    return value


Name = Annotated[str, AfterValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
Count = Annotated[int, Field(strict=True, ge=1)]


ALARM_DEPTH = 20
"""Where nothing else is said. Plans leave it out then: workers of releases without this limit read them too."""


COMPRESS_AT = 0.92
"""Where nothing else is said; plans leave it out then, as `ALARM_DEPTH`."""


class Limits(BaseModel):
    """How far a job may go. None is no limit. Reaching one ends the job with a partial result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_iterations: Count = DEFAULT_MAX_ITERATIONS
    """Turns, so also model calls that are not repeated."""
    max_tool_calls: Count | None = None
    """Tool calls in the whole job."""
    max_tool_rounds: Count | None = None
    """Turns that call tools."""
    max_run_duration: Duration | None = None
    """Active time; waiting for a human and being paused do not count."""
    max_outage: Annotated[Duration | None, Field(exclude_if=lambda seconds: seconds == MAX_OUTAGE)] = MAX_OUTAGE
    """How long the job waits for a model that is away (refused connections, timeouts, 429, 5xx), a day where nothing
    else is said; then its step is halted, and a person resumes it. null: without an end."""
    max_cost_usd: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    """US dollars, by the public price list; a model that it does not have costs 0."""
    max_context_tokens: Count = 200_000
    """Tokens that a model call may be given."""
    compress_at: Annotated[
        Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] | None,
        Field(exclude_if=lambda share: share == COMPRESS_AT),
    ] = COMPRESS_AT
    """Share of `max_context_tokens` from which on the conversation is compressed into a summary; null: never."""
    calls: dict[str, Count] = Field(default_factory=dict)
    """Calls of one tool in the whole job, by its name, such as `{network_request: 20}`."""
    max_concurrency: Annotated[int, Field(strict=True, ge=1, le=1000)] = 10
    """Tool calls that run at the same time."""
    alarm_depth: Annotated[Count | None, Field(exclude_if=lambda depth: depth == ALARM_DEPTH)] = ALARM_DEPTH
    """Depth beyond which watchers and the worker's log are warned, once a job; null: never. It ends nothing."""

    @field_validator("compress_at", mode="before")
    @classmethod
    def _is_share(cls, value: object) -> object:
        """Percents, and 0 or false for never, are what people try."""
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1):
            return value
        raise ValueError(
            f"{value!r} is not a share; write a number over 0 and up to 1, such as 0.92, or null for never"
        )


class Agent(BaseModel):
    """An agent's definition. It does not change while a job runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    """Lower-case letters, digits, `-` and `_`, at most 64."""
    model: str = Field(min_length=1)
    """The model's name, ``provider:model``, or ``${env:NAME}``."""
    instructions: str = ""
    """What the model is told first."""
    tools: tuple[str, ...] = ()
    """Built-in names, ``module:function``, ``mcp__SERVER__TOOL`` or ``mcp__SERVER__*``; in Python also functions."""
    permissions: Permissions = Field(default_factory=Permissions)
    """What may run, what asks, what may not run."""
    limits: Limits = Limits()
    """How far a job may go."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Passed to the model as they are, such as temperature."""
    approvals: ApprovalPolicy = ApprovalPolicy()
    """What happens to a question that nobody answers."""
    on_abort: Literal["keep", "compensate"] = "keep"
    """What an abort does with what tools did: `compensate` takes it back, where a tool says how."""
    hooks: HookFunctions = Field(default_factory=dict)
    """Functions, as ``module:function``, that look at the stages of tool calls, such as `before_execute`."""
    images: Annotated[bool, Field(strict=True)] | None = None
    """Whether the model takes images; when absent, its name tells."""
    recurse: Literal["per_turn", "adaptive", "history"] = "per_turn"
    """When a turn is a temporal run of its own."""
    turn: str = ""
    """The graph of its turns: a file, by its path from the agent's, that extends ``loom.tt``; absent: ``loom.tt``."""

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
                raise ValueError(
                    f"{reference!r} is not a tool; write a built-in's name, `module:function` or `mcp__SERVER__TOOL`"
                )
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

    def to_plan_data(self) -> dict[str, JsonValue]:
        """Give the whole definition as JSON data, defaults filled in: what the plan's hash is made of."""
        return {"loom": 1, "kind": "agent", **self.model_dump(mode="json")}

    @classmethod
    def from_plan_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_plan_data` gave.

        Args:
            data: The definition as JSON data, with or without ``loom`` and ``kind``.

        Returns:
            An agent equal to the one that was written.

        Raises:
            pydantic.ValidationError: A field is unknown, missing or wrong.
        """
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

    Returns:
        The agent, with no ``${env:NAME}`` left but in its instructions.

    Raises:
        DocumentError: The document is not an agent's, or a variable is not set.
    """
    return read_agent(load_document(text, source, kinds=("agent",)), env, overrides)


def read_agent(document: Document, env: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Agent:
    """Make an agent of a document's fields; `load_agent` says what the arguments are.

    Raises:
        DocumentError: A field is unknown, missing or wrong, or a variable is not set.
    """
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
        findings.append(replace(document.diagnostic("L008", message, path, fix=fix), unset=whole[1]))
    elif path[0] != "instructions" and path[0] in Agent.model_fields:  # prose may speak about such references
        message, fix = "`${env:NAME}` must be the whole value", "put the whole value into the variable"
        findings.append(document.diagnostic("L008", message, path, fix=fix))
    return value


# What is known of a model by its name.


_SEES = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-5|chatgpt-4o|(?<![a-z0-9])o[134](?![a-z0-9])|claude-(?:[3-9]|opus|sonnet|haiku)"
    r"|gemini|gemma-?3|pixtral|llava|vision|(?<![a-z0-9])(?:[a-z0-9.]*-)?vl(?![a-z0-9])|llama-?4"
)
_BLIND = re.compile(r"o1-mini|o3-mini|o1-preview|audio|realtime|transcribe|tts|embedding|search-preview")


def takes_images(model: str) -> bool:
    """Say whether a model is known to take images; of an unknown one it is not known, so no.

    Args:
        model: As the agent names it: `provider:model`, or the model alone.
    """
    name = model.lower()
    return _SEES.search(name) is not None and _BLIND.search(name) is None
