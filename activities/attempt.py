"""What the stage `execute` has at hand: one attempt at a call, and a tool's function at work."""

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.progress import Progress
from activities.runtime import Call, JobFacts, Run
from loom_dsl.tool_output import Image
from loom_dsl.tool_services import ToolServices
from loom_dsl.tools import Arguments, Tool, ToolContext

UNKNOWN = "its outcome will be unknown"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one call."""

    call: Call
    facts: JobFacts
    tool: Tool
    arguments: Arguments
    key: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the function gets in the place of references, by parameter; nothing of it is written down."""
    images: list[Image] = field(default_factory=list)
    """What the function returned besides text."""
    states: frozenset[str] = frozenset()
    """The states of what it changes for which the call was approved."""
    left: list[str] = field(default_factory=list)
    """The states in which the function said that it left what it changes."""
    begun: float = field(default_factory=time.time)

    @property
    def is_kept(self) -> bool:
        """Whether the ledger knows of it before it runs: what must not happen twice, or may have to be taken back."""
        return not self.tool.idempotent or self.tool.compensate is not None

    @property
    def is_listed(self) -> bool:
        """Whether the ledger gets to know of it with its outcome: what changes something, and may be repeated."""
        return not self.is_kept and not self.tool.read_only

    @property
    def fate(self) -> str:
        """What becomes of the call if its worker stops while the function runs."""
        if self.tool.idempotent:
            return "run again"
        return UNKNOWN if self.tool.reconcile is None else "the tool will be asked what became of it"

    @property
    def place(self) -> tuple[Run, str]:
        """Names it among what runs in this worker; the key may come again with another job of the same id."""
        return self.call.run, self.key

    def context(self, services: ToolServices, stop: threading.Event, progress: Progress) -> ToolContext:
        """What the function is told about the call."""
        return ToolContext(
            working_dir=self.facts.workdir,
            job=self.call.job,
            turn=self.call.turn,
            call_id=self.call.arguments["call"]["id"],
            idempotency_key=self.key,
            progress=progress,
            cancelled=stop.is_set,
            approved_states=self.states,
            leaves=self.left.append,
            services=services,
        )


@dataclass(slots=True)
class Running:
    """A tool's function at work. It may outlive the attempt that began it; the next attempt then waits for it.

    Attributes:
        stop: Set when the function is to end.
        progress: What it says while it works.
        task: Gives what the function returns. It ends by itself when the tool's time is over.
        called: Whether the function has been called.
    """

    stop: threading.Event
    progress: Progress
    task: asyncio.Task[Any] = field(init=False)
    called: bool = False

    def end(self) -> None:
        """Tell the function to end, and listen to it no longer."""
        self.stop.set()
        self.task.cancel()
