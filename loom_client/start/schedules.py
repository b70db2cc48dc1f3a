"""Schedules: Temporal starts a job at set times, without any client.

Each firing is a job of its own: its id is the schedule's name and the time of the firing, so that no firing makes two.
All run the plan that the schedule was made with.
"""

import asyncio
import builtins
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

from temporalio.client import (
    Client,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.client import Schedule as TemporalSchedule
from temporalio.service import RPCError, RPCStatusCode

from loom_client.server.errors import is_missing
from loom_client.server.reconnect import SENT_SECONDS, lasting
from loom_client.settings import Settings
from loom_client.start.submission import WORKFLOW, merge, plan_of, working_directory
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.run import RunInput, check_id
from loom_dsl.errors import BlobMissing, ConflictError, NotFoundError, UserError
from loom_dsl.fields import parse_duration
from loom_dsl.graph.compiler import compile_agent
from loom_dsl.graph.graph import Graph, checked_input
from loom_dsl.graph.plan import ENGINE, Plan, PlanText
from loom_dsl.queues import job_queue
from loom_store.job_facts import Order
from loom_store.store import Store
from loom_store.transaction import Transaction

# When a schedule fires, as people say it and as Temporal takes it.


Overlap = Literal["skip", "buffer", "cancel", "allow"]
OVERLAPS = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "buffer": ScheduleOverlapPolicy.BUFFER_ONE,
    "cancel": ScheduleOverlapPolicy.CANCEL_OTHER,
    "allow": ScheduleOverlapPolicy.ALLOW_ALL,
}
"""What happens when the job before still runs: nothing, one job later, that one is aborted first, both run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When a schedule fires.

    Attributes:
        cron: Five fields, such as ``0 2 * * *``.
        every: Or a duration, such as ``1h``; counted from midnight of 1 January 1970.
        timezone: Name of the time zone of `cron`, such as ``Europe/Berlin``; UTC when empty.
    """

    cron: str = ""
    every: str = ""
    timezone: str = ""

    @property
    def text(self) -> str:
        """The times as people read them."""
        return f"every {self.every}" if self.every else f"{self.cron} {self.timezone or 'UTC'}"

    def spec(self) -> ScheduleSpec:
        """Give the times as Temporal takes them.

        Raises:
            UserError: Both or neither are given, or one is not what it should be.
        """
        if bool(self.cron) == bool(self.every):
            raise UserError("say when: either a cron expression (--cron '0 2 * * *') or a duration (--every 1h)")
        if self.cron:
            return ScheduleSpec(cron_expressions=[_checked_cron(self.cron)], time_zone_name=self.timezone or None)
        if self.timezone:
            raise UserError("a time zone is for a cron expression; `every` counts durations, which have none")
        return ScheduleSpec(intervals=[ScheduleIntervalSpec(every=length("every", self.every, shortest=1))])


def _checked_cron(text: str) -> str:
    if len(text.split()) != 5:
        raise UserError(
            f"cron {text!r}: write five fields: minute, hour, day of the month, month, day of the week; "
            "such as '0 2 * * *' for two o'clock every night"
        )
    return text


def length(what: str, text: str, *, shortest: float) -> timedelta:
    """Read a duration.

    Args:
        what: Its name in messages.
        text: Such as ``90s`` or ``1h``.
        shortest: Fewest seconds.

    Raises:
        UserError: It is no duration, or too short.
    """
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UserError(f"{what}: {error}") from None
    if seconds < shortest:
        raise UserError(f"{what} {text!r} is too short; write {shortest:g}s or more")
    return timedelta(seconds=seconds)


MEMO = "loom.schedule"
Result = TypeVar("Result")
MAX_NAME = 150
"""Characters of a name: the time of the firing comes after it in a job's id."""
LISTED_SECONDS = 3.0
"""How long who makes a schedule waits at most for the server's list to have it."""
CATCH_UP = "1h"
"""How late a firing may be that was missed because the server was away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as the server has it.

    Attributes:
        what: Name of the agent or the graph.
        times: When it fires, as text.
        overlap: What happens when the job before still runs.
        next: The next firings, the soonest first, at most ten.
        jobs: Ids of the latest jobs, the newest first, at most ten.
        running: Those of them that have not ended.
        fired: How many jobs it has started.
        skipped: How many firings started none, because the job before still ran.
        missed: How many were too late when the server was back.
        order: What each job is; None when the store is another one than the schedule's.
    """

    name: str
    what: str
    times: str
    overlap: str
    paused: bool
    note: str = ""
    next: list[datetime] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    order: Order | None = None


