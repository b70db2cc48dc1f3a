"""What a run is given and what it gives back."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from loom_dsl.agent.definition import Agent, Count, Limits, call_name
from loom_dsl.agent.turn import ExecutionContext, TurnState, Usage, recursion_events
from loom_dsl.errors import LoomError, UserError
from loom_dsl.fields import Duration
from loom_dsl.text.wording import suggest

RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,199}$"
"""Ids of runs and sessions: safe in URLs, shells, file names and in keys that join them with a slash."""

MAX_ANSWER = 32 * 1024
"""Characters of an answer in the workflow's result; a longer one is cut there and whole in the store."""

Identifier = Annotated[str, Field(pattern=RUN_ID)]
_ROLES = ("system", "user", "assistant", "tool")


def check_id(what: str, given: str | None) -> None:
    """Refuse an id that cannot be part of keys, addresses and commands.

    Raises:
        UserError: It cannot; says what an id is made of.
    """
    if given is not None and not re.fullmatch(RUN_ID, given):
        shown = given if len(given) <= 60 else f"{given[:60]}..."
        raise UserError(
            f"{shown!r} cannot be the id of a {what}; write up to 200 letters, digits and . _ : ~ -, "
            "with a letter or a digit at the start"
        )


class _Border(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LoopLimits(_Border):
    """Limits for one run. What is None is left to the agent."""

    max_iterations: Count | None = None
    max_tool_rounds: Count | None = None
    max_run_duration: Duration | None = None


class ToolPolicy(_Border):
    """How one run may use tools. What is None is left to the agent."""

    enabled: bool = True
    """Whether the model gets tools at all."""
    allow_list: tuple[str, ...] | None = None
    """Names or references of the tools that may be used; None is all of the agent's."""
    max_parallel: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None
    max_calls_per_run: Count | None = None
    require_approval_by_default: bool = False
    """Have `default: ask` where the permissions have none: it counts for the jobs that this one starts, too."""


class RunInput(_Border):
    """Everything that one run is started with."""

    session_id: Identifier | None = None
    """The conversation to go on with; a new one when absent."""
    run_id: Identifier | None = None
    """The run's id, which is the job's; generated when absent."""
    input_messages: tuple[dict[str, JsonValue], ...] = ()
    """Messages in the Chat Completions form that enter the context once, before the first model call."""
    system_prompt_override: str | None = None
    """Replaces the agent's instructions."""
    allowed_tools: tuple[str, ...] | None = None
    """Names or references; absent is all."""
    tool_order: tuple[str, ...] = ()
    """Tools that are shown to the model first, in this order; the others follow in the agent's order."""
    tool_policy: ToolPolicy = ToolPolicy()
    loop_limits: LoopLimits = LoopLimits()
    auto_create_session: bool = True
    """Whether a `session_id` that does not exist is created; otherwise that is an error."""
    runtime_init_data: dict[str, JsonValue] = Field(default_factory=dict)
    runtime_hints: dict[str, JsonValue] = Field(default_factory=dict)
    agent_ref: str | None = None
    """The agent's name, or the digest of its definition."""
    context: ExecutionContext | None = None

    @field_validator("input_messages")
    @classmethod
    def _messages(cls, value: tuple[dict[str, JsonValue], ...]) -> tuple[dict[str, JsonValue], ...]:
        for index, message in enumerate(value):
            role = message.get("role")
            if role not in _ROLES:
                raise ValueError(f"message {index} has the role {role!r}; it must be one of {', '.join(_ROLES)}")
            if message.get("content") is None and not message.get("tool_calls"):
                raise ValueError(f"message {index} ({role}) has no content")
        return value

    @classmethod
    def of_text(cls, text: str, **fields: Any) -> Self:
        """Give the input of a run whose only message is a user's text.

        Args:
            text: What the user says.
            fields: Other fields of the input, by name.

        Returns:
            The input.

        Raises:
            pydantic.ValidationError: A field is unknown or wrong.
        """
        return cls(input_messages=({"role": "user", "content": text},), **fields)


class ErrorInfo(_Border):
    """Why a run did not complete."""

    code: str
    """Stable, such as ``max_iterations`` or the code of a `LoomError`."""
    message: str
    recoverable: bool = False

    def beside(self, status: str) -> str:
        """Say code and message after a status; the code only where it says more than the status."""
        return self.message if self.code == status else f"{self.code}: {self.message}"

    @classmethod
    def of(cls, error: LoomError) -> Self:
        """Tell what an error says about itself."""
        return cls(code=error.code, message=error.message, recoverable=error.recoverable)


class RunUsage(Usage):
    """What a run used: tokens of the kept attempts, calls and money."""

    model_calls: int = Field(default=0, ge=0)
    tool_calls: int = Field(default=0, ge=0)
    wasted: Usage = Usage()
    """Tokens, as far as they can be estimated, of model calls that were lost in mid-answer and made again."""
    cost_usd: float = Field(default=0.0, ge=0)

    def __add__(self, other: Usage) -> "RunUsage":
        more = other if isinstance(other, RunUsage) else RunUsage(**other.model_dump())
        tokens = super().__add__(other)
        # Money is added in millionths, so that many small amounts add up to what they are.
        micros = round(self.cost_usd * 1e6) + round(more.cost_usd * 1e6)
        return RunUsage(
            prompt_tokens=tokens.prompt_tokens,
            completion_tokens=tokens.completion_tokens,
            cached_tokens=tokens.cached_tokens,
            model_calls=self.model_calls + more.model_calls,
            tool_calls=self.tool_calls + more.tool_calls,
            wasted=self.wasted + more.wasted,
            cost_usd=micros / 1e6,
        )

    @classmethod
    def of_turn(cls, turn: TurnState, wasted: Usage | None = None) -> "RunUsage":
        """Read what a job has used from its latest turn."""
        return cls(
            **turn.usage.model_dump(),
            model_calls=turn.model_calls,
            tool_calls=turn.tool_calls,
            wasted=wasted or Usage(),
            cost_usd=turn.cost_microusd / 1e6,
        )


class ModelResult(_Border):
    """What a model's one answer is, as the result of an `llm` node."""

    text: str = ""
    """The answer."""
    usage: Usage = Usage()
    """Tokens that it took."""
    cost: int = Field(default=0, ge=0)
    """What it cost, in millionths of a dollar."""


class RecursionStats(_Border):
    """How a run recursed."""

    max_depth: int = 0
    tool_calls: int = 0
    recursion_events: tuple[dict[str, JsonValue], ...] = ()
    """One {from_turn, to_turn, depth} for each recursion."""

    @classmethod
    def of_turn(cls, turn: TurnState, start: int = 0) -> Self:
        """Derive them from the last turn of a job that began at turn number `start`."""
        events = recursion_events(turn.job, turn.turn_counter, start)
        return cls(max_depth=turn.turn_counter, tool_calls=turn.tool_calls, recursion_events=tuple(events))


class RunResult(_Border):
    """How a run ended."""

    session_id: str
    run_id: str
    status: Literal["completed", "failed", "aborted"]
    answer: str = ""
    """The text of the final assistant message, or as much of an answer as there is."""
    final_message: dict[str, JsonValue] | None = None
    """The last assistant message in the Chat Completions form."""
    error: ErrorInfo | None = None
    usage: RunUsage = RunUsage()
    recursion_stats: RecursionStats = RecursionStats()
    partial: bool = False
    """Whether the answer was cut short by a limit, an abort or a failure."""


class GraphResult(_Border):
    """How a graph's run ended."""

    job: str
    status: Literal["completed", "failed", "aborted"]
    result: JsonValue = None
    """What the graph's end gives; of a failed run, the details of its failure."""
    error: ErrorInfo | None = None
    compensations: tuple[dict[str, JsonValue], ...] = ()
    """What was taken back, in that order: ``{node, outcome: undone|failed|unknown, message?}``."""


def effective_limits(agent: Agent, run_input: RunInput) -> Limits:
    """Give the limits of a run: the input's where it sets one, else the agent's."""
    loop, policy = run_input.loop_limits, run_input.tool_policy
    chosen: Mapping[str, Any] = {
        "max_iterations": loop.max_iterations,
        "max_tool_rounds": loop.max_tool_rounds,
        "max_run_duration": loop.max_run_duration,
        "max_tool_calls": policy.max_calls_per_run,
        "max_concurrency": policy.max_parallel,
    }
    return agent.limits.model_copy(update={name: value for name, value in chosen.items() if value is not None})


def allowed_tools(policy: ToolPolicy, run_input: RunInput, agent: Agent) -> tuple[str, ...]:
    """Give the references of the tools that a run may use, in the order in which the model sees them.

    That is the agent's tools, without those that the policy's allow list or the input's allowed tools leave out.
    """
    if not policy.enabled:
        return ()
    allowed = [
        reference
        for reference in agent.tools
        if _listed(reference, policy.allow_list) and _listed(reference, run_input.allowed_tools)
    ]
    order = {name: position for position, name in reversed(list(enumerate(run_input.tool_order)))}
    last = len(order)
    return tuple(sorted(allowed, key=lambda ref: min(order.get(ref, last), order.get(call_name(ref), last))))


def unknown_tools(agent: Agent, run_input: RunInput) -> list[str]:
    """Say, one line each, which tools the input names that the agent does not have."""
    known = {name for reference in agent.tools for name in (reference, call_name(reference))}
    lists: dict[str, Iterable[str]] = {
        "allowed_tools": run_input.allowed_tools or (),
        "tool_order": run_input.tool_order,
        "tool_policy.allow_list": run_input.tool_policy.allow_list or (),
    }
    return [
        f"{field} names `{name}`, which agent {agent.name} does not have"
        + (f"; {hint}" if (hint := suggest(name, known)) else "")
        for field, names in lists.items()
        for name in names
        if name not in known
    ]


def _listed(reference: str, names: tuple[str, ...] | None) -> bool:
    return names is None or reference in names or call_name(reference) in names


# What the end of a graph's job is for whoever asks later: the same as the machine and as a client tell it.


_ABORT = {"status", "reason", "compensations"}
"""Keys of what a job gives that was aborted and whose graph says nothing of its own."""


def result_of_finish(job: str, value: Any, *, aborted: bool = False) -> GraphResult:
    """Give the result of a job that ended with a value.

    Args:
        job: The job's id.
        value: What its workflow gave.
        aborted: Whether somebody aborted it; the value is then what settling that gave.
    """
    if not aborted:
        return GraphResult(job=job, status="completed", result=value)
    given = value if isinstance(value, dict) else {}
    rest = {key: item for key, item in given.items() if key != "compensations"}
    own = given.get("status") != "aborted" or bool(given.keys() - _ABORT)
    reason = "" if own else str(given.get("reason") or "")
    info = ErrorInfo(code="aborted", message=reason or "somebody aborted the job")
    kept = (rest if given else value) if own else None
    undone = given.get("compensations", ())
    return GraphResult(job=job, status="aborted", result=kept, error=info, compensations=undone)


def result_of_failure(job: str, code: str, message: str, details: Any = None) -> GraphResult:
    """Give the result of a job that failed.

    Args:
        job: The job's id.
        code: Why; empty where nothing was told.
        message: The same in words.
        details: What its workflow gave along: the failure's own details, and what was taken back.
    """
    undone: Any = ()
    if isinstance(details, dict) and "compensations" in details:
        undone = details["compensations"]
        details = {key: value for key, value in details.items() if key != "compensations"} or None
    info = ErrorInfo(code=code or "failed", message=message)
    return GraphResult(job=job, status="failed", result=details, error=info, compensations=undone)
