"""What a worker and a process with users' code say to each other: frames of a length and a pickle.

The worker's side reads plain values and Loom's own classes only: what users' code gives is made plain where it ran, so
that nothing of a class that may kill is ever called in the worker.
"""

import io
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pydantic_core

from loom_dsl import errors
from loom_dsl.errors import LoomError
from loom_dsl.tools.context import Reconciliation, ToolContext
from loom_dsl.tools.hooks import HookAnswer

LENGTH = struct.Struct(">Q")
MAX_TEXT = 100_000
"""Characters of an exception's text."""
Message = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ContextData:
    """What of a call's context is data; the rest is asked for."""

    working_dir: Path
    job: str
    turn: int
    call_id: str
    idempotency_key: str
    approved_states: frozenset[str]
    private_hosts: frozenset[str]
    images: bool
    protected: tuple[Path, ...]

    @classmethod
    def of(cls, context: ToolContext) -> "ContextData":
        """Take what is data out of a context."""
        services = context.services
        return cls(
            working_dir=context.working_dir,
            job=context.job,
            turn=context.turn,
            call_id=context.call_id,
            idempotency_key=context.idempotency_key,
            approved_states=context.approved_states,
            private_hosts=services.private_hosts,
            images=services.images,
            protected=services.protected,
        )


@dataclass(frozen=True, slots=True)
class Stranger:
    """Stands for a result that cannot be written as JSON: the name of its type, and why."""

    name: str


@dataclass(frozen=True, slots=True)
class RaisedThere:
    """What an exception was, in plain values.

    Attributes:
        name: Its class.
        text: Its own text.
        loom: The nearest of Loom's own classes, or empty.
        marks: Those of `code`, `retryable` and `recoverable` that it has.
        is_ordinary: It is an `Exception`, and not such as SystemExit.
    """

    name: str
    text: str
    loom: str
    marks: dict[str, str | bool]
    is_ordinary: bool

    @classmethod
    def of(cls, error: BaseException) -> "RaisedThere":
        """Describe an exception, also one whose own text cannot be had."""
        try:
            text = error.message if isinstance(error, LoomError) else str(error)
        except Exception:
            text = ""
        loom = next((each.__name__ for each in type(error).__mro__ if getattr(errors, each.__name__, None) is each), "")
        found = {name: getattr(error, name, None) for name in ("code", "retryable", "recoverable")}
        marks = {name: value for name, value in found.items() if isinstance(value, str | bool)}
        return cls(type(error).__name__, str(text)[:MAX_TEXT], loom, marks, isinstance(error, Exception))

    def error(self) -> BaseException:
        """Give an exception that says the same."""
        made: BaseException
        if self.loom and issubclass(getattr(errors, self.loom), LoomError):
            try:
                made = getattr(errors, self.loom)(self.text)
            except TypeError:  # one that is made in another way
                made = LoomError(self.text)
        else:
            made = type(self.name, (Exception if self.is_ordinary else BaseException,), {})(self.text)
            made.args = (self.text,) if self.text else ()
        for name, value in self.marks.items():
            setattr(made, name, value)
        return made


CALL, ANSWER = b"c", b"a"
"""What a frame to the other process begins with."""


def framed(message: Message, mark: bytes = b"", context: Callable[[ToolContext], int] | None = None) -> bytes:
    """Write a message as a frame.

    Args:
        message: Plain values, and what the reader's side may read.
        mark: What the frame begins with.
        context: Gives the number by which a context of a tool is asked for.

    Raises:
        Exception: Something in it cannot be written.
    """
    file = io.BytesIO()
    file.write(mark)
    _Writer(file, context).dump(message)
    body = file.getvalue()
    return LENGTH.pack(len(body)) + body


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, context: Callable[[ToolContext], int] | None) -> None:
        super().__init__(file, protocol=5)
        self._context = context

    def persistent_id(self, found: Any) -> Any:
        """Leave a context out, with a number in its place."""
        if self._context is None or not isinstance(found, ToolContext):
            return None
        return self._context(found), ContextData.of(found)


class WorkersReader(pickle.Unpickler):
    """Reads plain values and Loom's own classes."""

    def find_class(self, module: str, name: str) -> Any:
        """Find one of Loom's own classes."""
        if module.partition(".")[0] != "loom_dsl" and module != __name__:
            raise pickle.UnpicklingError(f"{module}.{name} is none of Loom's own")
        found = super().find_class(module, name)
        if not isinstance(found, type) or found.__module__ != module:  # `module.os.system` is found there, too
            raise pickle.UnpicklingError(f"{module}.{name} is no class of Loom's own")
        return found


def read_there(body: bytes) -> Message:
    """Read in the worker what the other process said."""
    message: Message = WorkersReader(io.BytesIO(body)).load()
    return message


def plain(result: object) -> Any:
    """Make what users' code gave plain: values of JSON, and what Loom's own classes hold of them."""
    try:
        if isinstance(result, HookAnswer) and result.arguments is not None:
            result = replace(result, arguments=pydantic_core.to_jsonable_python(dict(result.arguments)))
        if isinstance(result, Reconciliation):
            result = replace(result, result=plain(result.result))
        read_there(framed((result,))[LENGTH.size :])
        return result
    except Exception:
        return _as_json(result)


def _as_json(result: object) -> object:
    try:
        made = pydantic_core.to_jsonable_python(result)
        read_there(framed((made,))[LENGTH.size :])
        return made
    except Exception:
        return Stranger(type(result).__name__)


def shown(result: object) -> Any:
    """Give in the worker what stands for a result of the other process."""
    if isinstance(result, Stranger):
        return type(result.name, (), {})()
    if isinstance(result, Reconciliation):
        return replace(result, result=shown(result.result))
    return result
