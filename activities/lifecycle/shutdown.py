"""How a worker stops: steps go on for a while, then tools are told, and what is left at last is ended and named."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

GRACE = 25.0
"""Seconds that steps go on for after a worker was told to stop, where nobody says otherwise."""
MAX_WARNING = 5.0
"""Seconds before the end at which tools see that they are to end, or a fifth of the grace where that is less."""
HARD_END = 2.0
"""Seconds that steps have to end in once they are ended; then the process ends without them."""
STOPPED = "worker_stopped"
AGAIN = "done again"
_NAMES = {
    "loom.model.call": ("the model call", "asked again"),
    "loom.llm.call": ("the model call", "asked again"),
    "loom.context.compress": ("the compression", "asked again"),
    "loom.tool.execute": ("tool {name}", "run again"),
    "loom.function.call": ("function {name}", "called again"),
    "loom.approval.announce": ("the notice of an approval", "sent again"),
    "loom.effects.undo": ("taking effects back", AGAIN),
}
"""By activity: what it is called, and what becomes of it when its worker stops."""


@dataclass(eq=False, slots=True)
class RunningActivity:
    """An activity that runs here.

    Attributes:
        name: What it is called.
        job: The job that it belongs to.
        fate: What becomes of it if the worker stops now.
        task: What runs it.
    """

    name: str
    job: str
    fate: str
    task: "asyncio.Task[Any] | None" = None

    def __str__(self) -> str:
        return f"{self.name} of job {self.job} ({self.fate})"


_STEP: ContextVar[RunningActivity | None] = ContextVar("step", default=None)


def set_fate(fate: str) -> None:
    """Say what becomes of the running step if its worker stops now."""
    step = _STEP.get()
    if step is not None:
        step.fate = fate


def warning_of(seconds: float) -> float:
    """Give the seconds before the end at which tools are told."""
    return min(MAX_WARNING, seconds / 5)


class Stopping:
    """Which steps run in a worker, and how far its stop has come.

    Attributes:
        warned: Whether tools have been told to end: nothing new begins.
        over: Whether steps are ended now.
    """

    def __init__(self) -> None:
        self.warned = self.over = False
        self._steps: set[RunningActivity] = set()
        self._flags: set[threading.Event] = set()
        self._left: list[RunningActivity] = []

    @contextmanager
    def step(self, step: RunningActivity) -> Iterator[None]:
        """Know of a step while it runs, and of one that the stop has ended for good."""
        token = _STEP.set(step)
        self._steps.add(step)
        try:
            yield
        except ApplicationError as error:
            if error.type == STOPPED:
                self._left.append(step)
            raise
        finally:
            self._steps.discard(step)
            _STEP.reset(token)

    @contextmanager
    def telling(self, flag: threading.Event) -> Iterator[None]:
        """Set a function's flag when functions are told to end."""
        self._flags.add(flag)
        if self.warned:
            flag.set()
        try:
            yield
        finally:
            self._flags.discard(flag)

    def warn(self) -> None:
        """Tell what runs that it is to end."""
        self.warned = True
        for flag in self._flags:
            flag.set()

    def end(self) -> None:
        """End what runs."""
        self.warn()
        self.over = True
        for step in self._steps:
            if step.task is not None:
                step.task.cancel()

    def going(self, grace: float) -> str:
        """Say in a line how many steps go on for how long; empty: none."""
        count = len(self._steps)
        if not count:
            return ""
        steps = "1 step goes on" if count == 1 else f"{count} steps go on"
        return f"stopping: {steps} for at most {grace:g} s; a second signal ends it at once"

    def left(self) -> str:
        """Say in a line which steps did not come to their end, and what becomes of each; empty: none."""
        left = [*self._left, *self._steps]
        if not left:
            return ""
        return f"stopped with {len(left)} step{'' if len(left) == 1 else 's'} left: {', '.join(map(str, left))}"

    async def run(self, shut_down: Callable[[], Awaitable[None]], grace: float, at_once: asyncio.Event) -> bool:
        """Shut a worker down that polls no more from now on.

        Args:
            shut_down: Shuts it down; it ends steps by itself when the grace is over.
            grace: Seconds that steps go on for.
            at_once: Set when the stop is to have no grace any more.

        Returns:
            Whether everything has ended. If not, only the process's end ends it.
        """
        closing = asyncio.ensure_future(shut_down())
        hurry = asyncio.ensure_future(at_once.wait())
        warning = asyncio.get_running_loop().call_later(grace - warning_of(grace), self.warn)
        await asyncio.wait({closing, hurry}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        warning.cancel()
        hurry.cancel()
        if not closing.done():
            self.end()
            await asyncio.wait({closing}, timeout=HARD_END)
        return closing.done()


class UnderWay(Interceptor):
    """The interceptor that knows which steps run. It is the inner one: others see what it makes of a stop."""

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap one activity."""
        return _Inbound(next, self._stopping)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, stopping: Stopping) -> None:
        super().__init__(next)
        self._stopping = stopping

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if activity.info().is_local:  # which ends within a second, and is done again where it does not
            return await self.next.execute_activity(input)
        with self._stopping.step(_step_of(input)):
            try:
                return await self.next.execute_activity(input)
            except asyncio.CancelledError:
                if not self._stopped():
                    raise
                # The server does not take a cancellation that nobody asked for, and would wait for a timeout.
                raise ApplicationError("the worker was stopped while this ran", type=STOPPED) from None

    def _stopped(self) -> bool:
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            return False
        return self._stopping.over or (details is not None and details.worker_shutdown)


def _step_of(input: ExecuteActivityInput) -> RunningActivity:
    info = activity.info()
    name, fate = _NAMES.get(info.activity_type, (info.activity_type, AGAIN))
    given = input.args[0].get("with", {}) if input.args and isinstance(input.args[0], dict) else {}
    call = given.get("call")
    called = call.get("name") if isinstance(call, dict) else given.get("function")
    return RunningActivity(name.format(name=called), info.workflow_id or "", fate, asyncio.current_task())


def refuse_to_begin(stopping: Stopping) -> None:
    """Begin nothing that would be told to end at once: another worker does it.

    Raises:
        ApplicationError: The worker is about to end.
    """
    if stopping.warned and not activity.info().is_local:
        raise ApplicationError("the worker is being stopped, so this was not begun here", type=STOPPED)
