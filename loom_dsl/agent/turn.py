"""One step of the recursion: the small state that goes from turn to turn, and the names of turns.

Nothing here is random: a turn's id is derived from the job and the turn's number, so a replay, an
observer and a worker that starts again all give the same turn the same name.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from loom_dsl.errors import PlanError
from loom_dsl.text.canonical import canonical_json, digest

SCHEMA_VERSION = 1
"""The schema that this release writes. A release reads its own and every earlier one.

Fields with their default are not written, so changing a default needs a new version here, as adding a field does.
"""

DEFAULT_MAX_ITERATIONS = 50
MAX_TURN_STATE = 16 * 1024
"""Bytes of a serialised turn state that are never exceeded: it travels through every continue-as-new."""


def turn_id(job: str, counter: int) -> str:
    """Name the turn with this number (from 0) of a job."""
    return "t" + digest(f"{job}:{counter}")[:16]


def recursion_events(job: str, depth: int, start: int = 0) -> list[dict[str, JsonValue]]:
    """List the recursions of a job that is at turn number `depth` and began at turn number `start`.

    A job begins at 0, a fork at the number of the turn that it was forked from.
    """
    names = [turn_id(job, counter) for counter in range(start, depth + 1)]
    return [
        {"from_turn": names[index], "to_turn": names[index + 1], "depth": start + index + 1}
        for index in range(len(names) - 1)
    ]


class Usage(BaseModel):
    """Tokens that model calls used. Values add up with ``+``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    """The part of prompt_tokens that the provider took from its cache."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


class TurnState(BaseModel):
    """What one turn hands to the next: a header and references, never the conversation itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    job: str = ""
    """The job's id: the root that turn ids are derived from."""
    turn_counter: int = Field(default=0, ge=0)
    """The turn's number from 0, which is also the depth of the recursion."""
    turn_id: str
    parent_turn_id: str | None = None
    """The previous turn; for a sub-agent's or a fork's first turn the turn that it came from."""
    max_iterations: int = Field(default=DEFAULT_MAX_ITERATIONS, ge=0)
    """How many turns may call the model, fixed when the job starts."""
    compacted: bool = False
    """Whether the turn before compressed the conversation."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    session_id: str = ""
    entries: int = Field(default=0, ge=0)
    """End of the range of session entries that this turn sees (exclusive)."""
    model_calls: int = Field(default=0, ge=0)
    tool_calls: int = Field(default=0, ge=0)
    tool_rounds: int = Field(default=0, ge=0)
    """Turns so far that called tools."""
    usage: Usage = Usage()
    cost_microusd: int = Field(default=0, ge=0)
    """Cost so far in millionths of a US dollar."""
    active_ms: int = Field(default=0, ge=0)
    """Time so far in which the job was neither paused nor waiting for a human, in milliseconds."""
    remembered: tuple[str, ...] = ()
    """Permission rules that approvers asked to remember for this job."""

    @field_validator("metadata", mode="after")
    @classmethod
    def _own_metadata(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return copy.deepcopy(value)

    @classmethod
    def initial(
        cls,
        job: str = "",
        *,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        session_id: str = "",
        entries: int = 0,
        parent_turn_id: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        first: int = 0,
    ) -> Self:
        """Give the state of a job's first turn.

        Args:
            job: The job's id, from which the ids of its turns are derived.
            max_iterations: How many turns may call the model.
            session_id: The conversation's id.
            entries: How many of the session's entries the turn sees, from the first.
            parent_turn_id: The turn that a sub-agent was called from, or that a fork was made at.
            metadata: JSON to keep; it is copied.
            first: The turn's number; of a fork, how many turns were before its own.

        Returns:
            The state; calls, tokens, cost and time are at 0.
        """
        return cls(
            job=job,
            turn_counter=first,
            turn_id=turn_id(job, first),
            parent_turn_id=parent_turn_id,
            max_iterations=max_iterations,
            session_id=session_id,
            entries=entries,
            metadata=dict(metadata or {}),
        )

    def next_turn(self, *, compacted: bool = False, **changes: Any) -> Self:
        """Give the state of the next turn: one deeper, a new id, this turn as its parent.

        Args:
            compacted: Whether this turn compressed the conversation.
            changes: Values of other fields, such as ``entries`` and the counters. What is not named stays as it is.

        Returns:
            The next turn's state; its metadata is a copy.

        Raises:
            PlanError: A change names something that is not a field, or has a value that does not fit.
        """
        counter = self.turn_counter + 1
        return self._replace(
            {
                **changes,
                "turn_counter": counter,
                "turn_id": turn_id(self.job, counter),
                "parent_turn_id": self.turn_id,
                "compacted": compacted,
            }
        )

    next = next_turn

    def with_metadata(self, **values: JsonValue) -> Self:
        """Give the same turn with these metadata added.

        Args:
            values: JSON by name; a name that is there already gets the new value.

        Raises:
            PlanError: The state would become larger than 16 KiB.
        """
        return self._replace({"metadata": {**self.metadata, **values}})

    def remember(self, rules: Sequence[str]) -> Self:
        """Give the same turn with these permission rules remembered, each once, in the order they came.

        Args:
            rules: Rules as permissions write them.

        Raises:
            PlanError: The state would become larger than 16 KiB.
        """
        return self._replace({"remembered": tuple(dict.fromkeys((*self.remembered, *rules)))})

    def replace(self, **changes: Any) -> Self:
        """Give the same turn with other values in these fields.

        Args:
            changes: The values, by the names of the fields.

        Raises:
            PlanError: A change names something that is not a field, or has a value that does not fit.
        """
        return self._replace(changes)

    def _replace(self, changes: Mapping[str, Any]) -> Self:
        values = {name: getattr(self, name) for name in type(self).model_fields}
        try:
            changed = type(self)(**{**values, **changes})
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise PlanError(f"a turn cannot have {field} = {first.get('input')!r}: {first['msg']}") from error
        if "metadata" in changes or "remembered" in changes:
            size = len(canonical_json(changed.to_dict()).encode("utf-8", "surrogatepass"))
            if size > MAX_TURN_STATE:
                raise PlanError(
                    f"the turn's state would be {size} bytes, more than {MAX_TURN_STATE}; keep large values in the "
                    "session or in a file, and only their names in metadata"
                )
        return changed

    @property
    def is_initial(self) -> bool:
        """Whether this is the first turn (number 0)."""
        return self.turn_counter == 0

    @property
    def is_final(self) -> bool:
        """Whether the limit is reached, so that this turn must not call the model."""
        return self.turn_counter >= self.max_iterations

    def to_dict(self) -> dict[str, JsonValue]:
        """Give the state as plain JSON data, without the fields that have their default."""
        return {"schema_version": self.schema_version, **self.model_dump(mode="json", exclude_defaults=True)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read a state that this or any earlier release wrote.

        Args:
            data: What `to_dict` gave, in any release's form.

        Returns:
            The state, in the form of this release.

        Raises:
            PlanError: A newer release wrote it, or it is not a turn's state.
        """
        version = data.get("schema_version", 0)
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            raise PlanError(f"a turn's schema_version must be a whole number, not {version!r}")
        if version > SCHEMA_VERSION:
            raise PlanError(
                f"the turn's state has schema {version}, written by a newer release of Loom; this one reads up to "
                f"schema {SCHEMA_VERSION}. Upgrade Loom on this worker"
            )
        values = dict(data)
        for step in range(version, SCHEMA_VERSION):
            values = _UPGRADES[step](values)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise PlanError(f"this is not a turn's state: {field}: {first['msg']}") from error


