"""What a scripted model says: the schema of ``kind: fake-model`` documents.

A script has no memory. The step of a request is the number of assistant messages in it, so a call
that is retried, by whichever worker, gets the same answer. Only failures with ``times:`` are counted.

    loom: 1
    kind: fake-model
    name: demo
    steps:
      - {say: "I look first.", calls: [{tool: glob, args: {pattern: "**/*.py"}}]}
      - {repeat: 3, calls: [{tool: read_file, args: {path: "{n}.txt"}}]}
      - {fail: {status: 429, retry_after: 1s, times: 2}, say: "It says: {last}"}
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from loom_dsl.fields import parse_duration
from loom_dsl.text.canonical import Json

LAST_LIMIT = 200
"""Characters of a tool's result that ``{last}`` quotes."""

_PLACEHOLDER = re.compile(r"\{(n|last)\}")
_DEFAULT_ID = re.compile(r"call_([1-9][0-9]{0,8})_([0-9]{1,4})")


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(ge=0),
    WithJsonSchema({"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"}),
]
"""Seconds, written as ``20ms`` or ``2s``."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedCall(_Strict):
    """One tool call that the model asks for."""

    tool: str
    """The tool's name, as the model says it; it need not exist."""
    args: dict[str, Any] = {}
    """The arguments; strings in them may hold ``{n}`` and ``{last}``."""
    raw: str | None = None
    """The arguments' text as it is, such as malformed JSON, in place of `args`."""
    id: str | None = None
    """The call's id; an empty one is left out of the answer. Default: ``call_STEP_INDEX``."""
    fields: dict[str, Any] = {}
    """Fields of the provider's own in the call, such as ``extra_content``; strings in them may hold ``{n}``."""

    @model_validator(mode="after")
    def _one_form_of_arguments(self) -> "ScriptedCall":
        if self.raw is not None and self.args:
            raise ValueError("a call has `args` or `raw`, not both")
        return self


class ScriptedUsage(_Strict):
    """The tokens that an answer reports."""

    prompt: int = Field(ge=0)
    """Tokens of the request."""
    completion: int = Field(ge=0)
    """Tokens of the answer."""
    cached: int = Field(default=0, ge=0)
    """The part of `prompt` that came from a cache."""


class ScriptedFailure(_Strict):
    """An HTTP error in place of an answer."""

    status: int = Field(ge=400, le=599)
    """The HTTP status."""
    retry_after: Duration | None = None
    """Sent as the headers ``retry-after`` and ``retry-after-ms``."""
    times: int | None = Field(default=None, ge=1)
    """Fail only this many requests of one conversation's step; without it, all of them."""
    message: str | None = None
    """The error's message."""
    code: str | None = None
    """The error's code in the body, such as ``context_length_exceeded`` or ``insufficient_quota``."""
    headers: dict[str, str] = {}
    """More headers."""


class ScriptedStep(_Strict):
    """One answer of the model, or the way in which it fails."""

    say: str | None = None
    """The answer's text; ``{n}`` is the step's number from 1, ``{last}`` the last tool result, shortened."""
    big: int | None = Field(default=None, ge=1)
    """Say this many bytes, in place of `say`."""
    calls: list[ScriptedCall] = []
    """Tool calls that the answer asks for."""
    fields: dict[str, Any] = {}
    """Fields of the provider's own in the message, such as ``reasoning_content``; strings in them may hold ``{n}``."""
    chunk: int | None = Field(default=None, ge=1)
    """Characters in one streamed piece. Default: 16, or 64 Ki for `big`."""
    before: Duration = 0.0
    """Wait before the first byte."""
    delay: Duration = 0.0
    """Wait between two pieces."""
    usage: ScriptedUsage | None = None
    """Default: a quarter of the characters sent and answered."""
    finish: str | None = None
    """The finish reason. Default: ``tool_calls`` with calls, else ``stop``."""
    fail: ScriptedFailure | None = None
    """An HTTP error in place of the answer."""
    hang: bool | Duration = False
    """Send nothing, for ever or for a time, until the client goes away; after the time, close."""
    close_after: int | None = Field(default=None, ge=0)
    """Close the connection after this many events of the stream."""
    malformed: bool = False
    """Break off an event in the middle of its JSON."""
    empty: bool = False
    """Answer with no text and no calls."""
    times: int | None = Field(default=None, ge=1)
    """Apply `hang`, `close_after` and `malformed` only to this many requests of one conversation's step."""
    repeat: int = Field(default=1, ge=1)
    """Stand for this many steps."""

    @property
    def disturbed(self) -> bool:
        """Whether the step hangs, closes or breaks its stream."""
        return bool(self.hang) or self.close_after is not None or self.malformed

    @model_validator(mode="after")
    def _says_one_thing(self) -> "ScriptedStep":
        answers = self.say is not None or self.big is not None or bool(self.calls)
        if self.say is not None and self.big is not None:
            raise ValueError("a step has `say` or `big`, not both")
        if self.empty and answers:
            raise ValueError("an `empty` step has no `say`, `big` or `calls`")
        if not (answers or self.empty or self.fail or self.disturbed):
            raise ValueError("a step needs one of: say, big, calls, empty, fail, hang, close_after, malformed")
        if self.times is not None and not self.disturbed:
            raise ValueError("`times` goes with hang, close_after or malformed; for `fail` write fail: {times: n}")
        return self


