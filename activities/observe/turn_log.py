"""What a worker's log tells of agents' jobs: the logger ``loom.agent``, a line for each step, with its depth.

The lines are for who operates workers; the record of a job is its events. They hold no content: names, times and sizes.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from temporalio import activity

from activities.record.activity_call import ActivityCall, Run, remember
from loom_dsl.errors import LoomError

LOG = logging.getLogger("loom.agent")
"""Says nothing but alarms unless its level is INFO or lower. Its records have `loom_job` and `loom_depth`."""
Work = Callable[[dict[str, Any]], Awaitable[Any]]


def tell(call: ActivityCall, text: str, *values: object, level: int = logging.INFO) -> None:
    """Write a line about a job: which one it is, how deep it stands, and the text.

    Args:
        call: The activity that tells it.
        text: With the placeholders of ``logging``.
        values: What stands for them.
        level: Of the line.
    """
    about = {"loom_job": call.job, "loom_depth": call.turn}
    LOG.log(level, f"job %s depth %d: {text}", call.job, call.turn, *values, extra=about)


class TurnLog:
    """Writes the lines of one worker, around the activities that it runs."""

    def __init__(self) -> None:
        self._begun: OrderedDict[Run, tuple[int, float]] = OrderedDict()
        """By run: the turn that this worker has seen begin last, and when."""
        self._before: Mapping[str, Callable[[ActivityCall], None]] = {
            "loom.context.compress": self._begins,
            "loom.model.call": self._begins,
            "loom.tool.execute": _tool_starts,
        }
        self._after: Mapping[str, Callable[[ActivityCall, float, Any], None]] = {
            "loom.model.call": _answered,
            "loom.context.compress": _compressed,
            "loom.tool.format": _tool_ended,
            "loom.turn.feedback": lambda call, seconds, result: self._ended(call, "tools"),
            "loom.job.result": lambda call, seconds, result: self._ended(call, result["result"]["status"]),
        }

    @property
    def told(self) -> frozenset[str]:
        """The activities of which something is told."""
        return frozenset({*self._before, *self._after})

    def logged(self, name: str, work: Work) -> Work:
        """Give an activity that does another one's work, and tells of it where it belongs to an agent's turn.

        Args:
            name: The activity's, one of `told`.
            work: What it does.
        """
        before, after = self._before.get(name), self._after.get(name)

        async def logged(envelope: dict[str, Any]) -> Any:
            if "turn" not in envelope or not LOG.isEnabledFor(logging.INFO):
                return await work(envelope)
            call, started = ActivityCall.of(envelope), time.monotonic()
            if before is not None:
                before(call)
            try:
                result = await work(envelope)
            except LoomError as error:
                tell(call, "%s failed: %s", name, error.code)
                raise
            if after is not None:
                after(call, time.monotonic() - started, result)
            return result

        return activity.defn(name=name)(logged)

    def _begins(self, call: ActivityCall) -> None:
        """A turn begins once, however often it asks the model."""
        if self._begun.get(call.run, (-1, 0.0))[0] == call.turn:
            return
        remember(self._begun, call.run, (call.turn, time.monotonic()))
        tell(call, "turn %d begins", call.turn + 1)

    def _ended(self, call: ActivityCall, how: str) -> None:
        """A turn that another worker began has lasted nobody knows how long."""
        turn, began = self._begun.get(call.run, (-1, 0.0))
        span = f" after {time.monotonic() - began:.2f} s" if turn == call.turn else ""
        tell(call, "turn %d ended%s: %s", call.turn + 1, span, how)


def _tool_starts(call: ActivityCall) -> None:
    tell(call, "the tool %s starts", call.arguments["call"]["name"])


def _answered(call: ActivityCall, seconds: float, result: Mapping[str, Any]) -> None:
    usage = result["usage"]
    sizes = len(result["calls"]), usage["prompt_tokens"], usage["completion_tokens"]
    tell(call, "the model answered after %.2f s: %d tool calls, %d tokens in, %d out", seconds, *sizes)


def _compressed(call: ActivityCall, seconds: float, result: Mapping[str, Any]) -> None:
    if "code" in result:
        tell(call, "the conversation could not be compressed: %s", result["code"])
        return
    before, after = result["before"], result["after"]
    text = "the conversation was compressed after %.2f s: %d -> %d tokens (%.0f%%)"
    tell(call, text, seconds, before, after, 100 * after / before)


def _tool_ended(call: ActivityCall, seconds: float, result: Mapping[str, Any]) -> None:
    outcome = call.arguments["outcome"]
    span = f" after {outcome['ms']} ms" if "ms" in outcome else ""
    tell(call, "the tool %s ended%s: %s", call.arguments["call"]["name"], span, result["code"] or result["status"])
