"""Local nodes that follow one another, run as one local activity.

A local activity costs the workflow's worker one to two milliseconds beside its own work, and a marker in the history.
So the activity runs the machine on from a copy of its state, for as long as what comes next is local, and tells what
became of each execution. The workflow's own machine stays the truth: it takes an outcome only for an execution that
it has commanded, with the same argument.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from temporalio import activity

from activities.interceptor import is_final, telling
from activities.lifecycle.attempts import Steps
from activities.record.job_store import JobStore
from loom_dsl.errors import LoomError, StepDied
from loom_dsl.machine.commands import ActivityDone, ActivityFailed, Command, Input, Proceed, RunActivity, TurnEnded
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.payloads import activity_argument, fingerprint, size_of
from loom_dsl.machine.state import MachineState
from loom_store.store import Together

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
Outcome = list[Any]
"""``[turn/at, fingerprint of the argument, "done", result]`` or ``[…, "failed", code, message]``, or ``[…, "slow"]``
for what took too long and is to run remotely."""

Ready = tuple[str, dict[str, Any]]
"""Name of an activity, and its argument."""
LAST_START, MAX_SECONDS = 0.25, 0.5
"""Seconds after which a stretch starts nothing more, and after which it ends what still runs: it holds the workflow
task, and with it every signal and every sibling branch."""
UNTOLD = 0.05
"""Seconds that watchers may wait for the result of one call while another one runs."""
MAX_OUTCOMES, MAX_BYTES = 300, 512 * 1024
"""Of one stretch. What does not fit any more runs remotely: the engine ends a job whose local activity gives over
2 MiB back."""
NEVER_AHEAD = frozenset({"loom.function.call"})
"""Users' functions may have effects, so they run only when the workflow's own machine has commanded them."""


class LocalBatch:
    """The activity ``loom.local``.

    Args:
        jobs: The jobs in the store.
        steps: The notes of what begins and ends.
        handlers: The activities that run in it, by name.
        last_start: Seconds after which a stretch starts nothing more.
        max_seconds: Seconds after which it ends what still runs.
    """

    def __init__(
        self,
        jobs: JobStore,
        steps: Steps,
        handlers: Mapping[str, Handler],
        last_start: float = LAST_START,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self._jobs, self._steps, self._handlers = jobs, steps, handlers
        self._last_start, self._max_seconds = last_start, max_seconds

    @activity.defn(name="loom.local")
    async def run(self, argument: dict[str, Any]) -> list[Outcome]:
        """Run local executions and what follows from them.

        Args:
            argument: ``state`` (of the machine), ``attached`` (what its outbox has sent along), ``busy`` (whether
                anything is in flight that belongs to no token) and ``begin``: activity and argument of the first ones.

        Returns:
            The outcomes, in the order in which the machine is to take them.
        """
        job = activity.info().workflow_id or ""
        state = MachineState.from_json(argument["state"])
        state.outbox.attached = argument["attached"]
        machine = Machine((await self._jobs.facts(job)).plan, state, job)
        if argument["busy"]:
            machine.side_work["~"] = None
        # Nobody learns of an outcome before the stretch has ended, so what the stages write goes together.
        async with self._jobs.store.together() as waiting:
            return await self._go_on(machine, [(name, given) for name, given in argument["begin"]], waiting)

    async def _go_on(self, machine: Machine, ready: list[Ready], waiting: Together) -> list[Outcome]:
        loop = asyncio.get_running_loop()
        began, room = loop.time(), MAX_BYTES
        outcomes: list[Outcome] = []
        running: dict[asyncio.Task[Any], dict[str, Any]] = {}
        try:
            while ready or running:
                for name, given in ready:
                    running[asyncio.ensure_future(self._step(machine.job, name, given))] = given
                ready = []
                left = max(0.0, began + self._max_seconds - loop.time())
                told_soon = waiting.waits and left > UNTOLD
                timeout = UNTOLD if told_soon else left
                done, _ = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if not done and told_soon:
                    await self._jobs.store.settle()
                    continue
                if not done:
                    break
                for task in [task for task in running if task in done]:
                    outcome = self._outcome(task, running.pop(task))
                    if outcome is None:
                        continue
                    room -= size_of(outcome)
                    if room < 0:
                        outcomes.append([*outcome[:2], "slow"])
                        continue
                    outcomes.append(outcome)
                    follows = _follows(machine, outcome)
                    if loop.time() - began < self._last_start and len(outcomes) < MAX_OUTCOMES:
                        ready += [item for command in follows if (item := self._local(machine, command))]
        finally:
            for task in running:
                task.cancel()
        return outcomes + [[*_name(given), "slow"] for given in running.values()]

    async def _step(self, job: str, name: str, given: dict[str, Any]) -> Any:
        return await self._steps.local(job, given, lambda: self._handlers[name](given))

    def _local(self, machine: Machine, command: Command) -> Ready | None:
        """Activity and argument of a command that belongs here."""
        if not isinstance(command, RunActivity) or command.carrier != "local" or command.at.startswith("~"):
            return None
        if command.activity not in self._handlers or command.activity in NEVER_AHEAD:
            return None
        return command.activity, activity_argument(command, machine.state.turn)

    def _outcome(self, task: "asyncio.Task[Any]", given: dict[str, Any]) -> Outcome | None:
        """What became of an execution; None where it is to be tried again, which the workflow does."""
        if task.cancelled():
            return None
        error = task.exception()
        if error is None:
            return [*_name(given), "done", task.result()]
        if isinstance(error, StepDied):
            return [*_name(given), "slow"]
        if isinstance(error, LoomError) and is_final(error) and not (error.halts or error.outage):
            return [*_name(given), "failed", error.code, telling(error.message, self._jobs.secrets)]
        return None


def _follows(machine: Machine, outcome: Outcome) -> list[Command]:
    """What the machine commands next. The next turn begins here, too: what it needs first does not change any more."""
    commands = machine.feed(_input(machine, outcome))
    ended = any(isinstance(command, TurnEnded) for command in commands)
    # A message that waits may be joined by another before the next turn begins, and the turn takes all of them.
    if ended and not machine.state.inbox:
        commands += machine.feed(Proceed(now=machine.state.last))
    return commands


def _name(given: dict[str, Any]) -> tuple[str, str]:
    return f"{given.get('turn', 0)}/{given['at']}", fingerprint(given)


def _input(machine: Machine, outcome: Outcome) -> Input:
    at, now = outcome[0].partition("/")[2], machine.state.last
    if outcome[2] == "done":
        return ActivityDone(now=now, at=at, result=outcome[3])
    return ActivityFailed(now=now, at=at, code=outcome[3], message=outcome[4])