class Schedules:
    """The schedules of a connection: ``loom.schedules``."""

    def __init__(self, client: Client, store: Store, settings: Settings) -> None:
        self._client, self._store, self._settings = client, store, settings

    async def create(  # noqa: PLR0913 - what a schedule is
        self,
        name: str,
        what: Agent | Plan | Graph | str | Path,
        *,
        task: str | None = None,
        input: Mapping[str, Any] | None = None,
        times: Times,
        overlap: Overlap = "skip",
        catch_up: str = CATCH_UP,
        paused: bool = False,
        workdir: str | Path | None = None,
        turn: Plan | Graph | str | Path | None = None,
    ) -> Schedule:
        """Make a schedule.

        Args:
            name: Its name, of at most 150 characters; the ids of its jobs begin with it.
            what: An agent, or a graph: a plan, made in Python, or a file's path.
            task: What an agent is to do.
            input: The values of a graph's input.
            times: When it fires.
            overlap: What happens when the job before still runs: skip, buffer one, cancel it, allow both.
            catch_up: How late a firing may be that was missed while the server was away; a duration of at least 10 s.
            paused: Whether it waits for `resume`.
            workdir: Directory that file tools are confined to; the current one when absent.
            turn: The graph of the agent's turns; the agent's `turn`, a file, when absent.

        Returns:
            The schedule, as the server shows it.

        Raises:
            ConflictError: There is a schedule of this name.
            DocumentError: The graph is not valid; carries every finding.
            UserError: Times, task, input or directory are not what they should be.
        """
        check_id("schedule", name)
        if len(name) > MAX_NAME:
            raise UserError(f"the schedule's name has {len(name)} characters; write up to {MAX_NAME}")
        if overlap not in OVERLAPS:
            raise UserError(f"overlap {overlap!r}: write one of {', '.join(OVERLAPS)}")
        spec, late = times.spec(), length("catch_up", catch_up, shortest=10)
        plan, given = _planned(what, task, input, turn)
        order = self._order(name, plan, task, given, working_directory(workdir or "."))
        digest = await self._store.write(lambda tx: _hold(tx, plan, order))
        envelope = {"engine": ENGINE, "order": digest, "state": {}}
        queue = job_queue(self._settings.task_queue, self._store.id)
        action = ScheduleActionStartWorkflow(WORKFLOW, args=[envelope, PlanText(plan.text)], id=name, task_queue=queue)
        schedule = TemporalSchedule(
            action=action,
            spec=spec,
            policy=SchedulePolicy(overlap=OVERLAPS[overlap], catchup_window=late),
            state=ScheduleState(paused=paused),
        )
        memo = {MEMO: {"order": digest, "what": order.name, "times": times.text}}
        try:
            await self._client.create_schedule(name, schedule, memo=memo)
        except (ScheduleAlreadyRunningError, RPCError) as error:
            # Where the server may have made it after all, what its jobs are is kept: a firing without it never begins.
            if isinstance(error, ScheduleAlreadyRunningError) or error.status in _REFUSED:
                await self._store.write(lambda tx: tx.release_blob(digest))
            raise _refused(name, error) from None
        await self._until_listed(name)
        return await self.show(name)

    async def _until_listed(self, name: str) -> None:
        """Wait a moment for the server's list, which comes behind: who makes a schedule and lists them looks for it."""
        with contextlib.suppress(TimeoutError, RPCError):
            async with asyncio.timeout(LISTED_SECONDS):
                while not [found.id async for found in await self._client.list_schedules() if found.id == name]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def list(self) -> list[Schedule]:
        """Give all schedules of Loom in the namespace.

        Returns:
            The schedules, sorted by their names.
        """

        async def listed() -> builtins.list[str]:
            return [found.id async for found in await self._client.list_schedules() if MEMO in await found.memo()]

        names = await self._lasting(listed)
        return [shown for name in sorted(names) if (shown := await self._found(name)) is not None]

    async def show(self, name: str) -> Schedule:
        """Give a schedule.

        Args:
            name: The schedule's name.

        Raises:
            NotFoundError: There is none of this name that Loom made.
        """
        found = await self._found(name)
        if found is None:
            raise NotFoundError(f"there is no schedule {name!r}; `loom schedule list` has those that there are")
        return found

    async def pause(self, name: str, note: str = "") -> None:
        """Let a schedule fire no more until `resume`. Jobs under way go on.

        Args:
            name: The schedule's name.
            note: Why; kept with the schedule.

        Raises:
            NotFoundError: There is none of this name that Loom made.
        """
        handle = await self._handle(name)
        await self._lasting(lambda: handle.pause(note=note or None))

    async def resume(self, name: str, note: str = "") -> None:
        """Let a paused schedule fire again.

        Args:
            name: The schedule's name.
            note: Why; kept with the schedule.

        Raises:
            NotFoundError: There is none of this name that Loom made.
        """
        handle = await self._handle(name)
        await self._lasting(lambda: handle.unpause(note=note or None))

    async def trigger(self, name: str) -> None:
        """Let a schedule fire now, besides its times; `overlap` counts here too.

        Args:
            name: The schedule's name.

        Raises:
            NotFoundError: There is none of this name that Loom made.
        """
        handle = await self._handle(name)
        await handle.trigger()  # once: a second try may be a second job

    async def delete(self, name: str) -> None:
        """Remove a schedule. Its jobs stay, and those under way go on.

        Args:
            name: The schedule's name.

        Raises:
            NotFoundError: There is none of this name that Loom made.
        """
        handle = await self._handle(name)
        memo = await (await self._lasting(handle.describe)).memo()
        try:
            await self._lasting(handle.delete)
        except RPCError as error:
            if not is_missing(error):  # else a try whose answer was lost had removed it
                raise
        await self._store.write(lambda tx: tx.release_blob(memo[MEMO]["order"]))

    async def _handle(self, name: str) -> ScheduleHandle:
        await self.show(name)
        return self._client.get_schedule_handle(name)

    async def _lasting(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make a call that may be made twice, and make it again when the server was away and is soon back."""
        return await lasting(self._client, call, SENT_SECONDS)

    async def _found(self, name: str) -> Schedule | None:
        try:
            described = await self._lasting(self._client.get_schedule_handle(name).describe)
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return None
            raise
        memo = await described.memo()
        if MEMO not in memo:
            return None
        try:
            order = await self._store.read(lambda tx: Order.read(tx, memo[MEMO]["order"]))
        except BlobMissing:
            order = None
        return _shown(described, memo[MEMO], order)

    def _order(self, name: str, plan: Plan, task: str | None, given: Mapping[str, Any], workdir: Path) -> Order:
        return Order(
            schedule=name,
            mark=secrets.token_hex(16),
            name=str(plan.agent["name"]) if plan.agent else plan.root,
            plan=plan.hash,
            task=task,
            input=given,
            workdir=str(workdir),
            namespace=self._client.namespace,
            task_queue=self._settings.task_queue,
        )


_REFUSED = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.ALREADY_EXISTS,
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNIMPLEMENTED,
    }
)
"""Answers after which there surely is no schedule."""


def _hold(tx: Transaction, plan: Plan, order: Order) -> str:
    tx.put_blob(plan.text.encode())
    return tx.hold_blob(order.text().encode())


def _planned(
    what: Agent | Plan | Graph | str | Path,
    task: str | None,
    given: Mapping[str, Any] | None,
    turn: Plan | Graph | str | Path | None,
) -> tuple[Plan, dict[str, Any]]:
    if isinstance(what, Agent):
        if given is not None:
            raise UserError("an agent takes a task and no input")
        if task is None or not task.strip():
            raise UserError("the task is empty; say what the agent is to do")
        turns = plan_of(turn or Path(what.turn)) if turn or what.turn else None
        return compile_agent(merge(what, RunInput.of_text(task)), turns), {}
    if task is not None:
        raise UserError("a graph takes input and no task")
    plan = plan_of(what)
    return plan, checked_input(plan.root, plan.bodies[plan.root], given or {})


def _shown(described: ScheduleDescription, memo: Mapping[str, str], order: Order | None) -> Schedule:
    schedule, info = described.schedule, described.info
    overlap = next((key for key, value in OVERLAPS.items() if value == schedule.policy.overlap), "other")
    return Schedule(
        name=described.id,
        what=memo["what"],
        times=memo["times"],
        overlap=overlap,
        paused=schedule.state.paused,
        note=schedule.state.note or "",
        next=list(info.next_action_times)[:10],
        jobs=[_job(result.action) for result in reversed(info.recent_actions)],
        running=[_job(action) for action in info.running_actions],
        fired=info.num_actions,
        skipped=info.num_actions_skipped_overlap,
        missed=info.num_actions_missed_catchup_window,
        order=order,
    )


def _job(action: Any) -> str:
    return str(action.workflow_id)


def _refused(name: str, error: ScheduleAlreadyRunningError | RPCError) -> UserError:
    if isinstance(error, ScheduleAlreadyRunningError):
        return ConflictError(
            f"there is a schedule {name!r} already; see it with `loom schedule show {name}`, "
            f"or remove it first with `loom schedule delete {name}`"
        )
    return UserError(f"the server does not take the schedule: {error.message}")
