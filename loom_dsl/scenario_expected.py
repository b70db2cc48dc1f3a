"""What a scenario says must come of a case."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from loom_dsl.parts import Part
from loom_dsl.script import Duration

Status = Literal["completed", "failed", "aborted", "waiting"]


def successive(value: Any) -> Any:
    """Take one as the first of a list."""
    return value if isinstance(value, list) else [value]


class ExpectedFailure(Part):
    """How the job must fail."""

    code: str
    """Code of its error."""
    message: str | None = None
    """A part of the message."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"code": value} if isinstance(value, str) else value


class ExpectedEvent(Part):
    """Something that observers must be told. A text is short for the type."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    """Type of the event; every other field must be in its data, and equal."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value


class Expected(Part):
    """What must come of a case; what is not written may be anything."""

    status: Status | None = None
    """How it ends; ``waiting``: it does not, because nothing comes that it waits for. Without it, and without
    `failure`, it must not fail."""
    result: Any = None
    """The result, exactly."""
    failure: ExpectedFailure | None = None
    """How it fails; a text is short for the code."""
    visits: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """How often nodes are entered; of a join, how often it fires."""
    arguments: dict[str, Annotated[tuple[Any, ...], BeforeValidator(successive)]] = Field(default_factory=dict)
    """What work is given: once for all its executions, or a list for the successive ones."""
    events: tuple[ExpectedEvent, ...] = ()
    """What observers are told, in this order; other events may stand between."""
    trace: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """What runs to its end, and in which order, by branch: ``each#1[0]: [checked#1]``, and ``main`` for the graph
    itself. What failed is written with its code, ``tests#1:busy``. A list is short for that of `main`."""
    waits: tuple[str, ...] | None = None
    """The nodes where the job stands at the end."""
    duration: Duration | None = None
    """How long it takes on the clock."""

    @field_validator("trace", mode="before")
    @classmethod
    def _main(cls, value: Any) -> Any:
        return {"main": value} if isinstance(value, list) else value