class When(_Strict):
    """Which conversations a case is for; all that is written must hold."""

    model: str | None = None
    """The request's model name."""
    contains: str | None = None
    """Text in the system messages that come first, or in the first user message."""

    @model_validator(mode="after")
    def _not_empty(self) -> "When":
        if self.model is None and self.contains is None:
            raise ValueError("a `when` needs `model` or `contains`")
        return self


class Case(_Strict):
    """Steps for some conversations only, such as those of one agent in a graph."""

    when: When
    """Which conversations."""
    steps: list[ScriptedStep] = []
    """Their answers."""
    otherwise: ScriptedStep | None = None
    """When the steps have run out."""


class Script(_Strict):
    """A ``kind: fake-model`` document."""

    loom: Literal[1]
    """Version of the format."""
    kind: Literal["fake-model"]
    """What the document is."""
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    """The script's name."""
    description: str = ""
    """For people."""
    steps: list[ScriptedStep] = []
    """The answers, in order."""
    otherwise: ScriptedStep = ScriptedStep(say="(end of script)")
    """The answer when the steps have run out."""
    window: int | None = Field(default=None, ge=1)
    """Tokens that a request may have, at four bytes each; a longer one is refused, as by a model with this window."""
    requires_back: bool = False
    """Refuse a request in which a call, or the message that makes it, lacks the `fields` that it was given with."""
    refuses: list[str] = []
    """Fields of a request, of its messages and of their calls that are refused with 400, as unknown ones."""
    cases: list[Case] = []
    """Other steps for the conversations that they name; the first that fits is taken."""

    @model_validator(mode="after")
    def _has_steps(self) -> "Script":
        if not self.steps and not self.cases and "otherwise" not in self.model_fields_set:
            raise ValueError("a script needs `steps`, `cases` or `otherwise`")
        return self

    def step(self, number: int, *, model: str = "", opening: str = "") -> ScriptedStep:
        """Return the step that answers a request.

        Args:
            number: How many assistant messages the request holds.
            model: The request's model name.
            opening: The system messages that come first and the first user message, as one text.
        """
        for case in self.cases:
            if _applies(case.when, model, opening):
                return _nth(case.steps, number) or case.otherwise or self.otherwise
        return _nth(self.steps, number) or self.otherwise

    def source(self, id: str, *, model: str = "", opening: str = "") -> tuple[int, ScriptedStep, ScriptedCall] | None:
        """Find the step, with its number, and the call in it that a call's id comes from; None for an id of others.

        Args:
            id: The id.
            model: As for `step`.
            opening: As for `step`.
        """
        if found := _DEFAULT_ID.fullmatch(id):
            number, index = int(found[1]) - 1, int(found[2])
            step = self.step(number, model=model, opening=opening)
            if index < len(step.calls) and step.calls[index].id is None:
                return number, step, step.calls[index]
        return None


def _applies(when: When, model: str, opening: str) -> bool:
    return when.model in (None, model) and (when.contains is None or when.contains in opening)


def _nth(steps: Sequence[ScriptedStep], number: int) -> ScriptedStep | None:
    for step in steps:
        if number < step.repeat:
            return step
        number -= step.repeat
    return None


def fill(value: Json, *, number: int, last: str) -> Json:
    """Replace ``{n}`` and ``{last}`` in a text, or in every text inside a JSON value.

    All other braces stay as they are, and what is put in is not looked at again.

    Args:
        value: A JSON value.
        number: The step as `Script.step` counts it, from 0; ``{n}`` shows it from 1.
        last: The last tool message's text; cut at `LAST_LIMIT` characters.
    """
    if isinstance(value, str):
        if "{" not in value:
            return value
        short = last if len(last) <= LAST_LIMIT else last[: LAST_LIMIT - 1] + "…"
        return _PLACEHOLDER.sub(lambda found: str(number + 1) if found[1] == "n" else short, value)
    if isinstance(value, dict):
        return {key: fill(item, number=number, last=last) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, number=number, last=last) for item in value]
    return value
