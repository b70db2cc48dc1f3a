"""What a worker lends to the tools that it runs: secrets, earlier outputs of the conversation, its todo list."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from loom_dsl.errors import PermissionDenied, ToolUnavailable


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
    runtime: Callable[[], Mapping[str, Any]] = dict
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
