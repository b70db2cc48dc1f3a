"""Scenarios: what the world answers to a graph, and what must come of it. The schema of ``kind: scenario`` documents.

    loom: 1
    kind: scenario
    name: review
    graph: graph.yaml
    input: {pr: 7}
    results:
      checkout: {result: {path: shop}, takes: 20s}
      tests: [{result: {passed: false}}, {result: {passed: true}}]
    cases:
      - name: approved after a while
        decisions: {approve: {choice: approve, after: 30m}}
        expect: {status: completed, visits: {tests: 2}}
      - name: nobody decides
        expect: {failure: rejected, duration: 28h20s}

A scenario is run in memory, on a clock that jumps (`loom_dsl.simulation.run`), or against a real server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from loom_dsl.documents.document import Document, load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.expr.template import wrong_holes
from loom_dsl.fields import Part, coded
from loom_dsl.simulation.script import Duration

# What a scenario says must come of a case.


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


ANSWER_ROOTS = frozenset({"input", "index"})
"""What the ``${…}`` of a result may read: the arguments of the work, and its number among those of its name, from 0."""


class MockedError(Part):
    """A failure in place of a result, as the graph sees it: after all retries."""

    code: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")]
    """What `catch` matches."""
    message: str = "failed in the scenario"
    """What people read."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"code": value} if isinstance(value, str) else value


class MockedResult(Part):
    """What a piece of work gives. A text, a number, true, false or null is short for that as the result."""

    result: Any = None
    """The result. `${…}` in it read the arguments of the work (`input`) and its number, from 0 (`index`)."""
    error: MockedError | None = None
    """Or how it fails; a text is short for its code."""
    takes: Duration = 0.0
    """How long it takes. Longer than the node's `timeout`, and it fails with the code `timeout` after all attempts."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"result": value}

    @model_validator(mode="after")
    def _one(self) -> "MockedResult":
        if self.error is not None and "result" in self.model_fields_set:
            raise ValueError("work has a `result` or an `error`, not both")
        return self

    @field_validator("result")
    @classmethod
    def _compiles(cls, value: Any) -> Any:
        wrong = list(wrong_holes(value, ANSWER_ROOTS))
        if wrong:
            raise coded("L130", wrong[0].message, wrong=wrong)
        return value


class MockedDecision(Part):
    """What a human decides. A text is short for the choice, null for nobody deciding."""

    choice: str | None = None
    """One of the approval's choices; null: nobody decides."""
    after: Duration = 0.0
    """How long after the question."""
    by: str = "scenario"
    """Who decides."""
    message: str = ""
    """Their words."""
    edited_arguments: dict[str, Any] | None = None
    """With the choice `edit` at a tool: the arguments instead."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"choice": value}


class _Timed(Part):
    """Something that comes from outside at a time."""

    after: Duration = 0.0
    """How long after the start of the job or, with `when`, after that."""
    when: str | None = None
    """Once the node has been entered: its id, or ``id#2`` for its second visit."""


class SentEvent(_Timed):
    """An event that is sent to the job."""

    name: Annotated[str, Field(min_length=1)]
    """The event's name."""
    key: JsonValue = None
    """Its key."""
    data: Any = None
    """Its data: the result of the node that waits for it."""


class Steered(_Timed):
    """The job is steered."""

    op: Literal["pause", "resume", "abort"]
    """What is done to it."""
    reason: str = ""
    """Why."""


class Given(Part):
    """What the world is like."""

    input: dict[str, Any] = Field(default_factory=dict)
    """The values that the graph is started with, by name."""
    results: dict[str, Annotated[tuple[MockedResult, ...], BeforeValidator(successive), Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """What work gives, by the id of its node, or by the name of the function, tool, agent or model. A list is for
    successive executions; the last one is for all that follow."""
    decisions: dict[str, Annotated[tuple[MockedDecision, ...], BeforeValidator(successive), Field(min_length=1)]] = (
        Field(default_factory=dict)
    )
    """What humans decide, by the id of the approval's node, or of a tool's node, which asks then. A list is for
    successive questions."""
    events: tuple[SentEvent, ...] = ()
    """Events from outside."""
    steering: tuple[Steered, ...] = ()
    """When the job is paused, resumed or aborted."""
    now: Annotated[str | None, Field(pattern=r"^\d{4}-\d\d-\d\dT")] = None
    """When the job starts, such as 2026-01-31T12:00:00Z, for graphs that read the time."""
    expect: Expected = Expected()
    """What must come of it."""

    @field_validator("now")
    @classmethod
    def _is_time(cls, value: str | None) -> str | None:
        if value is not None:
            datetime.fromisoformat(value)
        return value

    def start(self) -> float | None:
        """The time of the start, in seconds since the epoch."""
        if self.now is None:
            return None
        read = datetime.fromisoformat(self.now)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


class ScenarioCase(Given):
    """One run. What it says of `input`, `results` and `decisions` goes before what the document says for all cases;
    its events and steering come in addition."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """What the case shows."""


class Scenario(Given):
    """A ``kind: scenario`` document."""

    loom: Literal[1]
    """Version of the format."""
    kind: Literal["scenario"]
    """What the document is."""
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    """The scenario's name."""
    description: str = ""
    """For people."""
    graph: str | None = None
    """The graph: a file (ending in .yaml or .yml) beside this one, or a name, which the graph must have then."""
    cases: tuple[ScenarioCase, ...] = ()
    """The runs; without any, the document is one."""

    @model_validator(mode="after")
    def _expects_in_cases(self) -> "Scenario":
        if self.cases and self.expect != Expected():
            raise ValueError("a scenario with `cases` says in each of them what to `expect`")
        names = [case.name for case in self.cases]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two cases have the name {twice!r}")
        return self

    def graph_file(self) -> str | None:
        """The graph's file, relative to the scenario's, if it is one."""
        named = self.graph is not None and self.graph.endswith((".yaml", ".yml"))
        return self.graph if named else None

    def whole_cases(self) -> list[ScenarioCase]:
        """Each case with what holds for all of them."""
        if not self.cases:
            own = {field: getattr(self, field) for field in Given.model_fields}
            return [ScenarioCase.model_construct(name=self.name, **own)]
        return [self._whole(case) for case in self.cases]

    def _whole(self, case: ScenarioCase) -> ScenarioCase:
        merged: Mapping[str, Any] = {
            **{name: {**getattr(self, name), **getattr(case, name)} for name in ("input", "results", "decisions")},
            **{name: (*getattr(self, name), *getattr(case, name)) for name in ("events", "steering")},
            "now": case.now or self.now,
        }
        return case.model_copy(update=dict(merged))


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario with the document that it was read from, for messages that name a line."""

    scenario: Scenario
    document: Document


def load_scenario(text: str | bytes, source: str) -> LoadedScenario:
    """Read a scenario's document.

    Args:
        text: Its content.
        source: Its name in messages.

    Raises:
        DocumentError: It is not a scenario.
    """
    return read_scenario(load_document(text, source, kinds=("scenario",)))


def read_scenario(document: Document) -> LoadedScenario:
    """Make a scenario of the document of one.

    Raises:
        DocumentError: A field is unknown, missing or wrong.
    """
    return LoadedScenario(validate_model(document, Scenario), document)
