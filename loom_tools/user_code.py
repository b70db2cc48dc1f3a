"""What code of the user's an activity calls, and who decides in which process that happens.

Whatever calls users' code says by a `Code` where another process finds it too. The step of a job that is under way
stands in `GUARD`: it notes that it begins before the code is called, and has the code called in a process of its own
when an attempt before this one did not survive it.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from loom_dsl.errors import ToolError
from loom_dsl.tools.context import Preview
from loom_dsl.tools.tool import Tool, validate_arguments


class Raised(Exception):
    """A tool's function raised `error`, whatever kind of exception that is."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


Via = Callable[..., Any]
"""A function of Loom's that is given what was found, and then the arguments: it calls it."""


def call(found: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """Call what was found."""
    return found(*arguments, **keywords)


def by_position(found: Callable[..., Any], /, **keywords: Any) -> Any:
    """Call what was found with what is given by name, in that order: its author named the parameters as they liked."""
    return found(*keywords.values())


def as_text(found: Callable[..., object], *arguments: Any) -> str:
    """Call what gives a text."""
    return str(found(*arguments))


def as_preview(found: Callable[..., object], *arguments: Any) -> Preview:
    """Call what gives a preview."""
    shown = found(*arguments)
    return shown if isinstance(shown, Preview) else Preview(str(shown))


def as_truth(found: Callable[[], object]) -> bool:
    """Call what says yes or no."""
    return bool(found())


def as_nothing(found: Callable[..., object], *arguments: Any) -> None:
    """Call what only raises."""
    found(*arguments)


def keys_of(*given: Any) -> list[tuple[str | None, str]]:
    """Find the concurrency keys of tools, or why one has none. The list of their arguments comes last."""
    *tools, raws = given
    return [_key_of(tool, raw) for tool, raw in zip(tools, raws, strict=True)]


def _key_of(tool: Tool, raw: str) -> tuple[str | None, str]:
    assert tool.concurrency_key is not None
    try:
        key = tool.concurrency_key(validate_arguments(tool, raw))
        return None if key is None else str(key), ""
    except ToolError:
        return None, ""  # it is not going to run
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class Code:
    """Code of the user's.

    Attributes:
        references: ``module:name`` of the functions or tools that it is in.
        part: What of a tool it is, such as ``check``; ``tool``: the tool itself. Empty: a function.
        via: Calls it.
        arguments: What it is called with, besides what is given by name.
    """

    references: tuple[str, ...]
    part: str = ""
    via: Via = call
    arguments: tuple[Any, ...] = ()

    @classmethod
    def of(cls, tool: Tool, part: str = "function", via: Via = call) -> Self | None:
        """Give what of a tool is called; None where the tool is Loom's own, or an MCP server's."""
        return cls((tool.reference,), part, via) if tool.reference else None

    @property
    def name(self) -> str:
        """Names it in a sentence."""
        named = ", ".join(self.references)
        part = "concurrency_key" if self.part == "tool" else self.part
        return named if part in ("", "function") else f"`{part}` of {named}"

    def given(self, *arguments: Any) -> "Code":
        """The same, called with these."""
        return replace(self, arguments=arguments)


class Guard(Protocol):
    """The step that is under way, as whoever calls users' code sees it."""

    @property
    def is_apart(self) -> bool:
        """Whether users' code runs in a process of its own, as far as it is known."""

    async def begin(self) -> None:
        """Note that the step begins, if it is not noted.

        Raises:
            StepDied: It must run elsewhere.
        """

    async def call_apart(
        self, code: Code, keywords: Mapping[str, Any], seconds: float | None, *, is_async: bool
    ) -> Any:
        """Call the code in a process of its own.

        Raises:
            Raised: It raised something.
            TimeoutError: It did not end in so many seconds.
            StepDied: The process died.
        """


GUARD: ContextVar[Guard | None] = ContextVar("guard", default=None)
"""The step of which this task is a part. None: nobody would run it again, as in tests of a tool."""
