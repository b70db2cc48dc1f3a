"""When a schedule fires, as people say it and as Temporal takes it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from temporalio.client import ScheduleIntervalSpec, ScheduleOverlapPolicy, ScheduleSpec

from loom_dsl.duration import parse_duration
from loom_dsl.errors import UserError

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