def _upgrade_unversioned(data: dict[str, Any]) -> dict[str, Any]:
    """The form of the design documents, which had no schema version, no job and no counters."""
    return {**data, "schema_version": 1}


_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {0: _upgrade_unversioned}
"""Schema version to the function that makes the next version of it. Entries are added, never removed."""


class ExecutionContext(BaseModel):
    """What stays the same over a whole job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    working_dir: str
    """Absolute path of the directory that file tools are confined to."""
    correlation_id: str
    """Traces every request that belongs to this job."""
    git_context: dict[str, JsonValue] = Field(default_factory=dict)
    """What version control says of the working directory; when empty, the branch and the commit that are found."""
    project_context: dict[str, str] = Field(default_factory=dict)
    """Texts of instruction files by name; when empty, those of AGENTS.md and CLAUDE.md in the working directory."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    cancelled: Callable[[], bool] | None = Field(default=None, exclude=True, repr=False)
    """Asked by `is_cancelled`; it is not part of the serialised context."""

    @classmethod
    def for_job(cls, job: str, working_dir: str, correlation_id: str | None = None, **fields: Any) -> Self:
        """Give the context of a job.

        Args:
            job: The job's id.
            working_dir: Absolute path of the directory that file tools are confined to.
            correlation_id: What its requests are traced by; derived from the job's id when absent, so always the same.
            fields: Other fields of the context, by name.

        Returns:
            The context.
        """
        return cls(working_dir=working_dir, correlation_id=correlation_id or f"c{digest(job)[:16]}", **fields)

    def is_cancelled(self) -> bool:
        """Whether somebody has asked to end the job. Without a probe nobody can have."""
        return self.cancelled is not None and self.cancelled()
