"""The parts that all graphs are made of: edges, retries, deadlines, and what every node may say.

Validators accept the short forms of a document (``next: done``); dumping gives the normal form.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field, JsonValue, field_validator, model_validator

from loom_dsl.agent.states import RunState
from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import compile_expression
from loom_dsl.expr.template import WrongHole, wrong_holes
from loom_dsl.fields import Part, Retry, coded, seconds


def condition(value: str) -> str:
    """Check an expression.

    Raises:
        PydanticCustomError: It does not compile.
    """
    try:
        compile_expression(value)
    except ExpressionError as error:
        wrong = WrongHole((), value, max((error.column or 1) - 1, 0), error.message)
        raise coded("L130", error.message, wrong=[wrong]) from None
    return value


def mapping(value: Any) -> Any:
    """Check every ``${…}`` of a value.

    Raises:
        PydanticCustomError: One does not compile.
    """
    wrong = list(wrong_holes(value))
    if wrong:
        raise coded("L130", wrong[0].message, wrong=wrong)
    return value


def seconds_or_mapping(value: Any) -> Any:
    """Read a duration, or check the ``${…}`` that gives it."""
    return mapping(value) if isinstance(value, str) and value.startswith("${") else seconds(value)


def outage(value: Any) -> Any:
    """Read for how long an outage is waited for: a duration, ``never``, or the ``${…}`` that gives it."""
    return value if value == "never" else seconds_or_mapping(value)


def number_or_mapping(value: Any) -> Any:
    """Check a number of tokens or results, from 1 on, or the ``${…}`` that gives it."""
    if isinstance(value, int) and not isinstance(value, bool) and value < 1:
        raise ValueError(f"should be a whole number from 1, or a `${{…}}` that gives one, not {value}")
    return mapping(value)


MAX_THREADS = 1_000
"""The most tokens that a split makes of one."""


class Edge(Part):
    """Where a token goes next."""

    to: str
    """Id of the target node."""
    when: Annotated[str | None, Field(alias="if")] = None
    """Condition; absent means always."""

    @field_validator("when", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("a condition is text; an edge that is always taken has no `if`: write `{to: NODE}` last")
        return value

    _checked = field_validator("when")(lambda value: value if value is None else condition(value))


class Next(Part):
    """The ways out of a node."""

    first: tuple[Edge, ...] = ()
    """Take the first edge whose condition holds (an exclusive choice)."""
    each: tuple[Edge, ...] = ()
    """Take every edge whose condition holds (a multi-choice); an edge without a condition only if no other holds."""
    all: tuple[str, ...] = ()
    """Go to all of these at once (a parallel split)."""
    times: int | str | None = None
    """With one name in `all`: so many tokens go there (a thread split); a number, or a `${…}` that gives one."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"first": [{"to": value}]}
        if isinstance(value, list):
            if value and all(isinstance(item, str) for item in value):
                return {"all": value}
            return {"first": value}
        if isinstance(value, dict) and set(value) == {"times", "to"}:
            if not isinstance(value["to"], str):
                raise ValueError("with `times` all tokens go to one node: write its name, `{times: 3, to: NODE}`")
            return {"all": [value["to"]], "times": value["times"]}
        return value

    @model_validator(mode="after")
    def _one_of_them(self) -> "Next":
        if sum(map(bool, (self.first, self.each, self.all))) > 1:
            raise ValueError(
                "`first` takes one edge, `each` those that hold and `all` every one; give one of the three"
            )
        if self.times is not None and len(self.all) != 1:
            raise ValueError("`times` says how many tokens go to one node; name it with `to`")
        return self

    _times = field_validator("times")(number_or_mapping)

    def edges(self) -> tuple[Edge, ...]:
        """The edges that are chosen from."""
        return self.first + self.each

    def targets(self) -> tuple[str, ...]:
        """Every node that can follow."""
        return tuple(edge.to for edge in self.edges()) + self.all


class Deadline(Part):
    """An edge that is taken when a node is not done in time. ``deadline: never`` says that there is none on purpose."""

    after: str | float | None
    """A duration, a `${…}` that gives seconds, or null for never."""
    to: str | None = None
    """Target when the time is over."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "never":
            raise ValueError(f"a deadline says where to go then, too: write `{{after: {value}, to: NODE}}`, or `never`")
        return {"after": None} if value == "never" else value

    @field_validator("after", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        return None if value == "never" else seconds_or_mapping(value)

    @model_validator(mode="after")
    def _somewhere(self) -> "Deadline":
        if self.after is not None and self.to is None:
            raise ValueError("a deadline needs `to`: the node that follows when the time is over")
        return self


class Compensation(Part):
    """What takes a node's effect back when the job fails or is aborted."""

    activity: str
    """Registered name, or ``module:function``."""
    with_: Annotated[dict[str, JsonValue], Field(alias="with")] = Field(default_factory=dict)
    """Arguments; `result` is the result of the node, null if it is not known how the node ended."""
    timeout: float = 60.0
    """Seconds for one attempt."""
    retry: Retry = Retry()
    """Retries of the activity."""

    _arguments = field_validator("with_")(mapping)
    _duration = field_validator("timeout", mode="before")(seconds)


class Node(Part):
    """What all kinds of nodes share."""

    kind: ClassVar[str] = "branch"

    next: Next = Next()
    """The ways out."""
    phase: str | None = None
    """Lane of the node; the interpreter tells when a token enters another lane."""
    state: RunState | None = None
    """The run's state while a token is here."""
    write: dict[str, JsonValue] = Field(default_factory=dict)
    """State fields set from the result; the field's reducer combines the values."""
    max_visits: Annotated[int | None, Field(ge=1)] = None
    """Most entries into this node in one turn; one more fails with the code ``max_visits``, or goes to `exhausted`."""
    exhausted: str | None = None
    """Where a token goes that would enter once more."""
    deadline: Deadline | None = None
    """Where a token goes that is here too long; what runs here is cancelled."""
    catch: dict[str, str] = Field(default_factory=dict)
    """Error code (or ``any``) → node."""
    emit: dict[str, JsonValue] = Field(default_factory=dict)
    """Events told when a token enters: type → data."""
    mutex: Annotated[str | None, Field(min_length=1)] = None
    """Name of a lock that is held while a token is here: nodes with the same one never overlap in a job. A `${…}` in it
    makes one of many: ``room-${item.id}``."""
    only_while: str | None = None
    """Condition that must hold for a token to enter; until then it waits. When nothing is left that could make it hold,
    the node fails with the code ``deadlock``."""
    compensate: Compensation | None = None
    """What takes the effect back when the job fails or is aborted later."""
    doc: str = ""
    """One sentence for people."""

    @field_validator("catch", mode="before")
    @classmethod
    def _by_code(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"names a node for each code: write `{{any: {value}}}`")
        return value

    @field_validator("compensate", mode="before")
    @classmethod
    def _no_short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"write `{{activity: {value}, with: {{…}}}}`")
        return value

    # Names of their own: a kind of node with a validator of the same name would do away with these.
    _shared_mappings = field_validator("write", "emit", "mutex")(mapping)
    _shared_condition = field_validator("only_while")(lambda value: value if value is None else condition(value))

    def targets(self) -> tuple[str, ...]:
        """Every node that can follow this one, by whatever edge."""
        extra = (self.exhausted, self.deadline.to if self.deadline else None)
        return (*self.next.targets(), *self.catch.values(), *(to for to in extra if to))
