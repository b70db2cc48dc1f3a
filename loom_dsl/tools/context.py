"""What a tool's function is told about the call that it serves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from loom_dsl.errors import ApprovalStale, PermissionDenied, ToolUnavailable

# What a tool may return besides text and JSON values: images for the model to look at.


MAX_IMAGE = 4 * 1024 * 1024
"""Bytes of an image that a model is given."""
MAX_IMAGES = 8
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image.

    Attributes:
        data: The file's bytes.
        media_type: Such as ``image/png``; empty: found out from the bytes.
    """

    data: bytes
    media_type: str = ""

    def __post_init__(self) -> None:
        if not self.media_type:
            object.__setattr__(self, "media_type", image_type(self.data))
        if not self.media_type.startswith("image/"):
            raise ValueError("these bytes are no PNG, JPEG, GIF or WebP image")
        if len(self.data) > MAX_IMAGE:
            raise ValueError(f"an image of {len(self.data):,} bytes is too large; at most {MAX_IMAGE:,} are given")


@dataclass(frozen=True, kw_only=True)
class ToolOutput:
    """A tool's result with images. The model gets the text as the result and the images right after it.

    Attributes:
        text: What the model reads as the result.
        images: At most eight.
    """

    text: str
    images: tuple[Image, ...] = ()

    def __post_init__(self) -> None:
        wrong = [each for each in self.images if not isinstance(each, Image)]
        if not isinstance(self.text, str) or wrong:
            what = type(wrong[0] if wrong else self.text).__name__
            raise TypeError(f"a ToolOutput takes {'Images' if wrong else 'text'}, and got a {what}")
        if len(self.images) > MAX_IMAGES:
            raise ValueError(f"{len(self.images)} images are too many; at most {MAX_IMAGES} are given")


def image_type(data: bytes) -> str:
    """Tell the media type of an image from its first bytes; empty when it is none that models take."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), "")


# What a worker lends to the tools that it runs: secrets, earlier outputs of the conversation, its todo list.


class TodoItem(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1, max_length=500)
    """What, in one line."""
    status: Literal["pending", "in_progress", "done"] = "pending"
    """How far it is."""

    @field_validator("text")
    @classmethod
    def _one_line(cls, value: str) -> str:
        line = " ".join(value.split())
        if not line:
            raise ValueError("write what there is to do")
        return line


def _no_secret(name: str, host: str | None) -> str:
    raise PermissionDenied(f"there is no secret {name!r} here; a worker lends those of its option --secret")


def _no_output(reference: str) -> str:
    raise ToolUnavailable("there is no store of outputs here; run the tool in a job")


def _no_todo() -> tuple[TodoItem, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class ToolServices:
    """What a worker lends to a tool's call. The defaults lend nothing, so that a tool can be tested as a function.

    Attributes:
        secret: Gives the value of a secret by its name. With a host, only if the secret may be sent there.
        output: Gives the whole text of an output of this conversation by its reference.
        todo: Gives the conversation's todo list.
        runtime: Gives the run's runtime data; empty when it has none.
        private_hosts: Addresses, as HOST:PORT, of a private network that requests may go to.
        images: Whether the job's model takes images.
        protected: What commands must not reach, such as the store.
    """

    secret: Callable[[str, str | None], str] = _no_secret
    output: Callable[[str], str] = _no_output
    todo: Callable[[], tuple[TodoItem, ...]] = _no_todo
    runtime: Callable[[], Mapping[str, JsonValue]] = dict
    private_hosts: frozenset[str] = frozenset()
    images: bool = False
    protected: tuple[Path, ...] = ()


_MARKS: Mapping[str, Literal["pending", "in_progress", "done"]] = {
    "[ ]": "pending",
    "[>]": "in_progress",
    "[x]": "done",
}


def render_todo(items: tuple[TodoItem, ...]) -> str:
    """Write a todo list as a model and people read it; `read_todo` reads it back."""
    if not items:
        return "The todo list is empty."
    marks = {status: mark for mark, status in _MARKS.items()}
    done = sum(item.status == "done" for item in items)
    return "\n".join([f"Todo: {done} of {len(items)} done", *(f"{marks[i.status]} {i.text}" for i in items)])


def read_todo(text: str) -> tuple[TodoItem, ...]:
    """Read what `render_todo` wrote; lines that are none of its are left out."""
    lines = [line for line in text.split("\n") if line[:3] in _MARKS and line[3:].strip()]
    return tuple(TodoItem.model_construct(text=line[4:], status=_MARKS[line[:3]]) for line in lines)


def _say_nothing(text: str) -> None:
    """Drop a progress line: nobody listens."""


def _never() -> bool:
    return False


class Preview(str):
    """What a call would do, as its approver is shown it, such as a diff: a text that says what it is about.

    Attributes:
        state: Names what the call would change as it was when the text was made, such as a digest of the file. An
            approved call finds it in its context, and does not run when it finds another one.
    """

    state: str

    def __new__(cls, text: str, state: str = "") -> "Preview":
        """Make one; without a state, the call runs whatever has changed since."""
        made = super().__new__(cls, text)
        made.state = state
        return made


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a tool may know about the call it serves. A function gets it through a parameter annotated with this class.

    Attributes:
        working_dir: The directory that file tools are confined to.
        job: Id of the job.
        turn: Number of the turn.
        call_id: The model's id of this call.
        idempotency_key: The same for every attempt of this call; hand it to services that can use one.
        progress: Tells the watchers a line of partial output; the model does not see it. Of many they are told the
            latest, four times a second at most, and always the last.
        cancelled: Whether somebody ended the job, or the worker is about to stop; long work asks now and then and
            stops.
        approved_states: The states (`Preview.state`) for which the call was approved; empty: nobody was asked, or was
            shown one.
        leaves: Tells the state in which an approved call leaves what it changes. Another call of the same turn, that
            was approved for the state before, may then follow it.
        services: What the worker lends besides; `secret` is the way to a secret for a tool of your own.
    """

    working_dir: Path
    job: str = ""
    turn: int = 0
    call_id: str = ""
    idempotency_key: str = ""
    progress: Callable[[str], None] = _say_nothing
    cancelled: Callable[[], bool] = _never
    approved_states: frozenset[str] = frozenset()
    leaves: Callable[[str], None] = _say_nothing
    services: ToolServices = field(default=ToolServices(), repr=False)

    def check_state(self, state: str, what: str) -> None:
        """Make sure that what the call is about to change is what its approver was shown.

        Args:
            state: What is found now.
            what: What that is the state of, for the message.

        Raises:
            ApprovalStale: It is another one.
        """
        if self.approved_states and state not in self.approved_states:
            raise ApprovalStale(
                f"{what} was changed after this call was shown to its approver, so nothing was done; "
                "read it again and make a new call, which is asked about anew"
            )

    @property
    def runtime(self) -> Mapping[str, JsonValue]:
        """The run's runtime data (`RunInput.runtime_init_data`)."""
        return self.services.runtime()

    def secret(self, name: str) -> str:
        """Give the value of a secret that the worker was started with: `--secret NAME`.

        Args:
            name: The secret's name.

        Raises:
            PermissionDenied: The worker lends no secret of that name.
        """
        return self.services.secret(name, None)


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """What a tool found out about an earlier attempt whose end nobody saw.

    Attributes:
        outcome: Whether the effect is there. `unknown` when the world does not tell.
        result: What the call would have returned, when it happened.
    """

    outcome: Literal["happened", "not_happened", "unknown"]
    result: JsonValue = None
